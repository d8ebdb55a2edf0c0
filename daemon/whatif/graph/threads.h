// The calls of a trace and the gaps between them as CPU tasks, in order on their threads.
//
// Threading: a free function over constant input. Ownership: values.
#ifndef DAEMON_WHATIF_GRAPH_THREADS_H_
#define DAEMON_WHATIF_GRAPH_THREADS_H_

#include <cstdint>
#include <vector>

#include "daemon/whatif/graph/join.h"
#include "daemon/whatif/graph/waits.h"

namespace seqpoint::whatif {

// Adds them to `graph`, and sets the calls and layers of its GPU tasks. `task_of`: the GPU task of
// each work.
void MakeCpuTasks(const JoinedTrace& joined, const StreamWaits& waits,
                  const std::vector<uint32_t>& task_of, const GraphOptions& options, Graph* graph);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_THREADS_H_
