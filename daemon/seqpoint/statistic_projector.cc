#include "daemon/seqpoint/statistic_projector.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/seqpoint/basis.h"
#include "daemon/seqpoint/drift.h"
#include "daemon/seqpoint/intermittent.h"
#include "daemon/seqpoint/slow_iterations.h"
#include "daemon/seqpoint/statistic_models.h"

namespace seqpoint {
namespace {

// Share of the time that slow iterations take, from which on the basis says what becomes of it.
constexpr double kVisibleShare = 5e-4;

// The variance of a cost over the keys that occurred, on the scale of the bins.
double SpreadOverBins(const CostCurve& cost, absl::Span<const CurveTarget> targets) {
  std::vector<CurveTarget> bins;
  for (const CurveTarget& t : targets) {
    if (t.bin >= static_cast<int>(bins.size())) bins.resize(t.bin + 1, {{0, 0}, 0, 0, 0});
    CurveTarget& bin = bins[t.bin];
    for (int d = 0; d < 2; ++d) bin.point[d] += t.weight * t.point[d];
    bin.scale += t.weight * t.scale;
    bin.weight += t.weight;
  }
  double count = 0, mean = 0, m2 = 0;
  for (const CurveTarget& c : bins) {
    if (!(c.weight > 0)) continue;
    const double value =
        cost.ValueAt({c.point[0] / c.weight, c.point[1] / c.weight}, c.scale / c.weight);
    count += c.weight;
    const double delta = value - mean;
    mean += delta * c.weight / count;
    m2 += c.weight * delta * (value - mean);
  }
  return count > 0 ? m2 / count : 0;
}

}  // namespace

absl::StatusOr<Projection> ProjectStatisticsOf(const EngineState& state, const FittedModel& fitted,
                                               uint32_t set, absl::Span<const int> indices,
                                               double confidence, StatisticKind kind) {
  const absl::Span<const Measurement> measurements = state.measurements.Of(set);
  if (measurements.empty()) {
    return absl::FailedPreconditionError(
        "nothing was measured for it yet; it takes some iterations after the rule is known");
  }
  size_t size = 0;
  bool known = false;
  std::vector<double> values;
  for (const Measurement& m : measurements) {
    size = std::max(size, m.values.size());
    double& value = values.emplace_back(0);
    for (const int index : indices) {
      if (index < 0 || static_cast<size_t>(index) >= m.values.size()) continue;
      value += m.values[index];
      known = true;
    }
  }
  if (!known) {
    return absl::OutOfRangeError(absl::StrCat("set ", set, " has statistics 0 to ", size,
                                              " (exclusive), not ", absl::StrJoin(indices, ", ")));
  }
  const Forecast& forecast = fitted.forecast;
  const ExtraShares extra = ExtraSharesOf(state.filter, fitted);
  const std::vector<StatisticModel> models =
      StatisticModelsOf(state, fitted, measurements, values, kind);
  const Intermittent intermittent(measurements, values, fitted.time.curve.scale);
  const StatisticModel& likeliest =
      *std::max_element(models.begin(), models.end(),
                        [](const auto& a, const auto& b) { return a.probability < b.probability; });

  Projection p;
  p.confidence = confidence;
  p.iterations_so_far = static_cast<int64_t>(state.log.iterations);
  p.iterations_total = forecast.iterations_total;
  p.basis =
      absl::StrCat(BasisOf(state, fitted), "; from ", measurements.size(), " measured iterations");
  p.measured_with = static_cast<int64_t>(
      std::count_if(values.begin(), values.end(), [](double value) { return value != 0; }));
  const double n = static_cast<double>(state.log.iterations);
  if (extra.slow.mean > kVisibleShare) {
    const bool never = kind == StatisticKind::kAmount;
    absl::StrAppendFormat(&p.basis, "; slow iterations, which take %.2g %% of the time, %s",
                          100 * extra.slow.mean,
                          likeliest.slow > 0 ? "are counted in"
                          : never            ? "do not raise it"
                                             : "may raise it and widen the interval");
  }
  if (likeliest.drift > 0) absl::StrAppend(&p.basis, "; it follows the drift of times");
  const bool has_total = forecast.iterations_total > 0;
  const double rest = has_total ? IterationsOf(forecast.remaining) : n;
  const std::vector<CurveTarget>& targets = has_total ? forecast.remaining : forecast.past;
  const double variance = SpreadOverBins(likeliest.cost, forecast.past);
  const auto drawn_variance = [&](double drawn) {
    double sum =
        SamplingVariance(state.log, state.horizon, forecast, fitted.key_drift, drawn, variance);
    // The walk is in units of time.
    if (fitted.key_drift.moving() && fitted.variance > 0) {
      const double walk = fitted.key_drift.walk_variance * (n + drawn) / 3 * drawn * drawn;
      sum += walk * (variance / fitted.variance - 1);
    }
    return sum;
  };
  const std::vector<Normal> drift = Condensed(ProjectDrift(
      DriftTrace(state, fitted.time), fitted.time.curve, DriftNoise(state, fitted.time), n, rest));
  // The sum over the past, the rest, or both: what drifts is the rest.
  const auto estimate = [&](const std::vector<CurveTarget>& past,
                            const std::vector<CurveTarget>& coming) {
    std::vector<CurveTarget> all = past;
    all.insert(all.end(), coming.begin(), coming.end());
    // For the coming iterations, and for those whose records were lost.
    const double drawn =
        drawn_variance((!coming.empty() && (forecast.sampled || !has_total) ? rest : 0) +
                       (past.empty() ? 0 : forecast.untimed_unknown));
    const double least = intermittent.LeastVariance(all);
    // Iterations that were measured hide nothing.
    const double unmeasured =
        std::max(0.0, 1 - static_cast<double>(measurements.size()) / IterationsOf(all));
    std::vector<Normal> mixture;
    for (const StatisticModel& model : models) {
      std::vector<Normal> sum = Condensed(model.cost.Sum(all));
      const double expected = MixtureMean(sum);
      const double moving = coming.empty() ? 0 : MixtureMean(model.cost.Sum(coming));
      for (Normal& x : sum) {
        x.probability *= model.probability;
        x.variance = std::max(x.variance, least) + drawn;
        const double warm_up = model.follows_warm_up ? 1 : 0;
        x.mean += (model.slow * extra.slow.mean + unmeasured * model.unseen_slow +
                   warm_up * extra.warm_up.mean) *
                  expected;
        x.variance +=
            (model.slow * model.slow * extra.slow.variance +
             model.slow_variance * extra.slow.mean * extra.slow.mean +
             unmeasured * unmeasured *
                 (model.unseen_slow_variance + model.unseen_drift * model.unseen_drift) +
             warm_up * extra.warm_up.variance + model.drift * model.drift * model.level_variance) *
            expected * expected;
      }
      if (const double by = model.drift * moving; by != 0) {
        std::vector<Normal> drifts = drift;
        for (Normal& d : drifts) d = {d.probability, d.mean * by, d.variance * by * by};
        sum = AddIndependent(sum, drifts);
      }
      mixture.insert(mixture.end(), sum.begin(), sum.end());
    }
    const Estimate e =
        MixtureEstimate(AddIndependent(mixture, intermittent.Beyond(all)), confidence);
    // Statistics may be of either sign; only sums of non-negative ones stay so.
    return e.value >= 0 ? NotBelow(0, e) : e;
  };
  p.so_far = estimate(forecast.past, {});
  if (!has_total) {
    p.per_1000 = Scaled(estimate({}, targets), 1000 / n);
    return p;
  }
  if (rest > 0) p.remaining = estimate({}, targets);
  p.total = state.horizon.another ? p.remaining : estimate(forecast.past, targets);
  p.per_1000 = Scaled(*p.total, 1000.0 / static_cast<double>(forecast.iterations_total));
  return p;
}

}  // namespace seqpoint
