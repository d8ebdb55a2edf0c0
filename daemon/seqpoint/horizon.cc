#include "daemon/seqpoint/horizon.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/seqpoint/key_table.h"

namespace seqpoint {

Horizon Horizon::Iterations(int64_t iterations) { return {Kind::kIterations, iterations, {}}; }

Horizon Horizon::Histogram(std::vector<KeyCount> histogram, int64_t epochs) {
  Horizon horizon{Kind::kHistogram, 0, std::move(histogram)};
  for (KeyCount& k : horizon.histogram) {
    // Checked() refuses an overflow as negative.
    if (__builtin_mul_overflow(k.count, epochs, &k.count)) k.count = -1;
    if (__builtin_add_overflow(horizon.iterations, k.count, &horizon.iterations)) k.count = -1;
  }
  return horizon;
}

Horizon Horizon::Distribution(std::vector<KeyCount> histogram, int64_t epochs) {
  Horizon horizon = Histogram(std::move(histogram), epochs);
  horizon.kind = Kind::kDistribution;
  return horizon;
}

absl::StatusOr<Horizon> Horizon::Checked(Horizon horizon) {
  if (horizon.iterations < 0 || horizon.iterations > kMaxIterations) {
    return absl::InvalidArgumentError(absl::StrCat("a horizon of ", horizon.iterations,
                                                   " iterations; give 1 to ", kMaxIterations));
  }
  if (horizon.histogram.size() > kMaxKeys || horizon.parts.size() > kMaxKeys) {
    return absl::InvalidArgumentError(
        absl::StrCat("a histogram of ", horizon.histogram.size(), " lengths; at most ", kMaxKeys,
                     " are handled: round the lengths to a multiple"));
  }
  for (const std::vector<KeyCount>* list : {&horizon.histogram, &horizon.parts}) {
    for (const KeyCount& k : *list) {
      if (!IsValid(k.key) || k.count < 0) {
        return absl::InvalidArgumentError(absl::StrCat("length (", k.key.first, ", ", k.key.second,
                                                       ") with count ", k.count,
                                                       ": neither may be negative or overflow"));
      }
    }
  }
  if (horizon.iterations == 0) return Unknown();
  std::sort(horizon.histogram.begin(), horizon.histogram.end(),
            [](const KeyCount& a, const KeyCount& b) { return a.key < b.key; });
  std::vector<KeyCount> merged;
  for (const KeyCount& k : horizon.histogram) {
    if (k.count == 0) continue;
    if (!merged.empty() && merged.back().key == k.key) {
      merged.back().count += k.count;
    } else {
      merged.push_back(k);
    }
  }
  horizon.histogram = std::move(merged);
  return horizon;
}

}  // namespace seqpoint
