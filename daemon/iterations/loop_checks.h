// What a found loop may be besides the training loop: a loop over time steps, layers or
// micro-steps.
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

// Clears LoopIteration::regular of loop iterations in which something that usually happens the same
// number of times happens more often.
void MarkIrregular(const std::vector<KernelGroup>& groups, Loop* loop);

// Loop iterations that end with a launch that only such loop iterations make, and few: the
// optimiser step of many micro-steps, of which too few were seen yet.
uint32_t RareEnds(const LogWindow& window, const Loop& loop);

// The first of several micro-steps differs from the others: gradients are cleared before it, or it
// writes them where the others add to them. In doubt it differs; that only costs time.
bool FirstIterationDiffers(const LogWindow& window, const Loop& loop);

// Loop iterations of many sizes in no order. Neighbours that are alike in pairs, or threes, are the
// parts of one iteration, and so are loop iterations of different launches that come back in the
// same order.
bool SizesVary(const LogWindow& window, const Loop& loop);

// Something happened in one or a few of the loop iterations.
bool OthersPending(const LogWindow& window, const Loop& loop);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LOOP_CHECKS_H_
