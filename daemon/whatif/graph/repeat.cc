#include "daemon/whatif/graph/repeat.h"

#include <algorithm>
#include <vector>

namespace seqpoint::whatif {
namespace {

// Of each thread, what it does between its last call and its first one of the next iteration.
std::vector<int64_t> TimesBetween(const Trace& trace, int64_t begin_ns, int64_t end_ns) {
  std::vector<int64_t> first_ns(trace.threads.size(), end_ns), last_ns(first_ns.size(), begin_ns);
  for (const Call& call : trace.calls) {
    first_ns[call.thread] = std::min(first_ns[call.thread], call.begin_ns);
    last_ns[call.thread] = std::max(last_ns[call.thread], call.end_ns);
  }
  std::vector<int64_t> between_ns;
  for (size_t thread = 0; thread < first_ns.size(); ++thread) {
    between_ns.push_back(std::max<int64_t>(
        0, first_ns[thread] - begin_ns + std::max<int64_t>(end_ns - last_ns[thread], 0)));
  }
  return between_ns;
}

// Indices of a turn's tasks behind those of the turns before it.
struct Offsets {
  uint32_t cpu, gpu, dependencies, events, collectives;
  int32_t iterations;
};

uint32_t Moved(uint32_t index, uint32_t by) { return index == kNone ? kNone : index + by; }

CpuTask Moved(CpuTask task, const Offsets& by) {
  task.after = Moved(task.after, by.cpu);
  task.first_work = Moved(task.first_work, by.gpu);
  task.event = Moved(task.event, by.events);
  if (task.iteration >= 0) task.iteration += by.iterations;
  return task;
}

GpuTask Moved(GpuTask task, const Offsets& by) {
  task.call = Moved(task.call, by.cpu);
  task.next = Moved(task.next, by.gpu);
  task.first_dependency += by.dependencies;
  task.collective = Moved(task.collective, by.collectives);
  task.before = false;
  return task;
}

}  // namespace

Graph RepeatGraph(const Graph& graph, const Trace& trace, int turns, int64_t begin_ns,
                  int64_t end_ns, uint32_t collectives) {
  const std::vector<int64_t> between_ns = TimesBetween(trace, begin_ns, end_ns);
  Graph repeated = graph;
  for (int turn = 1; turn < turns; ++turn) {
    const auto count = static_cast<uint32_t>(turn);
    for (uint32_t thread = 0; thread < graph.order.size(); ++thread) {
      if (graph.order[thread].empty()) continue;
      CpuTask gap;
      gap.duration_ns = between_ns[thread];
      gap.thread = thread;
      gap.iteration = turn - 1;
      repeated.order[thread].push_back(static_cast<uint32_t>(repeated.cpu.size()));
      repeated.cpu.push_back(gap);
    }
    const Offsets by = {static_cast<uint32_t>(repeated.cpu.size()),
                        static_cast<uint32_t>(repeated.gpu.size()),
                        static_cast<uint32_t>(repeated.dependencies.size()),
                        count * graph.events,
                        count * collectives,
                        turn};
    for (const CpuTask& task : graph.cpu) repeated.cpu.push_back(Moved(task, by));
    for (const GpuTask& task : graph.gpu) repeated.gpu.push_back(Moved(task, by));
    for (const uint32_t task : graph.dependencies) repeated.dependencies.push_back(task + by.gpu);
    for (size_t thread = 0; thread < graph.order.size(); ++thread) {
      for (const uint32_t task : graph.order[thread]) {
        repeated.order[thread].push_back(task + by.cpu);
      }
    }
  }
  repeated.events = graph.events * static_cast<uint32_t>(turns);
  repeated.iterations = turns;
  return repeated;
}

}  // namespace seqpoint::whatif
