#include "daemon/ranks/rank_count.h"

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "daemon/base/statistics.h"
#include "daemon/ranks/cusum_bank.h"

namespace seqpoint::ranks {
namespace {

// Consecutive steps are left out together, as times drift.
constexpr size_t kBlocks = 16;
constexpr size_t kLeastSteps = 2 * kBlocks;
// Lengths are equal where they cost less than this share of the time, as in IterationTime.
constexpr double kEqual = 0.001;
// Standard errors beyond which ranks' lengths in a step are alike by more than chance.
constexpr double kAlike = 4;
// A distribution to the power p is told by about 1/p of its values. From so many per power the 95 %
// intervals of five forms of delays hold in 82 to 100 %, from one in 52 to 96 % (rank-windows.md).
constexpr double kStepsPerPower = 32;
// Delays of other steps that a step is tried with: 512 pairs from the fewest steps, in a time that
// is linear in the steps.
constexpr size_t kDelays = 16;

// A step, and what it tells.
struct Step {
  const StepOfRanks* of_ranks = nullptr;
  double longest_ns = 0;  // expected of its longest rank
  double then_ns = 0;     // the same of its changed lengths, where these are chosen from its own
  double ratio = 0;       // time / longest_ns; 0: not known
};
using Steps = std::vector<Step>;

// The mean largest of `count` of the values, over all choices.
double MeanLargestOf(std::vector<double> values, size_t count) {
  std::sort(values.begin(), values.end());
  const auto chosen = static_cast<double>(count);
  double weight = chosen / static_cast<double>(values.size()), sum = 0;
  for (size_t k = values.size(); k >= count; --k) {
    sum += weight * values[k - 1];
    // The one before is the largest where none of those behind it is chosen.
    if (k > 1) weight *= (static_cast<double>(k) - chosen) / static_cast<double>(k - 1);
  }
  return sum;
}

// Mean and deviation of the distribution that is the values' own to a power.
Normal ToThePower(std::vector<double> values, double power) {
  std::sort(values.begin(), values.end());
  Normal result;
  double before = 0, squares = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const double until =
        std::pow(static_cast<double>(k + 1) / static_cast<double>(values.size()), power);
    result.mean += (until - before) * values[k];
    squares += (until - before) * values[k] * values[k];
    before = until;
  }
  result.variance = std::max(0.0, squares - result.mean * result.mean);
  return result;
}

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

Steps StepsOf(absl::Span<const StepOfRanks> given) {
  Steps steps;
  std::vector<double> ratios;
  for (const StepOfRanks& step : given) {
    const double longest_ns = step.Longest();
    steps.push_back({&step, longest_ns, longest_ns, step.time_ns / longest_ns});
    if (step.time_ns > 0) ratios.push_back(step.time_ns / longest_ns);
  }
  // A step that is shorter by far is another one, an epoch's last, and no chance of the ranks.
  const double median = MiddleOf(ratios);
  const double least = median - kClip * MedianDeviation(ratios, median);
  for (Step& step : steps) {
    if (step.ratio > 0) step.ratio = std::max(step.ratio, least);
  }
  return steps;
}

bool EqualLengths(absl::Span<const StepOfRanks> steps) {
  double mean_ns = 0, longest_ns = 0;
  for (const StepOfRanks& step : steps) {
    mean_ns += step.Mean();
    longest_ns += step.Longest();
  }
  return 1 - mean_ns / longest_ns < kEqual;
}

// `power`: of the steps' distribution.
absl::Status Enough(absl::Span<const StepOfRanks> steps, double power = 1) {
  const auto known = std::count_if(steps.begin(), steps.end(),
                                   [](const StepOfRanks& step) { return step.time_ns > 0; });
  const double needed =
      std::max(static_cast<double>(kLeastSteps), power > 1 ? std::ceil(kStepsPerPower * power) : 0);
  if (static_cast<double>(known) >= needed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "%d ordinary iterations whose time, and whose lengths on all ranks, are known do not tell "
      "how late the last rank is by chance; %.0f are needed",
      known, needed));
}

struct Factors {
  double lengths = 1, chance = 1;
  double spread = 0;  // of one step's time after the change, relative
};

// The factors with all steps, and what they differ by without some (jackknife).
absl::StatusOr<LastRank> Judge(const Steps& steps, double run_steps, double confidence,
                               const std::function<Factors(const Steps&)>& factors_of) {
  const auto known =
      std::count_if(steps.begin(), steps.end(), [](const Step& step) { return step.ratio > 0; });
  const Factors all = factors_of(steps);
  Moments lengths, chance;
  for (size_t block = 0; block < kBlocks; ++block) {
    Steps others;
    size_t number = 0;  // of known steps before this one
    for (const Step& step : steps) {
      const size_t own = number * kBlocks / static_cast<size_t>(known);
      if (std::min(own, kBlocks - 1) != block) others.push_back(step);
      if (step.ratio > 0) ++number;
    }
    const Factors without = factors_of(others);
    lengths.Add(without.lengths);
    chance.Add(without.chance);
  }
  const double errors = StudentQuantile(confidence, kBlocks - 1);
  const auto error = [&](const Moments& moments) {
    return errors * std::sqrt(moments.Variance() * (kBlocks - 1));
  };
  const double drawn = errors * all.spread / std::sqrt(std::max(run_steps, 1.0));
  const double half = std::hypot(error(chance), drawn);
  // Moments::Variance is 0 where a value is no number, but then so are the sums.
  if (!std::isfinite(lengths.sum) || !std::isfinite(chance.sum) || !std::isfinite(half)) {
    return absl::FailedPreconditionError(
        "how late the last rank is by chance is not known: some iterations have no time");
  }
  LastRank last;
  last.lengths = all.lengths;
  last.lengths_error = error(lengths);
  last.chance = {all.chance, std::min(1.0, all.chance) - half, std::max(1.0, all.chance) + half};
  return last;
}

// By how much the ranks' batches of one step are more alike than those of different steps: the
// correlation between two ranks, and its standard error where there is none.
std::pair<double, double> AlikeOf(absl::Span<const StepOfRanks> steps) {
  Moments all, means;
  for (const StepOfRanks& step : steps) {
    for (const double expected : step.expected_ns) all.Add(expected);
    means.Add(step.Mean());
  }
  const auto ranks = static_cast<double>(steps[0].expected_ns.size());  // two or more
  const double correlation = (means.Variance() * ranks / all.Variance() - 1) / (ranks - 1);
  return {correlation, std::sqrt(2 / (ranks * (ranks - 1) * means.count))};
}

// In standard errors: by how much the mean of one rank's batches differs from that of all ranks'.
double UnevenRanks(absl::Span<const StepOfRanks> steps) {
  const size_t ranks = steps[0].expected_ns.size();
  std::vector<Moments> of_rank(ranks);
  double mean = 0, within = 0, most = 0;
  for (size_t r = 0; r < ranks; ++r) {
    for (const StepOfRanks& step : steps) of_rank[r].Add(step.expected_ns[r]);
    mean += of_rank[r].Mean() / static_cast<double>(ranks);
    within += of_rank[r].Variance() / static_cast<double>(ranks);
  }
  for (const Moments& one : of_rank) most = std::max(most, std::abs(one.Mean() - mean));
  return most / std::sqrt(within / static_cast<double>(steps.size()));
}

// Why ranks do not draw their lengths by themselves, all in the same way; else empty.
std::string WhyDealt(absl::Span<const StepOfRanks> steps, size_t count, bool equal) {
  const size_t ranks = steps[0].expected_ns.size();
  if (ranks == 1) {
    Moments all;
    for (const StepOfRanks& step : steps) all.Add(step.Longest());
    return count > 1 && std::sqrt(all.Variance()) > kEqual * all.Mean()
               ? "one rank does not tell how lengths are dealt out to several"
               : "";
  }
  if (equal) return "";
  if (UnevenRanks(steps) > kAlike) {
    return "some ranks have longer batches than others by more than chance";
  }
  const auto [correlation, error] = AlikeOf(steps);
  // Fewer ranks of those that have similar lengths are chosen from them.
  if (correlation > kAlike * error && count <= ranks) return "";
  if (std::abs(correlation) <= kAlike * error) return "";
  return absl::StrFormat(
      "lengths of one iteration are %s alike than chance makes them (correlation %.2f), so "
      "something deals them out",
      correlation > 0 ? "more" : "less", correlation);
}

Factors FactorsOfCount(const Steps& steps, double power, bool equal) {
  std::vector<double> longest, known, times;
  double then_ns = 0;
  for (const Step& step : steps) {
    longest.push_back(step.longest_ns);
    then_ns += step.then_ns;
    if (!(step.ratio > 0)) continue;
    known.push_back(equal ? 1 : step.longest_ns);
    times.push_back(known.back() * step.ratio);
  }
  Factors factors;
  if (!equal) {
    const double mean_ns =
        power < 1 ? then_ns / static_cast<double>(longest.size()) : ToThePower(longest, power).mean;
    factors.lengths = mean_ns / MeanOf(longest);
  }
  const Normal drawn = ToThePower(times, power);
  factors.chance = drawn.mean / MeanOf(times) / (ToThePower(known, power).mean / MeanOf(known));
  factors.spread = std::sqrt(drawn.variance) / drawn.mean;
  return factors;
}

// How many ranks' delays count in a step, at the lengths that the ranks have: all of the longest
// rank's, and of the others' what makes them the last one.
double RanksThatCount(const Steps& steps, double median) {
  double all = 0, count = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (size_t k = 1; k <= std::min(kDelays, steps.size() - 1); ++k) {
      const double delay = steps[(i + k) % steps.size()].ratio / median - 1;
      if (!(delay > 0)) continue;
      all += delay;
      for (const double expected_ns : steps[i].of_ranks->expected_ns) {
        count += std::max(0.0, expected_ns / steps[i].longest_ns * (1 + delay) - 1);
      }
    }
  }
  return all > 0 ? count / all : 1;
}

// With equal lengths each rank's delays count.
double PowerOfEqual(const Steps& steps) {
  std::vector<double> ratios;
  for (const Step& step : steps) {
    if (step.ratio > 0) ratios.push_back(step.ratio);
  }
  const auto ranks = static_cast<double>(steps[0].of_ranks->expected_ns.size());
  return ranks / RanksThatCount(steps, MiddleOf(ratios));
}

Factors FactorsOfEqual(const Steps& steps) {
  double mean_ns = 0, longest_ns = 0;
  std::vector<double> ratios;
  for (const Step& step : steps) {
    mean_ns += step.then_ns;
    longest_ns += step.longest_ns;
    if (step.ratio > 0) ratios.push_back(step.ratio);
  }
  const Normal drawn = ToThePower(ratios, PowerOfEqual(steps));
  Factors factors;
  factors.lengths = mean_ns / longest_ns;
  factors.chance = drawn.mean / MeanOf(ratios);
  factors.spread = std::sqrt(drawn.variance) / drawn.mean;
  return factors;
}

}  // namespace

double StepOfRanks::Mean() const { return MeanOf(expected_ns); }

absl::StatusOr<LastRank> WithOtherCount(absl::Span<const StepOfRanks> given, size_t count,
                                        double run_steps, double confidence) {
  if (absl::Status enough = Enough(given); !enough.ok()) return enough;
  const size_t ranks = given[0].expected_ns.size();
  const bool equal = EqualLengths(given);
  if (const std::string why = WhyDealt(given, count, equal); !why.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "how long the longest batch of %d ranks would be is not known: %s", count, why));
  }
  const double power = static_cast<double>(count) / static_cast<double>(ranks);
  if (absl::Status enough = Enough(given, power); !enough.ok()) return enough;
  Steps steps = StepsOf(given);
  for (Step& step : steps) {
    if (count < ranks) step.then_ns = MeanLargestOf(step.of_ranks->expected_ns, count);
  }
  absl::StatusOr<LastRank> last = Judge(steps, run_steps, confidence, [&](const Steps& some) {
    return FactorsOfCount(some, power, equal);
  });
  if (last.ok()) last->equal_lengths = equal;
  return last;
}

absl::StatusOr<LastRank> WithEqualLengths(absl::Span<const StepOfRanks> given, double run_steps,
                                          double confidence) {
  if (absl::Status enough = Enough(given); !enough.ok()) return enough;
  Steps steps = StepsOf(given);
  for (Step& step : steps) step.then_ns = step.of_ranks->Mean();
  if (absl::Status enough = Enough(given, PowerOfEqual(steps)); !enough.ok()) return enough;
  absl::StatusOr<LastRank> last = Judge(steps, run_steps, confidence, FactorsOfEqual);
  if (!last.ok()) return last;
  last->lengths_error = 0;  // the run's lengths are these
  last->equal_lengths = EqualLengths(given);
  return last;
}

}  // namespace seqpoint::ranks
