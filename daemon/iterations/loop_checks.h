// Checks whether a found loop may be a loop over time steps, layers or micro-batches.
//
// Threading: free functions over constant input.
#ifndef DAEMON_ITERATIONS_LOOP_CHECKS_H_
#define DAEMON_ITERATIONS_LOOP_CHECKS_H_

#include <cstdint>
#include <vector>

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/log_window.h"
#include "daemon/iterations/loop.h"

namespace seqpoint::iterations {

// Clears LoopIteration::regular of the loop iterations in which a call happens more often than
// usual.
void MarkIrregular(const std::vector<KernelGroup>& groups, Loop* loop);

// The number of loop iterations that end with a launch that only a few of them make: the optimiser
// step after many micro-batches, which was seen too few times yet.
uint32_t RareEnds(const LogWindow& window, const Loop& loop);

// Whether the first loop iteration differs from the others as the first of several micro-batches
// does: gradients are cleared before it, or it writes them where the others add to them. In doubt
// it differs, which only costs time.
bool FirstIterationDiffers(const LogWindow& window, const Loop& loop);

// Whether the loop iterations have many sizes in no order. Neighbours that are alike in pairs or
// threes are parts of one iteration, and so are loop iterations of different launches that come
// back in the same order.
bool SizesVary(const LogWindow& window, const Loop& loop);

// Whether something else happened in one or a few of the loop iterations.
bool OthersPending(const LogWindow& window, const Loop& loop);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LOOP_CHECKS_H_
