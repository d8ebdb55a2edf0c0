#include "daemon/seqpoint/engine.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/seqpoint/cells.h"
#include "daemon/seqpoint/engine_state.h"

namespace seqpoint {
namespace {

constexpr int kTargetCells = 128;
// With so many others, first occurrences say nothing about what the key explains.
constexpr ptrdiff_t kEnoughRepeated = 256;
constexpr double kMaxCorrelation = 3;
// Slow iterations that nobody has seen yet: as if half a one of 30 % had been.
constexpr double kUnseenSlow = 0.5;
constexpr double kUnseenSlowExcess = 0.3;
// While there are few but first occurrences, nobody knows by how much they are dearer than others.
constexpr double kUnknownSurcharge = 0.1;
// Measurements of slow iterations: found from so many on, and this few.
constexpr size_t kMinMeasuredForSlow = 12;
constexpr double kMostSlowMeasured = 0.1;
constexpr double kMostBelowCore = 3;
constexpr double kVisibleShare = 5e-4;
// How likely a statistic that may follow time grows in slow iterations, and with the drift, before
// anything was measured; and how likely any statistic grows in first occurrences.
constexpr double kFollows = 0.7, kFollowsFirsts = 0.15;
constexpr double kSeenSlow = 0.98;
// Slow iterations that raise a statistic by more times than they raise times are not those that
// times show: half again as much as where the least of the shares above is work on the GPU.
constexpr double kMostShown = 1.5 / 0.45;
// Half a slow iteration in so many is expected where times do not show them, before one was
// measured: the 1 % of the simulated runs.
constexpr double kUsualGap = 50;
// What does not follow times may drift by itself: as much as is most probable for times (drift.cc).
constexpr double kUnseenDrift = 0.002;
// So many statistics of a set tell whether an iteration was slow as a whole, and this share of them
// is enough: amounts say nothing, and of kernels only few are picked by a length.
constexpr size_t kMostWitnesses = 64;
constexpr double kAgreeing = 0.25;
// What follows may be a part of an iteration's time, as GPU work beside gaps: then it changes by as
// much, and relative to itself by more. Evenly likely shares; below the least, most of the time is
// no GPU work.
constexpr double kShares[] = {1, 0.7, 0.45};
constexpr double kLeastLevel = 0.1;
constexpr double kToldVariance = 0.04;  // of the factor, where one slow iteration or a few told it
constexpr int kWays = 1 + std::size(kShares);  // not to follow is one, too
constexpr double kDoubtBelow = 2;
constexpr double kMostEvidence = 5;
// So often a length is expected that is known to come.
constexpr double kCertain = 100;
constexpr double kHistogramSlack = 0.02;
// A quadratic from sums says nothing of lengths beyond those that ran; of so few iterations it may.
constexpr double kMostOutside = 0.05;
constexpr double kToldDrift = 0.04;  // width of an interval that is worth a word

bool IsValid(const Key& key) { return key.first >= 0 && key.second >= 0; }

double SumOf(absl::Span<const CurveTarget> targets) {
  double sum = 0;
  for (const CurveTarget& t : targets) sum += t.weight;
  return sum;
}

std::vector<Normal> Shifted(std::vector<Normal> mixture, double mean, double variance) {
  for (Normal& n : mixture) {
    n.mean += mean;
    n.variance += variance;
  }
  return mixture;
}

Estimate Scaled(const Estimate& e, double factor) {
  return {e.value * factor, e.low * factor, e.high * factor};
}

// The variance of a cost over the keys that occurred, on the scale of the cells.
double SpreadOverCells(const CostCurve& cost, absl::Span<const CurveTarget> targets) {
  std::vector<CurveTarget> cells;
  for (const CurveTarget& t : targets) {
    if (t.cell >= static_cast<int>(cells.size())) cells.resize(t.cell + 1, {{0, 0}, 0, 0, 0});
    CurveTarget& cell = cells[t.cell];
    for (int d = 0; d < 2; ++d) cell.point[d] += t.weight * t.point[d];
    cell.scale += t.weight * t.scale;
    cell.weight += t.weight;
  }
  double count = 0, mean = 0, m2 = 0;
  for (const CurveTarget& c : cells) {
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

struct OutlookRow {
  Key key;
  double past = 0, untimed = 0, remaining = 0;  // iterations
};

// Whether the past cannot come from the given histogram (in `remaining`). An expected distribution
// need not hold every pair of lengths, only their range.
bool MatchesBadly(absl::Span<const OutlookRow> rows, bool expected_only, double so_far) {
  Key low = {INT64_MAX, INT64_MAX}, high;
  for (const OutlookRow& row : rows) {
    if (row.remaining == 0) continue;
    low = {std::min(low.first, row.key.first), std::min(low.second, row.key.second)};
    high = {std::max(high.first, row.key.first), std::max(high.second, row.key.second)};
  }
  double strangers = 0;
  for (const OutlookRow& row : rows) {
    const bool within = low.first <= row.key.first && row.key.first <= high.first &&
                        low.second <= row.key.second && row.key.second <= high.second;
    if (!expected_only) {
      strangers += std::max(0.0, row.past - row.remaining);
    } else if (!within) {
      strangers += row.past;
    }
  }
  return strangers > kHistogramSlack * so_far + 3;
}

// What is left of the run's histogram, key by key, or where that is only expected, cell by cell.
void TakeOffPast(std::vector<OutlookRow>& rows, bool expected_only, const Quadratic& curve) {
  if (!expected_only) {
    for (OutlookRow& row : rows) row.remaining = std::max(0.0, row.remaining - row.past);
    return;
  }
  std::vector<Key> keys;
  std::vector<double> mass;
  for (const OutlookRow& row : rows) {
    keys.push_back(row.key);
    mass.push_back((row.past + row.remaining) * curve(row.key));
  }
  const std::vector<int> cells = CutIntoCells(keys, mass, kTargetCells);
  std::vector<double> past(kTargetCells), whole(kTargetCells);
  for (size_t i = 0; i < rows.size(); ++i) {
    past[cells[i]] += rows[i].past;
    whole[cells[i]] += rows[i].remaining;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const double share = whole[cells[i]] > 0 ? past[cells[i]] / whole[cells[i]] : 0;
    rows[i].remaining *= std::max(0.0, 1 - share);
  }
}

// By how much each measurement's value lies above a robust curve through all of them, relative;
// empty where one is not positive.
std::vector<double> AboveCurve(absl::Span<const Measurement> measurements,
                               absl::Span<const double> values, const TimeModel& model) {
  std::vector<Key> keys;
  std::vector<double> adjusted;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] > 0)) return {};
    keys.push_back(measurements[i].key);
    adjusted.push_back(values[i]);
    // A key that the curve of times misses may be missed alike here, and is not slow for that.
    const double expected = model.Expected(keys[i]), own = model.At(keys[i]);
    if (model.OwnCell(keys[i]).has_value() && own > 0) adjusted.back() *= expected / own;
  }
  const Quadratic fit = Quadratic::Fit(keys, adjusted, std::vector<double>(keys.size(), 1.0));
  std::vector<double> excess;
  for (size_t i = 0; i < keys.size(); ++i) excess.push_back(adjusted[i] / fit(keys[i]) - 1);
  return excess;
}

// Beyond this a measurement is of a slow iteration, or of a length that has more kernels.
double GateOf(absl::Span<const double> excess, double core) {
  std::vector<double> misses;
  for (const double e : excess) misses.push_back(std::abs(e));
  std::nth_element(misses.begin(), misses.begin() + misses.size() / 2, misses.end());
  return std::max(core, kOutlierDeviations * misses[misses.size() / 2]);
}

struct SlowMeasurements {
  std::vector<bool> which;  // empty: none
  double above = 0;         // by how much they lie above the curve, relative, in the mean
  bool certain = false;     // enough of what else was measured with them says the same
};

// The few measurements that lie far above a robust curve through all of them: of slow iterations,
// whose share of the run is known better than from so small a sample, if what was measured with
// them is above as well; what jumps alone may also be a length at which a kernel is picked.
SlowMeasurements FindSlow(absl::Span<const Measurement> measurements,
                          absl::Span<const double> values, const TimeModel& model, double core) {
  SlowMeasurements found;
  if (measurements.size() < kMinMeasuredForSlow) return found;
  const std::vector<double> excess = AboveCurve(measurements, values, model);
  if (excess.empty()) return found;
  const double gate = GateOf(excess, core);
  const auto slow = std::count_if(excess.begin(), excess.end(), [&](double e) { return e > gate; });
  const auto count = static_cast<double>(excess.size());
  if (slow == 0 || static_cast<double>(slow) > kMostSlowMeasured * count) return found;
  for (const double e : excess) {
    found.which.push_back(e > gate);
    if (e > gate) found.above += e / static_cast<double>(slow);
  }
  double witnesses = 0, agreeing = 0;
  const size_t most = std::min(kMostWitnesses, measurements.front().values.size());
  std::vector<double> other(measurements.size());
  for (size_t index = 0; index < most; ++index) {
    for (size_t i = 0; i < measurements.size(); ++i) {
      other[i] = index < measurements[i].values.size() ? measurements[i].values[index] : 0;
    }
    if (std::equal(other.begin(), other.end(), values.begin())) continue;  // itself
    const std::vector<double> others = AboveCurve(measurements, other, model);
    if (others.empty()) continue;
    for (size_t i = 0; i < others.size(); ++i) {
      if (!found.which[i]) continue;
      ++witnesses;
      agreeing += others[i] > core ? 1 : 0;
    }
  }
  found.certain = agreeing >= kAgreeing * witnesses;
  return found;
}

// What the measured iterations cannot show of a statistic of which they show that it, or others of
// its set, are there at some lengths and not at others.
class Jumps {
 public:
  Jumps(absl::Span<const Measurement> measurements, absl::Span<const double> values,
        const KeyScale& scale) {
    double with = 0, sum = 0;
    for (size_t i = 0; i < measurements.size(); ++i) {
      const Point at = scale(measurements[i].key);
      for (int d = 0; d < 2; ++d) {
        low_[d] = i == 0 ? at[d] : std::min(low_[d], at[d]);
        high_[d] = i == 0 ? at[d] : std::max(high_[d], at[d]);
      }
      with += values[i] != 0 ? 1 : 0;
      sum += std::abs(values[i]);
    }
    if (with == 0) return;
    const auto count = static_cast<double>(measurements.size());
    // Half a measurement with it and half a one without were seen on top: that all others had it,
    // or none, does not mean that every iteration has.
    const double share = (with + 0.5) / (count + 1);
    if (with < count) presence_variance_ = std::pow(sum / with, 2) * share * (1 - share) / count;
    NoteOthers(measurements);
    if (with < count) probability_ = 1;
    beyond_ = std::min(sum / with, beyond_);
  }

  // The least variance of the sum over `targets`.
  double LeastVariance(absl::Span<const CurveTarget> targets) const {
    return std::pow(SumOf(targets), 2) * presence_variance_;
  }
  // At lengths shorter or longer than any that was measured it may be there or not as well: what
  // that may add to the sum over `targets`. All of them, or none, may have so much more or less.
  std::vector<Normal> Beyond(absl::Span<const CurveTarget> targets) const {
    double beyond = 0;
    for (const CurveTarget& t : targets) {
      const bool within = low_[0] <= t.point[0] && t.point[0] <= high_[0] &&
                          low_[1] <= t.point[1] && t.point[1] <= high_[1];
      if (!within) beyond += t.weight;
    }
    if (!(beyond * beyond_ > 0)) return {{1, 0, 0}};
    return {{1 - probability_, 0, 0}, {probability_, 0, std::pow(beyond * beyond_, 2) / 3}};
  }

 private:
  // How many of the set's statistics come and go, and by how much at most.
  void NoteOthers(absl::Span<const Measurement> measurements) {
    std::vector<double> sums, with;
    for (const Measurement& m : measurements) {
      sums.resize(std::max(sums.size(), m.values.size()));
      with.resize(sums.size());
      for (size_t i = 0; i < m.values.size(); ++i) {
        sums[i] += std::abs(m.values[i]);
        with[i] += m.values[i] != 0 ? 1 : 0;
      }
    }
    double all = 0, jumping = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      all += with[i] > 0 ? 1 : 0;
      if (with[i] == 0 || with[i] == static_cast<double>(measurements.size())) continue;
      ++jumping;
      beyond_ = std::max(beyond_, sums[i] / with[i]);
    }
    probability_ = jumping / all;
  }

  Point low_ = {}, high_ = {};  // of the lengths that were measured
  double presence_variance_ = 0;
  double beyond_ = 0;  // of one iteration
  double probability_ = 0;
};

// How far the lengths of `coming` are from those of `past`: the square root of the sum over cells
// of (p - q)^2 / q, of shares p and q, beyond what drawing both at random makes of it. What a curve
// misses by `noise` in an iteration, it misses by at most so many times that in the mean of others.
double ShiftOf(absl::Span<const CurveTarget> past, absl::Span<const CurveTarget> coming) {
  constexpr double kUnseen = 0.5;  // iterations in a cell that had none
  std::map<int, std::pair<double, double>> cells;
  double before = 0, after = 0;
  for (const CurveTarget& t : past) cells[t.cell].first += t.weight, before += t.weight;
  for (const CurveTarget& t : coming) cells[t.cell].second += t.weight, after += t.weight;
  if (!(before > 0) || !(after > 0)) return 0;
  double square = 0;
  for (const auto& [cell, weights] : cells) {
    const double q = std::max(weights.first, kUnseen) / before, p = weights.second / after;
    square += (p - q) * (p - q) / q;
  }
  const auto count = static_cast<double>(cells.size());
  return std::sqrt(std::max(0.0, square - count * (1 / before + 1 / after)));
}

// A cost is never negative, whatever the normal approximation says.
Estimate NotBelow(double floor, Estimate e) {
  return {std::max(e.value, floor), std::max(e.low, floor), std::max(e.high, floor)};
}

// 1234567 -> "1,234,567".
std::string Grouped(uint64_t count) {
  if (count < 1000) return absl::StrCat(count);
  return absl::StrFormat("%s,%03d", Grouped(count / 1000), count % 1000);
}

std::string InWords(const KeyFit& fit) {
  switch (fit.verdict) {
    case KeyVerdict::kTooFew:
      break;
    case KeyVerdict::kExplained:
      return absl::StrFormat("the length explains %.1f %% of the variance of time",
                             100 * fit.explained);
    case KeyVerdict::kNotExplained:
      return absl::StrFormat(
          "the length does not explain time (%.1f %% of its variance): iterations count as drawn "
          "at random",
          100 * fit.explained);
    case KeyVerdict::kTimeHardlyVaries:
      return absl::StrFormat("time hardly varies (%.1f %%)", 100 * fit.robust_variation);
  }
  return "too few to say what explains time";
}

}  // namespace

Horizon Horizon::Iterations(int64_t iterations) { return {Kind::kIterations, iterations, {}}; }

Horizon Horizon::Histogram(std::vector<KeyCount> histogram, int64_t epochs) {
  Horizon horizon{Kind::kHistogram, 0, std::move(histogram)};
  for (KeyCount& k : horizon.histogram) {
    // What overflows is refused by SetHorizon as negative.
    if (__builtin_mul_overflow(k.count, epochs, &k.count)) k.count = -1;
    if (__builtin_add_overflow(horizon.iterations, k.count, &horizon.iterations)) k.count = -1;
  }
  return horizon;
}

Horizon Horizon::Distribution(std::vector<KeyCount> histogram, int64_t epochs) {
  Horizon horizon = Histogram(std::move(histogram), epochs);
  horizon.kind = Kind::kDistribution;
  return horizon;
}

std::optional<Estimate> RatioOf(const Estimate& numerator, const Estimate& denominator) {
  if (!(denominator.low > 0)) return std::nullopt;
  const double value = numerator.value / denominator.value;
  // Half-widths relative to the value add in squares, on each side.
  const auto reach = [&](double n, double d) {
    return std::hypot((n - numerator.value) / denominator.value,
                      value * (d - denominator.value) / denominator.value);
  };
  return Estimate{value, value - reach(numerator.low, denominator.high),
                  value + reach(numerator.high, denominator.low)};
}

OnlineEngine::OnlineEngine() : state_(std::make_unique<State>()) {}
OnlineEngine::~OnlineEngine() = default;
OnlineEngine::OnlineEngine(OnlineEngine&&) noexcept = default;
OnlineEngine& OnlineEngine::operator=(OnlineEngine&&) noexcept = default;

OnlineEngine OnlineEngine::Copy() const {
  OnlineEngine copy;
  *copy.state_ = *state_;
  return copy;
}

void OnlineEngine::AddIteration(const IterationSample& sample) {
  State& s = *state_;
  if (log_) log_->Add(sample);
  if (!IsValid(sample.key) || sample.time_ns < 0 || sample.time_ns > kMaxTimeNs) {
    ++s.totals.rejected;
    return;
  }
  s.fit.reset();
  const double time = static_cast<double>(sample.time_ns);
  if (sample.phase == Phase::kOther) {
    ++s.totals.other_iterations;
    s.totals.other_time_ns += time;
    return;
  }
  const bool timed = sample.time_ns > 0 && !sample.distorted && !sample.measured;
  const bool usable = timed && sample.rest_ns <= 0;  // for what others take, too
  s.totals.observed_time_ns += time;
  s.totals.untimed += sample.time_ns == 0;
  s.totals.distorted += sample.distorted;
  s.totals.measured += sample.measured;
  s.totals.redone += sample.redone;
  const bool counted = !sample.redone;
  s.newest = std::max(s.newest, sample.iteration);
  if (counted) {
    ++s.totals.iterations;
    if (timed) s.exact_time_ns += time;
    if (timed && !usable) s.rest_ns += static_cast<double>(std::min(sample.rest_ns, kMaxTimeNs));
  }
  if (usable) {
    if (!s.LengthUnknown(sample.key)) s.plain.Add(sample.iteration, sample.key, time);
    s.plain_count += 1;
    s.plain_sum += time;
    s.plain_square += time * time;
  }
  auto record = s.keys.find(sample.key);
  if (record == s.keys.end()) {
    if (s.keys.size() >= kMaxKeys) {
      ++s.totals.rejected;
      if (counted && !timed) ++s.overflow_untimed;
      return;
    }
    record = s.keys.try_emplace(sample.key).first;
    ++s.totals.unique_keys;
  }
  s.two_dimensional |= sample.key.second != 0;
  KeyRecord& key = record->second;
  if (counted) {
    ++key.iterations;
    if (!timed) ++key.untimed;
  }
  const bool first = s.NoteLengths(sample);
  if (first) {
    ++s.totals.first_occurrences;
    s.firsts[sample.iteration] = {sample.key, timed ? time : 0};
  }
  const bool again = sample.first && !first;
  if (again && sample.measured && s.again_measured.size() < kMaxSpent) {
    s.again_measured.insert(sample.iteration);
  }
  if (again) {
    ++s.totals.first_occurrences;
    (timed ? s.again_timed : s.again_untimed) += counted ? 1 : 0;
  }
  if (!usable) return;
  if (again) {
    ++key.again;
    s.again_ns += time;
    return;
  }
  s.Sample({sample.key, time, first});
  if (first) return;
  if (!s.LengthUnknown(sample.key)) {
    s.JudgeRepeated({sample.key, time}, key);
  }
}

absl::Status OnlineEngine::AddStretch(absl::Span<const StretchIteration> iterations,
                                      int64_t time_ns) {
  State& s = *state_;
  if (log_) log_->Add(iterations, time_ns);
  const size_t count = iterations.size();
  if (count == 0 || count > kMaxStretch || time_ns <= 0 || time_ns > kMaxTimeNs) {
    return absl::InvalidArgumentError(absl::StrCat(count, " iterations took ", time_ns,
                                                   " ns together: give 1 to ", kMaxStretch,
                                                   " of them, and a time"));
  }
  absl::flat_hash_map<Key, int64_t> wanted;
  for (const StretchIteration& i : iterations) ++wanted[i.key];
  for (const auto& [key, times] : wanted) {
    const auto record = s.keys.find(key);
    if (record != s.keys.end() && record->second.untimed >= times) continue;
    return absl::InvalidArgumentError(absl::StrCat("fewer than ", times, " iterations of length (",
                                                   key.first, ", ", key.second,
                                                   ") wait for a time; add them first"));
  }
  s.fit.reset();
  std::vector<Key> keys;
  uint64_t last = 0;
  for (const StretchIteration& i : iterations) {
    keys.push_back(i.key);
    last = std::max(last, i.iteration);
    --s.keys[i.key].untimed;
    // The time of the stretch includes the surcharge of a first occurrence.
    const auto first = s.firsts.find(i.iteration);
    if (first != s.firsts.end()) {
      first->second.together = true;
    } else if (i.first) {
      s.again_untimed = std::max(0.0, s.again_untimed - 1);
    }
  }
  const auto time = static_cast<double>(time_ns);
  s.totals.untimed -= std::min<uint64_t>(s.totals.untimed, count);
  s.totals.together += count;
  ++s.totals.stretches;
  s.totals.observed_time_ns += time;
  s.exact_time_ns += time;
  s.stretches.Add(last, keys, time);
  return absl::OkStatus();
}

// A length is new when either dimension's value is: kernels of that shape never ran before. With
// micro-batches it is theirs, not their sum. True when one is.
bool OnlineEngine::State::NoteLengths(const IterationSample& sample) {
  bool first = false;
  const auto note = [&](int list, int64_t value) {
    if (first_seen[list].size() >= kMaxKeys) return first_seen[list].contains(value);
    first |= first_seen[list].try_emplace(value, sample.iteration).second;
    return true;
  };
  if (!sample.combined) {
    note(0, sample.key.first);
    note(1, sample.key.second);
    return first;
  }
  for (const Part& part : sample.parts) {
    if (!IsValid(part.key)) continue;
    sums = true;
    for (int d = 0; d < 2; ++d) {
      const int64_t value = d == 0 ? part.key.first : part.key.second;
      const int list = LengthList(d, part.kind);
      if (note(list, value)) ++part_counts[list][value];
    }
  }
  return first;
}

double OnlineEngine::State::PartCount(int list) const {
  double count = 0;
  for (const auto& [value, times] : part_counts[list]) count += static_cast<double>(times);
  return count;
}

absl::Status OnlineEngine::AddMeasurement(uint32_t set, uint64_t iteration, const Key& key,
                                          absl::Span<const double> values) {
  State& s = *state_;
  if (log_) log_->Add(set, iteration, key, values);
  const auto refuse = [&](absl::Status status) {
    ++s.totals.measurements_refused;
    if (s.spent.size() < kMaxSpent) s.spent.insert(iteration);
    return status;
  };
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::abs(values[i]) <= kMaxMagnitude)) {
      return refuse(absl::InvalidArgumentError(
          absl::StrCat("statistic ", i, " of set ", set, " in iteration ", iteration, " is ",
                       values[i], ", not a finite number; drop the iteration's measurement")));
    }
  }
  if (values.size() > kMaxValues) {
    return refuse(absl::ResourceExhaustedError(absl::StrCat(
        "set ", set, " has ", values.size(), " statistics; at most ", kMaxValues, " are kept")));
  }
  if (!s.keys.contains(key)) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("iteration ", iteration, " was measured with key (", key.first, ", ",
                     key.second, "), which never occurred; add the iteration first")));
  }
  // Early in a run nearly every sum holds a first occurrence, and the budget is soon spent: it is
  // measured all the same.
  if (!s.sums && (s.firsts.contains(iteration) || s.again_measured.contains(iteration)) &&
      s.Current().model.firsts != TimeModel::Firsts::kOrdinary) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("iteration ", iteration, " is the first occurrence of its length (", key.first,
                     ", ", key.second, ") and may hold algorithm search; it is not used")));
  }
  const auto found = s.sets.find(set);
  if (found == s.sets.end() && s.sets.size() >= kMaxSets) {
    return refuse(absl::ResourceExhaustedError(
        absl::StrCat("set ", set, " is beyond the ", kMaxSets, " sets that are kept")));
  }
  std::vector<Measurement>& measurements = s.sets[set];
  if (measurements.size() >= kMaxMeasurementsPerSet) {
    return refuse(absl::ResourceExhaustedError(absl::StrCat(
        "set ", set, " already has ", kMaxMeasurementsPerSet, " measurements; no more are kept")));
  }
  measurements.push_back({iteration, key, {values.begin(), values.end()}});
  ++s.totals.measurements_used;
  if (s.spent.size() < kMaxSpent) s.spent.insert(iteration);
  return absl::OkStatus();
}

absl::Status OnlineEngine::SetHorizon(Horizon horizon) {
  if (horizon.iterations < 0 || horizon.iterations > kMaxIterations) {
    return absl::InvalidArgumentError(absl::StrCat("a horizon of ", horizon.iterations,
                                                   " iterations; give 1 to ", kMaxIterations));
  }
  if (horizon.histogram.size() > kMaxKeys || horizon.parts.size() > kMaxKeys) {
    return absl::InvalidArgumentError(
        absl::StrCat("a histogram of ", horizon.histogram.size(), " lengths; at most ", kMaxKeys,
                     " are handled: round the lengths to a multiple"));
  }
  for (const std::vector<KeyCount>* list : {&horizon.histogram, &horizon.parts}) {
    for (const KeyCount& k : *list) {
      if (!IsValid(k.key) || k.count < 0) {
        return absl::InvalidArgumentError(absl::StrCat("length (", k.key.first, ", ", k.key.second,
                                                       ") with count ", k.count,
                                                       ": neither may be negative or overflow"));
      }
    }
  }
  if (horizon.iterations == 0) horizon = Horizon::Unknown();
  // One entry per key, in key order.
  std::sort(horizon.histogram.begin(), horizon.histogram.end(),
            [](const KeyCount& a, const KeyCount& b) { return a.key < b.key; });
  std::vector<KeyCount> merged;
  for (const KeyCount& k : horizon.histogram) {
    if (k.count == 0) continue;
    if (!merged.empty() && merged.back().key == k.key) {
      merged.back().count += k.count;
    } else {
      merged.push_back(k);
    }
  }
  horizon.histogram = std::move(merged);
  if (log_) log_->Add(horizon);
  state_->horizon = std::move(horizon);
  ++state_->horizon_version;
  state_->fit.reset();
  return absl::OkStatus();
}

// In key order: hash maps have one of their own, which answers must not depend on.
std::vector<std::pair<Key, KeyRecord>> OnlineEngine::State::SortedRecords() const {
  std::vector<std::pair<Key, KeyRecord>> records(keys.begin(), keys.end());
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return records;
}

std::vector<KeyTimes> OnlineEngine::State::RegularTimes() const {
  std::vector<KeyTimes> times;
  for (const auto& [key, record] : SortedRecords()) {
    if (record.timed > 0 && !LengthUnknown(key)) {
      times.push_back({key, record.timed, record.mean_ns, record.m2});
    }
  }
  return times;
}

std::vector<Key> OnlineEngine::State::OwnKeys() const {
  std::vector<Key> own;
  for (const auto& [key, record] : keys) {
    if (record.own) own.push_back(key);
  }
  std::sort(own.begin(), own.end());
  return own;
}

ValueHistory OnlineEngine::State::HistoryOf(int list) const {
  std::vector<std::pair<uint64_t, int64_t>> order;
  for (const auto& [value, iteration] : first_seen[list]) order.push_back({iteration, value});
  std::sort(order.begin(), order.end());
  std::vector<int64_t> values;
  for (const auto& [iteration, value] : order) values.push_back(value);
  return ValueHistory::Of(values);
}

OnlineEngine::State::FirstOccurrences OnlineEngine::State::Firsts() const {
  uint64_t start = UINT64_MAX;
  for (const auto& seen : first_seen) {
    for (const auto& [value, iteration] : seen) start = std::min(start, iteration);
  }
  FirstOccurrences found;
  absl::flat_hash_map<uint64_t, BucketCounts> opened;  // by iterations with a usable time
  for (int list = 0; list < kLengthLists; ++list) {
    for (const auto& [value, counts] : HistoryOf(list).opened) {
      const uint64_t iteration = first_seen[list].at(value);
      const auto first = firsts.find(iteration);
      const bool timed = first != firsts.end() && first->second.time_ns > 0;
      if (first != firsts.end() && first->second.together) continue;
      // The others are beside a measurement, mostly.
      if (!timed && LengthUnknown({value, 0})) continue;
      BucketCounts& to = timed ? opened[iteration] : found.untimed;
      for (int s = 0; s < kBucketSizes; ++s) to[s] += counts[s];
    }
  }
  for (const auto& [iteration, first] : firsts) {
    if (!(first.time_ns > 0) || LengthUnknown(first.key)) continue;
    found.times.push_back(
        {{first.key, first.time_ns}, opened[iteration], iteration == start, iteration});
  }
  // In the order of keys: hash maps have one of their own.
  std::sort(found.times.begin(), found.times.end(), [](const FirstTime& a, const FirstTime& b) {
    return std::tie(a.time.key, a.iteration) < std::tie(b.time.key, b.iteration);
  });
  return found;
}

// By how much the mean of neighbouring iterations is less certain than that of independent ones.
double OnlineEngine::State::Correlation() const {
  if (!(residual_square > 0)) return 1;
  const double lag1 = std::clamp(residual_product / residual_square, 0.0, 0.5);
  return std::min((1 + lag1) / (1 - lag1), kMaxCorrelation);
}

double OnlineEngine::State::CoreNoise() const {
  return accepted > 0 ? std::sqrt(residual_square / accepted * Correlation()) : 0;
}

KeyFit OnlineEngine::State::Explained(const TimeModel& model) const {
  // First occurrences pay for other things than their length. They are left out for being first,
  // not for their time, except where hardly anything would be left.
  const auto repeated =
      std::count_if(sample.begin(), sample.end(), [](const SampledTime& t) { return !t.first; });
  std::vector<Key> sampled_keys;
  std::vector<double> times;
  for (const SampledTime& t : sample) {
    if (LengthUnknown(t.key)) continue;
    if (t.first && !model.freed.empty()) continue;
    if (t.first && model.firsts == TimeModel::Firsts::kCostly) {
      const double expected = model.curve(t.key);
      if (repeated >= kEnoughRepeated || model.IsCostly(t.time_ns - expected, expected)) continue;
    }
    sampled_keys.push_back(t.key);
    times.push_back(t.time_ns);
  }
  // Of sums, what first occurrences cost can be taken off.
  for (const KeyTime& t : model.freed) {
    if (repeated >= kEnoughRepeated) break;
    sampled_keys.push_back(t.key);
    times.push_back(t.time_ns);
  }
  return FitKey(sampled_keys, times);
}

OnlineEngine::State::Outlook OnlineEngine::State::MakeOutlook(const TimeModel& model,
                                                              bool moving) const {
  Outlook outlook;
  std::vector<OutlookRow> rows;
  rows.reserve(keys.size() + horizon.histogram.size());
  for (const auto& [key, record] : keys) {
    rows.push_back(
        {key, static_cast<double>(record.iterations), static_cast<double>(record.untimed), 0});
  }
  std::sort(rows.begin(), rows.end(),
            [](const OutlookRow& a, const OutlookRow& b) { return a.key < b.key; });
  // Iterations whose length is not known (their records were lost) are like the others.
  if (!rows.empty() && LengthUnknown(rows.front().key)) {
    const OutlookRow unknown = rows.front();
    rows.erase(rows.begin());
    double known = 0;
    for (const OutlookRow& row : rows) known += row.past;
    for (OutlookRow& row : rows) {
      const double share = known > 0 ? row.past / known : 0;
      row.past += share * unknown.past;
      row.untimed += share * unknown.untimed;
    }
    outlook.untimed_unknown = unknown.untimed;
  }

  const double so_far = static_cast<double>(totals.iterations);
  const double done = horizon.another ? 0 : so_far;  // of the run that is asked about
  const double total = static_cast<double>(horizon.iterations);
  outlook.iterations_total = std::max<int64_t>(horizon.iterations, static_cast<int64_t>(done));
  outlook.overrun = horizon.kind != Horizon::Kind::kUnknown && done > total;
  // Past its horizon the run is as long as nobody knows.
  if (horizon.kind == Horizon::Kind::kUnknown || outlook.overrun) outlook.iterations_total = 0;
  const double rest = std::max(0.0, total - done);

  if (!horizon.histogram.empty() && rest > 0) {
    // Both are in key order.
    std::vector<OutlookRow> merged;
    merged.reserve(rows.size() + horizon.histogram.size());
    size_t r = 0;
    for (const KeyCount& k : horizon.histogram) {
      while (r < rows.size() && rows[r].key < k.key) merged.push_back(rows[r++]);
      OutlookRow row{k.key};
      if (r < rows.size() && rows[r].key == k.key) row = rows[r++];
      row.remaining = static_cast<double>(k.count);
      merged.push_back(row);
    }
    while (r < rows.size()) merged.push_back(rows[r++]);
    rows = std::move(merged);
    outlook.sampled = horizon.kind == Horizon::Kind::kDistribution;
    outlook.mismatch = !horizon.another && MatchesBadly(rows, outlook.sampled, so_far);
    if (!horizon.another && (!outlook.sampled || moving)) {
      TakeOffPast(rows, outlook.sampled, model.curve);
    }
    double sum = 0;
    for (const OutlookRow& row : rows) sum += row.remaining;
    for (OutlookRow& row : rows) row.remaining *= sum > 0 ? rest / sum : 0;
  }
  if (horizon.kind == Horizon::Kind::kIterations || outlook.mismatch) {
    outlook.sampled = true;
    for (OutlookRow& row : rows) row.remaining = so_far > 0 ? row.past * rest / so_far : 0;
  }

  // Buckets of lengths that the horizon has and the past has not; with unknown lengths, as many as
  // those that occurred once foretell (Good and Turing).
  // Where keys are sums, the lengths are those of micro-batches, of each kind their share.
  double all_parts = 0;
  for (int kind = 0; kind < kPartKinds; ++kind) all_parts += PartCount(2 * kind);
  const bool unknown =
      (sums ? horizon.parts.empty() : horizon.histogram.empty()) || outlook.mismatch;
  for (int list = 0; list < kLengthLists; ++list) {
    const int d = list % 2;
    if ((d == 1 && !two_dimensional) || (list > 0 && first_seen[list].empty())) continue;
    ValueHistory history = HistoryOf(list);
    const double share = all_parts > 0 ? PartCount(list) / all_parts : 1;
    const bool certain = sums ? horizon.parts_certain && share == 1 : !outlook.sampled;
    if (horizon.another) history.sorted.clear();
    std::map<int64_t, double> values;
    double lengths_so_far = so_far;
    if (sums && unknown) {
      values.insert(part_counts[list].begin(), part_counts[list].end());
      lengths_so_far = share * all_parts;
    } else if (sums) {
      for (const KeyCount& k : horizon.parts) {
        values[d == 0 ? k.key.first : k.key.second] +=
            static_cast<double>(k.count) * share * rest / total;
      }
    } else {
      for (const OutlookRow& row : rows) {
        values[d == 0 ? row.key.first : row.key.second] += unknown ? row.past : row.remaining;
      }
    }
    const double lengths_left = so_far > 0 ? rest * lengths_so_far / so_far : 0;
    BucketCounts to_open = {};
    if (!unknown) {
      std::vector<std::pair<int64_t, double>> coming;
      for (const auto& [value, times] : values) {
        if (!(times > 0) || (!horizon.another && first_seen[list].contains(value))) continue;
        coming.push_back({value, certain ? kCertain : times});
      }
      to_open = history.StillToOpen(coming);
    } else if (lengths_so_far > 0) {
      double size = history.step;
      for (double& count : to_open) {
        std::map<double, double> buckets;
        for (const auto& [value, times] : values) {
          buckets[std::floor(static_cast<double>(value) / size)] += times;
        }
        for (const auto& [bucket, times] : buckets) {
          count += horizon.another ? 1 - std::pow(1 - times / lengths_so_far, lengths_left)
                   : times == 1    ? std::log1p(lengths_left / lengths_so_far)
                                   : 0;
        }
        size *= 2;
      }
    }
    for (int s = 0; s < kBucketSizes; ++s) outlook.to_open[s] += to_open[s];
  }

  std::vector<Key> row_keys;
  std::vector<double> mass;
  for (const OutlookRow& row : rows) {
    row_keys.push_back(row.key);
    mass.push_back((row.past + row.remaining) * model.Expected(row.key));
  }
  std::vector<int> cells = CutIntoCells(row_keys, mass, kTargetCells);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto own = model.OwnCell(rows[i].key);
    if (own.has_value()) cells[i] = kTargetCells + *own;
    CurveTarget target{model.curve.scale(rows[i].key), model.Expected(rows[i].key), rows[i].past,
                       cells[i]};
    if (rows[i].past > 0) outlook.past.push_back(target);
    target.weight = rows[i].untimed;
    if (rows[i].untimed > 0) outlook.untimed.push_back(target);
    target.weight = rows[i].remaining;
    if (rows[i].remaining > 0) outlook.remaining.push_back(target);
  }
  return outlook;
}

Key OnlineEngine::State::ShortestKey() const {
  Key shortest = {INT64_MAX, INT64_MAX};
  const auto add = [&](const Key& key) {
    shortest = {std::min(shortest.first, key.first), std::min(shortest.second, key.second)};
  };
  for (const auto& [key, record] : keys) {
    if (!LengthUnknown(key)) add(key);
  }
  for (const KeyCount& k : horizon.histogram) add(k.key);
  return shortest;
}

// First occurrences in further processes (ranks, resumed runs): what they took beyond the normal,
// in proportion to what the very first ones did. Those to come are expected in the same proportion.
double OnlineEngine::State::AgainPerFirst(const TimeModel& model) const {
  constexpr double kMost = 1024;
  if (!(again_ns > 0) || !model.known || !(model.surcharges_ns > 0)) return 0;
  double normal_ns = 0;
  for (const auto& [key, record] : SortedRecords()) {
    if (record.again > 0) normal_ns += record.again * model.Expected(key);
  }
  return std::clamp((again_ns - normal_ns) / model.surcharges_ns, 0.0, kMost);
}

TimeModel OnlineEngine::State::TimesTogether() const {
  std::vector<Key> all;
  std::vector<double> counts;
  Key lowest = {INT64_MAX, INT64_MAX}, highest;
  for (const auto& [key, record] : SortedRecords()) {
    if (LengthUnknown(key)) continue;
    all.push_back(key);
    counts.push_back(static_cast<double>(record.iterations));
    lowest = {std::min(lowest.first, key.first), std::min(lowest.second, key.second)};
    highest = {std::max(highest.first, key.first), std::max(highest.second, key.second)};
  }
  return TimeModel::OfSums(stretches, KeyScale::Of(all, counts), lowest, highest);
}

const OnlineEngine::State::Fit& OnlineEngine::State::Current() const {
  if (fit.has_value()) return *fit;
  Fit fresh;
  std::vector<KeyTime> waiting = pending;
  std::erase_if(waiting, [this](const KeyTime& t) { return LengthUnknown(t.key); });
  const FirstOccurrences firsts = Firsts();
  fresh.shortest = ShortestKey();
  if (static_cast<double>(totals.together) > plain_count) {
    fresh.model = TimesTogether();
  } else {
    fresh.model = TimeModel::Fit(RegularTimes(), waiting, firsts.times, Correlation(),
                                 fresh.shortest, OwnKeys(), sums);
    fresh.model.again = AgainPerFirst(fresh.model);
  }
  if (!fresh.model.known) {
    // No time at all: keys still need a scale, and every iteration costs the same.
    std::vector<Key> all;
    for (const auto& [key, record] : SortedRecords()) all.push_back(key);
    fresh.model.curve.scale = KeyScale::Of(all, std::vector<double>(all.size(), 1.0));
  }
  fresh.explained = Explained(fresh.model);
  const std::vector<std::pair<Key, KeyRecord>> records = SortedRecords();
  double count = 0, mean = 0, m2 = 0;
  for (const auto& [key, record] : records) {
    if (record.iterations == 0) continue;
    const double weight = static_cast<double>(record.iterations);
    count += weight;
    const double expected = fresh.model.Expected(key);
    const double delta = expected - mean;
    mean += delta * weight / count;
    m2 += weight * delta * (expected - mean);
  }
  fresh.variance = count > 0 ? m2 / count : 0;
  // Before a handful of iterations their spread says little: half of the mean is assumed on top.
  if (count > 0) fresh.variance += 0.25 * mean * mean / (count * count);
  fresh.movement =
      KeyMovement(fresh.model.of_sums ? stretches : plain, fresh.model.curve, fresh.variance);
  fresh.outlook = MakeOutlook(fresh.model, fresh.movement.moving());
  fresh.outlook.opened_untimed = firsts.untimed;
  // First occurrences in further processes, in terms of the buckets that the very first ones
  // opened.
  for (int i = 0; i < kBucketSizes; ++i) {
    double opened = 0;
    for (const FirstTime& first : firsts.times) opened += first.opened[i];
    fresh.outlook.to_open[i] *= 1 + fresh.model.again;
    fresh.outlook.opened_untimed[i] +=
        fresh.model.again * opened * again_untimed / std::max(again_timed, 1.0);
  }
  fit = std::move(fresh);
  return *fit;
}

// What the drawing of `remaining` unknown keys adds, when the past is all that is known of them.
double OnlineEngine::State::SamplingVariance(double remaining, double variance) const {
  // Iterations whose length is not known say nothing of which lengths are drawn.
  const double n = static_cast<double>(totals.iterations) - Current().outlook.untimed_unknown;
  if (!(n > 0) || !(remaining > 0)) return 0;
  const Movement& movement = Current().movement;
  const bool known = horizon.kind == Horizon::Kind::kDistribution && !Current().outlook.mismatch;
  // A given distribution is not estimated: only the draws from it vary.
  double per_square = variance * (1 / remaining + (known ? 0 : movement.inflation / n));
  if (!known) {
    per_square += movement.walk_variance * (n + remaining) / 3;
    per_square += std::pow(movement.trend * (n + remaining) / 2, 2);
  }
  return remaining * remaining * per_square;
}

// Slow iterations and stalls among `count` others, which normally take `expected_ns` altogether:
// they come as often as they did (a compound Poisson process).
Normal OnlineEngine::State::SlowExcess(double count, double expected_ns) const {
  const TimeModel& model = Current().model;
  const double looked_at = accepted + static_cast<double>(totals.outliers) + model.singles;
  if (!(looked_at > 0) || !(count > 0)) return {1, 0, 0};
  const double ratio = count / looked_at;
  const double unseen = kUnseenSlowExcess * expected_ns / count;
  const double square =
      slow_excess_square + model.stall_excess_square + kUnseenSlow * unseen * unseen;
  return {1, ratio * (slow_excess_ns + model.stall_excess_ns), (ratio + ratio * ratio) * square};
}

// What slow iterations and stalls, and first occurrences, add to the time of normal ones over the
// whole run, relative.
OnlineEngine::State::Extra OnlineEngine::State::ExtraShares() const {
  const Outlook& outlook = Current().outlook;
  const double normal = MixtureMean(Current().model.smooth.Sum(outlook.past));
  const double rest = MixtureMean(Current().model.smooth.Sum(outlook.remaining));
  if (!Current().model.known || !(normal > 0)) return {};
  const double iterations = SumOf(outlook.past);
  const Normal past = SlowExcess(iterations, normal);
  const Normal coming = SlowExcess(SumOf(outlook.remaining), rest);
  // What was cut off is only what exceeds the common noise, of slow iterations of this size.
  const double seen = accepted + static_cast<double>(totals.outliers);
  const double square = slow_excess_square * iterations / std::max(seen, 1.0);
  // Where only iterations of lengths of their own were slow, no square is known.
  const double below =
      past.mean > 0 && square > 0 ? core * normal / iterations * past.mean / square : 0;
  const double whole = (1 + std::clamp(below, 0.0, kMostBelowCore)) / (normal + rest);
  BucketCounts opened = outlook.to_open;
  for (int i = 0; i < kBucketSizes; ++i) opened[i] += outlook.opened_untimed[i];
  const Normal firsts = Current().model.Surcharge(opened);
  const double unit = 1 / (normal + rest);
  return {{1, whole * std::max(0.0, past.mean + coming.mean), whole * whole * coming.variance},
          {1, unit * std::max(0.0, Current().model.AllSurcharges() + firsts.mean),
           unit * unit * firsts.variance}};
}

// By how much a slow iteration of the measured lengths takes longer, relative, as times show it; 0:
// they show none.
double OnlineEngine::State::UsualSlow(absl::Span<const Measurement> measurements) const {
  double expected = 0;
  for (const Measurement& m : measurements) expected += Current().model.Expected(m.key);
  if (!(slow_excess_ns > 0) || !(expected > 0)) return 0;
  return core +
         slow_excess_square / slow_excess_ns * static_cast<double>(measurements.size()) / expected;
}

// A statistic of kind kTimeLike may follow the time of an iteration, at equal length, or not:
// whether it follows the drift, the measurements tell by how well they agree with the drift's level
// when they were taken; whether it follows slow iterations, only one that was measured can tell;
// whether it follows first occurrences, which are never measured, nothing can.
std::vector<OnlineEngine::State::Statistic> OnlineEngine::State::StatisticModels(
    absl::Span<const Measurement> measurements, absl::Span<const double> values,
    StatisticKind kind) const {
  if (kind == StatisticKind::kAmount) return StatisticModels(measurements, values, kind, {}, 0);
  const SlowMeasurements slow = FindSlow(measurements, values, Current().model, core);
  if (slow.which.empty()) return StatisticModels(measurements, values, kind, {}, 0);
  std::vector<Statistic> models =
      StatisticModels(measurements, values, kind, slow.which, slow.above);
  if (slow.certain || slow.above <= kMostShown * UsualSlow(measurements)) return models;
  std::vector<Statistic> all = StatisticModels(measurements, values, kind, {}, 0);
  models.insert(models.end(), std::make_move_iterator(all.begin()),
                std::make_move_iterator(all.end()));
  for (Statistic& model : models) model.probability /= 2;
  return models;
}

std::vector<OnlineEngine::State::Statistic> OnlineEngine::State::StatisticModels(
    absl::Span<const Measurement> measurements, absl::Span<const double> values, StatisticKind kind,
    const std::vector<bool>& left_out, double slow_above) const {
  const Quadratic& curve = Current().model.curve;
  std::vector<Level> levels;
  double mean = 0, square = 0, error = 0;
  for (const Measurement& m : measurements) {
    levels.push_back(DriftAt(Times(Current().model), curve, m.iteration));
    const double share = 1.0 / static_cast<double>(measurements.size());
    mean += share * levels.back().value;
    square += share * levels.back().value * levels.back().value;
    error +=
        share * std::pow(NoiseOf(Current().model), 2) / std::max(levels.back().iterations, 1.0);
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
  Key lowest = {INT64_MAX, INT64_MAX};
  double whole_value = 0, whole_expected = 0;
  for (size_t i = 0; i < measurements.size(); ++i) {
    const Measurement& m = measurements[i];
    const double value = values[i];
    const double level = mean + reliable * (levels[i].value - mean);
    const double expected = Current().model.Expected(m.key);
    lowest = {std::min(lowest.first, m.key.first), std::min(lowest.second, m.key.second)};
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
  const Key& shortest = Current().shortest;
  const auto below = ExpectedBelow(curve, lowest, shortest, Current().model.Expected(shortest),
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
  std::vector<Statistic> models;
  if (kind == StatisticKind::kAmount) {
    // Algorithm search is work, too.
    models.push_back({.probability = 1 - kFollowsFirsts, .cost = cost[0]});
    models.push_back({.probability = kFollowsFirsts, .follows_firsts = true, .cost = cost[0]});
    return models;
  }
  // Where there is no drift to tell by how much it follows, it may be any of the factors.
  const double mean_factor = factor_sum / std::size(kShares);
  const double factor_variance = factor_square / std::size(kShares) - mean_factor * mean_factor;
  // Slow iterations that were measured tell it for themselves.
  const double usual_slow = UsualSlow(measurements);
  const bool told = seen_slow && usual_slow > 0;
  const double told_factor =
      told ? std::clamp(slow_above / usual_slow, factor[1], factor[kWays - 1]) : 0;
  // Where times show no slow iterations of this size, as where the GPU waits for the host, the
  // measured ones tell how many there are; if there is none, half a one counts as seen.
  const bool shown = told && slow_above <= kMostShown * usual_slow;
  const double follows_slow = shown ? kSeenSlow : seen_slow ? 1 - kSeenSlow : kFollows;
  const auto measured = static_cast<double>(measurements.size());
  const auto slow_count = static_cast<double>(std::count(left_out.begin(), left_out.end(), true));
  const double alone_slow = seen_slow
                                ? slow_above * (slow_count + kUnseenSlow) / (measured + kUsualGap)
                                : kUnseenSlow * kUnseenSlowExcess / measured;
  for (int way = 0; way < kWays; ++way) {
    Statistic model = {.probability = probability[way] / sum * (1 - follows_slow),
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
    model.slow = told ? told_factor : way > 0 ? factor[way] : mean_factor;
    model.slow_variance = told ? kToldVariance : way > 0 ? 0 : factor_variance;
    model.probability = left * (1 - kFollowsFirsts);
    models.push_back(model);
    model.follows_firsts = true;
    model.probability = left * kFollowsFirsts;
    models.push_back(model);
  }
  return models;
}

std::string OnlineEngine::State::Basis(const Fit& f) const {
  std::string basis = absl::StrCat(Grouped(totals.iterations),
                                   totals.iterations == 1 ? " iteration of " : " iterations of ",
                                   Grouped(Lengths()), Lengths() == 1 ? " length" : " lengths");
  if (f.model.of_sums) {
    absl::StrAppend(&basis, "; ", Grouped(totals.together),
                    " of them were not timed one by one but in ", Grouped(totals.stretches),
                    totals.stretches == 1 ? " stretch" : " stretches");
  } else {
    absl::StrAppend(&basis, "; ", InWords(f.explained));
  }
  // Of a run that is through there is no rest of which anything could be known.
  const bool through = horizon.kind != Horizon::Kind::kUnknown && !horizon.another &&
                       static_cast<int64_t>(totals.iterations) >= horizon.iterations;
  if (horizon.kind == Horizon::Kind::kUnknown) {
    absl::StrAppend(&basis, "; the length of the run is unknown, so there is no total");
  } else if (horizon.kind == Horizon::Kind::kIterations && !through) {
    absl::StrAppend(&basis, "; the lengths of the rest are unknown and taken to be like the past");
  } else if (!f.outlook.mismatch && !through) {
    absl::StrAppend(&basis, horizon.kind == Horizon::Kind::kHistogram
                                ? "; the lengths of the rest are known"
                                : "; the distribution of the lengths is known");
  }
  if (f.outlook.mismatch) {
    absl::StrAppend(&basis,
                    "; the given lengths are not those that occur, so the rest is taken to be like "
                    "the past");
  }
  if (f.outlook.overrun) {
    absl::StrAppend(&basis, "; the run is past the ",
                    Grouped(static_cast<uint64_t>(horizon.iterations)),
                    " iterations that were expected of it, so there is no total");
  }
  if (f.movement.moving()) {
    absl::StrAppend(&basis, "; the distribution of lengths still moves");
  }
  if (f.model.firsts == TimeModel::Firsts::kCostly) {
    absl::StrAppendFormat(&basis, "; the first iteration of a length costs %s%.3g ms more",
                          f.model.costly_share < 1 ? "up to " : "", f.model.surcharge_ns * 1e-6);
  }
  if (totals.outliers > 0) {
    absl::StrAppend(&basis, "; ", Grouped(totals.outliers),
                    totals.outliers == 1 ? " stall" : " stalls", " counted apart");
  }
  if (regime_changes > 0) {
    absl::StrAppendFormat(&basis, "; the time that a length takes shifted %s",
                          regime_changes == 1 ? "once" : absl::StrCat(regime_changes, " times"));
  }
  return basis;
}

// Lengths say nothing: every iteration that was not timed is expected to take the mean of those
// that were, moved by the drift that these show, if any.
void OnlineEngine::State::ProjectPlain(Projection& p, bool host_times) const {
  const double mean = plain_sum / plain_count;
  const double variance =
      std::max(0.0, plain_square - plain_sum * mean) / std::max(1.0, plain_count - 1);
  Quadratic constant;
  constant.coefficients = {mean};
  // Times that run together (sorted sessions) tell less than independent ones, and those that
  // wander tell less of what is far.
  const Movement movement = TimeMovement(plain, variance);
  const double together = movement.inflation;
  if (movement.moving() || together > 1) {
    absl::StrAppend(&p.basis, "; not stationary: times of consecutive parts differ");
  }
  const auto estimate = [&](double known, double count) {
    if (!(count > 0)) return Estimate{known, known, known};
    const double expected = count * mean;
    std::vector<Normal> sum = ProjectDrift(plain, constant, std::sqrt(variance * together) / mean,
                                           plain_count, count, host_times);
    for (Normal& n : sum) {
      n.mean = known + expected * (1 + n.mean);
      n.variance = expected * expected * n.variance +
                   count * count *
                       (variance * (1 / count + together / plain_count) +
                        movement.walk_variance * (plain_count + count) / 3);
    }
    return NotBelow(known, MixtureEstimate(sum, p.confidence));
  };
  const auto so_far = static_cast<double>(totals.iterations);
  auto untimed = static_cast<double>(overflow_untimed);
  for (const auto& [key, record] : keys) untimed += static_cast<double>(record.untimed);
  const double rest = static_cast<double>(p.iterations_total) - (horizon.another ? 0 : so_far);
  p.so_far = estimate(exact_time_ns, untimed);
  if (p.iterations_total == 0) {
    p.per_1000 = estimate(0, 1000);
    return;
  }
  if (rest > 0) p.remaining = estimate(0, rest);
  p.total = horizon.another ? p.remaining : estimate(exact_time_ns, untimed + std::max(0.0, rest));
  const bool through = !horizon.another && !(rest > 0);
  p.per_1000 = through && so_far < 1000
                   ? estimate(0, 1000)
                   : Scaled(*p.total, 1000.0 / static_cast<double>(p.iterations_total));
}

Projection OnlineEngine::ProjectTime(double confidence, bool host_times) const {
  Projection p = ProjectIterations(confidence, host_times);
  const double rest = state_->rest_ns;
  const auto add = [rest](std::optional<Estimate>& to) {
    if (to) to->high += rest;
  };
  add(p.so_far);
  if (!state_->horizon.another && p.total) {
    add(p.total);
    if (p.per_1000) p.per_1000->high += rest * 1000 / static_cast<double>(p.iterations_total);
  }
  return p;
}

Projection OnlineEngine::ProjectIterations(double confidence, bool host_times) const {
  const State& s = *state_;
  const State::Fit& fit = s.Current();
  const State::Outlook& outlook = fit.outlook;
  Projection p;
  p.confidence = confidence;
  p.iterations_so_far = static_cast<int64_t>(s.totals.iterations);
  p.iterations_total = outlook.iterations_total;
  p.basis = s.Basis(fit);
  const double n = static_cast<double>(s.totals.iterations);
  if (!fit.model.known || n == 0) {
    absl::StrAppend(&p.basis, "; no iteration has a usable time");
    if (n == 0) p.so_far.emplace();  // nothing took no time
    return p;
  }

  if (fit.explained.verdict == KeyVerdict::kNotExplained && !fit.model.of_sums) {
    s.ProjectPlain(p, host_times);
    return p;
  }

  // The past: a sum, but for what was not timed.
  std::vector<Normal> untimed = fit.model.smooth.Sum(outlook.untimed);
  const Normal slow = s.SlowExcess(SumOf(outlook.untimed), MixtureMean(untimed));
  untimed = Shifted(std::move(untimed), slow.mean, slow.variance);
  const Normal firsts = fit.model.Surcharge(outlook.opened_untimed);
  untimed = Shifted(std::move(untimed), firsts.mean, firsts.variance);
  untimed =
      Shifted(std::move(untimed), 0, s.SamplingVariance(outlook.untimed_unknown, fit.variance));
  // They may all have run when times were off their mean.
  const double level_variance =
      DriftVariance(s.Times(fit.model), fit.model.curve, s.NoiseOf(fit.model)) *
      std::pow(MixtureMean(untimed), 2);
  untimed = Shifted(std::move(untimed), 0, level_variance);
  const double overflow = static_cast<double>(s.overflow_untimed) * s.exact_time_ns / n;
  untimed = Shifted(std::move(untimed), overflow, overflow * overflow);
  const Estimate missing = NotBelow(0, MixtureEstimate(untimed, confidence));
  p.so_far = Estimate{missing.value + s.exact_time_ns, missing.low + s.exact_time_ns,
                      missing.high + s.exact_time_ns};

  if (fit.model.of_sums && fit.model.ShareOutside(outlook.remaining) > kMostOutside) {
    absl::StrAppend(
        &p.basis,
        "; what is to come is longer or shorter than all that ran, and of that times of "
        "stretches say nothing, so there is no total");
    return p;
  }

  // The rest; with an unknown horizon, as many iterations again, for the cost of 1,000. A run that
  // is over and had fewer is no sum of 1,000, either.
  const bool has_rest = SumOf(outlook.remaining) > 0;
  const bool has_total = outlook.iterations_total > 0;
  const bool through = has_total && !has_rest && !s.horizon.another;
  const bool again = !has_total || (through && n < 1000);
  const double rest = again ? n : SumOf(outlook.remaining);
  const std::vector<CurveTarget>& targets = again ? outlook.past : outlook.remaining;
  std::vector<CurveTarget> both = targets;
  both.insert(both.end(), outlook.untimed.begin(), outlook.untimed.end());
  BucketCounts all_opened = outlook.to_open;
  for (int i = 0; i < kBucketSizes; ++i) all_opened[i] += outlook.opened_untimed[i];
  // Before there is a curve to judge times by, they wait; their levels say something all the same.
  BlockTrace waiting;
  for (const KeyTime& t : s.pending) {
    if (!s.LengthUnknown(t.key)) waiting.Add(0, t.key, t.time_ns);
  }
  const bool young = !fit.model.of_sums && s.trace.blocks().empty();
  const BlockTrace& trace = young ? waiting : s.Times(fit.model);
  const double noise = young ? fit.model.noise : s.NoiseOf(fit.model);
  bool drifting = false;  // it is most of the error
  // `drawn`: of these, those whose length is not known but drawn as those before.
  const auto estimate = [&](const std::vector<CurveTarget>& over, const BucketCounts& opened,
                            double drawn) {
    std::vector<Normal> sum = fit.model.smooth.Sum(over);
    const double expected = MixtureMean(sum);
    double mean = 0, variance = s.SamplingVariance(drawn, fit.variance);
    const Normal firsts = fit.model.Surcharge(opened);
    mean += firsts.mean;
    variance += firsts.variance;
    if (fit.model.firsts == TimeModel::Firsts::kUnknown && !fit.model.of_sums) {
      variance += std::pow(kUnknownSurcharge * expected, 2);
    }
    variance += std::pow(fit.model.doubt * expected, 2);
    if (fit.model.of_sums) {
      variance += std::pow(fit.model.noise * ShiftOf(outlook.past, targets) * expected, 2);
    }
    const Normal slow = s.SlowExcess(SumOf(over), expected);
    mean += slow.mean;
    variance += slow.variance;
    std::vector<Normal> drift = ProjectDrift(trace, fit.model.curve, noise, n, rest, host_times);
    double wanders = 0;  // variance of the drift
    for (Normal& d : drift) {
      wanders += d.probability * (d.mean * d.mean + d.variance) * expected * expected;
      d.mean = mean + d.mean * expected;
      d.variance = variance + d.variance * expected * expected;
    }
    drifting = wanders > variance + MixtureVariance(sum);
    return AddIndependent(sum, drift);
  };
  if (again) {
    p.per_1000 =
        Scaled(NotBelow(0, MixtureEstimate(estimate(targets, outlook.to_open, rest), confidence)),
               1000 / n);
    if (through) p.total = p.so_far;
    return p;
  }
  const double drawn = outlook.sampled ? rest : 0;
  if (rest > 0) {
    p.remaining =
        NotBelow(0, MixtureEstimate(estimate(targets, outlook.to_open, drawn), confidence));
    if (drifting && p.remaining.high - p.remaining.low > kToldDrift * p.remaining.value) {
      absl::StrAppend(&p.basis,
                      "; most of the interval is for times at equal length that may drift");
    }
  }
  const bool another = s.horizon.another;
  Estimate total = another ? p.remaining : *p.so_far;
  if (rest > 0 && !another) {
    total = MixtureEstimate(Shifted(estimate(both, all_opened, drawn + outlook.untimed_unknown),
                                    s.exact_time_ns + overflow, level_variance),
                            confidence);
    total = NotBelow(s.exact_time_ns, total);
  }
  p.total = total;
  p.per_1000 = Scaled(total, 1000.0 / static_cast<double>(outlook.iterations_total));
  return p;
}

std::vector<double> OnlineEngine::MeasuredSums(uint32_t set) const {
  std::vector<double> sums;
  const auto found = state_->sets.find(set);
  if (found == state_->sets.end()) return sums;
  for (const Measurement& m : found->second) {
    sums.resize(std::max(sums.size(), m.values.size()));
    for (size_t i = 0; i < m.values.size(); ++i) sums[i] += m.values[i];
  }
  return sums;
}

absl::StatusOr<Projection> OnlineEngine::ProjectStatistic(uint32_t set, int index,
                                                          double confidence,
                                                          StatisticKind kind) const {
  return ProjectStatistics(set, {&index, 1}, confidence, kind);
}

absl::StatusOr<Projection> OnlineEngine::ProjectStatistics(uint32_t set,
                                                           absl::Span<const int> indices,
                                                           double confidence,
                                                           StatisticKind kind) const {
  const State& s = *state_;
  const auto found = s.sets.find(set);
  if (found == s.sets.end()) {
    return absl::FailedPreconditionError(
        "nothing was measured for it yet; it takes some iterations after the rule is known");
  }
  size_t size = 0;
  bool known = false;
  std::vector<double> values;
  for (const Measurement& m : found->second) {
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
  const State::Fit& fit = s.Current();
  const State::Outlook& outlook = fit.outlook;
  const State::Extra extra = s.ExtraShares();
  const std::vector<State::Statistic> models = s.StatisticModels(found->second, values, kind);
  const Jumps jumps(found->second, values, fit.model.curve.scale);
  const State::Statistic& likeliest =
      *std::max_element(models.begin(), models.end(),
                        [](const auto& a, const auto& b) { return a.probability < b.probability; });

  Projection p;
  p.confidence = confidence;
  p.iterations_so_far = static_cast<int64_t>(s.totals.iterations);
  p.iterations_total = outlook.iterations_total;
  p.basis = absl::StrCat(s.Basis(fit), "; from ", found->second.size(), " measured iterations");
  p.measured_with = static_cast<int64_t>(
      std::count_if(values.begin(), values.end(), [](double value) { return value != 0; }));
  const double n = static_cast<double>(s.totals.iterations);
  if (extra.slow.mean > kVisibleShare) {
    const bool never = kind == StatisticKind::kAmount;
    absl::StrAppendFormat(&p.basis, "; slow iterations, which take %.2g %% of the time, %s",
                          100 * extra.slow.mean,
                          likeliest.slow > 0 ? "are counted in"
                          : never            ? "do not raise it"
                                             : "may raise it and widen the interval");
  }
  if (likeliest.drift > 0) absl::StrAppend(&p.basis, "; it follows the drift of times");
  const bool has_total = outlook.iterations_total > 0;
  const double rest = has_total ? SumOf(outlook.remaining) : n;
  const std::vector<CurveTarget>& targets = has_total ? outlook.remaining : outlook.past;
  const double variance = SpreadOverCells(likeliest.cost, outlook.past);
  const auto drawn_variance = [&](double drawn) {
    double sum = s.SamplingVariance(drawn, variance);
    // The walk is in units of time.
    if (fit.movement.moving() && fit.variance > 0) {
      const double walk = fit.movement.walk_variance * (n + drawn) / 3 * drawn * drawn;
      sum += walk * (variance / fit.variance - 1);
    }
    return sum;
  };
  const std::vector<Normal> drift =
      Condensed(ProjectDrift(s.Times(fit.model), fit.model.curve, s.NoiseOf(fit.model), n, rest));
  // The sum over the past, the rest, or both: what drifts is the rest.
  const auto estimate = [&](const std::vector<CurveTarget>& past,
                            const std::vector<CurveTarget>& coming) {
    std::vector<CurveTarget> all = past;
    all.insert(all.end(), coming.begin(), coming.end());
    // Of the coming iterations, and of those whose records were lost.
    const double drawn =
        drawn_variance((!coming.empty() && (outlook.sampled || !has_total) ? rest : 0) +
                       (past.empty() ? 0 : outlook.untimed_unknown));
    const double least = jumps.LeastVariance(all);
    // Iterations that were measured hide nothing.
    double iterations = 0;
    for (const CurveTarget& t : all) iterations += t.weight;
    const double unmeasured =
        std::max(0.0, 1 - static_cast<double>(found->second.size()) / iterations);
    std::vector<Normal> mixture;
    for (const State::Statistic& model : models) {
      std::vector<Normal> sum = Condensed(model.cost.Sum(all));
      const double expected = MixtureMean(sum);
      const double moving = coming.empty() ? 0 : MixtureMean(model.cost.Sum(coming));
      for (Normal& x : sum) {
        x.probability *= model.probability;
        x.variance = std::max(x.variance, least) + drawn;
        const double firsts = model.follows_firsts ? 1 : 0;
        x.mean += (model.slow * extra.slow.mean + unmeasured * model.unseen_slow +
                   firsts * extra.firsts.mean) *
                  expected;
        x.variance +=
            (model.slow * model.slow * extra.slow.variance +
             model.slow_variance * extra.slow.mean * extra.slow.mean +
             unmeasured * unmeasured *
                 (model.unseen_slow_variance + model.unseen_drift * model.unseen_drift) +
             firsts * extra.firsts.variance + model.drift * model.drift * model.level_variance) *
            expected * expected;
      }
      if (const double by = model.drift * moving; by != 0) {
        std::vector<Normal> drifts = drift;
        for (Normal& d : drifts) d = {d.probability, d.mean * by, d.variance * by * by};
        sum = AddIndependent(sum, drifts);
      }
      mixture.insert(mixture.end(), sum.begin(), sum.end());
    }
    const Estimate e = MixtureEstimate(AddIndependent(mixture, jumps.Beyond(all)), confidence);
    // Statistics may be of either sign; only sums of non-negative ones stay so.
    return e.value >= 0 ? NotBelow(0, e) : e;
  };
  p.so_far = estimate(outlook.past, {});
  if (!has_total) {
    p.per_1000 = Scaled(estimate({}, targets), 1000 / n);
    return p;
  }
  if (rest > 0) p.remaining = estimate({}, targets);
  p.total = s.horizon.another ? p.remaining : estimate(outlook.past, targets);
  p.per_1000 = Scaled(*p.total, 1000.0 / static_cast<double>(outlook.iterations_total));
  return p;
}

KeyFit OnlineEngine::Explained() const { return state_->Current().explained; }

std::vector<KeyTimes> OnlineEngine::OrdinaryTimes() const {
  const State& s = *state_;
  const State::Fit& fit = s.Current();
  std::vector<KeyTimes> times;
  if (!fit.model.known) return times;
  double known = 0;
  for (const auto& [key, record] : s.SortedRecords()) {
    if (record.iterations == 0 || s.LengthUnknown(key)) continue;
    const auto count = static_cast<double>(record.iterations);
    const double mean = record.timed > 0 ? record.mean_ns : std::max(1.0, PredictTime(key));
    const double variance =
        record.timed > 1 ? record.m2 / (record.timed - 1) : std::pow(fit.model.noise * mean, 2);
    times.push_back({key, count, mean, variance * (count - 1)});
    known += count;
  }
  const double scale = static_cast<double>(s.totals.iterations) / known;
  for (KeyTimes& t : times) {
    t.count *= scale;
    t.m2 *= scale;
  }
  return times;
}

double OnlineEngine::PredictTime(const Key& key) const {
  const State::Fit& fit = state_->Current();
  return fit.model.known && IsValid(key) ? std::max(0.0, fit.model.At(key)) : 0;
}

EngineTotals OnlineEngine::Totals() const {
  EngineTotals totals = state_->totals;
  totals.unique_keys = state_->Lengths();
  return totals;
}

std::vector<int64_t> OnlineEngine::SeenLengths(int dimension, Part::Kind kind) const {
  std::vector<int64_t> lengths;
  for (const auto& [length, iteration] : state_->first_seen[LengthList(dimension, kind)]) {
    lengths.push_back(length);
  }
  return lengths;
}

}  // namespace seqpoint
