// The measurement planner: which iterations to measure next, and what the SeqPoints of a run are.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_MEASUREMENT_PLANNER_H_
#define DAEMON_SEQPOINT_MEASUREMENT_PLANNER_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

struct EngineState;
struct FittedModel;

// A measurement that was started under an earlier plan and not added yet.
struct StartedMeasurement {
  uint32_t set = 0;
  Key key;
};

struct PlanOptions {
  // Cap on measured iterations, over all sets together and over the whole run.
  int budget = 64;
  // Measurements started under an earlier plan and not added yet; they count against the budget.
  int in_flight = 0;
  // Those of them whose keys are known: what they were started for is not asked for again.
  std::vector<StartedMeasurement> started;
  // Iterations that are one draw of lengths: those of ranks that always have the same.
  int iterations_per_draw = 1;
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

struct SeqPointInfo {
  Key key;            // always one that occurred (or, with a histogram, will occur)
  double weight = 0;  // iterations that it stands for; weights sum to the run's iterations
  int measured = 0;   // usable measurements taken for it, over all sets
  int wanted = 0;
  std::vector<int> measured_by_set;  // in the order of PlanOptions::sets; each set wants as many
};

// A stratum sample of the selection in terms of keys, so that it outlives the length groups that it
// was made from.
struct PlannedSample {
  Key key;            // the SeqPoint
  double weight = 0;  // share of the run
  uint32_t stratum = 0;
  double begin =
      0;           // of the order in which strata are contiguous (a key's, or its time), inclusive
  double end = 0;  // exclusive
  bool measurable = false;
  bool awaited = false;  // not measurable yet, but its lengths are known to come
  Key low, high;         // keys in it that have all occurred; only if measurable

  bool operator==(const PlannedSample&) const = default;
};

// The selection that plans are made from until the run has grown enough for the next one.
struct PlanBasis {
  int64_t iterations = -1;  // when it was made
  uint64_t horizon_version = 0;
  int points = 0;  // what it was made for
  int sets = 0;
  double target_error = 0;
  double confidence = 0;
  bool two_dimensional = false;
  Quadratic curve;  // gives the order in two dimensions
  std::vector<PlannedSample> samples;
  std::vector<double> benefit;  // per stratum

  bool operator==(const PlanBasis&) const = default;
};

// Brings `state.plan` up to date, for the functions below. `fitted`: of `state`; asked for only
// where the selection is due.
void RefreshPlan(EngineState& state, const PlanOptions& options,
                 absl::FunctionRef<const FittedModel&()> fitted);

// As OnlineEngine's.
Plan MakePlanOf(const EngineState& state, const PlanOptions& options);
std::vector<SeqPointInfo> SeqPointsOf(const EngineState& state, const PlanOptions& options);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_MEASUREMENT_PLANNER_H_
