#include "daemon/whatif/graph.h"

#include <utility>

#include "daemon/whatif/graph/gaps.h"
#include "daemon/whatif/graph/gpu_tasks.h"
#include "daemon/whatif/graph/join.h"
#include "daemon/whatif/graph/late_starts.h"
#include "daemon/whatif/graph/phases.h"
#include "daemon/whatif/graph/threads.h"
#include "daemon/whatif/graph/waits.h"

namespace seqpoint::whatif {

Graph BuildGraph(const Trace& trace, const GraphOptions& options) {
  Graph graph;
  graph.names = trace.names;
  graph.threads = trace.threads;
  graph.streams = trace.streams;
  const JoinedTrace joined = Join(trace, &graph);
  Gaps gaps(joined, graph);
  StreamWaits waits = FindStreamWaits(joined, gaps, graph, &graph.figures);
  gaps.SetWaits(std::move(waits.waits_for));
  const LateStarts late(joined, gaps, &graph.figures);
  const std::vector<uint32_t> task_of = MakeGpuTasks(joined, gaps, late, &graph);
  MakeCpuTasks(joined, waits, task_of, options, &graph);
  SetPhases(trace, &graph);
  return graph;
}

}  // namespace seqpoint::whatif
