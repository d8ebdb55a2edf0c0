#include "daemon/whatif/transform/graph_edits.h"

#include <algorithm>

namespace seqpoint::whatif {

void SetDuration(bool gpu, uint32_t t, int64_t duration_ns, Graph* graph) {
  if (gpu) {
    graph->gpu[t].duration_ns = duration_ns;
    return;
  }
  // Work starts when its call has got to hand it over, so later by what the call takes longer.
  const int64_t longer_ns = duration_ns - graph->cpu[t].duration_ns;
  graph->cpu[t].duration_ns = duration_ns;
  for (uint32_t g = graph->cpu[t].first_work; g != kNone; g = graph->gpu[g].next) {
    graph->gpu[g].latency_ns = std::max<int64_t>(0, graph->gpu[g].latency_ns + longer_ns);
  }
}

void RemoveCall(uint32_t t, Graph* graph) {
  CpuTask& task = graph->cpu[t];
  task.duration_ns = task.tail_ns = 0;
  if (IsWait(task.kind)) task.kind = CpuKind::kCall;
}

void RemoveWork(const std::vector<uint32_t>& tasks, Graph* graph) {
  std::vector<bool> removed(graph->gpu.size());
  std::vector<uint32_t> calls;
  for (const uint32_t t : tasks) {
    graph->gpu[t].before = false;
    if (graph->gpu[t].call == kNone) continue;
    removed[t] = true;
    calls.push_back(graph->gpu[t].call);
  }
  std::sort(calls.begin(), calls.end());
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
  for (const uint32_t c : calls) {
    CpuTask& call = graph->cpu[c];
    for (uint32_t g = call.first_work; g != kNone; g = graph->gpu[g].next) {
      const GpuTask& inserted = graph->gpu[g];
      if (inserted.work != kNone || removed[g]) continue;
      // A task that was inserted into another lane still comes when it did.
      for (uint32_t i = 0; i < inserted.dependency_count; ++i) {
        const uint32_t t = graph->dependencies[inserted.first_dependency + i];
        if (!removed[t] || graph->gpu[t].call != c) continue;
        removed[t] = false;
        graph->gpu[t].duration_ns = graph->gpu[t].gap_ns = 0;
        call.duration_ns = 0;
      }
    }
    uint32_t* link = &call.first_work;
    for (uint32_t g = call.first_work; g != kNone;) {
      GpuTask& task = graph->gpu[g];
      const uint32_t next = task.next;
      if (removed[g]) {
        task.next = task.call = kNone;
      } else {
        *link = g;
        link = &task.next;
      }
      g = next;
    }
    *link = kNone;
    // A call that launches nothing any more is not made.
    if (call.first_work == kNone && call.kind != CpuKind::kGap) {
      call.duration_ns = call.tail_ns = 0;
      call.kind = CpuKind::kCall;
    }
  }
}

uint32_t NameId(const std::string& name, Graph* graph) {
  const auto it = std::find(graph->names.begin(), graph->names.end(), name);
  if (it != graph->names.end()) return static_cast<uint32_t>(it - graph->names.begin());
  graph->names.push_back(name);
  return static_cast<uint32_t>(graph->names.size() - 1);
}

}  // namespace seqpoint::whatif
