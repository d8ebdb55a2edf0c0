// Loops whose iterations are one graph launch each, and whether these are iterations or
// micro-batches.
//
// Threading: a free function over constant input.
#ifndef DAEMON_ITERATIONS_GRAPH_LOOP_H_
#define DAEMON_ITERATIONS_GRAPH_LOOP_H_

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/log_window.h"
#include "daemon/iterations/loop.h"

namespace seqpoint::iterations {

// True where each loop iteration of `group` is one graph launch and they are micro-batches. `loop`
// then gets the iterations that these make, and the window starts after the last hole.
bool FindGraphIterations(const KernelGroup& group, LogWindow* window, Loop* loop);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_GRAPH_LOOP_H_
