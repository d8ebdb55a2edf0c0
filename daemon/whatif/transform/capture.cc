#include <re2/re2.h>

#include <utility>

#include "daemon/whatif/transform/graph_edits.h"
#include "daemon/whatif/transform/steps.h"

namespace seqpoint::whatif {
namespace {

// A graph launch takes about as long on its thread (2.5 us and 1 ns a node, NVIDIA's blog "Constant
// Time Launch for Straight-Line CUDA Graphs", 2024).
constexpr int64_t kGraphLaunchNs = 2500;

// cudaMalloc, hipFree, cuMemAlloc_v2, ...: some wait for the GPU, some take long.
bool IsAllocation(const Graph& graph, const CpuTask& task) {
  static const RE2* const names = new RE2("^(cuda|hip|cu)[A-Za-z]*(Malloc|Free|Alloc)");
  return task.kind == CpuKind::kCall && task.first_work == kNone &&
         RE2::PartialMatch(graph.names[task.name], *names);
}

}  // namespace

int64_t Capture(const std::vector<uint32_t>& selected, Graph* graph) {
  int64_t captured_ns = 0;
  std::vector<bool> launches(graph->cpu.size());
  for (const uint32_t t : selected) launches[t] = true;
  for (const std::vector<uint32_t>& order : graph->order) {
    std::vector<uint32_t> run, since;  // launches; the tasks behind the last of them
    int32_t iteration = -1;
    const auto end_run = [&] {
      for (size_t i = 0; run.size() > 1 && i < run.size(); ++i) {
        captured_ns += graph->cpu[run[i]].duration_ns;
        SetDuration(false, run[i], i == 0 ? kGraphLaunchNs : 0, graph);
      }
      run.clear();
      since.clear();
    };
    for (const uint32_t t : order) {
      const CpuTask& task = graph->cpu[t];
      const bool waits = task.kind != CpuKind::kGap && task.tail_ns > 0;
      if (waits || task.iteration != iteration || (task.first_work != kNone && !launches[t])) {
        end_run();
      }
      iteration = task.iteration;
      if (waits) continue;
      if (launches[t]) {
        if (!run.empty()) {
          for (const uint32_t between : since) {
            if (IsAllocation(*graph, graph->cpu[between])) continue;
            captured_ns += std::exchange(graph->cpu[between].duration_ns, 0);
          }
        }
        since.clear();
        run.push_back(t);
      } else {
        since.push_back(t);
      }
    }
    end_run();
  }
  return captured_ns;
}

}  // namespace seqpoint::whatif
