// Repeats inside an iteration. A loop of launches alone may be the layers or the time steps of an
// iteration, whatever the number of repeats. Its surroundings show which:
//
//   copy  abc abc abc  copy  abc abc abc      an iteration takes a batch: it has three repeats
//   abc abc abc  read back  abc abc abc       three iterations, of which each third one logs its
//                                             loss, or one with three repeats: both are possible
//   copy  abc read back  abc read back        a loss is read once in an iteration: two batches in
//                                             one copy, or one that is looked at twice
//   copy  abc abc abc ... (hundreds)          an epoch's batches, or many time steps
//
// Threading: a free function over constant input.
#ifndef DAEMON_ITERATIONS_OUTER_LOOP_H_
#define DAEMON_ITERATIONS_OUTER_LOOP_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/iterations/launch_log.h"

namespace seqpoint::iterations {

struct OuterLoop {
  // The first copy of each batch that is for several loop iterations; empty where each loop
  // iteration takes one.
  std::vector<uint32_t> batches;
  // The usual number of loop iterations from one of them to the next.
  uint32_t iterations_per_batch = 0;
  // Only the copy comes once for each batch.
  bool copy_alone = false;
  // Something recurs around several loop iterations: either may be the iteration.
  bool unsure = false;
  // Batches are copied all the time, but a loop iteration does not take one, and several do not
  // share one: they are no iterations, however their sizes vary.
  bool batches_astray = false;
  // Some loop iterations take several batches and some none: in a stage of a pipeline, loop
  // iterations of the backward pass do.
  bool batches_uneven = false;
};

// `iterations`: the indices of the calls that start the loop iterations, ascending; at least two.
OuterLoop FindOuterLoop(const LaunchLog& stream, absl::Span<const uint32_t> iterations);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_OUTER_LOOP_H_
