#include "daemon/seqpoint/outlier_filter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "daemon/base/statistics.h"

namespace seqpoint {
namespace {

constexpr size_t kFirstCurve = 32;  // iterations before each is judged as it comes
// Where more than this share of recent iterations are stalls, they are none: times have changed.
// The share is a moving average over about 32 iterations.
constexpr double kRegimeRate = 0.25;
constexpr double kRateMemory = 1.0 / 32;
constexpr size_t kMaxRecentStalls = 64;
// The clipping threshold: so many median absolute deviations (4 standard deviations of normal
// noise), and at least 3 %.
constexpr double kClippingDeviations = 6;
constexpr double kMinClipping = 0.03;
// A key's deviation from the curve is shrunken as if this many of its iterations had none.
constexpr double kBaselineShrinkage = 2;
// This many clipped iterations of a key that agree may be its ordinary ones, if at least as many
// iterations of other keys ran between them: one moment of throttling is nobody's baseline.
constexpr double kLeastAgreeing = 3;
// Times agree within so many standard deviations of noise, and within 25 % at most.
constexpr double kAgreeingDeviations = 4, kMostAgreement = 0.25;
// The level of times is a moving average over about 32 iterations.
constexpr double kLevelMemory = 1.0 / 32;
// A curve through few times is uncertain: its clipping threshold is wider by this share over their
// number (four times as wide after 32 iterations, a tenth wider after 1,000).
constexpr double kYoungCurve = 96;
constexpr double kMaxCorrelation = 3;  // variance of a mean against independent iterations

Quadratic CurveWithout(const std::vector<bool>& left_out, absl::Span<const KeyTime> times) {
  std::vector<Key> keys;
  std::vector<double> values, counts;
  for (size_t i = 0; i < times.size(); ++i) {
    keys.push_back(times[i].key);
    values.push_back(times[i].time_ns);
    counts.push_back(left_out[i] ? 0 : 1);
  }
  return Quadratic::Fit(keys, values, counts);
}

}  // namespace

void OutlierFilter::Add(const KeyTime& time, uint64_t newest, const TimeSample& sample,
                        OrdinaryTimes& its, KeyTable& keys) {
  timed += 1;
  if (!curve.has_value()) {
    pending.push_back(time);
    FitFirstCurve(newest, sample, keys);
    return;
  }
  if (timed >= next_curve_at) RefreshCurve(sample, keys);
  const double residual = time.time_ns / NormalTime(time.key, its) - 1;
  const bool stall = std::abs(residual) > outlier_threshold;
  stall_rate += kRateMemory * (static_cast<double>(stall) - stall_rate);
  if (!stall) {
    Accept(time, newest, its);
    if (stall_rate < kRateMemory) recent_stalls.clear();
    return;
  }
  if (recent_stalls.size() < kMaxRecentStalls) recent_stalls.push_back(time);
  NoteClipped(time, 0, CountStall(time, its, 1), its);
  if (stall_rate >= kRegimeRate) AcceptNewRegime(residual, newest, sample, keys);
}

// Once there are enough pending iterations.
void OutlierFilter::FitFirstCurve(uint64_t newest, const TimeSample& sample, KeyTable& keys) {
  if (pending.size() < kFirstCurve) return;
  std::erase_if(pending, [&](const KeyTime& t) { return keys.LengthUnknown(t.key); });
  if (pending.size() < kFirstCurve) return;
  const std::vector<bool> outlier = FindOutliers(pending);
  const std::vector<KeyTime> waiting = std::exchange(pending, {});
  curve = CurveWithout(outlier, waiting);
  SetThresholds(sample, keys);
  for (size_t i = 0; i < waiting.size(); ++i) {
    OrdinaryTimes& its = keys.At(waiting[i].key).ordinary;
    if (outlier[i]) {
      NoteClipped(waiting[i], 0, CountStall(waiting[i], its, 1), its);
    } else {
      Accept(waiting[i], newest, its);
    }
  }
}

// Too many stalls to be stalls: iterations take so long now.
void OutlierFilter::AcceptNewRegime(double residual, uint64_t newest, const TimeSample& sample,
                                    KeyTable& keys) {
  ++regime_changes;
  const double widened = std::max(outlier_threshold, 2 * std::abs(residual));
  outlier_threshold = clipping_threshold = widened;
  clipped_times.clear();
  for (const KeyTime& stall : std::exchange(recent_stalls, {})) {
    OrdinaryTimes& its = keys.At(stall.key).ordinary;
    CountStall(stall, its, -1);
    Accept(stall, newest, its);
  }
  stall_rate = 0;
  RefreshCurve(sample, keys);
  outlier_threshold = clipping_threshold = widened;
}

// Deviations are from this.
double OutlierFilter::NormalTime(const Key& key, const OrdinaryTimes& its) const {
  return its.own_baseline ? its.mean_ns / its.level * level : (*curve)(key);
}

// With sign -1 it no longer counts as one. Returns what it took beyond the normal.
double OutlierFilter::CountStall(const KeyTime& time, const OrdinaryTimes& its, int sign) {
  const double excess = time.time_ns - NormalTime(time.key, its);
  stalls += static_cast<uint64_t>(sign);
  slow_excess_ns += sign * excess;
  slow_excess_square = std::max(0.0, slow_excess_square + sign * excess * excess);
  return excess;
}

// An iteration that is no stall. Its excess beyond the common noise is split off: one slow
// iteration in a hundred is larger than all other noise, and would bend the curve at its own
// length.
void OutlierFilter::Accept(const KeyTime& time, uint64_t newest, OrdinaryTimes& its) {
  // The level follows drift slowly, so that neither clipping nor a key's own mean hides it.
  const double from_curve = (*curve)(time.key) / curve_level;
  const double base = its.own_baseline ? its.mean_ns / its.level : from_curve;
  const double expected = base * level;
  const double deviation = time.time_ns / expected - 1;
  const double common =
      expected * (1 + std::clamp(deviation, -clipping_threshold, clipping_threshold));
  slow_excess_ns += time.time_ns - common;
  slow_excess_square += (time.time_ns - common) * (time.time_ns - common);

  // Drift is judged without what is peculiar to the key: steps of the cost curve are no noise.
  const double own = its.count > 0 ? its.count * its.mean_ns / its.level : 0;
  const double peculiar = (own + kBaselineShrinkage * base) / (its.count + kBaselineShrinkage);
  const double rest =
      std::clamp(common / (peculiar * level) - 1, -clipping_threshold / 3, clipping_threshold / 3);
  residual_square += rest * rest;
  residual_product += rest * previous_residual;
  previous_residual = rest;
  accepted += 1;
  trace.Add(newest, time.key, from_curve * level * (1 + rest));

  its.count += 1;
  its.level += (level - its.level) / its.count;
  const double delta = common - its.mean_ns;
  its.mean_ns += delta / its.count;
  its.m2 += delta * (common - its.mean_ns);
  if (std::abs(deviation) > clipping_threshold) {
    NoteClipped(time, common, time.time_ns - common, its);
  } else if (!clipped_times.empty()) {
    NoteUnclipped(time.key);
  }
  level *= 1 + kLevelMemory * rest;
  level_sum += level;
}

// How far times of one key that agree may differ.
double OutlierFilter::Agreement() const {
  const double noise = accepted > 0 ? std::sqrt(residual_square / accepted) : 0;
  return std::clamp(kAgreeingDeviations * noise, kMinClipping, kMostAgreement);
}

// Where the curve misses a length, its ordinary iterations look slow, or too fast. They differ from
// slow ones: they agree, and they are most of their key's. The candidate is the winner of a
// majority vote. `accepted_ns`: the clipped time, 0 for a stall.
void OutlierFilter::NoteClipped(const KeyTime& time, double accepted_ns, double excess_ns,
                                OrdinaryTimes& its) {
  clipped += 1;
  ClippedTimes& t = clipped_times[time.key];
  if (t.count > 0 && std::abs(time.time_ns / level / (t.mean_ns / t.level) - 1) > Agreement()) {
    t.against += 1;
    if (t.against < t.count) return;
    t = {};
  }
  if (t.count == 0) {
    t.timed_before = timed - 1;
    t.clipped_before = clipped - 1;
  }
  t.count += 1;
  const double delta = time.time_ns - t.mean_ns;
  t.mean_ns += delta / t.count;
  t.m2 += delta * (time.time_ns - t.mean_ns);
  t.level += (level - t.level) / t.count;
  t.accepted += accepted_ns > 0;
  t.accepted_ns += accepted_ns;
  t.excess_ns += excess_ns;
  t.excess_square += excess_ns * excess_ns;
  if (!IsBaseline(t, its)) return;
  Reinstate(time.key, t, its);
  clipped_times.erase(time.key);
}

void OutlierFilter::NoteUnclipped(const Key& key) {
  const auto found = clipped_times.find(key);
  if (found == clipped_times.end()) return;
  found->second.against += 1;
  if (found->second.against >= found->second.count) clipped_times.erase(found);
}

bool OutlierFilter::IsBaseline(const ClippedTimes& t, const OrdinaryTimes& its) const {
  if (t.count < kLeastAgreeing || t.count <= its.count - t.accepted) return false;
  // Where other keys are clipped as well, all iterations take longer now, and nobody knows for how
  // long.
  const double elsewhere = timed - t.timed_before - t.count - t.against;
  const double clipped_elsewhere = clipped - t.clipped_before - t.count;
  return elsewhere >= kLeastAgreeing && 2 * clipped_elsewhere <= elsewhere;
}

// `t` are the key's ordinary times.
void OutlierFilter::Reinstate(const Key& key, const ClippedTimes& t, OrdinaryTimes& its) {
  const double as_stalls = t.count - t.accepted;
  stalls -= std::min(stalls, static_cast<uint64_t>(as_stalls));
  accepted += as_stalls;
  level_sum += as_stalls * t.level;
  residual_square += as_stalls * t.m2 / t.count / (t.mean_ns * t.mean_ns);
  slow_excess_ns -= t.excess_ns;
  slow_excess_square = std::max(0.0, slow_excess_square - t.excess_square);
  std::erase_if(recent_stalls, [&](const KeyTime& o) { return o.key == key; });
  stall_rate = std::max(0.0, stall_rate - kRateMemory * as_stalls);

  // The key's other iterations are ordinary where they agree; else they are the clipped ones.
  const double others = std::max(0.0, its.count - t.accepted);
  double off = 0;  // by how much they differ
  if (others > 0) {
    off = std::max(1.0, (its.count * its.mean_ns - t.accepted_ns) / others) - t.mean_ns;
    if (std::abs(off) > Agreement() * t.mean_ns) {
      slow_excess_ns += others * off;
      slow_excess_square += others * off * off;
      off = 0;
    }
  }
  const double count = t.count + others;
  its.m2 = t.m2 * count / t.count + t.count * others / count * off * off;
  its.mean_ns = t.mean_ns + others / count * off;
  its.level = (t.count * t.level + others * its.level) / count;
  its.count = count;
  its.own_baseline = true;
}

// At every doubling, so that it costs O(1) per iteration.
void OutlierFilter::RefreshCurve(const TimeSample& sample, const KeyTable& keys) {
  curve = CurveOfOthers(keys.OrdinaryOfKeys(), keys.KeysWithBaseline());
  curve_level = level_sum / accepted;
  SetThresholds(sample, keys);
}

void OutlierFilter::SetThresholds(const TimeSample& sample, const KeyTable& keys) {
  std::vector<double> deviations;
  for (const SampledTime& t : sample.times) {
    const KeyRecord* record = keys.Find(t.key);
    if (t.cold || record == nullptr) continue;
    deviations.push_back(std::abs(t.time_ns / NormalTime(t.key, record->ordinary) - 1));
  }
  const double mad = Median(std::move(deviations));
  outlier_threshold = std::max(kOutlierShare, kOutlierDeviations * mad);
  clipping_threshold =
      std::max(kMinClipping, kClippingDeviations * mad) * (1 + kYoungCurve / timed);
  next_curve_at = 2 * timed;
}

double OutlierFilter::Correlation() const {
  if (!(residual_square > 0)) return 1;
  const double lag1 = std::clamp(residual_product / residual_square, 0.0, 0.5);
  return std::min((1 + lag1) / (1 - lag1), kMaxCorrelation);
}

double OutlierFilter::Noise() const {
  return accepted > 0 ? std::sqrt(residual_square / accepted * Correlation()) : 0;
}

}  // namespace seqpoint
