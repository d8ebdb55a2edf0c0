// Loops whose iterations are one graph launch each: are these iterations or micro-steps?
//
// Threading: a free function over constant input.
#ifndef DAEMON_ITERATIONS_GRAPH_LOOP_H_
#define DAEMON_ITERATIONS_GRAPH_LOOP_H_

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/log_window.h"
#include "daemon/iterations/loop.h"

namespace seqpoint::iterations {

// Where each loop iteration of `group` is one graph launch: are these micro-steps? True with their
// loop iterations in `loop`; the window then begins behind the last hole.
bool FindGraphIterations(const KernelGroup& group, LogWindow* window, Loop* loop);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_GRAPH_LOOP_H_
