// Finds the training loop in a launch stream: which calls happen once per iteration, and where in
// their cyclic order an iteration begins.
//
// The heaviest group of calls that take turns is the loop or a part of it (a layer, a micro-step,
// the forward pass that evaluation shares); FindLoop extends it to the optimiser step. A cyclic
// order has no first member; the begin is the place with the most evidence: the group's first
// launch ever, a pause of the training calls (evaluation), the end of the calls that only the
// optimiser step has, the batch's copy, launches whose geometry never follows the length ending,
// the host's longest pause.
//
// Threading: a free function over constant input.
#ifndef DAEMON_ITERATIONS_LOOP_H_
#define DAEMON_ITERATIONS_LOOP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/launch_log.h"

namespace seqpoint::iterations {

// One loop iteration: from the first launch of an iteration to that of the next one.
struct LoopIteration {
  uint32_t first_launch = 0;  // index of the call
  uint32_t segment = 0;       // index of the call behind the last launch before first_launch
  bool regular = true;        // false: more happened in it than in most (evaluation, warm-up)
};

// A place at which the iteration could begin.
struct BeginPlace {
  uint32_t launch = 0;  // index of the call, in one of the last loop iterations
  double score = 0;
  std::string evidence;
};

struct Loop {
  std::vector<LoopIteration> iterations;  // complete ones; the last one's end is `end`
  uint32_t end = 0;                       // first_launch of the loop iteration that is not complete
  uint32_t end_segment = 0;
  uint32_t group_weight = 0;      // different calls that happen once per loop iteration
  uint32_t runner_up_weight = 0;  // of the heaviest group that was not chosen
  uint32_t inner_iterations =
      1;  // of a finer loop inside (micro-steps, optimisers), when always as many
  // Share of loop iterations in which the host does more than launch and annotate: copies, waits,
  // launches a graph, or goes over to another thread, as the backward pass does. Time steps and
  // layers repeat as regularly as iterations, but without any of these.
  double host_share = 0;
  // Both are judged where host_share is below 1/2, or outer_unsure.
  //
  // Loop iterations of many sizes in no order, as batches of different lengths give. Time steps are
  // equal, or grow or shrink one after the other.
  bool sizes_vary = false;
  // Something else happened in one or a few of the loop iterations: an iteration around them may
  // have just begun, or may have been seen too few times to tell.
  bool others_pending = false;
  // Loop iterations are launches of few kernels, and something recurs around several of them
  // (outer_loop.h): they may be iterations, or the layers or time steps of one.
  bool outer_unsure = false;
  // A batch is copied for several loop iterations, which are large enough for iterations.
  bool shares_batches = false;
  // Loop iterations of few kernels to which one batch is copied, or 0. With outer_unsure these may
  // be the iterations; else a batch is one, and with copy_alone nothing but its copy says so.
  uint32_t iterations_per_batch = 0;
  bool copy_alone = false;
  // Loop iterations with an end of their own. A few mean that this may be a loop over micro-steps.
  uint32_t rare_ends = 0;
  // The process' first loop iteration was not seen, or differs from the others as the first of
  // several micro-steps does. Without a rare end it may be that none was reached yet.
  bool first_differs = false;
  // Graph launches per loop iteration, where loop iterations are made of them alone: more than 1
  // when they are micro-steps and their graphs show it (graph_period.h). 0: loop iterations hold
  // other launches.
  uint32_t graph_period = 0;
  bool graph_period_unsure = false;
  double begin_score = 0;          // of the chosen begin
  double begin_margin = 0;         // more than the score of the next best place
  std::string evidence;            // in words
  std::vector<BeginPlace> places;  // all with evidence for or against, in cyclic order

  uint32_t EndOf(size_t iteration) const {
    return iteration + 1 < iterations.size() ? iterations[iteration + 1].first_launch : end;
  }
  uint32_t EndSegmentOf(size_t iteration) const {
    return iteration + 1 < iterations.size() ? iterations[iteration + 1].segment : end_segment;
  }
};

// Different calls in a loop iteration from which on it is no layer or time step: of recorded
// trainings the iteration has 22 to 61, what repeats within one at most 7
// (docs/internals/iteration-rules.md).
inline constexpr uint32_t kWholeNetwork = 16;

// Nothing when fewer than `min_iterations` complete loop iterations are found.
std::optional<Loop> FindLoop(const LaunchLog& stream, const Occurrences& occurrences,
                             size_t min_iterations);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LOOP_H_
