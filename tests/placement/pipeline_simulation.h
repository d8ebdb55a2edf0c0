// A discrete-event simulation of a pipeline, piece by piece and micro-batch by micro-batch: what
// the predicted time of a whole run is checked against. It shares nothing with daemon/placement but
// the problem: loads, order and transfers are found here once more.
//
// A piece is what a device computes of one micro-batch without waiting for another device. It
// begins when the pieces that it needs are done; it fetches what it needs, computes, and writes
// what others need. Pure functions; any thread.
#ifndef SEQPOINT_TESTS_PLACEMENT_PIPELINE_SIMULATION_H_
#define SEQPOINT_TESTS_PLACEMENT_PIPELINE_SIMULATION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/placement/whole_run.h"

namespace seqpoint::placement {

struct SimulatedRun {
  // Lengths come with their weights; the order is drawn from `seed`.
  int micro_batches = 20'000;
  // Number of consecutive micro-batches with the same length: those of an iteration.
  int same_length = 1;
  uint64_t seed = 1;
};

// Time per micro-batch, in the problems' unit.

// A device takes the oldest piece that is ready; queues between devices have no limit.
double SimulateDecoupled(absl::Span<const WeightedProblem> problems, const Placement& placement,
                         const SimulatedRun& run);

// All devices begin together, and wait for the slowest one before they go on to the next
// micro-batch.
double SimulateLockStep(absl::Span<const WeightedProblem> problems, const Placement& placement,
                        const SimulatedRun& run);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_TESTS_PLACEMENT_PIPELINE_SIMULATION_H_
