// OnlineEngine: what a job knows about the cost of its iterations, and what it should measure. A
// facade: each idea is a value (engine_state.h) or a function in a file of its own.
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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/seqpoint/engine_calls.h"
#include "daemon/seqpoint/horizon.h"
#include "daemon/seqpoint/iteration_sample.h"
#include "daemon/seqpoint/key.h"
#include "daemon/seqpoint/measurement_planner.h"
#include "daemon/seqpoint/projection.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint {

// Counts since the start. Everything that was left out of a figure is here.
struct EngineTotals {
  uint64_t iterations = 0;  // training iterations, redone ones counted once
  uint64_t redone = 0;
  uint64_t untimed = 0;    // time unknown
  uint64_t together = 0;   // known only as the time of several iterations together ...
  uint64_t stretches = 0;  // ... which were so many stretches
  uint64_t distorted = 0;
  uint64_t measured = 0;          // ran under a configuration
  uint64_t cold_iterations = 0;   // in the total; in the model without their warm-up cost
  uint64_t outliers = 0;          // stalls: in the total, not in the model
  uint64_t rejected = 0;          // negative key or time, or too many unique keys
  uint64_t other_iterations = 0;  // evaluation and the like
  double other_time_ns = 0;
  double observed_time_ns = 0;  // sum of all training times as they were, distorted ones too
  uint64_t unique_keys = 0;
  uint64_t measurements_used = 0;
  uint64_t measurements_refused = 0;  // on a cold iteration, or damaged
};

class OnlineEngine {
 public:
  OnlineEngine();
  ~OnlineEngine();
  OnlineEngine(OnlineEngine&&) noexcept;
  OnlineEngine& operator=(OnlineEngine&&) noexcept;
  // An engine of its own that gives the same answers; it notes no calls.
  OnlineEngine Copy() const;

  // O(1) amortised. A negative key or time is counted as rejected and otherwise ignored.
  void AddIteration(const IterationSample& sample);

  // Iterations that were added without a time, one behind the other, took so much together. Once
  // most times are such ones, what an iteration takes is a quadratic of its key. InvalidArgument
  // for keys of which no iteration waits for a time; nothing has changed then.
  absl::Status AddStretch(absl::Span<const StretchIteration> iterations, int64_t time_ns);

  // The statistics of one set (a counter configuration's values, the kernels' times) measured on
  // one iteration, which was added before. A set's vectors may grow: what is missing at the end is
  // zero. Errors: InvalidArgument for a value that is not finite; ResourceExhausted beyond the
  // limits in docs/internals/seqpoint-engine.md; FailedPrecondition for a key that was never added,
  // and for a cold iteration, whose values stand for no other one (unless cold iterations were
  // found to cost no more than others, or keys are sums over micro-batches). What is refused is
  // counted.
  absl::Status AddMeasurement(uint32_t set, uint64_t iteration, const Key& key,
                              absl::Span<const double> values);

  // InvalidArgument for negative counts or keys; the old horizon then stays.
  absl::Status SetHorizon(Horizon horizon);

  // The next measurements. Entries never sum to more than budget - measured - in_flight; cheap
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
  // The sum of each statistic of the set over its measurements: which ones are worth projecting.
  std::vector<double> MeasuredSums(uint32_t set) const;

  // How well the key explains time, on a bounded random sample of what was seen.
  KeyFit Explained() const;

  // The iterations so far as SelectStratified takes them, in key order: how many there were of each
  // key, those of unknown keys shared out, so that counts sum to Totals().iterations; mean and
  // spread of ordinary ones, in ns. What cold iterations, slow iterations and stalls take on top
  // is clipped; times that drift are at the level of when the key's iterations ran. A key without a
  // usable time of a repeated iteration has what the model says. Empty while no time is known.
  std::vector<KeyTimes> OrdinaryTimes() const;

  // The time a normal iteration with this key takes, in ns; 0 while nothing is known.
  double PredictTime(const Key& key) const;

  EngineTotals Totals() const;

  // Lengths of dimension 0 or 1 that have occurred; where keys are sums, those of micro-batches.
  std::vector<int64_t> SeenLengths(int dimension,
                                   MicroBatch::Kind kind = MicroBatch::Kind::kAny) const;

  // An engine with this state gives the same answers.
  explicit OnlineEngine(EngineState state);
  const EngineState& state() const { return *state_; }

  // For a caller that stores the state often: from KeepCalls() on, every change is noted.
  // TakeCalls() gives what was noted since the last call. The state at KeepCalls() and all calls
  // since, replayed in order, are this engine, bit for bit.
  void KeepCalls();
  std::vector<EngineCall> TakeCalls();
  // InvalidArgument for a horizon that SetHorizon refuses; the engine is then of no use. Other
  // calls that were refused are refused again, and counted.
  absl::Status Replay(std::vector<EngineCall> calls);

 private:
  struct Calls {
    std::vector<EngineCall> since_taken;
    PlanBasis plan;  // as it was then
  };

  const FittedModel& Fitted() const;
  void Refresh(const PlanOptions& options) const;

  std::unique_ptr<EngineState> state_;
  mutable std::unique_ptr<FittedModel> fitted_;  // null: to be fitted; every change drops it
  std::unique_ptr<Calls> calls_;                 // null: not kept
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ENGINE_H_
