#include "tests/workloads/histograms.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace seqpoint::workload {
namespace {

// Multi30k, task 1 training set, English and German words (Moses tokens, lower case), 29,000
// captions. Source: github.com/multi30k/dataset, commit a3d2e0d. Licence: none stated in the
// repository; the captions derive from Flickr30k, published for research use. Only counts of
// lengths are kept here.
constexpr int kMulti30k[] = {
    3,    5,    0,    0,   0,  0, 0, 0, 0, 0, 0, 22, 2112, 627,  15,  0,   0,  0, 0, 0, 0, 0, 6,
    2282, 8341, 1470, 71,  4,  0, 0, 0, 0, 0, 0, 86, 3103, 4812, 969, 70,  4,  0, 0, 0, 0, 0, 2,
    146,  1429, 1613, 328, 40, 1, 0, 0, 0, 0, 0, 7,  68,   425,  442, 105, 12, 1, 0, 0, 0, 0, 0,
    6,    36,   113,  97,  24, 2, 0, 0, 0, 0, 0, 0,  2,    13,   24,  18,  8,  0, 0, 0, 0, 0, 0,
    0,    0,    5,    10,  10, 1, 1, 0, 0, 0, 0, 0,  0,    0,    3,   4,   1,  1, 0, 0, 0, 0, 0,
    0,    0,    0,    0,   0,  0};

// WMT news test sets 2008 to 2013, German and English words ("simple" tokens), 16,057 sentence
// pairs of at most 100 words. Source: github.com/Helsinki-NLP/OPUS-MT-testsets, commit ac0f19c.
// Licence: none stated for the sets. Only counts of lengths are kept here.
constexpr int kNewstest[] = {
    379, 163,  4,    1,    0,    0,   0,   0,   0,   0,   0,   0,  0,  0,  0,  0,  0, 0, 0, 0,
    77,  1191, 509,  29,   0,    0,   0,   0,   0,   0,   0,   0,  0,  0,  0,  0,  0, 0, 0, 0,
    2,   269,  1424, 742,  84,   5,   0,   0,   0,   0,   0,   0,  0,  0,  0,  0,  0, 0, 0, 0,
    0,   17,   412,  1276, 730,  124, 11,  4,   0,   1,   0,   0,  0,  0,  0,  0,  0, 0, 0, 0,
    0,   0,    37,   468,  1008, 602, 136, 20,  3,   0,   0,   0,  0,  0,  0,  0,  0, 0, 0, 0,
    0,   1,    2,    54,   419,  857, 449, 123, 28,  1,   0,   0,  0,  0,  0,  0,  0, 0, 0, 0,
    0,   0,    0,    9,    58,   328, 590, 313, 109, 25,  1,   0,  0,  1,  0,  0,  0, 0, 0, 0,
    0,   0,    0,    0,    5,    72,  251, 370, 207, 69,  23,  3,  1,  1,  0,  0,  0, 0, 0, 0,
    0,   0,    0,    0,    0,    11,  69,  194, 205, 163, 48,  18, 1,  2,  1,  0,  0, 0, 0, 0,
    0,   0,    0,    0,    0,    1,   8,   44,  112, 154, 91,  30, 11, 2,  2,  0,  0, 0, 0, 0,
    0,   0,    0,    0,    0,    1,   2,   9,   32,  79,  107, 50, 16, 2,  1,  0,  0, 0, 0, 0,
    0,   0,    0,    0,    0,    0,   0,   0,   5,   33,  46,  39, 33, 13, 7,  1,  0, 0, 0, 0,
    0,   0,    0,    0,    0,    0,   0,   2,   1,   6,   16,  34, 34, 10, 12, 5,  1, 0, 1, 0,
    0,   0,    0,    0,    0,    0,   0,   0,   1,   1,   4,   6,  26, 21, 14, 12, 4, 0, 0, 0,
    0,   0,    0,    0,    0,    0,   0,   0,   0,   0,   1,   2,  10, 7,  12, 6,  2, 1, 1, 0,
    0,   0,    0,    0,    0,    0,   0,   0,   0,   0,   1,   1,  2,  5,  9,  6,  5, 0, 1, 1,
    0,   0,    0,    0,    0,    0,   0,   0,   0,   0,   0,   0,  0,  0,  2,  3,  1, 3, 1, 0,
    0,   0,    0,    0,    0,    0,   0,   0,   0,   0,   0,   0,  0,  0,  0,  6,  2, 3, 1, 1,
    0,   0,    0,    0,    0,    0,   0,   0,   0,   0,   0,   0,  0,  0,  0,  1,  0, 2, 3, 0,
    0,   0,    0,    0,    0,    0,   0,   0,   0,   0,   0,   0,  0,  0,  0,  1,  0, 2, 0, 0};

// LibriSpeech train-clean-100, 10 ms frames, 28,539 utterances. Source:
// github.com/proger/flaky-librispeech, commit 1a9c1e9 (train-clean-100.seconds). Licence of the
// corpus: CC BY 4.0 (Panayotov et al., ICASSP 2015).
constexpr int kLibriSpeech[] = {
    0,   0,   1,   27,  260, 304, 327, 354,  323,  349,  327,  296,  318,  319,  324,  332,  353,
    370, 359, 423, 435, 551, 622, 762, 1075, 1430, 1811, 2279, 2755, 3286, 3359, 3043, 1251, 463,
    46,  1,   1,   0,   1,   1,   0,   0,    0,    0,    0,    0,    0,    0,    0,    1};

// Stanford Alpaca, prompt and answer, tokens estimated as a quarter of the UTF-8 bytes, 51,922
// examples of at most 512. Source: the English data in github.com/hikariming/chat-dataset-baseline,
// commit a32705c. Licence of the data: CC BY-NC 4.0. Only counts of lengths are kept here.
constexpr int kAlpaca[] = {
    79,   1327, 3717, 5919, 5235, 3704, 2715, 2134, 1918, 1862, 1817, 1838, 1812, 1888, 1822, 1734,
    1611, 1432, 1365, 1162, 1039, 881,  743,  610,  533,  421,  365,  277,  242,  198,  173,  162,
    125,  108,  102,  106,  89,   67,   67,   60,   34,   54,   37,   38,   35,   32,   30,   19,
    26,   17,   20,   13,   12,   15,   6,    10,   15,   9,    9,    6,    7,    6,    7,    6};

// Bin i holds lengths [i * bin_width + 1, (i + 1) * bin_width]; with two lengths the counts are
// [source bin][target bin].
struct Histogram {
  const char* name;
  int lengths;
  int bin_width;
  int target_bins;
  std::span<const int> counts;
};

constexpr Histogram kHistograms[] = {
    {"multi30k", 2, 4, 11, kMulti30k},
    {"newstest", 2, 5, 20, kNewstest},
    {"librispeech", 1, 50, 1, kLibriSpeech},
    {"alpaca", 1, 8, 1, kAlpaca},
};

}  // namespace

std::vector<std::string> HistogramNames() {
  std::vector<std::string> names;
  for (const Histogram& histogram : kHistograms) names.push_back(histogram.name);
  return names;
}

absl::StatusOr<LengthTable> DrawLengths(const std::string& name, int count, Random* random) {
  const auto* histogram = std::find_if(std::begin(kHistograms), std::end(kHistograms),
                                       [&](const Histogram& h) { return name == h.name; });
  if (histogram == std::end(kHistograms)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no built-in histogram \"", name, "\"; there are ", absl::StrJoin(HistogramNames(), ", ")));
  }
  std::vector<int64_t> cumulative;
  int64_t total = 0;
  for (int bin : histogram->counts) cumulative.push_back(total += bin);

  auto within = [&](int bin) {
    return bin * histogram->bin_width + 1 +
           static_cast<int>(random->Below(static_cast<uint64_t>(histogram->bin_width)));
  };
  LengthTable table;
  for (int64_t left = count > 0 ? count : total; left > 0; --left) {
    const auto pick = static_cast<int64_t>(random->Below(static_cast<uint64_t>(total)));
    const int bin = static_cast<int>(std::upper_bound(cumulative.begin(), cumulative.end(), pick) -
                                     cumulative.begin());
    if (histogram->lengths == 2) {
      const int source = within(bin / histogram->target_bins);
      table.push_back({source, within(bin % histogram->target_bins)});
    } else {
      table.push_back({within(bin)});
    }
  }
  return table;
}

}  // namespace seqpoint::workload
