// Repeats the graph of one iteration. From the second turn on, an iteration takes as long as in a
// run, where the CPU may run far before the GPU: work of one turn then waits for that of the turn
// before.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_GRAPH_REPEAT_H_
#define DAEMON_WHATIF_GRAPH_REPEAT_H_

#include <cstdint>

#include "daemon/trace/trace.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

// `graph` is that of `trace`, which holds one iteration: on the CPU it begins and ends at these
// times of the trace. What a thread does behind its last call and before its first one lies between
// two turns. Collective n of a turn becomes n + turn * `collectives`. Work in flight at the begin
// is part of the first turn alone. GpuTask::work and CpuTask::call stay those of the trace.
Graph RepeatGraph(const Graph& graph, const Trace& trace, int turns, int64_t begin_ns,
                  int64_t end_ns, uint32_t collectives);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_REPEAT_H_
