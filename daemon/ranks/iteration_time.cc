#include "daemon/ranks/iteration_time.h"

#include <algorithm>
#include <cmath>

#include "boost/math/distributions/normal.hpp"

namespace seqpoint::ranks {
namespace {

// Times before the fit is used: two for each of its terms.
constexpr size_t kTimeCount = 2 * WorkSums::kTerms;
// Ratios before their spread is known.
constexpr double kSpreadCount = 8;
// Standard deviation of a loss by lengths that the shape of the fit causes, relative: on simulated
// jobs the largest error is 4 %.
constexpr double kShapeError = 0.02;
// Standard deviation of the drift of times at equal lengths over a part of a run, relative: real
// logs drift by 0.6 to 0.8 % within an epoch, most of them less.
constexpr double kDrift = 0.0015;
// Standard deviation that stalls cause, which are left out before and after, relative to the
// growth.
constexpr double kStallError = 0.02;
// Losses below this are not worth a change of the sampler.
constexpr double kFound = 0.01;

// The expected largest of n standard normal values (Blom, 1958).
double LargestOf(size_t n) {
  if (n < 2) return 0;
  const auto count = static_cast<double>(n);
  return boost::math::quantile(boost::math::normal(), (count - 0.375) / (count + 0.25));
}

}  // namespace

void TimeRatio::Add(double time, double expected, double deviation) {
  double ratio = time / expected;
  const double limit = kClip * std::max(deviation, spread);
  if (count >= kSpreadCount && limit > 0) ratio = std::clamp(ratio, mean - limit, mean + limit);
  count += 1;
  time_ns += ratio * expected;
  stall_ns += time - ratio * expected;
  expected_ns += expected;
  const double distance = ratio - mean;
  mean += distance / count;
  // 1.25: from the mean distance to the standard deviation of normal values.
  if (count > 1) spread += (1.25 * std::abs(distance) - spread) / (count - 1);
}

double TimeRatio::Error() const { return spread / std::sqrt(std::max(count, 1.0)); }

void UnknownTime::Add(double ns, const Lengths& longest) {
  time_ns += ns;
  const LengthTerms of_longest = TermsOf(longest);
  for (size_t i = 0; i < terms.size(); ++i) terms[i] += of_longest[i];
}

void IterationTime::AddLengths(const Lengths& longest, const std::vector<Lengths>& ranks) {
  ++iterations_;
  ranks_ = ranks.size();
  const bool known = std::all_of(ranks.begin(), ranks.end(), [](const Lengths& lengths) {
    return lengths[0] > 0 || lengths[1] > 0;
  });
  if (!known || ranks.empty()) return;
  ++known_;
  const LengthTerms of_longest = TermsOf(longest);
  LengthTerms mean = {};
  for (const Lengths& lengths : ranks) {
    const LengthTerms terms = TermsOf(lengths);
    for (size_t i = 0; i < terms.size(); ++i)
      mean[i] += terms[i] / static_cast<double>(ranks.size());
  }
  for (size_t i = 0; i < mean.size(); ++i) {
    longest_[i] += of_longest[i];
    mean_[i] += mean[i];
  }
  const double expected = Expect(longest);
  if (!(expected > 0)) return;
  losses_.Add(1 - model_.Expect(mean) / expected);
  if (stalls_.count > 0) ranks_that_count_.Add(RanksThatCount(expected, ranks));
}

// A stall of a rank with shorter lengths counts as far as it makes that one the last.
double IterationTime::RanksThatCount(double longest_ns, const std::vector<Lengths>& ranks) const {
  const double usual = stalls_.squares / stalls_.sum;  // a part of all stalls' time is of such
  double count = 0;
  for (const Lengths& lengths : ranks) {
    const double stalled = model_.Expect(lengths) / longest_ns * (1 + usual);
    count += std::clamp((stalled - 1) / usual, 0.0, 1.0);
  }
  return count;
}

void IterationTime::Learn(double time_ns, const Lengths& lengths) {
  if (model_.count() == 0) {
    first_.push_back({lengths, time_ns});
    if (first_.size() < kTimeCount) return;
    model_.Start(first_);
    first_.clear();
    return;
  }
  const double expected = model_.Expect(lengths);
  if (expected > 0) {
    noise_.Add(0, time_ns / expected);
    // A stall is none of the lengths' doing.
    const double limit = noise_.deviation() > 0 ? kClip * noise_.deviation() : 1;
    time_ns = std::clamp(time_ns, expected * (1 - limit), expected * (1 + limit));
  }
  WorkSums sums;
  sums.Add(lengths, time_ns);
  model_.Learn(sums);
}

void IterationTime::Forget() {
  first_.clear();
  model_.Forget();
  ordinary_ = {};
}

void IterationTime::AddOrdinary(double time_ns, double expected_ns) {
  const double before_ns = ordinary_.stall_ns;
  ordinary_.Add(time_ns, expected_ns, noise_.deviation());
  const double stall = (ordinary_.stall_ns - before_ns) / expected_ns;
  if (stall > 0) stalls_.Add(stall);
}

// 0 where the fit is less sure than one time is: the lengths are unlike those it has learned from.
double IterationTime::Expect(const Lengths& longest) const {
  const double expected = model_.Expect(longest);
  return model_.Variance(TermsOf(longest)) < expected * expected ? expected : 0;
}

double IterationTime::UsualShare(const EpisodeTime& episode) const {
  if (!(episode.without_ns > 0)) return 1;
  // Lengths are known later than their iterations were.
  const double without_ns = episode.without_ns + model_.Expect(episode.unknown.terms);
  return episode.ratio.value() * without_ns * episode.with_ns / episode.without_ns /
         (episode.time_ns + episode.unknown.time_ns);
}

// `without`: the share of the episode's expected time that the iterations would take; `error`: of
// that, a standard deviation.
Range IterationTime::ShareOfTime(const EpisodeTime& episode, double without, double error) const {
  if (!(episode.time_ns > 0)) return {};
  const double share = UsualShare(episode);
  const double cost = share * (1 - without);
  const double half = kNormal95 * std::hypot(share * error, kStallError * cost);
  return {std::max(cost, 0.0), std::max(cost - half, 0.0), std::max(cost + half, 0.0)};
}

Range IterationTime::Cost(const EpisodeTime& episode, double expected_error) const {
  if (!(episode.with_ns > 0)) return {};
  const double without =
      ordinary_.value() / episode.ratio.value() * episode.without_ns / episode.with_ns;
  const double of_times = std::hypot(episode.ratio.Error(), ordinary_.Error(), kDrift);
  return ShareOfTime(episode, without, without * std::hypot(of_times, expected_error));
}

Range IterationTime::CostByFactor(const EpisodeTime& episode, const Range& factor) const {
  if (!(episode.with_ns > 0) || !(factor.value > 1)) return {};
  const double without = episode.without_ns / episode.with_ns;
  const double of_factor = (factor.high - factor.low) / (2 * kNormal95) / (factor.value - 1);
  // The lengths alone tell how often the others wait for the rank.
  return ShareOfTime(episode, without, (1 - without) * std::hypot(of_factor, kShapeError));
}

Imbalance IterationTime::imbalance() const {
  Imbalance result = {.doubt = Doubt::kTooFew, .iterations = known_};
  if (known_ * 2 < iterations_) result.doubt = Doubt::kNoLengths;
  if (known_ * 2 < iterations_ || !(noise_.deviation() > 0)) return result;
  LengthTerms mean = mean_, longest = longest_, difference;
  for (double& term : mean) term /= static_cast<double>(known_);
  for (double& term : longest) term /= static_cast<double>(known_);
  const double time_ns = model_.Expect(longest), balanced_ns = model_.Expect(mean);
  if (!(balanced_ns > 0 && time_ns > 0)) return result;
  const double ratio = balanced_ns / time_ns;
  // Where all have equal lengths, the slowest of them by chance decides, which is seldom so where
  // one has the longest; and the others wait for any rank's stall.
  const double stalls = ordinary_.stalls();
  const double count = std::max(ranks_that_count_.Mean(), 1.0);
  const double chance = 1 + LargestOf(ranks_) * noise_.deviation() +
                        stalls * (static_cast<double>(ranks_) / count - 1) / (1 + stalls);
  const double loss = equal_lengths() ? 1 - ratio : 1 - ratio * chance;
  // Of the quotient, by the errors of the fit; and by the choice of iterations.
  for (size_t i = 0; i < difference.size(); ++i) difference[i] = mean[i] - ratio * longest[i];
  const double fit = std::sqrt(model_.Variance(difference)) * noise_.deviation() / time_ns;
  const double error = kNormal95 * std::hypot(std::sqrt(losses_.Variance() / losses_.count), fit,
                                              kShapeError * loss);
  // Neither more than nothing nor nearly nothing: the fit says little of some lengths.
  if (error > std::max(loss, kFound)) return result;
  result.doubt = Doubt::kNone;
  result.loss = {loss, std::max(loss - error, 0.0), loss + error};
  result.found = result.loss.low > kFound;
  return result;
}

}  // namespace seqpoint::ranks
