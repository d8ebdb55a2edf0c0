#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "daemon/whatif/transform/graph_edits.h"
#include "daemon/whatif/transform/kernel_bound.h"
#include "daemon/whatif/transform/lanes.h"
#include "daemon/whatif/transform/steps.h"

namespace seqpoint::whatif {
namespace {

// The time that starting a kernel takes, from the durations of all kernels of its name: as long as
// small ones take, of which there are many when they are a quarter. A single one may have a rounded
// time. Never more than an empty kernel takes: a longer one works.
int64_t StartNs(std::vector<int64_t>* durations_ns) {
  std::sort(durations_ns->begin(), durations_ns->end());
  const int64_t quartile_ns = (*durations_ns)[durations_ns->size() / 4];
  return quartile_ns <= kLatencyNs ? quartile_ns : std::min(durations_ns->front(), kLatencyNs);
}

// A number for each task: selected ones that follow each other in a lane have the same.
std::vector<uint32_t> Chains(const Graph& graph, const std::vector<uint32_t>& selected) {
  std::vector<uint32_t> chains(graph.gpu.size());
  std::vector<uint32_t> number(graph.lanes.size());
  std::vector<bool> is(graph.gpu.size());
  for (const uint32_t t : selected) is[t] = true;
  for (const uint32_t t : LaunchOrder(graph)) {
    uint32_t& current = number[graph.gpu[t].lane];
    if (is[t]) {
      chains[t] = current;
    } else {
      ++current;
    }
  }
  return chains;
}

// Removes the gaps between two launches of one group that follow each other on a thread.
void RemoveGapsWithin(const std::vector<uint32_t>& groups, Graph* graph) {
  for (const std::vector<uint32_t>& order : graph->order) {
    size_t since = order.size();  // position behind the last launch of `group`
    uint32_t group = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const CpuTask& task = graph->cpu[order[i]];
      if (groups[order[i]] != 0) {
        if (groups[order[i]] == group) {
          for (size_t k = since; k < i; ++k) graph->cpu[order[k]].duration_ns = 0;
        }
        group = groups[order[i]];
        since = i + 1;
      } else if (task.first_work != kNone || task.tail_ns > 0) {
        since = order.size();
        group = 0;
      }
    }
  }
}

}  // namespace

void Fuse(const std::vector<uint32_t>& selected, const Step& step, Graph* graph) {
  std::map<uint32_t, std::vector<int64_t>> durations_ns;  // by name
  // By the chain's number in the lane.
  std::map<std::tuple<int32_t, uint32_t, uint32_t>, std::vector<uint32_t>> groups;
  std::vector<uint32_t> chains;
  if (step.chains) chains = Chains(*graph, selected);
  for (const uint32_t t : selected) {
    const GpuTask& task = graph->gpu[t];
    if (task.call == kNone) continue;
    durations_ns[task.name].push_back(task.duration_ns);
    groups[{graph->cpu[task.call].iteration, task.lane, step.chains ? chains[t] : 0}].push_back(t);
  }
  std::map<uint32_t, int64_t> starts_ns;
  for (auto& [kernel, all_ns] : durations_ns) starts_ns[kernel] = StartNs(&all_ns);
  const uint32_t id = NameId(step.name, graph);
  std::vector<uint32_t> together(graph->cpu.size());  // the group of a call, from 1 on
  uint32_t number = 0;
  for (auto& [key, tasks] : groups) {
    ++number;
    if (tasks.size() < 2) continue;
    for (const uint32_t t : tasks) together[graph->gpu[t].call] = number;
  }
  RemoveGapsWithin(together, graph);
  std::vector<uint32_t> fused;  // into another one
  for (auto& [key, tasks] : groups) {
    if (tasks.size() < 2) continue;
    int64_t sum_ns = 0, start_ns = 0, longest_ns = 0;
    for (const uint32_t t : tasks) {
      const int64_t own_start_ns = starts_ns[graph->gpu[t].name];
      start_ns = std::max(start_ns, own_start_ns);
      sum_ns += std::max<int64_t>(0, graph->gpu[t].duration_ns - own_start_ns);
      longest_ns = std::max(longest_ns, graph->gpu[t].duration_ns);
    }
    const uint32_t last = tasks.back();
    fused.insert(fused.end(), tasks.begin(), std::prev(tasks.end()));
    graph->gpu[last].duration_ns = step.longest ? longest_ns : start_ns + sum_ns;
    graph->gpu[last].name = id;
  }
  RemoveWork(fused, graph);
}

}  // namespace seqpoint::whatif
