#include "daemon/placement/class_graph.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "daemon/placement/components.h"

namespace seqpoint::placement {
namespace {

// Operators that sit together have the same number, 0 to count - 1.
struct Grouping {
  std::vector<int> of;  // of each operator
  int count = 0;
};

Grouping GroupByColor(const Problem& problem) {
  Grouping groups;
  absl::flat_hash_map<int64_t, int> of_color;
  for (const Operator& op : problem.operators) {
    int group = groups.count;
    if (op.color.has_value()) group = of_color.try_emplace(*op.color, group).first->second;
    groups.count = std::max(groups.count, group + 1);
    groups.of.push_back(group);
  }
  return groups;
}

// The forward pass between the groups; of groups without a forward operator, the mirrored backward
// pass (createArtificialForwardNodes of the published program).
Adjacency Precedence(const Problem& problem, const Grouping& groups,
                     const std::vector<bool>& has_forward) {
  Adjacency successors(groups.count);
  for (const Edge& edge : problem.edges) {
    const int from = groups.of[edge.from], to = groups.of[edge.to];
    const bool backward = problem.operators[edge.from].backward;
    if (from == to || backward != problem.operators[edge.to].backward) continue;
    if (!backward) {
      successors[from].push_back(to);
    } else if (!has_forward[from] || !has_forward[to]) {
      successors[to].push_back(from);
    }
  }
  SortUniqueEach(&successors);
  return successors;
}

void Regroup(const std::vector<int>& group, Grouping* groups) {
  groups->count = group.empty() ? 0 : *std::max_element(group.begin(), group.end()) + 1;
  for (int& of : groups->of) of = group[of];
}

// Groups without time that exchange data with only one other group join it: that saves transfers
// and costs nothing (performTrivialNodeOptimizations; the published program also binds memory in
// this way). A group whose memory may be too much for its neighbor's device stays separate, and so
// does one that cannot run where its neighbor can.
std::vector<int> MergeFree(const Problem& problem, const Grouping& groups) {
  std::vector<bool> free(groups.count, true), supported(groups.count, true);
  double memory_bytes = 0;
  for (const Operator& op : problem.operators) memory_bytes += op.memory_bytes;
  const bool all_fit = memory_bytes <= problem.memory_bytes;
  for (size_t i = 0; i < problem.operators.size(); ++i) {
    const Operator& op = problem.operators[i];
    if (op.cpu_time != 0 || op.accelerator_time != 0) free[groups.of[i]] = false;
    if (!all_fit && op.memory_bytes != 0) free[groups.of[i]] = false;
    if (!op.accelerator_supported) supported[groups.of[i]] = false;
  }
  std::vector<std::set<int>> neighbors(groups.count);
  const auto join = [&](int a, int b) {
    if (a == b) return;
    neighbors[a].insert(b);
    neighbors[b].insert(a);
  };
  for (const Edge& edge : problem.edges) join(groups.of[edge.from], groups.of[edge.to]);
  std::vector<int> host(groups.count);
  std::vector<int> leaves;
  for (int v = 0; v < groups.count; ++v) {
    host[v] = v;
    leaves.push_back(v);
  }
  while (!leaves.empty()) {
    const int leaf = leaves.back();
    leaves.pop_back();
    if (!free[leaf] || host[leaf] != leaf || neighbors[leaf].size() != 1) continue;
    const int neighbor = *neighbors[leaf].begin();
    if (!supported[leaf] && supported[neighbor]) continue;
    host[leaf] = neighbor;
    neighbors[neighbor].erase(leaf);
    leaves.push_back(neighbor);
  }
  // A host joined another one later than those whom it hosts.
  std::vector<int> number(groups.count, -1);
  int count = 0;
  for (int v = 0; v < groups.count; ++v) {
    if (host[v] == v) number[v] = count++;
  }
  std::vector<int> merged(groups.count);
  for (int v = 0; v < groups.count; ++v) {
    int at = v;
    while (host[at] != at) at = host[at];
    merged[v] = number[at];
  }
  return merged;
}

std::vector<Net> Nets(const Problem& problem, const std::vector<int>& class_of) {
  std::vector<std::vector<int>> pins(problem.operators.size());
  for (const Edge& edge : problem.edges) pins[edge.from].push_back(class_of[edge.to]);
  std::map<std::vector<int>, double> nets;
  for (size_t i = 0; i < pins.size(); ++i) {
    if (problem.operators[i].transfer_time == 0) continue;
    pins[i].push_back(class_of[i]);
    SortUnique(&pins[i]);
    if (pins[i].size() > 1) nets[pins[i]] += problem.operators[i].transfer_time;
  }
  std::vector<Net> list;
  list.reserve(nets.size());
  for (const auto& [classes, transfer_time] : nets) list.push_back({transfer_time, classes});
  return list;
}

ClassGraph Build(const Problem& problem, const Grouping& groups, Adjacency successors) {
  ClassGraph graph;
  graph.class_of = groups.of;
  graph.accelerators = problem.accelerators;
  graph.cpus = problem.cpus;
  graph.memory_bytes = problem.memory_limit();
  graph.classes.resize(groups.count);
  for (size_t i = 0; i < problem.operators.size(); ++i) {
    const Operator& op = problem.operators[i];
    Class& of = graph.classes[groups.of[i]];
    of.accelerator_time += op.accelerator_time;
    of.cpu_time += op.cpu_time;
    of.memory_bytes += op.memory_bytes;
    of.accelerator_supported = of.accelerator_supported && op.accelerator_supported;
    of.operators.push_back(static_cast<int>(i));
  }
  graph.nets = Nets(problem, groups.of);
  graph.predecessors.resize(groups.count);
  for (int v = 0; v < groups.count; ++v) {
    for (const int to : successors[v]) graph.predecessors[to].push_back(v);
  }
  graph.successors = std::move(successors);
  return graph;
}

std::vector<bool> HasForward(const Problem& problem, const Grouping& groups) {
  std::vector<bool> has_forward(groups.count, false);
  for (size_t i = 0; i < problem.operators.size(); ++i) {
    if (!problem.operators[i].backward) has_forward[groups.of[i]] = true;
  }
  return has_forward;
}

}  // namespace

ClassGraph ColorClasses(const Problem& problem) {
  const Grouping groups = GroupByColor(problem);
  return Build(problem, groups, Precedence(problem, groups, HasForward(problem, groups)));
}

ClassGraph ContiguousClasses(const Problem& problem) {
  Grouping groups = GroupByColor(problem);
  Adjacency successors = Precedence(problem, groups, HasForward(problem, groups));
  const auto regroup = [&](const std::vector<int>& group) {
    Regroup(group, &groups);
    successors = Fuse(successors, group, groups.count);
  };
  regroup(StrongComponents(successors));
  regroup(MergeFree(problem, groups));
  regroup(PlacesIn(DepthFirstOrder(successors)));
  return Build(problem, groups, std::move(successors));
}

ClassGraph WithCostsOf(const ClassGraph& graph, const Problem& problem) {
  return Build(problem, {graph.class_of, graph.size()}, graph.successors);
}

std::vector<std::vector<int>> NetsOfClasses(const ClassGraph& graph) {
  std::vector<std::vector<int>> nets_of(graph.size());
  for (size_t net = 0; net < graph.nets.size(); ++net) {
    for (const int c : graph.nets[net].classes) nets_of[c].push_back(static_cast<int>(net));
  }
  return nets_of;
}

std::vector<int> DevicesOf(const ClassGraph& graph, const Placement& placement) {
  std::vector<int> device;
  device.reserve(graph.classes.size());
  for (const Class& of : graph.classes) device.push_back(placement[of.operators.front()]);
  return device;
}

Placement ToPlacement(const ClassGraph& graph, const std::vector<int>& device) {
  Placement placement;
  placement.reserve(graph.class_of.size());
  for (const int of : graph.class_of) placement.push_back(device[of]);
  return placement;
}

}  // namespace seqpoint::placement
