// OnlineEngine: what a job knows about the cost of its iterations, and what it should measure.
//
// The daemon feeds it every iteration (key, time) and every measured one (counters, kernel times);
// at any moment it answers: which keys to measure with which configuration, what the SeqPoints
// are, and what the whole run costs, each figure with an interval.
//
//   OnlineEngine engine;
//   engine.SetHorizon(Horizon::Iterations(5000));
//   engine.AddIteration({.iteration = 0, .key = {37}, .time_ns = 41'000'000});
//   ...
//   Plan plan = engine.MakePlan({.sets = {0, 1, 2}});
//   engine.AddMeasurement(/*set=*/1, /*iteration=*/812, {37}, values);
//   Projection time = engine.ProjectTime(0.95);
//   if (time.total) Print(time.total->value, time.total->low, time.total->high, time.basis);
//
// Method: docs/internals/seqpoint-engine.md. After Pati, Aga, Sinclair, Jayasena: SeqPoint, ISPASS
// 2020.
//
// Threading: not thread-safe; const functions fill caches, so they need the same exclusion.
// Ownership: owns all of its state, memory O(unique keys + measurements); iterations are not kept.
// No I/O and no clock: the same calls give the same answers.
#ifndef DAEMON_SEQPOINT_ENGINE_H_
#define DAEMON_SEQPOINT_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/key.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint {

enum class Phase : uint8_t {
  kTrain,
  kOther,  // evaluation, checkpoint, start-up: counted and summed apart, never projected
};

// A micro-step of an iteration whose key is the sum over its micro-steps.
struct Part {
  Key key;
  // Kernels of one kind say nothing about another's: where micro-steps are graphs, the first has a
  // graph of its own (it clears gradients), and the last (it holds the optimiser).
  enum class Kind : uint8_t { kAny, kFirst, kLast };
  Kind kind = Kind::kAny;
};

struct IterationSample {
  uint64_t iteration = 0;  // number within the job, unique; need not arrive in order
  Key key;
  int64_t time_ns = 0;  // 0 = unknown
  // More than 0: it ended with the process, and may be longer than its time by as much. It is in
  // the sum, and says nothing about others.
  int64_t rest_ns = 0;
  bool distorted = false;  // the time is that of our own doing (a window switch): not used
  bool measured = false;   // ran under a counter or trace configuration: its time is not used
  bool redone = false;     // repeated after a checkpoint: its time is used, it is not counted
  // A length is new to the process that it ran in, though others may have had it: the time is in
  // the sum, and says nothing about others.
  bool first = false;
  bool combined = false;  // the key is a sum over micro-steps: that it is new says nothing
  // Then the micro-steps, whose lengths tell what is a first occurrence; empty: not known.
  std::vector<Part> parts;
  Phase phase = Phase::kTrain;
};

struct KeyCount {
  Key key;
  int64_t count = 0;
};

// What is known of the rest of the run.
struct Horizon {
  enum class Kind : uint8_t {
    kUnknown,
    kIterations,    // only the number of iterations of the whole run
    kHistogram,     // exactly how often each key occurs in the whole run
    kDistribution,  // the expected number of each key (shuffled batches): keys are drawn from it
  };
  Kind kind = Kind::kUnknown;
  int64_t iterations = 0;           // of the whole run; with a histogram its sum
  std::vector<KeyCount> histogram;  // of the whole run
  // Where keys are sums: the micro-steps' keys in the whole run; empty: not known.
  std::vector<KeyCount> parts;
  bool parts_certain = false;  // each of them comes; else as many are expected
  // A question about another run, of which nothing has run: what ran only teaches. Not stored.
  bool another = false;

  static Horizon Unknown() { return {}; }
  static Horizon Iterations(int64_t iterations);
  // `histogram` is that of one epoch and is taken `epochs` times.
  static Horizon Histogram(std::vector<KeyCount> histogram, int64_t epochs = 1);
  static Horizon Distribution(std::vector<KeyCount> histogram, int64_t epochs = 1);
};

struct PlanOptions {
  // Cap on measured iterations, over all sets together and over the whole run.
  int budget = 64;
  // Measurements started under an earlier plan and not added yet; they count against the budget.
  int in_flight = 0;
  // Ids of the one-pass configurations to measure (as in AddMeasurement). Each gets its share.
  std::vector<uint32_t> sets = {0};
  // When positive, stop once a measured statistic is known to this relative half-width.
  double target_error = 0;
  double confidence = 0.95;
  int max_entries = 256;
};

// "Measure `quota` iterations whose key lies in [low, high], in each dimension, with `set`."
// With a one-dimensional key, low.second = high.second = 0.
struct PlanEntry {
  Key low;
  Key high;
  uint32_t set = 0;
  int quota = 0;
  uint64_t id = 0;  // stays while the same measurements are wanted, changes when one was added
};

struct Plan {
  std::vector<PlanEntry> entries;  // the first one that matches and has quota left applies
  int wanted = 0;                  // measurements this plan works towards, over the whole run
  int measured = 0;                // usable measurements so far
};

// Slow iterations and drift change how long work takes, not how much it is.
enum class StatisticKind : uint8_t {
  kTimeLike,  // times and cycles: may follow the time of an iteration at equal length, or not
  kAmount,    // instructions, bytes, launches, cycles of one pipe: never
};

struct SeqPointInfo {
  Key key;            // always one that occurred (or, with a histogram, will occur)
  double weight = 0;  // iterations that it stands for; weights sum to the run's iterations
  int measured = 0;   // usable measurements taken for it, over all sets
  int wanted = 0;
  std::vector<int> measured_by_set;  // in the order of PlanOptions::sets; each set wants as many
};

struct Projection {
  double confidence = 0;
  int64_t iterations_so_far = 0;
  int64_t iterations_total = 0;  // 0 = unknown
  int64_t measured_with = 0;     // of a statistic: measured iterations in which it was not 0
  // Of the whole run; absent while the horizon is unknown, and once the run is past it.
  std::optional<Estimate> total;
  // For times with nothing substituted, an exact sum; absent where iterations ran and none has a
  // time, as then there is no total either.
  std::optional<Estimate> so_far;
  Estimate remaining;                // zero while there is no total
  std::optional<Estimate> per_1000;  // cost of 1,000 iterations; absent where none has a time
  std::string basis;                 // one sentence: what the figure rests on, and what is amiss
};

// numerator / denominator, taken as independent (which widens the interval when they are not).
// Absent where the denominator's interval touches zero.
std::optional<Estimate> RatioOf(const Estimate& numerator, const Estimate& denominator);

// Counts since the start. Everything that was left out of a figure is here.
struct EngineTotals {
  uint64_t iterations = 0;  // training iterations, redone ones counted once
  uint64_t redone = 0;
  uint64_t untimed = 0;    // time unknown
  uint64_t together = 0;   // known only as the time of several iterations together ...
  uint64_t stretches = 0;  // ... which were so many stretches
  uint64_t distorted = 0;
  uint64_t measured = 0;           // ran under a configuration
  uint64_t first_occurrences = 0;  // of a length: in the total, in the model less their surcharge
  uint64_t outliers = 0;           // stalls: in the total, not in the model
  uint64_t rejected = 0;           // negative key or time, or too many unique keys
  uint64_t other_iterations = 0;   // evaluation and the like
  double other_time_ns = 0;
  double observed_time_ns = 0;  // sum of all training times as they were, distorted ones too
  uint64_t unique_keys = 0;
  uint64_t measurements_used = 0;
  uint64_t measurements_refused = 0;  // on a first occurrence, or damaged
};

// Most statistics of one set.
inline constexpr size_t kMaxValues = 4096;

// One of several iterations that are timed together, as in its IterationSample.
struct StretchIteration {
  uint64_t iteration = 0;
  Key key;
  bool first = false;
};
inline constexpr size_t kMaxStretch = 4096;

class OnlineEngine {
 public:
  OnlineEngine();
  ~OnlineEngine();
  OnlineEngine(OnlineEngine&&) noexcept;
  OnlineEngine& operator=(OnlineEngine&&) noexcept;
  // An engine of its own that gives the same answers; it keeps no log.
  OnlineEngine Copy() const;

  // O(1) amortised. A negative key or time is counted as rejected and otherwise ignored.
  void AddIteration(const IterationSample& sample);

  // Iterations that were added without a time, one behind the other, took so much together. Once
  // most times are such ones, what an iteration takes is a quadratic of its key. InvalidArgument
  // for keys of which no iteration waits for a time; nothing has changed then.
  absl::Status AddStretch(absl::Span<const StretchIteration> iterations, int64_t time_ns);

  // The statistics of one set (a counter configuration's values, the kernels' times) measured on
  // one iteration, which was added before. A set's vectors may grow: what is missing at the end is
  // zero. Errors: InvalidArgument for a value that is not finite; FailedPrecondition for a key
  // that was never added and for a first occurrence, whose values stand for nothing else (unless
  // first occurrences were found to be iterations like any other, or keys are sums over
  // micro-steps);
  // ResourceExhausted beyond the limits in docs/internals/seqpoint-engine.md. What is refused is
  // counted.
  absl::Status AddMeasurement(uint32_t set, uint64_t iteration, const Key& key,
                              absl::Span<const double> values);

  // InvalidArgument for negative counts or keys; the old horizon then stays.
  absl::Status SetHorizon(Horizon horizon);

  // What to measure next. Entries never sum to more than budget - measured - in_flight; cheap
  // enough for every iteration, but meant for every change.
  Plan MakePlan(const PlanOptions& options) const;

  // The SeqPoints of the run as far as it is known, in key order; weights sum to the run's
  // iterations (with an unknown horizon: those so far). Once the budget is spent or the run has
  // ended they are those that were measured, and no others; what was not measured adds to the
  // weight and the `wanted` of its neighbour.
  std::vector<SeqPointInfo> SeqPoints(const PlanOptions& options) const;

  // Time of the training iterations, in ns. Past iterations count with the time they took; those
  // that were distorted, measured or untimed with what their key normally takes.
  // `host_times`: they are those of a CPU's work, which drifts more than a GPU's.
  Projection ProjectTime(double confidence, bool host_times = false) const;

  // Sum of statistic `index` of `set` over the training iterations. FailedPrecondition while
  // nothing was measured for the set; OutOfRange for an index no measurement had.
  absl::StatusOr<Projection> ProjectStatistic(uint32_t set, int index, double confidence,
                                              StatisticKind kind = StatisticKind::kTimeLike) const;
  // The same of the sum of several; an index that no measurement had adds nothing.
  absl::StatusOr<Projection> ProjectStatistics(uint32_t set, absl::Span<const int> indices,
                                               double confidence,
                                               StatisticKind kind = StatisticKind::kTimeLike) const;
  // Of each statistic of the set, the sum over its measurements: which ones are worth projecting.
  std::vector<double> MeasuredSums(uint32_t set) const;

  // How well the key explains time, on a bounded random sample of what was seen.
  KeyFit Explained() const;

  // The iterations so far as SelectStratified takes them, in key order: how many there were of each
  // key, those of unknown keys shared out, so that counts sum to Totals().iterations; mean and
  // spread of ordinary ones, in ns. What first occurrences, slow iterations and stalls take on top
  // is cut off; times that drift are at the level of when the key's iterations ran. A key without a
  // usable time of a repeated iteration has what the model says. Empty while no time is known.
  std::vector<KeyTimes> OrdinaryTimes() const;

  // The time a normal iteration with this key takes, in ns; 0 while nothing is known.
  double PredictTime(const Key& key) const;

  EngineTotals Totals() const;

  // Lengths of dimension 0 or 1 that have occurred; where keys are sums, those of micro-steps.
  std::vector<int64_t> SeenLengths(int dimension, Part::Kind kind = Part::Kind::kAny) const;

  // Versioned; a parsed engine gives the same answers. Parse trusts no byte: DataLoss or
  // InvalidArgument, never more memory than the input justifies.
  std::string Serialize() const;
  static absl::StatusOr<OnlineEngine> Parse(std::string_view bytes);

  // For a caller that stores the state often: from KeepLog() on, every change is noted. TakeLog()
  // gives what was noted since the last call; the state at KeepLog() and all logs since, replayed
  // in order, are this engine, bit for bit.
  void KeepLog();
  std::string TakeLog();
  // Trusts no byte: DataLoss, and the engine is then of no use.
  absl::Status Replay(std::string_view log);

 private:
  struct State;
  struct Log;

  Projection ProjectIterations(double confidence, bool host_times) const;

  std::unique_ptr<State> state_;
  std::unique_ptr<Log> log_;  // null: not kept
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ENGINE_H_
