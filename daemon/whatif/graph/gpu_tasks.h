// The works of a trace as GPU tasks.
//
// Threading: a free function over constant input. Ownership: values.
#ifndef DAEMON_WHATIF_GRAPH_GPU_TASKS_H_
#define DAEMON_WHATIF_GRAPH_GPU_TASKS_H_

#include <cstdint>
#include <vector>

#include "daemon/whatif/graph/gaps.h"
#include "daemon/whatif/graph/join.h"
#include "daemon/whatif/graph/late_starts.h"

namespace seqpoint::whatif {

// Adds them to `graph`, in the order of their calls, which is that of their lanes. Returns the
// task of each work.
std::vector<uint32_t> MakeGpuTasks(const JoinedTrace& joined, const Gaps& gaps,
                                   const LateStarts& late, Graph* graph);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_GPU_TASKS_H_
