// What OnlineEngine keeps. Private to engine*.cc.
#ifndef DAEMON_SEQPOINT_ENGINE_STATE_H_
#define DAEMON_SEQPOINT_ENGINE_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "daemon/seqpoint/drift.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/selection.h"
#include "daemon/seqpoint/time_model.h"

namespace seqpoint {

// Limits of the state; docs/internals/seqpoint-engine.md names them.
inline constexpr size_t kMaxKeys = 1 << 18;
inline constexpr size_t kMaxSets = 256;
inline constexpr size_t kMaxMeasurementsPerSet = 4096;
inline constexpr size_t kMaxSpent = 1 << 20;
inline constexpr int64_t kMaxTimeNs = int64_t{1} << 56;  // about two years
// A statistic, or anything derived from it, whose square is still a number.
inline constexpr double kMaxMagnitude = 1e100;
inline constexpr int64_t kMaxIterations = int64_t{1} << 50;

struct KeyRecord {
  int64_t iterations = 0;  // counted ones
  int64_t untimed = 0;     // of these, those whose time is not used
  double timed = 0;        // repeated iterations with a usable time
  double mean_ns = 0;      // of these, slow ones cut off
  double m2 = 0;
  double level = 0;  // of these, mean of State::level when they ran
  double again = 0;  // first occurrences in other processes than the first one
  bool own = false;  // its ordinary time is not what the curve says, but the mean above
};

// Repeated iterations of a key that were cut or set apart, but agree among each other.
struct CutTimes {
  double count = 0;
  double mean_ns = 0;
  double m2 = 0;
  double level = 0;                         // mean of State::level when they ran
  double against = 0;                       // the key's iterations since that do not agree
  double accepted = 0, accepted_ns = 0;     // those that were cut: in KeyRecord with so much
  double excess_ns = 0, excess_square = 0;  // what they added to State's
  double timed_before = 0, cut_before = 0;  // State's counts before the first of them
};

// Lists of lengths: one for each dimension and kind of micro-batch.
inline constexpr int kPartKinds = 3;
inline constexpr int kLengthLists = 2 * kPartKinds;
inline int LengthList(int dimension, Part::Kind kind) {
  return 2 * static_cast<int>(kind) + dimension;
}

// The first occurrence of a length.
struct FirstRecord {
  Key key;
  double time_ns = 0;     // 0: not usable
  bool together = false;  // it is in the time of a stretch
};

struct Measurement {
  uint64_t iteration = 0;
  Key key;
  std::vector<double> values;
};

struct SampledTime {
  Key key;
  double time_ns = 0;
  bool first = false;  // the first occurrence of its length
};

// A slot of the selection, in terms of keys, so that it outlives the atoms it was made from.
struct PlanSlot {
  Key key;            // the SeqPoint
  double weight = 0;  // share of the run
  uint32_t stratum = 0;
  double begin = 0;  // of the order in which strata are contiguous (OrderOf), inclusive
  double end = 0;    // exclusive
  bool measurable = false;
  bool awaited = false;  // not measurable yet, but its lengths are known to come
  Key low, high;         // keys in it that have all occurred; only if measurable
};

struct PlanBasis {
  int64_t iterations = -1;  // when it was made
  uint64_t horizon_version = 0;
  int points = 0;  // what it was made for
  int sets = 0;
  double target_error = 0;
  double confidence = 0;
  bool two_dimensional = false;
  Quadratic curve;  // gives OrderOf in two dimensions
  std::vector<PlanSlot> slots;
  std::vector<double> benefit;  // per stratum
};

struct OnlineEngine::State {
  // Persistent.
  EngineTotals totals;
  uint64_t newest = 0;  // the highest number of an iteration
  bool two_dimensional = false;
  absl::flat_hash_map<Key, KeyRecord> keys;
  // Iteration in which a length first occurred.
  absl::flat_hash_map<int64_t, uint64_t> first_seen[kLengthLists];
  absl::flat_hash_map<uint64_t, FirstRecord> firsts;  // by iteration
  double again_ns = 0;                                // time of those that KeyRecord::again counts
  double again_timed = 0, again_untimed = 0;          // counted ones
  absl::flat_hash_set<uint64_t> again_measured;       // at most kMaxSpent
  // Where keys are sums over micro-batches, lengths are those of micro-batches, and this is how
  // often each came; else empty.
  absl::flat_hash_map<int64_t, uint64_t> part_counts[kLengthLists];
  bool sums = false;
  double exact_time_ns = 0;      // of counted iterations with a known time
  double rest_ns = 0;            // IterationSample::rest_ns of these
  int64_t overflow_untimed = 0;  // iterations whose key found no room, without a usable time
  std::vector<KeyTime> pending;  // repeated iterations before there was a curve to judge them by
  double timed = 0;              // usable repeated times, stalls included
  double next_curve_at = 0;      // `timed` at which the curve below is made anew
  std::optional<Quadratic> gate_curve;
  double gate = 0;  // relative deviation beyond which a time is a stall
  double core = 0;  // ... beyond which it is slow: cut off and summed apart
  double cut = 0;   // iterations beyond either, also those that were taken back
  absl::flat_hash_map<Key, CutTimes> cut_times;
  std::vector<KeyTime> recent_outliers;
  double outlier_rate = 0;  // moving average: many of them are not stalls but a new regime
  // What slow iterations and stalls took beyond the common noise.
  double slow_excess_ns = 0, slow_excess_square = 0;
  uint64_t regime_changes = 0;
  // Time at equal length now, against the start of the run, and its sum over accepted iterations;
  // what it was in the mean when the curve above was made.
  double level = 1, level_sum = 0, gate_level = 1;
  double accepted = 0, previous_residual = 0, residual_square = 0, residual_product = 0;
  BlockTrace trace;
  // Every usable time as it was: for a run whose lengths do not explain its times, and for whether
  // lengths come at random.
  BlockTrace plain;
  BlockTrace stretches;  // the times of several iterations together
  double plain_count = 0, plain_sum = 0, plain_square = 0;
  std::vector<SampledTime> sample;  // uniform over what was seen
  uint64_t sampled_from = 0;
  uint64_t random_state = 1;
  Horizon horizon;
  uint64_t horizon_version = 0;
  std::map<uint32_t, std::vector<Measurement>> sets;
  // Iterations that were measured, in one set or more, to use or not: what the budget was spent on.
  absl::flat_hash_set<uint64_t> spent;
  mutable PlanBasis plan;

  // Caches, emptied by every change.
  struct Outlook {
    std::vector<CurveTarget> past;       // every counted iteration
    std::vector<CurveTarget> untimed;    // those whose time is estimated
    double untimed_unknown = 0;          // ... and whose length is not known either
    std::vector<CurveTarget> remaining;  // what is to come; empty when unknown
    int64_t iterations_total = 0;        // 0 = unknown
    bool sampled = false;                // remaining keys are drawn, not known
    bool mismatch = false;               // the histogram is not that of this run
    bool overrun = false;                // more iterations than the horizon said
    BucketCounts to_open = {};           // buckets of lengths that are new to the run
    BucketCounts opened_untimed = {};    // ... that were opened by iterations without a usable time
  };
  struct Fit {
    TimeModel model;
    Key shortest;  // of the run, as far as it is known, in each dimension
    Outlook outlook;
    KeyFit explained;
    double variance = 0;  // of the expected time over past iterations
    Movement movement;
  };
  mutable std::optional<Fit> fit;

  // One way in which a statistic may depend on an iteration's time at equal length.
  struct Statistic {
    double probability = 0;
    // By how much, relative, it changes where times at equal length drift by 1, and where
    // iterations are slow; 0: not at all.
    double drift = 0;
    double slow = 0, slow_variance = 0;
    // The error of the level of times when it was measured, nearly the same for all measurements.
    double level_variance = 0;
    // What slow iterations that times do not show take on top, relative; and the standard deviation
    // of a drift that they do not show.
    double unseen_slow = 0, unseen_slow_variance = 0;
    double unseen_drift = 0;
    bool follows_firsts = false;  // takes more in first occurrences
    CostCurve cost;
  };

  double NormalTime(const Key& key, const KeyRecord& record) const;
  double AgainPerFirst(const TimeModel& model) const;
  void Accept(const KeyTime& time, KeyRecord& record);
  void JudgeRepeated(const KeyTime& time, KeyRecord& record);
  double SetApart(const KeyTime& time, const KeyRecord& record, int sign);
  void NoteCut(const KeyTime& time, double accepted_ns, double excess_ns, KeyRecord& record);
  void NoteUncut(const Key& key);
  bool IsOwnLevel(const CutTimes& times, const KeyRecord& record) const;
  void TakeBack(const Key& key, const CutTimes& times, KeyRecord& record);
  double Agreement() const;
  void RefreshCurve();
  void SetGates();
  void Sample(const SampledTime& time);
  std::vector<KeyTimes> RegularTimes() const;
  std::vector<Key> OwnKeys() const;
  struct FirstOccurrences {
    std::vector<FirstTime> times;
    BucketCounts untimed = {};  // buckets of lengths opened by iterations without a usable time
  };
  FirstOccurrences Firsts() const;
  ValueHistory HistoryOf(int list) const;
  double PartCount(int list) const;
  double Correlation() const;
  double CoreNoise() const;
  // Times in order, and the noise of one of them: what tells how they drift.
  const BlockTrace& Times(const TimeModel& model) const {
    return model.of_sums ? stretches : trace;
  }
  double NoiseOf(const TimeModel& model) const { return model.of_sums ? model.noise : CoreNoise(); }
  TimeModel TimesTogether() const;
  // Nothing has length 0, unless everything has.
  bool LengthUnknown(const Key& key) const { return key == Key{} && keys.size() > 1; }
  // Different lengths so far; iterations whose length is not known have none.
  uint64_t Lengths() const { return keys.size() - (keys.size() > 1 && keys.contains({}) ? 1 : 0); }
  bool NoteLengths(const IterationSample& sample);
  KeyFit Explained(const TimeModel& model) const;
  const Fit& Current() const;
  Outlook MakeOutlook(const TimeModel& model, bool moving) const;
  Key ShortestKey() const;
  std::vector<std::pair<Key, KeyRecord>> SortedRecords() const;
  Normal SlowExcess(double count, double expected_ns) const;
  struct Extra {
    Normal slow, firsts;
  };
  Extra ExtraShares() const;
  double UsualSlow(absl::Span<const Measurement> measurements) const;
  // `values`: of the statistic, one for each measurement.
  std::vector<Statistic> StatisticModels(absl::Span<const Measurement> measurements,
                                         absl::Span<const double> values, StatisticKind kind) const;
  // With the measurements `left_out` (empty: none) taken for slow iterations, which lie
  // `slow_above` above the others, relative.
  std::vector<Statistic> StatisticModels(absl::Span<const Measurement> measurements,
                                         absl::Span<const double> values, StatisticKind kind,
                                         const std::vector<bool>& left_out,
                                         double slow_above) const;
  double SamplingVariance(double remaining, double variance) const;
  std::string Basis(const Fit& fit) const;
  void ProjectPlain(Projection& projection, bool host_times) const;
  double OrderOf(const PlanBasis& basis, const Key& key) const;
  void RefreshPlan(const PlanOptions& options) const;
  bool BudgetIsSpent(const PlanOptions& options) const;
  void WeighSlots() const;
  std::vector<bool> FilledSlots(uint32_t set) const;
};

// What was done since the last TakeLog().
struct OnlineEngine::Log {
  std::string bytes;
  std::string plan;  // as it was then

  void Add(const IterationSample& sample);
  void Add(absl::Span<const StretchIteration> iterations, int64_t time_ns);
  void Add(uint32_t set, uint64_t iteration, const Key& key, absl::Span<const double> values);
  void Add(const Horizon& horizon);
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ENGINE_STATE_H_
