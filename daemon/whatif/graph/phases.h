// The phase of an iteration that each CPU task of a graph belongs to, as far as the trace says:
//   - the innermost annotation around it that says so;
//   - an operator of autograd around it, or that its thread is autograd's: by its name, its
//     operators, or, in a trace without operators, as the training thread hands over to it and it
//     back;
//   - forward is what the training thread launches from the first kernel behind the optimiser's
//     step on (the first time: behind zero_grad, data loading or the begin of a ProfilerStep),
//     until it hands over to autograd's thread;
//   - between two calls of one phase the thread is in it, too.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_GRAPH_PHASES_H_
#define DAEMON_WHATIF_GRAPH_PHASES_H_

#include "daemon/trace/trace.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

// Sets CpuTask::phase of all tasks. `trace` is what the graph was built from.
void SetPhases(const Trace& trace, Graph* graph);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_PHASES_H_
