// The changes of a graph that transformations are made of.
//
// Threading: free functions. Ownership: the graph is the caller's.
#ifndef DAEMON_WHATIF_TRANSFORM_GRAPH_EDITS_H_
#define DAEMON_WHATIF_TRANSFORM_GRAPH_EDITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

// `gpu`: a GPU task, else a CPU task.
inline int64_t DurationOf(const Graph& graph, bool gpu, uint32_t t) {
  return gpu ? graph.gpu[t].duration_ns : graph.cpu[t].duration_ns;
}
// The work of a call that takes longer starts later by as much.
void SetDuration(bool gpu, uint32_t t, int64_t duration_ns, Graph* graph);

void RemoveCall(uint32_t t, Graph* graph);
// Takes GPU tasks out of the chains of their calls; nobody waits for them any more.
void RemoveWork(const std::vector<uint32_t>& tasks, Graph* graph);

// The id of a name, which is added where the graph does not have it.
uint32_t NameId(const std::string& name, Graph* graph);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_TRANSFORM_GRAPH_EDITS_H_
