#include "daemon/seqpoint/time_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "daemon/base/statistics.h"
#include "daemon/seqpoint/accumulated_warm_up.h"
#include "daemon/seqpoint/bins.h"

namespace seqpoint {
namespace {

constexpr int kMaxModelBins = 48;        // the smooth curve costs O(bins^3)
constexpr size_t kMaxBaselineBins = 16;  // of keys that the curve misses
// Fewer repeated iterations are nothing to hold cold iterations against; as many first
// occurrences as below, few of which stand out, are ordinary all the same.
constexpr double kMinRepeated = 5;
constexpr size_t kManyCold = 200;
// A time stands out beyond so many median absolute deviations, and at least this share; more where
// the curve itself rests on few times.
constexpr double kCostlyLengthDeviations = 6;
constexpr double kMinCostly = 0.03;
constexpr double kLeastMiss = 1e-3;  // relative; clocks and noise allow no less
constexpr double kYoungModelCurve =
    16;  // iterations: the threshold is wider by this over their number
// This share stands out by chance: slow iterations.
constexpr double kSlowShare = 0.05;
// A difference between ordinary ones that is worth a stratum of its own.
constexpr double kMinWarmUpEffect = 0.01;
constexpr int kJudgeRounds = 6;         // the judgement stays after two to four
constexpr size_t kEnoughGroups = 4096;  // more lengths make a quadratic no better
// The prior of the noise of one iteration, relative, and its weight in iterations.
constexpr double kModelPriorNoise = 0.02;
constexpr double kModelPriorWeight = 6;
// An iteration takes at least this share of the mean, where none was timed alone.
constexpr double kLeastShareOfMean = 0.01;

struct Columns {
  std::vector<Key> keys;
  std::vector<double> means, counts;
};

Columns ColumnsOf(absl::Span<const KeyTimes> groups) {
  Columns c;
  for (const KeyTimes& g : groups) {
    c.keys.push_back(g.key);
    c.means.push_back(g.mean);
    c.counts.push_back(g.count);
  }
  return c;
}

// The median of |mean / curve - 1|, weighed by counts.
double MedianMiss(absl::Span<const KeyTimes> groups, const Quadratic& curve) {
  std::vector<std::pair<double, double>> misses;
  double count = 0;
  for (const KeyTimes& g : groups) {
    misses.push_back({std::abs(g.mean / curve(g.key) - 1), g.count});
    count += g.count;
  }
  std::sort(misses.begin(), misses.end());
  for (const auto& [miss, weight] : misses) {
    count -= 2 * weight;
    if (count <= 0) return miss;
  }
  return 0;
}

// Enough of them for a quadratic.
std::vector<KeyTimes> Thinned(std::vector<KeyTimes> groups) {
  const size_t step = 1 + groups.size() / kEnoughGroups;
  size_t kept = 0;
  for (size_t i = 0; i < groups.size(); i += step) groups[kept++] = groups[i];
  groups.resize(kept);
  return groups;
}

Quadratic CurveOfGroups(absl::Span<const KeyTimes> groups) {
  const Columns c = ColumnsOf(groups);
  return Quadratic::Fit(c.keys, c.means, c.counts);
}

}  // namespace

Quadratic CurveOfOthers(absl::Span<const KeyTimes> times, absl::Span<const Key> own) {
  std::vector<KeyTimes> others;
  double all = 0, kept = 0;
  for (const KeyTimes& t : times) {
    all += t.count;
    if (std::binary_search(own.begin(), own.end(), t.key)) continue;
    kept += t.count;
    others.push_back(t);
  }
  return CurveOfGroups(2 * kept < all ? times : others);
}

// The likelier of two normal distributions.
bool TimeModel::IsCostly(double excess_ns, double expected_ns) const {
  if (!(costly_share > 0) || !(excess_ns > 0)) return false;
  if (!(costly_share < 1)) return true;
  const double ordinary = std::pow(spread * expected_ns, 2);
  const double costly = ordinary + warm_up_cost_variance;
  const double for_costly = std::log(costly_share) - 0.5 * std::log(costly) -
                            0.5 * std::pow(excess_ns - warm_up_cost_ns, 2) / costly;
  const double for_ordinary =
      std::log1p(-costly_share) - 0.5 * std::log(ordinary) - 0.5 * excess_ns * excess_ns / ordinary;
  return for_costly > for_ordinary;
}

// Cold iterations are the only ones of the rarest lengths, so none is thrown away. Those that
// cost no more than others are times like any other; of the others the mean warm_up_cost is taken
// off, and they are weighed down by how much that varies.
void TimeModel::JudgeColdIterations(absl::Span<const ColdTime> cold, std::vector<KeyTimes>& regular,
                                    absl::Span<const Key> own, std::vector<KeyTime>& stalls) {
  const size_t n = cold.size();
  std::map<Key, double> own_ns;
  for (const KeyTimes& g : regular) {
    if (std::binary_search(own.begin(), own.end(), g.key)) own_ns[g.key] = g.mean;
  }
  double repeated = 0;
  for (const KeyTimes& g : regular) repeated += g.count;
  if (repeated < kMinRepeated && n < kManyCold) {
    for (const ColdTime& f : cold) regular.push_back({f.time.key, 1, f.time.time_ns, 0});
    return;
  }
  KeyBox box;
  for (const KeyTimes& g : regular) box.Add(g.key);
  // Where there is hardly anything else, the first curve is one through cold iterations, and its
  // median tells the costly ones. Else they are judged first where the other times do not have to
  // be extrapolated.
  const bool alone = repeated < kMinRepeated;
  std::vector<bool> inside(n, true);
  for (size_t i = 0; i < n && !alone; ++i) inside[i] = box.Contains(cold[i].time.key);
  std::vector<bool> costly(n, false);
  std::vector<double> excess(n), warm_up_cost(n, 0.0), weight(n, alone ? 1.0 : 0.0);
  const auto with_cold = [&] {
    std::vector<KeyTimes> all = regular;
    for (size_t i = 0; i < n; ++i) {
      const double time = cold[i].time.time_ns - warm_up_cost[i];
      if (weight[i] > 1e-6 && time > 0) all.push_back({cold[i].time.key, weight[i], time, 0});
    }
    return all;
  };
  for (int round = 0; round < kJudgeRounds; ++round) {
    const std::vector<KeyTimes> all = Thinned(with_cold());
    const Quadratic fit = CurveOfGroups(all);
    const double miss = std::max(MedianMiss(all, fit), kLeastMiss);
    const double young = 1 + kYoungModelCurve / std::max(repeated, static_cast<double>(n));
    const double threshold = std::max(kMinCostly, kCostlyLengthDeviations * miss) * young;
    spread = 2 * 1.4826 * miss * young;
    const std::vector<bool> before = costly;
    Moments costs, ordinary, expectations;
    double judged = 0;
    for (size_t i = 0; i < n; ++i) {
      const auto its_own = own_ns.find(cold[i].time.key);
      const double expected = its_own != own_ns.end() ? its_own->second : fit(cold[i].time.key);
      excess[i] = cold[i].time.time_ns - expected;
      costly[i] = round == 0 ? excess[i] > threshold * expected : IsCostly(excess[i], expected);
      if (cold[i].of_run || (!inside[i] && round == 0)) continue;
      judged += 1;
      if (costly[i]) {
        costs.Add(excess[i]);
        expectations.Add(expected);
      } else if (inside[i] && !alone) {
        ordinary.Add(excess[i] / expected);
      }
    }
    // Warm-up costs that the noise hides one by one show in the mean: then all of them are costly.
    const double error = std::sqrt(ordinary.Variance() / std::max(ordinary.count, 1.0) +
                                   2.2 * miss * miss / repeated);
    if (ordinary.count >= kMinRepeated && ordinary.Mean() > std::max(kMinWarmUpEffect, 3 * error)) {
      costs = expectations = {};
      for (size_t i = 0; i < n; ++i) {
        if (cold[i].of_run || !inside[i]) continue;
        costs.Add(excess[i]);
        expectations.Add(cold[i].time.time_ns - excess[i]);
      }
      judged = costs.count;
      costly.assign(n, true);
    }
    const double by_chance = kSlowShare * judged;
    warm_up = costs.count > by_chance + 2 * std::sqrt(by_chance + 1) ? WarmUp::kCostly
                                                                     : WarmUp::kOrdinary;
    costly_share = judged > 0 ? costs.count / judged : 0;
    warm_up_cost_ns = costs.Mean();
    const double square = warm_up_cost_ns * warm_up_cost_ns;
    warm_up_cost_variance = costs.count > 1 ? std::max(1e-4 * square, costs.Variance()) : square;
    const double noise = costs.count > 0 ? std::pow(miss * expectations.Mean(), 2) : 1;
    for (size_t i = 0; i < n; ++i) {
      if (!inside[i] && round == 0) {
        warm_up_cost[i] = costly_share * warm_up_cost_ns;
        weight[i] =
            noise / (noise + costly_share * (warm_up_cost_variance + (1 - costly_share) * square));
      } else {
        warm_up_cost[i] = costly[i] ? warm_up_cost_ns : 0;
        weight[i] = costly[i] ? noise / (noise + warm_up_cost_variance * (1 + 1 / costs.count)) : 1;
      }
      // Nothing is like the first iteration of a run.
      if (cold[i].of_run && costly[i]) weight[i] = 0;
    }
    if (round > 0 && costly == before) break;
  }
  if (warm_up == WarmUp::kCostly) {
    for (size_t i = 0; i < n; ++i) {
      if (!costly[i]) excess[i] = 0;
      warm_up_ns += excess[i];
    }
    PriceBuckets(cold, excess);
  } else {
    singles += static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) {
      if (costly[i] && !cold[i].of_run) stalls.push_back(cold[i].time);
      if (costly[i]) weight[i] = 0;
    }
  }
  regular = with_cold();
}

// As JudgeColdIterations, where an iteration may have many cold iterations or few.
void TimeModel::JudgeAccumulatedWarmUp(absl::Span<const ColdTime> cold,
                                       std::vector<KeyTimes>& regular) {
  double repeated = 0;
  for (const KeyTimes& g : regular) repeated += g.count;
  const AccumulatedWarmUp judged = EstimateAccumulatedWarmUp(regular, cold);
  const bool known = !judged.warm_up_cost_ns.empty();
  if (known && judged.costly_probability > 0.5) {
    warm_up = WarmUp::kCostly;
    doubt = judged.doubt;
    costly_share = 1;
  } else if (repeated >= kMinRepeated) {
    warm_up = WarmUp::kOrdinary;
  }
  Moments rest, costs_of_cold;
  for (size_t i = 0; i < cold.size() && known; ++i) {
    if (cold[i].of_run) continue;
    rest.Add(judged.excess_ns[i] - judged.warm_up_cost_ns[i]);
    costs_of_cold.Add(judged.warm_up_cost_ns[i]);
    warm_up_ns += warm_up == WarmUp::kCostly ? judged.excess_ns[i] : 0;
  }
  warm_up_cost_ns = costs_of_cold.Mean();
  warm_up_cost_variance = rest.Variance();
  for (size_t i = 0; i < cold.size(); ++i) {
    double time = cold[i].time.time_ns;
    if (warm_up == WarmUp::kCostly) {
      if (cold[i].of_run) continue;
      time -= judged.warm_up_cost_ns[i];
    }
    if (!(time > 0)) continue;
    without_warm_up.push_back({cold[i].time.key, time});
    regular.push_back({cold[i].time.key, 1, time, 0});
  }
  if (warm_up == WarmUp::kCostly) {
    PriceBuckets(cold, judged.excess_ns);
    accumulated_costs_ = judged.costs_ns;
  }
}

// The cost of opening a bucket, for each size that buckets may have, and its likelihood.
void TimeModel::PriceBuckets(absl::Span<const ColdTime> cold, absl::Span<const double> excess_ns) {
  double best = -INFINITY;
  for (int s = 0; s < kBucketSizes; ++s) {
    BucketCost& cost = bucket_costs_[s];
    double n = 0, opened = 0, sum = 0, total = 0;
    for (size_t i = 0; i < cold.size(); ++i) {
      if (cold[i].of_run) continue;
      n += 1;
      opened += cold[i].opened[s];
      sum += excess_ns[i];
      total += excess_ns[i] * excess_ns[i];
    }
    cost.opened = opened + 0.5;
    cost.mean_ns = sum / cost.opened;
    double square = 1e-4 * total;
    for (size_t i = 0; i < cold.size(); ++i) {
      if (cold[i].of_run) continue;
      square += std::pow(excess_ns[i] - cost.mean_ns * cold[i].opened[s], 2);
    }
    cost.variance = square / cost.opened;
    cost.probability = -n / 2 * std::log(square + 1);
    best = std::max(best, cost.probability);
  }
  double total = 0;
  for (BucketCost& c : bucket_costs_) total += c.probability = std::exp(c.probability - best);
  for (BucketCost& c : bucket_costs_) c.probability /= total;
}

Normal TimeModel::WarmUpCost(const BucketCounts& unseen) const {
  if (warm_up != WarmUp::kCostly) return {1, 0, 0};
  double mean = 0, square = 0;
  for (int s = 0; s < kBucketSizes; ++s) {
    const BucketCost& c = bucket_costs_[s];
    const double expected = unseen[s] * c.mean_ns;
    mean += c.probability * expected;
    square +=
        c.probability * (expected * expected + unseen[s] * c.variance * (1 + unseen[s] / c.opened));
  }
  const double variance = std::max(0.0, square - mean * mean);
  if (accumulated_costs_) {
    mean = 0;
    for (int s = 0; s < kBucketSizes; ++s) mean += (*accumulated_costs_)[s] * unseen[s];
  }
  return {1, mean, variance};
}

// Those of `own` that cost most beyond the curve or below, in order.
std::vector<Key> TimeModel::MostMissed(absl::Span<const KeyTimes> regular,
                                       absl::Span<const Key> own) const {
  std::vector<std::pair<double, Key>> misses;
  for (const KeyTimes& g : regular) {
    if (!std::binary_search(own.begin(), own.end(), g.key)) continue;
    misses.push_back({-g.count * std::abs(g.mean - curve(g.key)), g.key});
  }
  std::sort(misses.begin(), misses.end());
  std::vector<Key> most;
  for (const auto& [miss, key] : misses) {
    if (most.size() == kMaxBaselineBins) break;
    if (std::find(most.begin(), most.end(), key) == most.end()) most.push_back(key);
  }
  std::sort(most.begin(), most.end());
  return most;
}

std::optional<int> TimeModel::BaselineBin(const Key& key) const {
  const auto place = std::lower_bound(own.begin(), own.end(), key);
  if (place == own.end() || *place != key) return std::nullopt;
  return static_cast<int>(place - own.begin());
}

TimeModel TimeModel::Fit(std::vector<KeyTimes> regular, absl::Span<const KeyTime> single,
                         absl::Span<const ColdTime> cold, double correlation, const Key& shortest,
                         absl::Span<const Key> own, bool sums) {
  TimeModel model;
  model.singles = static_cast<double>(single.size());
  std::vector<KeyTime> stalls;
  const std::vector<bool> outlier = FindOutliers(single);
  for (size_t i = 0; i < single.size(); ++i) {
    if (outlier[i]) {
      stalls.push_back(single[i]);
    } else {
      regular.push_back({single[i].key, 1, single[i].time_ns, 0});
    }
  }
  if (sums) {
    model.JudgeAccumulatedWarmUp(cold, regular);
  } else {
    model.JudgeColdIterations(cold, regular, own, stalls);
  }
  if (regular.empty()) return model;
  model.known = true;
  model.curve = CurveOfOthers(regular, own);
  const Columns c = ColumnsOf(regular);

  // Bins: their means are what the smooth curve sees, what remains within them is noise.
  const double count = std::accumulate(c.counts.begin(), c.counts.end(), 0.0);
  const int max_bins = std::clamp(static_cast<int>(count / 4), 1, kMaxModelBins);
  std::vector<int> bin_of = CutIntoBins(c.keys, c.counts, max_bins);
  const int shared_bins = 1 + *std::max_element(bin_of.begin(), bin_of.end());
  model.own = model.MostMissed(regular, own);
  for (size_t i = 0; i < regular.size(); ++i) {
    const auto place = model.BaselineBin(c.keys[i]);
    if (place.has_value()) bin_of[i] = shared_bins + *place;
  }
  struct Bin {
    double count = 0, time = 0, expected = 0;
    Point centre = {0, 0};
  };
  std::vector<Bin> bins(shared_bins + model.own.size());
  for (size_t i = 0; i < regular.size(); ++i) {
    Bin& bin = bins[bin_of[i]];
    const Point p = model.curve.scale(c.keys[i]);
    bin.count += c.counts[i];
    bin.time += c.counts[i] * c.means[i];
    bin.expected += c.counts[i] * model.curve(c.keys[i]);
    for (int d = 0; d < 2; ++d) bin.centre[d] += c.counts[i] * p[d];
  }
  double square = kModelPriorWeight * kModelPriorNoise * kModelPriorNoise;
  for (size_t i = 0; i < regular.size(); ++i) {
    const Bin& bin = bins[bin_of[i]];
    const double expected = model.curve(c.keys[i]) * bin.time / bin.expected;
    square += regular[i].m2 / (expected * expected) +
              c.counts[i] * std::pow(c.means[i] / expected - 1, 2);
  }
  const double degrees =
      kModelPriorWeight + std::max(0.0, count - static_cast<double>(bins.size()));
  model.noise = std::sqrt(square / degrees * correlation);

  std::vector<CurvePoint> points;
  for (const Bin& bin : bins) {
    if (!(bin.count > 0)) continue;
    points.push_back({{bin.centre[0] / bin.count, bin.centre[1] / bin.count},
                      bin.expected / bin.count,
                      bin.time / bin.count,
                      bin.count});
  }
  model.timed = KeyBox();
  for (const Key& key : c.keys) model.timed.Add(key);
  const auto below =
      ExpectedBelow(model.curve, model.timed.low, shortest, model.Expected(shortest), 1, 1);
  if (below.has_value()) points.push_back(*below);
  model.smooth = CostCurve::Fit(std::move(points), model.curve.scale, model.noise);
  for (const KeyTime& t : stalls) {
    const double excess = t.time_ns - model.At(t.key);
    model.stall_excess_ns += excess;
    model.stall_excess_square += excess * excess;
  }
  return model;
}

TimeModel TimeModel::OfSums(const BlockTrace& times, const KeyScale& scale, const KeyBox& ran) {
  TimeModel model;
  std::vector<CurveSum> sums;
  const auto add = [&](const BlockTrace::Block& block) {
    if (!(block.count > 0)) return;
    CurveSum sum{times.TermsOf(block, scale), 1, block.time_ns / block.count, block.count};
    for (double& term : sum.terms) term /= block.count;
    sums.push_back(sum);
  };
  for (const BlockTrace::Block& block : times.blocks) add(block);
  add(times.open);
  if (sums.empty()) return model;
  model.known = model.of_sums = true;
  model.timed = ran;
  // First about a constant, then, as noise is relative, about what that finds.
  model.curve = CostCurve::FitSums(sums, scale, -1).AsQuadratic(scale);
  double time = 0, count = 0;
  for (const CurveSum& sum : sums) {
    time += sum.value * sum.count;
    count += sum.count;
  }
  model.curve.floor = std::max(1.0, kLeastShareOfMean * time / count);
  for (CurveSum& sum : sums) {
    sum.scale = std::max(model.curve.floor, model.curve.OfTerms(sum.terms));
  }
  // The noise of one iteration follows from differences of neighbours, which drift hardly changes.
  double square = kModelPriorWeight * kModelPriorNoise * kModelPriorNoise,
         degrees = kModelPriorWeight;
  for (size_t i = 1; i < sums.size(); ++i) {
    const double step = sums[i].value / sums[i].scale - sums[i - 1].value / sums[i - 1].scale;
    square += step * step / (1 / sums[i].count + 1 / sums[i - 1].count);
    degrees += 1;
  }
  model.noise = std::sqrt(square / degrees);
  model.smooth = CostCurve::FitSums(sums, scale, model.noise);
  return model;
}

double TimeModel::ShareOutside(absl::Span<const CurveTarget> targets) const {
  const Point low = curve.scale(timed.low), high = curve.scale(timed.high);
  double all = 0, outside = 0;
  for (const CurveTarget& t : targets) {
    const bool inside = low[0] <= t.point[0] && t.point[0] <= high[0] && low[1] <= t.point[1] &&
                        t.point[1] <= high[1];
    all += t.weight;
    if (!inside) outside += t.weight;
  }
  return all > 0 ? outside / all : 0;
}

}  // namespace seqpoint
