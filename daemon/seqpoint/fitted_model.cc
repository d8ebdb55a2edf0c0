#include "daemon/seqpoint/fitted_model.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace seqpoint {
namespace {

// With so many others, cold iterations are left out of what the key explains.
constexpr ptrdiff_t kEnoughRepeated = 256;

KeyFit ExplainedBy(const EngineState& state, const TimeModel& model) {
  const std::vector<SampledTime>& sample = state.sample.times;
  // Cold iterations pay for other things than their length. They are left out for being cold,
  // not for their time, except where hardly anything would be left.
  const auto repeated =
      std::count_if(sample.begin(), sample.end(), [](const SampledTime& t) { return !t.cold; });
  std::vector<Key> sampled_keys;
  std::vector<double> times;
  for (const SampledTime& t : sample) {
    if (state.log.keys.LengthUnknown(t.key)) continue;
    if (t.cold && !model.without_warm_up.empty()) continue;
    if (t.cold && model.warm_up == TimeModel::WarmUp::kCostly) {
      const double expected = model.curve(t.key);
      if (repeated >= kEnoughRepeated || model.IsCostly(t.time_ns - expected, expected)) continue;
    }
    sampled_keys.push_back(t.key);
    times.push_back(t.time_ns);
  }
  // The warm-up cost can be subtracted from sums.
  for (const KeyTime& t : model.without_warm_up) {
    if (repeated >= kEnoughRepeated) break;
    sampled_keys.push_back(t.key);
    times.push_back(t.time_ns);
  }
  return FitKey(sampled_keys, times);
}

Key ShortestKey(const KeyTable& keys, const Horizon& horizon) {
  KeyBox box;
  for (const auto& [key, record] : keys.records()) {
    if (!keys.LengthUnknown(key)) box.Add(key);
  }
  for (const KeyCount& k : horizon.histogram) box.Add(k.key);
  return box.low;
}

TimeModel TimesTogether(const EngineState& state) {
  std::vector<Key> all;
  std::vector<double> counts;
  KeyBox box;
  for (const auto& [key, record] : state.log.keys.Sorted()) {
    if (state.log.keys.LengthUnknown(key)) continue;
    all.push_back(key);
    counts.push_back(static_cast<double>(record.iterations));
    box.Add(key);
  }
  return TimeModel::OfSums(state.stretches.trace, KeyScale::Of(all, counts), box);
}

// Variance of the expected time over the past iterations.
double VarianceOfKeys(const KeyTable& keys, const TimeModel& model) {
  double count = 0, mean = 0, m2 = 0;
  for (const auto& [key, record] : keys.Sorted()) {
    if (record.iterations == 0) continue;
    const double weight = static_cast<double>(record.iterations);
    count += weight;
    const double expected = model.Expected(key);
    const double delta = expected - mean;
    mean += delta * weight / count;
    m2 += weight * delta * (expected - mean);
  }
  double variance = count > 0 ? m2 / count : 0;
  // Before a handful of iterations their spread says little: half of the mean is assumed on top.
  if (count > 0) variance += 0.25 * mean * mean / (count * count);
  return variance;
}

}  // namespace

FittedModel FitModel(const EngineState& state) {
  const KeyTable& keys = state.log.keys;
  FittedModel fitted;
  const ColdIterations::Costs cold = state.cold.CostsOf(keys);
  fitted.shortest = ShortestKey(keys, state.horizon);
  if (static_cast<double>(state.stretches.iterations) > state.plain.count) {
    fitted.time = TimesTogether(state);
  } else {
    std::vector<KeyTime> pending = state.filter.pending;
    std::erase_if(pending, [&](const KeyTime& t) { return keys.LengthUnknown(t.key); });
    fitted.time =
        TimeModel::Fit(keys.OrdinaryOfKeys(), pending, cold.times, state.filter.Correlation(),
                       fitted.shortest, keys.KeysWithBaseline(), state.cold.sums);
    fitted.time.recurrence_share = state.cold.RecurrenceShare(keys, fitted.time);
  }
  if (!fitted.time.known) {
    // Without any time, keys still need a scale, and every iteration costs the same.
    std::vector<Key> all;
    for (const auto& [key, record] : keys.Sorted()) all.push_back(key);
    fitted.time.curve.scale = KeyScale::Of(all, std::vector<double>(all.size(), 1.0));
  }
  fitted.explained = ExplainedBy(state, fitted.time);
  fitted.variance = VarianceOfKeys(keys, fitted.time);
  fitted.key_drift =
      EstimateKeyDrift(fitted.time.of_sums ? state.stretches.trace : state.plain.trace,
                       fitted.time.curve, fitted.variance);
  fitted.forecast =
      MakeForecast(state.log, state.cold, state.horizon, fitted.time, fitted.key_drift.moving());
  fitted.forecast.opened_untimed = cold.opened_untimed;
  // Recurrences, in terms of the buckets that the run's first cold iterations opened.
  for (int i = 0; i < kBucketSizes; ++i) {
    double opened = 0;
    for (const ColdTime& time : cold.times) opened += time.opened[i];
    fitted.forecast.unseen[i] *= 1 + fitted.time.recurrence_share;
    fitted.forecast.opened_untimed[i] += fitted.time.recurrence_share * opened *
                                         state.cold.recurrences_untimed /
                                         std::max(state.cold.recurrences_timed, 1.0);
  }
  return fitted;
}

}  // namespace seqpoint
