#include "client/lengths.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/csv.h"
#include "client/format.h"

namespace seqpoint::client {
namespace {

constexpr int64_t kMaxLength = 1'000'000'000'000;
constexpr int64_t kMaxIterations = 1'000'000'000'000'000;
constexpr size_t kBatchesPerWindow = 100;
// Fractions are rounded where the lengths still spread over so many whole numbers.
constexpr double kEnoughSteps = 16;
// Random orders that are averaged: more would not change a length's share by a visible amount.
constexpr size_t kMostLengths = 1 << 18;  // what a daemon tells apart
constexpr int64_t kSimulatedEpochs = 20;

using Lengths = std::array<int64_t, 2>;  // the second is 0 when there is only one

struct LengthRows {
  std::vector<std::string> columns;  // one or two
  std::vector<Lengths> rows;
  bool rounded = false;
};

absl::StatusOr<std::vector<size_t>> ChooseColumns(const LengthsOptions& options,
                                                  const CsvReader& csv) {
  const std::vector<std::string>& header = csv.header();
  std::vector<size_t> chosen;
  if (!options.columns.empty()) {
    if (options.columns.size() > 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          options.columns.size(), " length columns are named; one or two are possible"));
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
    return absl::InvalidArgumentError(absl::StrCat(
        options.path, ": there is no length column (one with \"len\" in its name) ", "among ",
        absl::StrJoin(header, ", "), "; name one or two with --length-column"));
  }
  return chosen;
}

absl::StatusOr<LengthRows> ReadRows(const LengthsOptions& options) {
  absl::StatusOr<CsvReader> csv = CsvReader::Open(options.path);
  if (!csv.ok()) return csv.status();
  absl::StatusOr<std::vector<size_t>> chosen = ChooseColumns(options, *csv);
  if (!chosen.ok()) return chosen.status();

  LengthRows result;
  for (size_t column : *chosen) result.columns.push_back(csv->header()[column]);
  BadRows bad;
  double low[2] = {INFINITY, INFINITY}, high[2] = {0, 0};
  std::vector<std::string> fields;
  while (csv->Next(&fields)) {
    Lengths lengths = {};
    std::string problem;
    for (size_t i = 0; i < chosen->size() && problem.empty(); ++i) {
      size_t column = (*chosen)[i];
      if (column >= fields.size()) {
        problem = absl::StrCat("\"", csv->line(), "\" has ", fields.size(), " of ",
                               csv->header().size(), " columns");
      } else if (double value = 0; !absl::SimpleAtod(fields[column], &value) ||
                                   !(value >= 0 && value <= double{kMaxLength})) {
        problem = absl::StrCat("\"", fields[column], "\" in column ", csv->header()[column],
                               " is not a number from 0 to ", kMaxLength);
      } else {
        lengths[i] = std::llround(value);
        result.rounded |= static_cast<double>(lengths[i]) != value;
        low[i] = std::min(low[i], value);
        high[i] = std::max(high[i], value);
      }
    }
    if (problem.empty()) {
      for (int64_t& length : lengths) {
        length = (length + options.pad_to - 1) / options.pad_to * options.pad_to;
      }
      result.rows.push_back(lengths);
    } else {
      bad.Add(options.path, csv->number(), problem);
    }
  }
  if (absl::Status status = csv->status(); !status.ok()) return status;
  if (bad.count() > 0) return absl::InvalidArgumentError(bad.text());
  if (result.rows.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.path, ": there is a header, but no row below it"));
  }
  for (size_t i = 0; result.rounded && i < result.columns.size(); ++i) {
    if (high[i] == low[i] || high[i] - low[i] >= kEnoughSteps) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        options.path, ": column ", result.columns[i], " has fractions, and between ", low[i],
        " and ", high[i],
        " whole numbers would tell too few lengths apart; give lengths in a smaller unit"));
  }
  return result;
}

// Counts the padded lengths of one epoch's batches into `counts`; `random` shuffles.
void CountBatches(const LengthRows& lengths, const LengthsOptions& options, std::mt19937_64* random,
                  std::map<Lengths, int64_t>* counts) {
  const auto batch = static_cast<size_t>(options.batch);
  std::vector<size_t> order(lengths.rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto sort = [&](size_t begin, size_t end) {
    std::stable_sort(order.begin() + begin, order.begin() + end, [&](size_t a, size_t b) {
      return lengths.rows[a][0] + lengths.rows[a][1] < lengths.rows[b][0] + lengths.rows[b][1];
    });
  };
  if (options.order == ExampleOrder::kShuffle || options.order == ExampleOrder::kBucket) {
    std::shuffle(order.begin(), order.end(), *random);
  }
  if (options.order == ExampleOrder::kSorted) sort(0, order.size());
  if (options.order == ExampleOrder::kBucket) {
    // Windows longer than the file are one; the comparison avoids an overflow of huge batches.
    size_t window = batch > order.size() ? order.size() : batch * kBatchesPerWindow;
    for (size_t begin = 0; begin < order.size(); begin += window) {
      sort(begin, std::min(order.size(), begin + window));
    }
  }
  for (size_t begin = 0; begin < order.size();) {
    size_t size = std::min(batch, order.size() - begin);
    if (size < batch && options.drop_last) break;
    Lengths longest = {};
    for (size_t i = begin; i < begin + size; ++i) {
      const Lengths& row = lengths.rows[order[i]];
      longest = {std::max(longest[0], row[0]), std::max(longest[1], row[1])};
    }
    ++(*counts)[longest];
    begin += size;
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
    return absl::InvalidArgumentError(
        absl::StrCat("epochs = ", options.epochs, ", batch = ", options.batch,
                     ", pad-to = ", options.pad_to, ": each must be positive"));
  }
  absl::StatusOr<LengthRows> lengths = ReadRows(options);
  if (!lengths.ok()) return lengths.status();

  v1::Horizon horizon;
  std::string source =
      absl::StrCat(options.path, " (", absl::StrJoin(lengths->columns, ", "), "), ", options.epochs,
                   options.epochs == 1 ? " epoch" : " epochs",
                   lengths->rounded ? ", lengths rounded to whole numbers" : "");
  std::map<Lengths, int64_t> counts;
  bool random_order =
      options.order == ExampleOrder::kShuffle || options.order == ExampleOrder::kBucket;
  if (options.batch == 0) {
    for (const Lengths& row : lengths->rows) ++counts[row];
  } else {
    // The same file always gives the same answer.
    std::mt19937_64 random(1);
    int64_t simulated = random_order ? std::min(options.epochs, kSimulatedEpochs) : 1;
    for (int64_t epoch = 0; epoch < simulated; ++epoch) {
      CountBatches(*lengths, options, &random, &counts);
    }
    absl::StrAppend(&source, ", batches of ", options.batch);
    if (counts.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.path, ": ", lengths->rows.size(), " examples make no batch of ",
                       options.batch, "; leave --drop-last out or choose a smaller --batch"));
    }
  }
  if (counts.size() > kMostLengths) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.path, ": iterations of ", counts.size(), " different lengths, more than ",
        kMostLengths, "; pad them (--pad-to N), or give only --iterations"));
  }
  int64_t sum = 0;
  for (const auto& [key, count] : counts) sum += count;
  bool scaled = random_order && options.batch > 0;
  int64_t per_epoch =
      scaled ? sum / std::min(options.epochs, kSimulatedEpochs) : sum;  // equal in every epoch
  if (options.epochs > kMaxIterations / per_epoch) {
    return absl::InvalidArgumentError(absl::StrCat("epochs = ", options.epochs, " of ", per_epoch,
                                                   " iterations are more than ", kMaxIterations,
                                                   " iterations"));
  }
  if (scaled) {
    // Of the whole run, so that lengths that an epoch has rarely are not rounded away.
    horizon.set_kind(v1::Horizon::KIND_DISTRIBUTION);
    horizon.set_epochs(1);
    ScaleCounts(per_epoch * options.epochs, &counts);
  } else {
    horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
    horizon.set_epochs(options.epochs);
  }
  horizon.set_iterations(per_epoch * options.epochs);
  horizon.set_source(Printable(source));
  horizon.set_batch(options.batch);
  horizon.set_alike(options.order == ExampleOrder::kBucket ||
                    options.order == ExampleOrder::kSorted);
  for (const auto& [key, count] : counts) {
    if (count == 0) continue;
    v1::LengthCount* entry = horizon.add_histogram();
    for (size_t i = 0; i < lengths->columns.size(); ++i) entry->add_lengths(key[i]);
    entry->set_count(count);
  }
  return horizon;
}

}  // namespace seqpoint::client
