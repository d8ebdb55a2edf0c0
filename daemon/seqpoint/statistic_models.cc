#include "daemon/seqpoint/statistic_models.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "daemon/seqpoint/drift.h"
#include "daemon/seqpoint/slow_iterations.h"
#include "daemon/seqpoint/slow_measurements.h"

namespace seqpoint {
namespace {

// How likely a statistic that may follow time grows in slow iterations, and with the drift, before
// anything was measured; and how likely any statistic grows in cold iterations.
constexpr double kFollows = 0.7, kFollowsWarmUp = 0.15;
// ... that it grows in slow iterations, where measured ones stood out.
constexpr double kSeenSlow = 0.98;
// Slow iterations that raise a statistic by more times than they raise times are not those that
// times show: half again as much as where the least of the shares above is work on the GPU.
constexpr double kMostShown = 1.5 / 0.45;
// Half a slow iteration in so many is expected where times do not show them, before one was
// measured: the 1 % of the simulated runs.
constexpr double kUsualGap = 50;
// Standard deviation of the drift of a statistic that does not follow times: the most probable one
// of times (drift.cc).
constexpr double kUnseenDrift = 0.002;
// A statistic that follows may be a share of an iteration's time, as GPU work between gaps: it then
// changes by as much as the time, and by more relative to itself. The shares are equally likely;
// below the least, most of the time is no GPU work.
constexpr double kShares[] = {1, 0.7, 0.45};
constexpr double kLeastLevel = 0.1;      // of the expected time, however far times drifted
constexpr double kShownVariance = 0.04;  // of the factor, where one slow iteration or a few show it
constexpr int kWays = 1 + std::size(kShares);  // not to follow is one, too
// Below the measured lengths a statistic is so many times as uncertain as the time.
constexpr double kDoubtBelow = 2;
// The likelihood counts for a factor of at most e^5: few measurements show little.
constexpr double kMostEvidence = 5;

// With the measurements `left_out` (empty: none) taken for slow iterations, which lie `slow_above`
// above the others, relative.
std::vector<StatisticModel> ModelsOf(const EngineState& state, const FittedModel& fitted,
                                     absl::Span<const Measurement> measurements,
                                     absl::Span<const double> values, StatisticKind kind,
                                     const std::vector<bool>& left_out, double slow_above) {
  const Quadratic& curve = fitted.time.curve;
  std::vector<Level> levels;
  double mean = 0, square = 0, error = 0;
  for (const Measurement& m : measurements) {
    levels.push_back(DriftAt(DriftTrace(state, fitted.time), curve, m.iteration));
    const double share = 1.0 / static_cast<double>(measurements.size());
    mean += share * levels.back().value;
    square += share * levels.back().value * levels.back().value;
    error += share * std::pow(DriftNoise(state, fitted.time), 2) /
             std::max(levels.back().iterations, 1.0);
  }
  // Levels that vary by no more than their noise are one: else they would speak against following.
  const double variance = square - mean * mean;
  const double reliable = variance > error ? 1 - error / variance : 0;
  std::vector<CurvePoint> points[kWays];
  double factor[kWays] = {0};  // by how much the statistic changes where times do by 1
  double factor_sum = 0, factor_square = 0;
  for (int way = 1; way < kWays; ++way) {
    factor[way] = 1 / kShares[way - 1];
    factor_sum += factor[way];
    factor_square += factor[way] * factor[way];
  }
  KeyBox measured_keys;
  double whole_value = 0, whole_expected = 0;
  for (size_t i = 0; i < measurements.size(); ++i) {
    const Measurement& m = measurements[i];
    const double value = values[i];
    const double level = mean + reliable * (levels[i].value - mean);
    const double expected = fitted.time.Expected(m.key);
    measured_keys.Add(m.key);
    whole_value += value;
    whole_expected += expected;
    if (!left_out.empty() && left_out[i]) continue;
    for (int way = 0; way < kWays; ++way) {
      const double changed = std::max(expected * (1 + factor[way] * level), kLeastLevel * expected);
      points[way].push_back({curve.scale(m.key), changed, value, 1});
    }
  }
  const bool seen_slow = slow_above > 0;

  // Shorter iterations may run kernels of their own: what they take is less certain than their
  // time.
  const Key& shortest = fitted.shortest;
  const auto below =
      ExpectedBelow(curve, measured_keys.low, shortest, fitted.time.Expected(shortest),
                    whole_value / whole_expected, kDoubtBelow);
  if (below.has_value()) {
    for (auto& p : points) p.push_back(*below);
  }
  const int ways = kind == StatisticKind::kAmount ? 1 : kWays;
  CostCurve cost[kWays];
  double probability[kWays] = {}, sum = 0;
  for (int way = 0; way < ways; ++way) {
    cost[way] = CostCurve::Fit(std::move(points[way]), curve.scale, -1);
    const double agrees = cost[way].log_evidence() - cost[0].log_evidence();
    probability[way] = (way == 0 ? 1 - kFollows : kFollows / std::size(kShares)) *
                       std::exp(std::clamp(agrees, -kMostEvidence, kMostEvidence));
    sum += probability[way];
  }
  std::vector<StatisticModel> models;
  if (kind == StatisticKind::kAmount) {
    // Algorithm search is work, too.
    models.push_back({.probability = 1 - kFollowsWarmUp, .cost = cost[0]});
    models.push_back({.probability = kFollowsWarmUp, .follows_warm_up = true, .cost = cost[0]});
    return models;
  }
  // Where there is no drift to tell by how much it follows, it may be any of the factors.
  const double mean_factor = factor_sum / std::size(kShares);
  const double factor_variance = factor_square / std::size(kShares) - mean_factor * mean_factor;
  // Slow iterations that were measured tell it for themselves.
  const double usual_slow = UsualSlow(state.filter, fitted.time, measurements);
  const bool factor_shown = seen_slow && usual_slow > 0;
  const double shown_factor =
      factor_shown ? std::clamp(slow_above / usual_slow, factor[1], factor[kWays - 1]) : 0;
  // Where times show no slow iterations of this size, as where the GPU waits for the host, the
  // measured ones tell how many there are; if there is none, half a one counts as seen.
  const bool shown = factor_shown && slow_above <= kMostShown * usual_slow;
  const double follows_slow = shown ? kSeenSlow : seen_slow ? 1 - kSeenSlow : kFollows;
  const auto measured = static_cast<double>(measurements.size());
  const auto slow_count = static_cast<double>(std::count(left_out.begin(), left_out.end(), true));
  const double alone_slow = seen_slow
                                ? slow_above * (slow_count + kUnseenSlow) / (measured + kUsualGap)
                                : kUnseenSlow * kUnseenSlowExcess / measured;
  for (int way = 0; way < kWays; ++way) {
    StatisticModel model = {.probability = probability[way] / sum * (1 - follows_slow),
                            .drift = factor[way],
                            .level_variance = error,
                            .cost = cost[way]};
    // Times do not show what becomes of it, as where the GPU waits for the host.
    if (way == 0) model.unseen_drift = kUnseenDrift;
    model.unseen_slow = shown ? 0 : alone_slow;
    model.unseen_slow_variance = model.unseen_slow * model.unseen_slow / std::max(slow_count, 1.0);
    const double left = probability[way] / sum * follows_slow;
    models.push_back(model);
    model.unseen_slow = model.unseen_slow_variance = 0;
    model.slow = factor_shown ? shown_factor : way > 0 ? factor[way] : mean_factor;
    model.slow_variance = factor_shown ? kShownVariance : way > 0 ? 0 : factor_variance;
    model.probability = left * (1 - kFollowsWarmUp);
    models.push_back(model);
    model.follows_warm_up = true;
    model.probability = left * kFollowsWarmUp;
    models.push_back(model);
  }
  return models;
}

}  // namespace

std::vector<StatisticModel> StatisticModelsOf(const EngineState& state, const FittedModel& fitted,
                                              absl::Span<const Measurement> measurements,
                                              absl::Span<const double> values, StatisticKind kind) {
  if (kind == StatisticKind::kAmount)
    return ModelsOf(state, fitted, measurements, values, kind, {}, 0);
  const SlowMeasurements slow =
      FindSlow(measurements, values, fitted.time, state.filter.clipping_threshold);
  if (slow.which.empty()) return ModelsOf(state, fitted, measurements, values, kind, {}, 0);
  std::vector<StatisticModel> models =
      ModelsOf(state, fitted, measurements, values, kind, slow.which, slow.above);
  if (slow.certain || slow.above <= kMostShown * UsualSlow(state.filter, fitted.time, measurements))
    return models;
  std::vector<StatisticModel> all = ModelsOf(state, fitted, measurements, values, kind, {}, 0);
  models.insert(models.end(), std::make_move_iterator(all.begin()),
                std::make_move_iterator(all.end()));
  for (StatisticModel& model : models) model.probability /= 2;
  return models;
}

}  // namespace seqpoint
