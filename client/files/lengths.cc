#include "client/files/lengths.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/files/csv.h"
#include "client/text/format.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

constexpr int64_t kMaxLength = 1'000'000'000'000;
constexpr int64_t kMaxIterations = 1'000'000'000'000'000;
constexpr int64_t kBatchesPerWindow = 100;
constexpr size_t kMostLengths = 1 << 18;         // what a daemon tells apart
constexpr size_t kMostExampleLengths = 1 << 21;  // of examples, in 100 MB
// After so many bad rows it is the wrong file, or column.
constexpr int64_t kMostBadRows = 10'000;
constexpr size_t kWholeRows = 256;  // read at a time: of one or two columns, 4 KB
// More examples are stood for by an even sample. Its 65,536 batches of 64 give a mean length whose
// standard error is a 256th of the spread of their lengths.
constexpr int64_t kMostExamples = int64_t{1} << 22;
// Random orders that are averaged: more would not change a length's share by a visible amount.
constexpr int64_t kSimulatedEpochs = 20;
constexpr int64_t kSimulatedExamples = int64_t{1} << 24;

using Lengths = std::array<int64_t, 2>;  // the second is 0 when there is only one
using Counts = absl::flat_hash_map<Lengths, int64_t>;

// How often each length occurs in the file.
struct LengthFile {
  std::vector<std::string> columns;  // one or two
  Counts counts;
  int64_t rows = 0;  // all counts together
  bool rounded = false;
};

bool IsRandom(const LengthsOptions& options) {
  return options.batch > 0 &&
         (options.order == ExampleOrder::kShuffle || options.order == ExampleOrder::kBucket);
}

void TakeLonger(const Lengths& lengths, Lengths* longest) {
  *longest = {std::max((*longest)[0], lengths[0]), std::max((*longest)[1], lengths[1])};
}

absl::Status TooManyLengths(const LengthsOptions& options, const char* of, size_t most) {
  return InvalidArgument(options.path, ": ", of, " of more than ", most,
                         " different lengths; pad them (--pad-to N), or give only --iterations");
}

struct LengthRange {
  double low = INFINITY, high = 0;

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// Counts what it is given: rows, or the batches that rows make as they come.
class Counter {
 public:
  explicit Counter(const LengthsOptions& options)
      : batch_(options.order == ExampleOrder::kFile ? std::max<int64_t>(options.batch, 1) : 1),
        pad_to_(options.pad_to),
        drop_last_(options.drop_last),
        short_(kShort * kShort) {}

  void Add(int64_t first, int64_t second) {
    TakeLonger({Padded(first), Padded(second)}, &longest_);
    if (++in_batch_ == batch_) EndBatch();
  }
  Counts Finish() {
    if (in_batch_ > 0 && !drop_last_) EndBatch();
    for (int64_t second = 0; second < kShort; ++second) {
      for (int64_t first = 0; first < kShort; ++first) {
        const int64_t count = short_[second * kShort + first];
        if (count > 0) counts_[{first, second}] = count;
      }
    }
    return std::move(counts_);
  }
  size_t size() const { return counts_.size() + short_size_; }

 private:
  static constexpr int64_t kShort = 1'024;

  int64_t Padded(int64_t length) const {
    if (pad_to_ == 1) return length;
    const int64_t beyond = length % pad_to_;
    return beyond == 0 ? length : length + pad_to_ - beyond;
  }
  void EndBatch() {
    if (longest_[0] < kShort && longest_[1] < kShort) {
      if (short_[longest_[1] * kShort + longest_[0]]++ == 0) ++short_size_;
    } else {
      ++counts_[longest_];
    }
    longest_ = {};
    in_batch_ = 0;
  }

  const int64_t batch_;
  const int64_t pad_to_;
  const bool drop_last_;
  Lengths longest_ = {};
  int64_t in_batch_ = 0;
  Counts counts_;
  // How often short lengths occur, which most are: a table in place of a search for each row.
  std::vector<int64_t> short_;
  size_t short_size_ = 0;  // that occur
};

absl::StatusOr<std::vector<size_t>> ChooseColumns(const LengthsOptions& options,
                                                  const CsvReader& csv) {
  const std::vector<std::string>& header = csv.header();
  std::vector<size_t> chosen;
  if (!options.columns.empty()) {
    if (options.columns.size() > 2) {
      return InvalidArgument(options.columns.size(),
                             " length columns are named; one or two are possible");
    }
    return csv.Find(options.columns);
  }
  auto total = std::find(header.begin(), header.end(), "len_total");
  if (total != header.end()) return std::vector<size_t>{size_t(total - header.begin())};
  for (size_t i = 0; i < header.size() && chosen.size() < 2; ++i) {
    if (absl::StrContains(absl::AsciiStrToLower(header[i]), "len")) chosen.push_back(i);
  }
  if (chosen.empty() && header.size() <= 2) {
    for (size_t i = 0; i < header.size(); ++i) chosen.push_back(i);
  }
  if (chosen.empty()) {
    return InvalidArgument(options.path,
                           ": there is no length column (one with \"len\" in its name) ", "among ",
                           absl::StrJoin(header, ", "), "; name one or two with --length-column");
  }
  return chosen;
}

// False: `problem` says what is wrong with the row.
bool ReadRow(const CsvReader& csv, const std::vector<size_t>& columns,
             std::array<double, 2>* lengths, std::string* problem) {
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!csv.Fits(columns[i])) {
      *problem = csv.ColumnProblem(columns[i]);
      if (!problem->empty()) return false;
    }
    const absl::string_view field = csv.fields()[columns[i]];
    double& value = (*lengths)[i];
    if (ParseCsvNumber(field, &value) && value >= 0 && value <= double{kMaxLength}) continue;
    *problem = absl::StrCat("\"", field, "\" in column ", csv.header()[columns[i]],
                            " is not a number from 0 to ", kMaxLength, CommaNote(field));
    return false;
  }
  return true;
}

absl::StatusOr<LengthFile> ReadFile(const LengthsOptions& options) {
  SEQPOINT_ASSIGN_OR_RETURN(CsvReader csv, CsvReader::Open(options.path, options.show_progress));
  SEQPOINT_ASSIGN_OR_RETURN(std::vector<size_t> chosen, ChooseColumns(options, csv));

  LengthFile file;
  for (size_t column : chosen) file.columns.push_back(csv.header()[column]);
  const bool iterations = options.batch == 0 || options.order == ExampleOrder::kFile;
  const size_t most = iterations ? kMostLengths : kMostExampleLengths;
  Counter counter(options);
  BadRows bad;
  std::string problem;
  std::array<LengthRange, 2> ranges;
  // Most rows hold nothing but whole numbers: those are read many at a time.
  static_assert(CsvReader::kMaxWhole <= kMaxLength);
  const size_t columns = csv.header().size(), first = chosen.front(), second = chosen.back();
  std::vector<int64_t> values(kWholeRows * columns);
  while (bad.count() < kMostBadRows && counter.size() <= most) {
    size_t rows = csv.NextWhole(absl::MakeSpan(values));
    const int64_t* const end = values.data() + std::max<size_t>(rows, 1) * columns;
    if (rows > 0) {
      for (const int64_t* row = values.data(); row < end; row += columns) {
        ranges[0].Add(static_cast<double>(row[first]));
        ranges[1].Add(static_cast<double>(row[second]));
      }
    } else {
      if (!csv.Next()) break;
      std::array<double, 2> row = {};
      if (!ReadRow(csv, chosen, &row, &problem)) {
        bad.Add(options.path, csv.number(), problem);
        continue;
      }
      for (size_t i = 0; i < chosen.size(); ++i) {
        int64_t& value = values[chosen[i]];
        value = std::llround(row[i]);
        file.rounded |= static_cast<double>(value) != row[i];
        ranges[i].Add(row[i]);
      }
      rows = 1;
    }
    for (const int64_t* row = values.data(); row < end; row += columns) {
      counter.Add(row[first], chosen.size() > 1 ? row[second] : 0);
    }
    file.rows += static_cast<int64_t>(rows);
  }
  if (counter.size() > most) {
    return TooManyLengths(options, iterations ? "iterations" : "examples", most);
  }
  SEQPOINT_RETURN_IF_ERROR(csv.status());
  if (bad.count() > 0) {
    return InvalidArgument(bad.text(),
                           bad.count() < kMostBadRows ? "" : "; the rest of the file was not read");
  }
  if (file.rows == 0) {
    return InvalidArgument(options.path, ": there is a header, but no row below it");
  }
  for (size_t i = 0; file.rounded && i < file.columns.size(); ++i) {
    const auto [low, high] = ranges[i];
    if (high == low || high - low >= kEnoughSteps) continue;
    return InvalidArgument(
        options.path, ": column ", file.columns[i], " has fractions, and between ", low, " and ",
        high, " whole numbers would tell too few lengths apart; give lengths in a smaller unit");
  }
  file.counts = counter.Finish();
  return file;
}

// The examples of an epoch, or an even sample of them, as places in a list of their lengths.
struct Examples {
  std::vector<Lengths> lengths;  // different ones, by their sum
  std::vector<uint32_t> places;  // of each example
  std::vector<uint32_t> rank;    // of each length by its sum alone
  bool sample = false;
};

Examples MakeExamples(const LengthFile& file, const LengthsOptions& options) {
  Examples examples;
  for (const auto& [lengths, count] : file.counts) examples.lengths.push_back(lengths);
  std::sort(examples.lengths.begin(), examples.lengths.end(),
            [](const Lengths& a, const Lengths& b) {
              return std::pair(a[0] + a[1], a) < std::pair(b[0] + b[1], b);
            });
  int64_t taken = file.rows;
  // A sample holds at least one window of batches.
  if (options.batch <= file.rows / kBatchesPerWindow) {
    taken = std::min(taken, std::max(kMostExamples, options.batch * kBatchesPerWindow));
  }
  examples.sample = taken < file.rows;
  examples.places.reserve(static_cast<size_t>(taken));
  // Every `step`th example in the order of length.
  const double step = static_cast<double>(file.rows) / static_cast<double>(taken);
  int64_t passed = 0;
  for (size_t i = 0; i < examples.lengths.size(); ++i) {
    const Lengths& lengths = examples.lengths[i];
    const bool new_sum =
        i > 0 && lengths[0] + lengths[1] != examples.lengths[i - 1][0] + examples.lengths[i - 1][1];
    examples.rank.push_back(i == 0 ? 0 : examples.rank.back() + (new_sum ? 1 : 0));
    passed += file.counts.at(lengths);
    while (static_cast<int64_t>(examples.places.size()) < taken &&
           (static_cast<double>(examples.places.size()) + 0.5) * step <
               static_cast<double>(passed)) {
      examples.places.push_back(static_cast<uint32_t>(i));
    }
  }
  return examples;
}

// Counts the padded lengths of one epoch's batches into `counts`; `random` shuffles. Examples of
// one length come in a random order also where they are sorted.
void CountBatches(Examples* examples, const LengthsOptions& options, std::mt19937_64* random,
                  std::map<Lengths, int64_t>* counts) {
  std::vector<uint32_t>& places = examples->places;
  const auto size = static_cast<int64_t>(places.size());
  std::shuffle(places.begin(), places.end(), *random);
  if (options.order != ExampleOrder::kShuffle) {
    // A window longer than the epoch is the epoch; the comparison avoids an overflow.
    const bool all = options.order == ExampleOrder::kSorted || options.batch > size;
    const int64_t window = all ? size : options.batch * kBatchesPerWindow;
    for (int64_t begin = 0; begin < size; begin += window) {
      std::stable_sort(
          places.begin() + begin, places.begin() + std::min(size, begin + window),
          [&](uint32_t a, uint32_t b) { return examples->rank[a] < examples->rank[b]; });
    }
  }
  for (int64_t begin = 0; begin < size; begin += options.batch) {
    const int64_t end = begin + std::min(options.batch, size - begin);
    // How full the last batch of a sample is says nothing of the last one of all.
    if (end - begin < options.batch && (options.drop_last || examples->sample)) break;
    Lengths longest = {};
    for (int64_t i = begin; i < end; ++i) TakeLonger(examples->lengths[places[i]], &longest);
    ++(*counts)[longest];
    if (end == size) break;
  }
}

// Makes the counts sum to `total`, each within one of its share.
void ScaleCounts(int64_t total, std::map<Lengths, int64_t>* counts) {
  int64_t sum = 0;
  for (const auto& [key, count] : *counts) sum += count;
  // Rounding the running sum, not each count, keeps the sum exact.
  double running = 0;
  int64_t given = 0;
  for (auto& [key, count] : *counts) {
    running += static_cast<double>(count) / static_cast<double>(sum) * static_cast<double>(total);
    count = std::llround(running) - given;
    given += count;
  }
}

}  // namespace

absl::StatusOr<v1::Horizon> ReadLengths(const LengthsOptions& options) {
  if (options.epochs < 1 || options.batch < 0 || options.pad_to < 1) {
    return InvalidArgument("epochs = ", options.epochs, ", batch = ", options.batch,
                           ", pad-to = ", options.pad_to, ": each must be positive");
  }
  SEQPOINT_ASSIGN_OR_RETURN(LengthFile file, ReadFile(options));

  v1::Horizon horizon;
  std::string source = absl::StrCat(options.path, " (", absl::StrJoin(file.columns, ", "), "), ",
                                    options.epochs, options.epochs == 1 ? " epoch" : " epochs",
                                    file.rounded ? ", lengths rounded to whole numbers" : "");
  std::map<Lengths, int64_t> counts;
  // Iterations of one epoch.
  int64_t per_epoch = file.rows;
  if (options.batch > 0) {
    absl::StrAppend(&source, ", batches of ", options.batch);
    per_epoch = file.rows / options.batch;
    if (file.rows % options.batch > 0 && !options.drop_last) ++per_epoch;
    if (per_epoch == 0) {
      return InvalidArgument(options.path, ": ", file.rows, " examples make no batch of ",
                             options.batch, "; leave --drop-last out or choose a smaller --batch");
    }
  }
  bool exact = !IsRandom(options);
  if (options.batch == 0 || options.order == ExampleOrder::kFile) {
    counts.insert(file.counts.begin(), file.counts.end());
  } else {
    Examples examples = MakeExamples(file, options);
    const auto taken = static_cast<int64_t>(examples.places.size());
    // Which examples of one sum stand together is not known.
    exact = exact && !examples.sample && examples.rank.back() + 1 == examples.rank.size();
    if (examples.sample) {
      absl::StrAppend(&source, ", from ", FormatCount(taken), " of ", FormatCount(file.rows),
                      " examples");
    }
    file.counts = Counts();
    // The same file always gives the same answer.
    std::mt19937_64 random(1);
    const int64_t epochs = IsRandom(options) ? std::min(options.epochs, kSimulatedEpochs) : 1;
    const int64_t simulated = std::clamp<int64_t>(kSimulatedExamples / taken, 1, epochs);
    for (int64_t epoch = 0; epoch < simulated; ++epoch) {
      CountBatches(&examples, options, &random, &counts);
    }
  }
  if (counts.size() > kMostLengths) return TooManyLengths(options, "iterations", kMostLengths);
  if (options.epochs > kMaxIterations / per_epoch) {
    return InvalidArgument("epochs = ", options.epochs, " of ", per_epoch,
                           " iterations are more than ", kMaxIterations, " iterations");
  }
  if (exact) {
    horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
  } else {
    // Counts are those of the whole run: lengths that an epoch has rarely are not rounded away.
    horizon.set_kind(v1::Horizon::KIND_DISTRIBUTION);
    ScaleCounts(per_epoch * options.epochs, &counts);
  }
  horizon.set_epochs(options.epochs);
  horizon.set_iterations(per_epoch * options.epochs);
  horizon.set_source(Printable(source));
  horizon.set_batch(options.batch);
  horizon.set_uniform_steps(options.order == ExampleOrder::kBucket ||
                            options.order == ExampleOrder::kSorted);
  for (const auto& [key, count] : counts) {
    if (count == 0) continue;
    v1::LengthCount* entry = horizon.add_histogram();
    for (size_t i = 0; i < file.columns.size(); ++i) entry->add_lengths(key[i]);
    entry->set_count(count);
  }
  return horizon;
}

}  // namespace seqpoint::client
