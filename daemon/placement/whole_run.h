// Placements for a whole run, whose iterations differ in their sequence length: one graph with the
// costs of each length, and how often each length comes. docs/formats/operator-costs.md, "The whole
// run".
//
// Pure functions; values. Any thread.
#ifndef SEQPOINT_DAEMON_PLACEMENT_WHOLE_RUN_H_
#define SEQPOINT_DAEMON_PLACEMENT_WHOLE_RUN_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "daemon/placement/annealing.h"
#include "daemon/placement/problem.h"

namespace seqpoint::placement {

// One length. All problems of a run have the same operators and edges in the same order, the same
// devices and memory; times and sizes differ.
struct WeightedProblem {
  std::string name;   // "length 25", for tables
  double weight = 1;  // share of the micro-batches of the run; any scale, above 0
  Problem problem;
};

// Times are weighted averages; memory is the largest of all lengths, so that what fits it fits
// every length. The problem whose optimal placement is optimal for a decoupled pipeline.
// `problems` is not empty.
Problem AverageProblem(absl::Span<const WeightedProblem> problems);

// Time for one micro-batch, in the problems' unit, by the judge's loads.
struct WholeRunTime {
  // Deep queues between the stages: in the long run the device with the largest expected load
  // sets the pace.
  double decoupled = 0;
  // Micro-batches of one length go through together, and each waits for the slowest stage at this
  // length: the expectation of the largest load. Never below `decoupled` (Jensen).
  double lock_step = 0;
  std::vector<double> expected_load;  // of each device
};

WholeRunTime TimeOfWholeRun(absl::Span<const WeightedProblem> problems, const Placement& placement);

struct LockStepResult {
  Placement placement;
  double value = 0;      // WholeRunTime::lock_step
  bool stopped = false;  // before the search was through
};

// A placement with which the lock-step pipeline is faster than with `start`, or `start`: found by
// annealing (search.h). Keeps to the rules that the judge checks at every length and, where `start`
// is contiguous and `contiguous` asks for it, contiguous.
LockStepResult ImproveLockStep(absl::Span<const WeightedProblem> problems, const Placement& start,
                               bool contiguous, const SearchOptions& options);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_WHOLE_RUN_H_
