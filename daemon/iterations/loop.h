// Finds the training loop in a launch stream: the calls that happen once per iteration, and the
// place in their cyclic order at which an iteration starts.
//
// The heaviest group of calls that alternate is the loop or a part of it (a layer, a micro-batch,
// the forward pass that evaluation shares). FindLoop extends it to the optimiser step. A cyclic
// order has no first member: the start is the place with the most evidence (start_evidence.h).
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
  uint32_t segment = 0;       // index of the call after the last launch before first_launch
  bool regular = true;        // false: more happened in it than in most (evaluation, warm-up)
};

// A place at which the iteration could start.
struct StartPlace {
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
      1;  // iterations of a finer loop inside (micro-batches, optimisers), when always as many
  // Share of loop iterations in which the host does more than launch and annotate: it copies,
  // waits, launches a graph, or changes to another thread, as for the backward pass. Time steps and
  // layers repeat as regularly as iterations, but without any of these.
  double host_share = 0;
  // Both are judged where host_share is below 1/2, or outer_unsure.
  //
  // The loop iterations have many sizes in no order, as batches of different lengths have. Time
  // steps are equal, or grow or shrink one after the other.
  bool sizes_vary = false;
  // Something else happened in one or a few of the loop iterations: an iteration around them may
  // have just started, or may have been seen too few times to be recognised.
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
  // Loop iterations with an end of their own. A few mean that this may be a loop over
  // micro-batches.
  uint32_t rare_ends = 0;
  // The process' first loop iteration was not seen, or differs from the others as the first of
  // several micro-batches does. Without a rare end, none may have been reached yet.
  bool first_differs = false;
  // Some loop iterations take several batches and some none, as the micro-batches of a pipeline's
  // stage seem to, depending on where they are taken to start.
  bool batches_uneven = false;
  // Graph launches per loop iteration, where loop iterations are made of them alone: more than 1
  // when they are micro-batches and their graphs show it (graph_period.h). 0: loop iterations hold
  // other launches.
  uint32_t graph_period = 0;
  bool graph_period_unsure = false;
  double start_margin = 0;         // by which the next best place scores less
  std::string evidence;            // for people
  std::vector<StartPlace> places;  // all with evidence for or against, in cyclic order

  uint32_t EndOf(size_t iteration) const {
    return iteration + 1 < iterations.size() ? iterations[iteration + 1].first_launch : end;
  }
  uint32_t EndSegmentOf(size_t iteration) const {
    return iteration + 1 < iterations.size() ? iterations[iteration + 1].segment : end_segment;
  }
};

// A loop iteration with this many different calls is no layer or time step. In recorded trainings
// an iteration has 22 to 61, and a loop within one at most 7 (docs/internals/iteration-rules.md).
inline constexpr uint32_t kWholeNetwork = 16;

// Nothing when there are fewer than `min_iterations` complete loop iterations.
std::optional<Loop> FindLoop(const LaunchLog& stream, const Occurrences& occurrences,
                             size_t min_iterations);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LOOP_H_
