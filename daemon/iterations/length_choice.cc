#include "daemon/iterations/length_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/statistics.h"
#include "daemon/iterations/explained_share.h"

namespace seqpoint::iterations {
namespace {

using abi::LengthField;
using abi::LengthSource;
using abi::Op;

constexpr double kExactVaries = 0.005;  // the same for values without noise
constexpr size_t kWarmUpRows = 2;
constexpr size_t kFewRows = 5;  // fewer show nothing
constexpr size_t kRowsForPairs = 7;
constexpr size_t kManyRows = 64;         // so many times average out the noise of cold iterations
constexpr double kFewUnexplained = 0.1;  // share of the variance that a mark or a copy may leave
constexpr double kHardlyVaries = 0.03;   // robust variation below which there is nothing to explain

double RobustVariation(const std::vector<double>& values) {
  const double median = Median(values);
  return median > 0 ? MedianDeviation(values, median) / median : 0;
}

int Rank(const LengthSource& source) {
  if (source.field == static_cast<uint8_t>(LengthField::kCallCount)) return 2;
  return source.pattern.op == static_cast<uint8_t>(Op::kLaunch) ? 1 : 0;
}

// MakeFeatures proposes copies with the likeliest lag first.
uint8_t LikelyLag(const FeatureTable& table) {
  for (const LengthSource& source : table.sources) {
    if (source.pattern.op == static_cast<uint8_t>(Op::kCopyH2D)) return source.lag;
  }
  return 0;
}

// The values that a length should explain, over some rows of the table.
struct Target {
  std::vector<size_t> rows;
  std::vector<double> values;
  double weight = 1;
};

void DropOutliers(Target* target) {
  const double median = Median(target->values);
  const double reach = 4 * std::max(MedianDeviation(target->values, median), 0.02 * median);
  Target kept;
  kept.weight = target->weight;
  for (size_t i = 0; i < target->rows.size(); ++i) {
    if (std::abs(target->values[i] - median) > reach) continue;
    kept.rows.push_back(target->rows[i]);
    kept.values.push_back(target->values[i]);
  }
  *target = std::move(kept);
}

// The share that the columns leave unexplained, over all targets.
double Unexplained(const FeatureTable& table, const std::vector<size_t>& columns,
                   const std::vector<Target>& targets) {
  double sum = 0, weights = 0;
  for (const Target& target : targets) {
    std::vector<std::vector<double>> keys(columns.size());
    for (size_t k = 0; k < columns.size(); ++k) {
      for (size_t row : target.rows) {
        keys[k].push_back(static_cast<double>(table.value(row, columns[k])));
      }
    }
    sum += target.weight * (1 - ExplainedShare(keys, target.values));
    weights += target.weight;
  }
  return sum / weights;
}

// The smallest subset of at most two columns that explains the targets. Columns come in the order
// of preference, which decides where two are about as good.
std::vector<size_t> SmallestSubset(const FeatureTable& table, std::vector<size_t> columns,
                                   const std::vector<Target>& targets) {
  constexpr double kNearAlone = 0.02;  // a label count follows the frames that it was made from
  constexpr double kNear = 0.004;
  constexpr size_t kMaxPairColumns = 12;
  std::vector<std::pair<double, size_t>> alone;
  for (size_t column : columns) {
    alone.push_back({Unexplained(table, {column}, targets), column});
  }
  if (alone.empty()) return {};
  double best = 1;
  for (const auto& [unexplained, column] : alone) best = std::min(best, unexplained);
  const auto first = std::find_if(alone.begin(), alone.end(), [&](const auto& entry) {
    return entry.first <= best + kNearAlone;
  });
  const auto [single, preferred] = *first;  // `alone` is sorted below
  if (targets[0].rows.size() < kRowsForPairs) return {preferred};

  // Pairs of the columns that come first and of those that explain most.
  std::vector<size_t> paired;
  for (size_t i = 0; i < alone.size() && paired.size() < kMaxPairColumns / 2; ++i) {
    paired.push_back(alone[i].second);
  }
  std::stable_sort(alone.begin(), alone.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < alone.size() && paired.size() < kMaxPairColumns; ++i) {
    if (std::find(paired.begin(), paired.end(), alone[i].second) == paired.end()) {
      paired.push_back(alone[i].second);
    }
  }
  std::sort(paired.begin(), paired.end());
  double pair_best = 1;
  std::vector<std::pair<double, std::vector<size_t>>> pairs;
  for (size_t a = 0; a < paired.size(); ++a) {
    for (size_t b = a + 1; b < paired.size(); ++b) {
      const std::vector<size_t> pair = {paired[a], paired[b]};
      pairs.push_back({Unexplained(table, pair, targets), pair});
      pair_best = std::min(pair_best, pairs.back().first);
    }
  }
  // A second column must explain much of the rest, and be worth it.
  if (single - pair_best < 0.004 || pair_best > 0.6 * single) return {preferred};
  for (const auto& [unexplained, pair] : pairs) {
    if (unexplained <= pair_best + kNear / 4) return pair;
  }
  return {preferred};
}

// Whether the number grows by the same amount each time: then it counts iterations.
bool Counts(const FeatureTable& table, size_t column) {
  for (size_t row = 2; row < table.rows(); ++row) {
    const int64_t step = table.value(row, column) - table.value(row - 1, column);
    if (step == 0 || step != table.value(row - 1, column) - table.value(row - 2, column)) {
      return false;
    }
  }
  return table.rows() >= 3;
}

}  // namespace

LengthChoice ChooseLengths(const FeatureTable& table) {
  LengthChoice choice;
  const size_t skip = table.rows() >= 12 ? kWarmUpRows : 0;
  // Usable columns are read in every row (a source with lag has nothing to read before the first).
  std::vector<size_t> usable, varying;
  const size_t first_row = std::max<size_t>(skip, std::min<size_t>(2, table.rows() / 3));
  std::vector<size_t> rows;
  for (size_t row = first_row; row < table.rows(); ++row) rows.push_back(row);
  for (size_t column = 0; column < table.sources.size(); ++column) {
    bool read = !rows.empty(), varies = false;
    for (size_t row : rows) {
      read &= table.value(row, column) >= 0;
      varies |= table.value(row, column) != table.value(rows[0], column);
    }
    // A length that the program itself marks is no counter, however evenly sorted batches grow.
    const bool told = table.sources[column].pattern.op == static_cast<uint8_t>(Op::kMark);
    if (!read || (!told && Counts(table, column))) continue;
    usable.push_back(column);
    if (!varies) continue;
    // A column with the values of an earlier one adds nothing.
    const bool repeats = std::any_of(varying.begin(), varying.end(), [&](size_t other) {
      return std::all_of(rows.begin(), rows.end(), [&](size_t row) {
        return table.value(row, column) == table.value(row, other);
      });
    });
    if (!repeats) varying.push_back(column);
  }

  Target time, threads{.rows = rows}, launches{.rows = rows};
  for (size_t row : rows) {
    if (table.time_ns[row] > 0) {
      time.rows.push_back(row);
      time.values.push_back(table.time_ns[row]);
    }
    threads.values.push_back(table.launched_threads[row]);
    launches.values.push_back(table.launches[row]);
  }
  const Target all_threads = threads, all_launches = launches;
  // A stall, or an evaluation phase at the end of an iteration, does not come from the length.
  for (Target* target : {&time, &threads, &launches}) DropOutliers(target);

  // Cold iterations pay for algorithm search and blur the times of a short stream. The launches are
  // exact: a length that decides the time decides them, too.
  const bool times_known = time.rows.size() >= 6;
  const bool time_varies = times_known && RobustVariation(time.values) >= kHardlyVaries;
  std::vector<Target> targets;
  for (const Target* launched : {&threads, &launches}) {
    const double variation = RobustVariation(launched->values);
    if (variation < kExactVaries) continue;
    targets.push_back(*launched);
    targets.back().weight = variation;
  }
  // Where most iterations have one length (batches padded to multiples), the others pass for
  // outliers. They are told from these by a length that explains them.
  if (targets.empty()) {
    for (const Target* launched : {&all_threads, &all_launches}) {
      const bool told = std::any_of(varying.begin(), varying.end(), [&](size_t column) {
        return Rank(table.sources[column]) == 0 &&
               Unexplained(table, {column}, {*launched}) <= kFewUnexplained;
      });
      if (told) targets.push_back(*launched);
    }
  }
  const bool work_varies = !targets.empty();
  if (!work_varies && time_varies) targets.push_back(time);
  if (!varying.empty() && !targets.empty() && rows.size() >= kFewRows) {
    // Marks and copies are exact. Grids are rounded up, and explain the launches because they are a
    // part of them. Call counts do so, too, and come too late for choosing what to measure.
    constexpr double kEnough[] = {kFewUnexplained, kFewUnexplained, 0.5, 2};
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<size_t> columns = varying;
      std::erase_if(columns, [&](size_t column) {
        const LengthSource& source = table.sources[column];
        // Sorted batches are like the ones before them: the likely lag comes first.
        const bool copy = source.pattern.op == static_cast<uint8_t>(Op::kCopyH2D);
        return rank == 0 ? Rank(source) > 0 || (copy && source.lag != LikelyLag(table))
                         : Rank(source) >= rank;
      });
      if (columns.empty()) continue;
      choice.sources = SmallestSubset(table, columns, targets);
      if (Unexplained(table, choice.sources, targets) <= kEnough[rank]) break;
    }
    choice.judged = !choice.sources.empty();
    const auto explained = [&](const Target& target) {
      return 1 - Unexplained(table, choice.sources, {target});
    };
    if (time_varies) {
      choice.explained = explained(time);
      choice.judged_by = table.time_source;
    }
    if (work_varies && (!times_known || (choice.explained < 0.9 && time.rows.size() < kManyRows))) {
      choice.explained = 1 - Unexplained(table, choice.sources, targets);
      choice.judged_by = "what was launched";
    }
    choice.depends = choice.explained >= 0.5;
  }
  if (choice.sources.empty()) {
    // Nothing to judge by (sorted batches hardly vary at first): marks and copies are the best
    // guess, those that vary before those that do not. Copies of another lag than the likely one
    // vary by an iteration that is not looked at.
    for (const std::vector<size_t>* columns : {&varying, &usable}) {
      for (size_t column : *columns) {
        const LengthSource& source = table.sources[column];
        if (Rank(source) != 0 || choice.sources.size() == 2) continue;
        const bool copy = source.pattern.op == static_cast<uint8_t>(Op::kCopyH2D);
        if (copy && source.lag != LikelyLag(table)) continue;
        if (!choice.sources.empty() && source.lag != table.sources[choice.sources[0]].lag) continue;
        choice.sources.push_back(column);
      }
      if (!choice.sources.empty()) break;
    }
    // The times stay the same while copies vary.
    const bool copies_vary = std::any_of(varying.begin(), varying.end(), [&](size_t column) {
      std::vector<double> values;
      for (size_t row : rows) values.push_back(static_cast<double>(table.value(row, column)));
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      return Rank(table.sources[column]) == 0 && *most >= 1.4 * *least &&
             RobustVariation(values) >= 2 * kHardlyVaries;
    });
    choice.judged =
        rows.size() >= kFewRows && times_known && !time_varies && !work_varies && copies_vary;
  }

  std::vector<std::string> words;
  for (size_t column : choice.sources) {
    int64_t unit = 0;
    // Lengths from a framework are in units already, which a table of few rows may hide.
    if (table.sources[column].pattern.op == static_cast<uint8_t>(abi::Op::kFeature)) unit = 1;
    for (size_t row : rows) unit = std::gcd(unit, table.value(row, column));
    choice.unit.push_back(std::max<int64_t>(unit, 1));
    std::string text = table.words[column];
    if (unit > 1 && (choice.judged || !varying.empty())) absl::StrAppend(&text, " ÷ ", unit);
    words.push_back(std::move(text));
  }
  choice.words = absl::StrJoin(words, " and ");
  if (!choice.judged && !words.empty()) {
    absl::StrAppend(&choice.words, " (a guess: ",
                    varying.empty()          ? "nothing varied"
                    : rows.size() < kFewRows ? "too few iterations"
                                             : "nothing to judge it by",
                    " so far)");
  }
  if (words.empty()) {
    choice.words = choice.judged && !choice.depends
                       ? "none: the time of an iteration depends on nothing that can be read early"
                       : "none found";
  }
  return choice;
}

}  // namespace seqpoint::iterations
