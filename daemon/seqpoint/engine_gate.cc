// Which iterations are ordinary: what of a time counts for its key, what is cut off or set apart as
// a stall, and which keys have a level of their own. docs/internals/seqpoint-engine.md, Time.
#include <algorithm>
#include <cmath>
#include <utility>

#include "daemon/seqpoint/engine_state.h"

namespace seqpoint {
namespace {

constexpr size_t kFirstCurve = 32;  // times before stalls are told from others one by one
constexpr size_t kSampleSize = 1024;
constexpr double kRegimeRate = 0.25;  // more stalls than that are no stalls
constexpr double kRateMemory = 1.0 / 32;
constexpr size_t kMaxRecentOutliers = 64;
// Beyond this an iteration is slow, and no measure of the common noise.
constexpr double kCoreDeviations = 6;
constexpr double kMinCore = 0.03;
// A key's own deviation from the curve leans on none as on this many iterations.
constexpr double kBaselineShrinkage = 2;
// So many iterations of a key that were cut and agree may be its ordinary ones, where at least as
// many of other keys ran between them.
constexpr double kLeastAgreeing = 3;
constexpr double kAgreeingDeviations = 4, kMostAgreement = 0.25;
// The level of times is a moving average over about as many iterations.
constexpr double kLevelMemory = 1.0 / 32;
// A curve through few times is itself uncertain: its bounds are wider by this over their number.
constexpr double kYoungGateCurve = 96;

Quadratic CurveOf(absl::Span<const KeyTime> times, const std::vector<bool>& left_out) {
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

void OnlineEngine::State::JudgeRepeated(const KeyTime& time, KeyRecord& record) {
  timed += 1;
  if (!gate_curve.has_value()) {
    pending.push_back(time);
    if (pending.size() < kFirstCurve) return;
    std::erase_if(pending, [this](const KeyTime& t) { return LengthUnknown(t.key); });
    if (pending.size() < kFirstCurve) return;
    const std::vector<bool> outlier = FindOutliers(pending);
    std::vector<KeyTime> waiting = std::move(pending);
    pending.clear();
    gate_curve = CurveOf(waiting, outlier);
    SetGates();
    for (size_t i = 0; i < waiting.size(); ++i) {
      KeyRecord& its = keys[waiting[i].key];
      if (outlier[i]) {
        NoteCut(waiting[i], 0, SetApart(waiting[i], its, 1), its);
      } else {
        Accept(waiting[i], its);
      }
    }
    return;
  }
  if (timed >= next_curve_at) RefreshCurve();
  const double residual = time.time_ns / NormalTime(time.key, record) - 1;
  const bool outlier = std::abs(residual) > gate;
  outlier_rate += kRateMemory * (static_cast<double>(outlier) - outlier_rate);
  if (!outlier) {
    Accept(time, record);
    if (outlier_rate < kRateMemory) recent_outliers.clear();
    return;
  }
  if (recent_outliers.size() < kMaxRecentOutliers) recent_outliers.push_back(time);
  NoteCut(time, 0, SetApart(time, record, 1), record);
  if (outlier_rate < kRegimeRate) return;
  // Too many to be stalls: this is how long iterations take now.
  ++regime_changes;
  gate = core = std::max(gate, 2 * std::abs(residual));
  cut_times.clear();
  for (const KeyTime& o : std::exchange(recent_outliers, {})) {
    KeyRecord& its = keys[o.key];
    SetApart(o, its, -1);
    Accept(o, its);
  }
  outlier_rate = 0;
  const double widened = gate;
  RefreshCurve();
  gate = core = widened;
}

// What deviations are judged by.
double OnlineEngine::State::NormalTime(const Key& key, const KeyRecord& record) const {
  return record.own ? record.mean_ns / record.level * level : (*gate_curve)(key);
}

// Counts a stall, or with sign -1 takes it back. Returns what it took beyond the normal.
double OnlineEngine::State::SetApart(const KeyTime& time, const KeyRecord& record, int sign) {
  const double excess = time.time_ns - NormalTime(time.key, record);
  totals.outliers += static_cast<uint64_t>(sign);
  slow_excess_ns += sign * excess;
  slow_excess_square = std::max(0.0, slow_excess_square + sign * excess * excess);
  return excess;
}

// An iteration that is no stall. What it takes beyond the common noise is cut off and summed apart:
// one slow iteration in a hundred is larger than all other noise, and would bend the curve where it
// happens to fall.
void OnlineEngine::State::Accept(const KeyTime& time, KeyRecord& key) {
  // Drift is followed at some distance, so that neither a cut nor a key's own mean hides it.
  const double curve = (*gate_curve)(time.key) / gate_level;
  const double base = key.own ? key.mean_ns / key.level : curve;
  const double expected = base * level;
  const double deviation = time.time_ns / expected - 1;
  const double common = expected * (1 + std::clamp(deviation, -core, core));
  slow_excess_ns += time.time_ns - common;
  slow_excess_square += (time.time_ns - common) * (time.time_ns - common);

  // For drift, less what is peculiar to the key: steps of the cost curve are no noise in time.
  const double own = key.timed > 0 ? key.timed * key.mean_ns / key.level : 0;
  const double peculiar = (own + kBaselineShrinkage * base) / (key.timed + kBaselineShrinkage);
  const double rest = std::clamp(common / (peculiar * level) - 1, -core / 3, core / 3);
  residual_square += rest * rest;
  residual_product += rest * previous_residual;
  previous_residual = rest;
  accepted += 1;
  trace.Add(newest, time.key, curve * level * (1 + rest));

  key.timed += 1;
  key.level += (level - key.level) / key.timed;
  const double delta = common - key.mean_ns;
  key.mean_ns += delta / key.timed;
  key.m2 += delta * (common - key.mean_ns);
  if (std::abs(deviation) > core) {
    NoteCut(time, common, time.time_ns - common, key);
  } else if (!cut_times.empty()) {
    NoteUncut(time.key);
  }
  level *= 1 + kLevelMemory * rest;
  level_sum += level;
}

// How far times of one key that agree may differ.
double OnlineEngine::State::Agreement() const {
  const double noise = accepted > 0 ? std::sqrt(residual_square / accepted) : 0;
  return std::clamp(kAgreeingDeviations * noise, kMinCore, kMostAgreement);
}

// Where the curve misses a length, its ordinary iterations look slow, or too fast. They differ from
// slow ones in that they agree, and that they are most of their key's. The candidate is what a
// majority vote leaves. `accepted_ns`: what the time was cut to, 0 for a stall.
void OnlineEngine::State::NoteCut(const KeyTime& time, double accepted_ns, double excess_ns,
                                  KeyRecord& record) {
  cut += 1;
  CutTimes& t = cut_times[time.key];
  if (t.count > 0 && std::abs(time.time_ns / level / (t.mean_ns / t.level) - 1) > Agreement()) {
    t.against += 1;
    if (t.against < t.count) return;
    t = {};
  }
  if (t.count == 0) {
    t.timed_before = timed - 1;
    t.cut_before = cut - 1;
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
  if (!IsOwnLevel(t, record)) return;
  TakeBack(time.key, t, record);
  cut_times.erase(time.key);
}

void OnlineEngine::State::NoteUncut(const Key& key) {
  const auto found = cut_times.find(key);
  if (found == cut_times.end()) return;
  found->second.against += 1;
  if (found->second.against >= found->second.count) cut_times.erase(found);
}

bool OnlineEngine::State::IsOwnLevel(const CutTimes& t, const KeyRecord& record) const {
  if (t.count < kLeastAgreeing || t.count <= record.timed - t.accepted) return false;
  // Where other keys are cut as well, all iterations take longer now, and for how long is not said.
  const double elsewhere = timed - t.timed_before - t.count - t.against;
  const double cut_elsewhere = cut - t.cut_before - t.count;
  return elsewhere >= kLeastAgreeing && 2 * cut_elsewhere <= elsewhere;
}

// These are the key's ordinary times.
void OnlineEngine::State::TakeBack(const Key& key, const CutTimes& t, KeyRecord& record) {
  const double stalls = t.count - t.accepted;
  totals.outliers -= std::min(totals.outliers, static_cast<uint64_t>(stalls));
  accepted += stalls;
  level_sum += stalls * t.level;
  residual_square += stalls * t.m2 / t.count / (t.mean_ns * t.mean_ns);
  slow_excess_ns -= t.excess_ns;
  slow_excess_square = std::max(0.0, slow_excess_square - t.excess_square);
  std::erase_if(recent_outliers, [&](const KeyTime& o) { return o.key == key; });
  outlier_rate = std::max(0.0, outlier_rate - kRateMemory * stalls);

  // The fewer others are ordinary where they agree with them; else it is they that are cut.
  const double others = std::max(0.0, record.timed - t.accepted);
  double off = 0;  // by how much
  if (others > 0) {
    off = std::max(1.0, (record.timed * record.mean_ns - t.accepted_ns) / others) - t.mean_ns;
    if (std::abs(off) > Agreement() * t.mean_ns) {
      slow_excess_ns += others * off;
      slow_excess_square += others * off * off;
      off = 0;
    }
  }
  const double timed_now = t.count + others;
  record.m2 = t.m2 * timed_now / t.count + t.count * others / timed_now * off * off;
  record.mean_ns = t.mean_ns + others / timed_now * off;
  record.level = (t.count * t.level + others * record.level) / timed_now;
  record.timed = timed_now;
  record.own = true;
}

// At every doubling, so that it costs O(1) per iteration.
void OnlineEngine::State::RefreshCurve() {
  gate_curve = CurveOfOthers(RegularTimes(), OwnKeys());
  gate_level = level_sum / accepted;
  SetGates();
}

// By the sample: what is common noise, and what a stall.
void OnlineEngine::State::SetGates() {
  std::vector<double> deviations;
  for (const SampledTime& t : sample) {
    const auto record = keys.find(t.key);
    if (t.first || record == keys.end()) continue;
    deviations.push_back(std::abs(t.time_ns / NormalTime(t.key, record->second) - 1));
  }
  double mad = 0;
  if (!deviations.empty()) {
    std::nth_element(deviations.begin(), deviations.begin() + deviations.size() / 2,
                     deviations.end());
    mad = deviations[deviations.size() / 2];
  }
  gate = std::max(kOutlierShare, kOutlierDeviations * mad);
  core = std::max(kMinCore, kCoreDeviations * mad) * (1 + kYoungGateCurve / timed);
  next_curve_at = 2 * timed;
}

// Reservoir sampling; the generator is part of the state (splitmix64).
void OnlineEngine::State::Sample(const SampledTime& time) {
  ++sampled_from;
  if (sample.size() < kSampleSize) {
    sample.push_back(time);
    return;
  }
  uint64_t x = random_state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  const uint64_t place = x % sampled_from;
  if (place < kSampleSize) sample[place] = time;
}

}  // namespace seqpoint
