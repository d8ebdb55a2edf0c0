#include "daemon/seqpoint/slow_iterations.h"

#include <algorithm>
#include <cmath>

namespace seqpoint {
namespace {

// The part of slow iterations below the clipping threshold is at most so many times the clipped
// part.
constexpr double kMostBelowThreshold = 3;

}  // namespace

Normal SlowExcess(const OutlierFilter& filter, const TimeModel& model, double count,
                  double expected_ns) {
  const double looked_at = filter.judged() + model.singles;
  if (!(looked_at > 0) || !(count > 0)) return {1, 0, 0};
  const double ratio = count / looked_at;
  const double unseen = kUnseenSlowExcess * expected_ns / count;
  const double square =
      filter.slow_excess_square + model.stall_excess_square + kUnseenSlow * unseen * unseen;
  return {1, ratio * (filter.slow_excess_ns + model.stall_excess_ns),
          (ratio + ratio * ratio) * square};
}

ExtraShares ExtraSharesOf(const OutlierFilter& filter, const FittedModel& fitted) {
  const TimeModel& model = fitted.time;
  const Forecast& forecast = fitted.forecast;
  const double normal = MixtureMean(model.smooth.Sum(forecast.past));
  const double rest = MixtureMean(model.smooth.Sum(forecast.remaining));
  if (!model.known || !(normal > 0)) return {};
  const double iterations = IterationsOf(forecast.past);
  const Normal past = SlowExcess(filter, model, iterations, normal);
  const Normal coming = SlowExcess(filter, model, IterationsOf(forecast.remaining), rest);
  // Only what exceeds the common noise was clipped, of slow iterations of this size.
  const double square = filter.slow_excess_square * iterations / std::max(filter.judged(), 1.0);
  // Where only iterations of keys with a baseline of their own were slow, no square is known.
  const double below = past.mean > 0 && square > 0
                           ? filter.clipping_threshold * normal / iterations * past.mean / square
                           : 0;
  const double whole = (1 + std::clamp(below, 0.0, kMostBelowThreshold)) / (normal + rest);
  const Normal warm_up = model.WarmUpCost(forecast.AllUntimed());
  const double unit = 1 / (normal + rest);
  return {
      {1, whole * std::max(0.0, past.mean + coming.mean), whole * whole * coming.variance},
      {1, unit * std::max(0.0, model.AllWarmUp() + warm_up.mean), unit * unit * warm_up.variance}};
}

double UsualSlow(const OutlierFilter& filter, const TimeModel& model,
                 absl::Span<const Measurement> measurements) {
  double expected = 0;
  for (const Measurement& m : measurements) expected += model.Expected(m.key);
  if (!(filter.slow_excess_ns > 0) || !(expected > 0)) return 0;
  return filter.clipping_threshold + filter.slow_excess_square / filter.slow_excess_ns *
                                         static_cast<double>(measurements.size()) / expected;
}

}  // namespace seqpoint
