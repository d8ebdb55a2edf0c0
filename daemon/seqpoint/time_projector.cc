#include "daemon/seqpoint/time_projector.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/seqpoint/basis.h"
#include "daemon/seqpoint/drift.h"
#include "daemon/seqpoint/slow_iterations.h"

namespace seqpoint {
namespace {

// While there are few iterations but cold ones, their warm-up cost is unknown: this share of the
// time.
constexpr double kUnknownWarmUp = 0.1;
// A quadratic from sums says nothing of lengths beyond those that ran; this share of the rest may
// have such lengths.
constexpr double kMostOutside = 0.05;
// An interval of this width, relative, is worth a word where most of it is for drift.
constexpr double kNotableDrift = 0.04;

std::vector<Normal> Shifted(std::vector<Normal> mixture, double mean, double variance) {
  for (Normal& n : mixture) {
    n.mean += mean;
    n.variance += variance;
  }
  return mixture;
}

// How far the lengths of `coming` are from those of `past`: the square root of the sum over bins
// of (p - q)^2 / q, of shares p and q, beyond what drawing both at random makes of it. What a curve
// misses by `noise` in an iteration, it misses by at most so many times that in the mean of others.
double ShiftOf(absl::Span<const CurveTarget> past, absl::Span<const CurveTarget> coming) {
  constexpr double kUnseen = 0.5;  // iterations in a bin that had none
  std::map<int, std::pair<double, double>> bins;
  double before = 0, after = 0;
  for (const CurveTarget& t : past) bins[t.bin].first += t.weight, before += t.weight;
  for (const CurveTarget& t : coming) bins[t.bin].second += t.weight, after += t.weight;
  if (!(before > 0) || !(after > 0)) return 0;
  double square = 0;
  for (const auto& [bin, weights] : bins) {
    const double q = std::max(weights.first, kUnseen) / before, p = weights.second / after;
    square += (p - q) * (p - q) / q;
  }
  const auto count = static_cast<double>(bins.size());
  return std::sqrt(std::max(0.0, square - count * (1 / before + 1 / after)));
}

// Lengths say nothing: every iteration that was not timed is expected to take the mean of those
// that were, moved by the drift that these show, if any.
void ProjectPlain(const EngineState& state, Projection& p, bool host_times) {
  const PlainTimes& plain = state.plain;
  const double mean = plain.sum_ns / plain.count;
  const double variance =
      std::max(0.0, plain.square - plain.sum_ns * mean) / std::max(1.0, plain.count - 1);
  Quadratic constant;
  constant.coefficients = {mean};
  // Times that run together (sorted sessions) tell less than independent ones, and those that
  // wander tell less of what is far.
  const DriftEstimate drift = EstimateTimeDrift(plain.trace, variance);
  const double together = drift.inflation;
  if (drift.moving() || together > 1) {
    absl::StrAppend(&p.basis, "; not stationary: times of consecutive parts differ");
  }
  const auto estimate = [&](double known, double count) {
    if (!(count > 0)) return Estimate{known, known, known};
    const double expected = count * mean;
    std::vector<Normal> sum =
        ProjectDrift(plain.trace, constant, std::sqrt(variance * together) / mean, plain.count,
                     count, host_times);
    for (Normal& n : sum) {
      n.mean = known + expected * (1 + n.mean);
      n.variance =
          expected * expected * n.variance + count * count *
                                                 (variance * (1 / count + together / plain.count) +
                                                  drift.walk_variance * (plain.count + count) / 3);
    }
    return NotBelow(known, MixtureEstimate(sum, p.confidence));
  };
  const auto so_far = static_cast<double>(state.log.iterations);
  auto untimed = static_cast<double>(state.log.overflow_untimed);
  for (const auto& [key, record] : state.log.keys.records())
    untimed += static_cast<double>(record.untimed);
  const double rest =
      static_cast<double>(p.iterations_total) - (state.horizon.another ? 0 : so_far);
  p.so_far = estimate(state.log.exact_time_ns, untimed);
  if (p.iterations_total == 0) {
    p.per_1000 = estimate(0, 1000);
    return;
  }
  if (rest > 0) p.remaining = estimate(0, rest);
  p.total = state.horizon.another
                ? p.remaining
                : estimate(state.log.exact_time_ns, untimed + std::max(0.0, rest));
  const bool through = !state.horizon.another && !(rest > 0);
  p.per_1000 = through && so_far < 1000
                   ? estimate(0, 1000)
                   : Scaled(*p.total, 1000.0 / static_cast<double>(p.iterations_total));
}

Projection ProjectIterations(const EngineState& state, const FittedModel& fitted, double confidence,
                             bool host_times) {
  const Forecast& forecast = fitted.forecast;
  Projection p;
  p.confidence = confidence;
  p.iterations_so_far = static_cast<int64_t>(state.log.iterations);
  p.iterations_total = forecast.iterations_total;
  p.basis = BasisOf(state, fitted);
  const double n = static_cast<double>(state.log.iterations);
  if (!fitted.time.known || n == 0) {
    absl::StrAppend(&p.basis, "; no iteration has a usable time");
    if (n == 0) p.so_far.emplace();  // nothing took no time
    return p;
  }

  if (fitted.explained.verdict == KeyVerdict::kNotExplained && !fitted.time.of_sums) {
    ProjectPlain(state, p, host_times);
    return p;
  }

  const auto sampling_variance = [&](double remaining) {
    return SamplingVariance(state.log, state.horizon, forecast, fitted.key_drift, remaining,
                            fitted.variance);
  };
  // The past: a sum, but for what was not timed.
  std::vector<Normal> untimed = fitted.time.smooth.Sum(forecast.untimed);
  const Normal slow =
      SlowExcess(state.filter, fitted.time, IterationsOf(forecast.untimed), MixtureMean(untimed));
  untimed = Shifted(std::move(untimed), slow.mean, slow.variance);
  const Normal warm_up = fitted.time.WarmUpCost(forecast.opened_untimed);
  untimed = Shifted(std::move(untimed), warm_up.mean, warm_up.variance);
  untimed = Shifted(std::move(untimed), 0, sampling_variance(forecast.untimed_unknown));
  // They may all have run when times were off their mean.
  const double level_variance = DriftVariance(DriftTrace(state, fitted.time), fitted.time.curve,
                                              DriftNoise(state, fitted.time)) *
                                std::pow(MixtureMean(untimed), 2);
  untimed = Shifted(std::move(untimed), 0, level_variance);
  const double overflow =
      static_cast<double>(state.log.overflow_untimed) * state.log.exact_time_ns / n;
  untimed = Shifted(std::move(untimed), overflow, overflow * overflow);
  const Estimate missing = NotBelow(0, MixtureEstimate(untimed, confidence));
  p.so_far =
      Estimate{missing.value + state.log.exact_time_ns, missing.low + state.log.exact_time_ns,
               missing.high + state.log.exact_time_ns};

  if (fitted.time.of_sums && fitted.time.ShareOutside(forecast.remaining) > kMostOutside) {
    absl::StrAppend(
        &p.basis,
        "; what is to come is longer or shorter than all that ran, and of that times of "
        "stretches say nothing, so there is no total");
    return p;
  }

  // The rest; with an unknown horizon, as many iterations again, for the cost of 1,000. A run that
  // is over and had fewer is no sum of 1,000, either.
  const bool has_rest = IterationsOf(forecast.remaining) > 0;
  const bool has_total = forecast.iterations_total > 0;
  const bool through = has_total && !has_rest && !state.horizon.another;
  const bool repeats = !has_total || (through && n < 1000);
  const double rest = repeats ? n : IterationsOf(forecast.remaining);
  const std::vector<CurveTarget>& targets = repeats ? forecast.past : forecast.remaining;
  std::vector<CurveTarget> both = targets;
  both.insert(both.end(), forecast.untimed.begin(), forecast.untimed.end());
  // Before there is a curve to judge times by, they wait; their levels say something all the same.
  BlockTrace waiting;
  for (const KeyTime& t : state.filter.pending) {
    if (!state.log.keys.LengthUnknown(t.key)) waiting.Add(0, t.key, t.time_ns);
  }
  const bool young = !fitted.time.of_sums && state.filter.trace.blocks.empty();
  const BlockTrace& trace = young ? waiting : DriftTrace(state, fitted.time);
  const double noise = young ? fitted.time.noise : DriftNoise(state, fitted.time);
  bool drifting = false;  // it is most of the error
  // `drawn`: of these, those whose length is not known but drawn as those before.
  const auto estimate = [&](const std::vector<CurveTarget>& over, const BucketCounts& opened,
                            double drawn) {
    std::vector<Normal> sum = fitted.time.smooth.Sum(over);
    const double expected = MixtureMean(sum);
    double mean = 0, variance = sampling_variance(drawn);
    const Normal warm_up = fitted.time.WarmUpCost(opened);
    mean += warm_up.mean;
    variance += warm_up.variance;
    if (fitted.time.warm_up == TimeModel::WarmUp::kUnknown && !fitted.time.of_sums) {
      variance += std::pow(kUnknownWarmUp * expected, 2);
    }
    variance += std::pow(fitted.time.doubt * expected, 2);
    if (fitted.time.of_sums) {
      variance += std::pow(fitted.time.noise * ShiftOf(forecast.past, targets) * expected, 2);
    }
    const Normal slow = SlowExcess(state.filter, fitted.time, IterationsOf(over), expected);
    mean += slow.mean;
    variance += slow.variance;
    std::vector<Normal> drift = ProjectDrift(trace, fitted.time.curve, noise, n, rest, host_times);
    double wanders = 0;  // variance of the drift
    for (Normal& d : drift) {
      wanders += d.probability * (d.mean * d.mean + d.variance) * expected * expected;
      d.mean = mean + d.mean * expected;
      d.variance = variance + d.variance * expected * expected;
    }
    drifting = wanders > variance + MixtureVariance(sum);
    return AddIndependent(sum, drift);
  };
  if (repeats) {
    p.per_1000 =
        Scaled(NotBelow(0, MixtureEstimate(estimate(targets, forecast.unseen, rest), confidence)),
               1000 / n);
    if (through) p.total = p.so_far;
    return p;
  }
  const double drawn = forecast.sampled ? rest : 0;
  if (rest > 0) {
    p.remaining =
        NotBelow(0, MixtureEstimate(estimate(targets, forecast.unseen, drawn), confidence));
    if (drifting && p.remaining.high - p.remaining.low > kNotableDrift * p.remaining.value) {
      absl::StrAppend(&p.basis,
                      "; most of the interval is for times at equal length that may drift");
    }
  }
  const bool another = state.horizon.another;
  Estimate total = another ? p.remaining : *p.so_far;
  if (rest > 0 && !another) {
    total = MixtureEstimate(
        Shifted(estimate(both, forecast.AllUntimed(), drawn + forecast.untimed_unknown),
                state.log.exact_time_ns + overflow, level_variance),
        confidence);
    total = NotBelow(state.log.exact_time_ns, total);
  }
  p.total = total;
  p.per_1000 = Scaled(total, 1000.0 / static_cast<double>(forecast.iterations_total));
  return p;
}

}  // namespace

Projection ProjectTimeOf(const EngineState& state, const FittedModel& fitted, double confidence,
                         bool host_times) {
  Projection p = ProjectIterations(state, fitted, confidence, host_times);
  const double rest = state.log.rest_ns;
  const auto add = [rest](std::optional<Estimate>& to) {
    if (to) to->high += rest;
  };
  add(p.so_far);
  if (!state.horizon.another && p.total) {
    add(p.total);
    if (p.per_1000) p.per_1000->high += rest * 1000 / static_cast<double>(p.iterations_total);
  }
  return p;
}

}  // namespace seqpoint
