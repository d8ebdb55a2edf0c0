#include "daemon/placement/operator_graph.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/disjoint_sets.h"
#include "daemon/base/status_macros.h"
#include "daemon/placement/memory_flow.h"

namespace seqpoint::placement {
namespace {

using traces::ExecutedOperator;
using traces::ExecutionTrace;

// torch/csrc/autograd/functions/accumulate_grad.h: the end of the backward pass of a parameter.
constexpr std::string_view kAccumulate = "AccumulateGrad";

class Builder {
 public:
  Builder(const ExecutionTrace& trace, MemoryFlow flow) : trace_(trace), flow_(std::move(flow)) {}

  absl::StatusOr<OperatorGraph> Build() {
    graph_.training = flow_.training;
    SEQPOINT_RETURN_IF_ERROR(FindTwins());
    FindParameters();
    Number();
    Color();
    ShareUpdates();
    Size();
    return std::move(graph_);
  }

 private:
  // PyTorch numbers the backward nodes of a thread as it makes them. A forward operator has the
  // number of the next one: the last operator with a number made that node. Source:
  // torch/csrc/autograd/profiler_kineto.cpp, generateForwardBackwardLink.
  absl::Status FindTwins() {
    absl::flat_hash_map<std::pair<uint64_t, int64_t>, int> makers;
    for (size_t i = 0; i < trace_.operators.size(); ++i) {
      const ExecutedOperator& op = trace_.operators[i];
      if (flow_.unit_of[i] < 0 || op.sequence < 0 || flow_.units[flow_.unit_of[i]].backward)
        continue;
      makers[{op.thread, op.sequence}] = flow_.unit_of[i];
    }
    twin_.assign(flow_.units.size(), -1);
    for (size_t u = 0; u < flow_.units.size(); ++u) {
      if (!flow_.units[u].backward) continue;
      const ExecutedOperator* node = BackwardNode(flow_.units[u].node);
      if (node == nullptr) continue;
      const auto maker = makers.find({node->forward_thread, node->sequence});
      if (maker == makers.end()) continue;
      if (flow_.units[maker->second].after_backward) {
        return absl::FailedPreconditionError(absl::StrCat(
            trace_.source,
            " has a backward pass over operators that use the result of another backward pass; "
            "record a single iteration"));
      }
      twin_[u] = maker->second;
    }
    return absl::OkStatus();
  }

  // The engine's call, or the node that it evaluates.
  const ExecutedOperator* BackwardNode(int node) const {
    const ExecutedOperator& op = trace_.operators[node];
    if (op.scope == traces::kBackwardScope && op.sequence >= 0) return &op;
    for (const int child : flow_.children[node]) {
      const ExecutedOperator& inner = trace_.operators[child];
      if (inner.scope == traces::kBackwardScope && inner.sequence >= 0) return &inner;
    }
    return nullptr;
  }

  // The memory that the optimizer updates; without one, the memory that the operators call a
  // parameter.
  void FindParameters() {
    const auto find = [&](auto accept) {
      for (size_t m = 0; m < flow_.memories.size(); ++m) {
        Memory& memory = flow_.memories[m];
        // A unit of several operators may turn out to be an update after its first reads.
        std::erase_if(memory.readers, [&](int reader) { return flow_.units[reader].update(); });
        if (memory.resident && !memory.readers.empty() && accept(memory)) {
          parameter_memories_.push_back(static_cast<int>(m));
        }
      }
    };
    find([](const Memory& memory) { return memory.changed; });
    if (parameter_memories_.empty()) find([](const Memory& memory) { return memory.named; });
    // In the order of their first readers; those of one operator in the order of its arguments,
    // which is that of their first uses.
    std::stable_sort(parameter_memories_.begin(), parameter_memories_.end(), [&](int a, int b) {
      return flow_.memories[a].readers[0] < flow_.memories[b].readers[0];
    });
  }

  void Number() {
    number_.assign(flow_.units.size(), -1);
    for (size_t u = 0; u < flow_.units.size(); ++u) {
      const Unit& unit = flow_.units[u];
      if (unit.update()) continue;
      number_[u] = static_cast<int>(graph_.operators.size());
      std::string_view name = trace_.NameOf(trace_.operators[unit.node]);
      if (name.starts_with(kEvaluate)) name.remove_prefix(kEvaluate.size());
      graph_.operators.push_back(
          {.node = unit.node, .name = std::string(name), .backward = unit.backward});
      for (const int producer : unit.producers) {
        if (number_[producer] >= 0) graph_.edges.push_back({number_[producer], number_[u]});
      }
    }
  }

  void Color() {
    DisjointSets sets(flow_.units.size());
    for (const int m : parameter_memories_) {
      const std::vector<int>& readers = flow_.memories[m].readers;
      const auto parameter = static_cast<int>(graph_.parameters.size());
      graph_.parameters.push_back({.elements = flow_.memories[m].elements,
                                   .bytes = flow_.memories[m].bytes,
                                   .first_reader = number_[readers[0]]});
      for (const int reader : readers) {
        sets.Join(reader, readers[0]);
        graph_.operators[number_[reader]].parameters.push_back(parameter);
      }
    }
    for (size_t u = 0; u < flow_.units.size(); ++u) {
      if (!flow_.units[u].backward) continue;
      if (twin_[u] >= 0 && number_[twin_[u]] >= 0) sets.Join(static_cast<int>(u), twin_[u]);
      // A gradient is kept where it comes from: where its parameter is used.
      if (trace_.NameOf(trace_.operators[flow_.units[u].node]).ends_with(kAccumulate)) {
        for (const int producer : flow_.units[u].producers) {
          if (flow_.units[producer].backward) sets.Join(static_cast<int>(u), producer);
        }
      }
    }
    absl::flat_hash_map<int, std::vector<int>> members;  // operators, by the set's unit
    for (size_t u = 0; u < flow_.units.size(); ++u) {
      if (number_[u] >= 0) members[sets.Find(static_cast<int>(u))].push_back(number_[u]);
    }
    for (size_t u = 0; u < flow_.units.size(); ++u) {
      if (number_[u] < 0) continue;
      const std::vector<int>& set = members[sets.Find(static_cast<int>(u))];
      if (set.size() > 1) graph_.operators[number_[u]].color = set.front();
    }
    absl::flat_hash_map<int, int> last_backward;  // by color
    for (size_t i = 0; i < graph_.operators.size(); ++i) {
      const GraphOperator& op = graph_.operators[i];
      if (op.backward && op.color >= 0) last_backward[op.color] = static_cast<int>(i);
    }
    for (Parameter& parameter : graph_.parameters) {
      const auto it = last_backward.find(graph_.operators[parameter.first_reader].color);
      parameter.updater = it == last_backward.end() ? parameter.first_reader : it->second;
    }
  }

  // Which parameter a gradient, or a part of the optimizer's state, belongs to: operators of the
  // optimizer's step use them together, one by one or in lists of the same order.
  void ShareUpdates() {
    DisjointSets sets(flow_.memories.size());
    for (size_t begin = 0, end = 0; begin < flow_.updates.size(); begin = end) {
      std::map<std::pair<uint32_t, uint64_t>, int> together;  // by place in the list, and size
      for (end = begin;
           end < flow_.updates.size() && flow_.updates[end].unit == flow_.updates[begin].unit;
           ++end) {
        const int memory = flow_.updates[end].memory;
        const auto [it, first] =
            together.try_emplace({flow_.updates[end].element, flow_.updates[end].elements}, memory);
        if (!first) sets.Join(memory, it->second);
      }
    }
    absl::flat_hash_map<int, std::vector<int>> of_set;  // parameters
    for (size_t p = 0; p < parameter_memories_.size(); ++p) {
      of_set[sets.Find(parameter_memories_[p])].push_back(static_cast<int>(p));
    }
    std::vector<int> all(graph_.parameters.size());
    std::iota(all.begin(), all.end(), 0);
    double everybodys = 0;
    for (size_t m = 0; m < flow_.memories.size(); ++m) {
      const Memory& memory = flow_.memories[m];
      if (!memory.updated || !(memory.resident || memory.gradient)) continue;
      const auto owners = of_set.find(sets.Find(static_cast<int>(m)));
      if (owners == of_set.end()) {
        everybodys += memory.bytes;
      } else {
        Share(memory.bytes, owners->second);
      }
    }
    Share(everybodys, all);
    for (Parameter& parameter : graph_.parameters) {
      // Without an optimizer in the trace: the parameter, and its gradient.
      if (parameter.resident_bytes == 0) {
        parameter.resident_bytes = parameter.bytes * (flow_.training ? 2 : 1);
      }
    }

    std::vector<std::set<int>> touched(flow_.units.size());
    for (const Use& use : flow_.updates) {
      const auto it = of_set.find(sets.Find(use.memory));
      if (it != of_set.end()) touched[use.unit].insert(it->second.begin(), it->second.end());
    }
    for (size_t u = 0; u < flow_.units.size(); ++u) {
      if (!flow_.units[u].update()) continue;
      graph_.updates.push_back({flow_.units[u].node, {touched[u].begin(), touched[u].end()}});
    }
  }

  // By the bytes of the parameters.
  void Share(double bytes, const std::vector<int>& among) {
    double sum = 0;
    for (const int p : among) sum += graph_.parameters[p].bytes;
    for (const int p : among) {
      Parameter& parameter = graph_.parameters[p];
      parameter.resident_bytes += sum > 0 ? bytes * parameter.bytes / sum : 0;
    }
  }

  void Size() {
    for (const Memory& memory : flow_.memories) {
      if (memory.creator < 0 || number_[memory.creator] < 0 ||
          flow_.units[memory.creator].backward) {
        continue;
      }
      if (flow_.training ? memory.saved : memory.read_elsewhere) {
        graph_.operators[number_[memory.creator]].activation_bytes += memory.bytes;
      }
    }
    for (const auto& [output, moved] : flow_.moved) {
      Output out = {.producer = number_[std::get<0>(output)], .bytes = moved.bytes};
      for (const int consumer : moved.consumers) {
        if (number_[consumer] >= 0) out.consumers.push_back(number_[consumer]);
      }
      if (out.producer >= 0 && !out.consumers.empty()) graph_.outputs.push_back(std::move(out));
    }
  }

  const ExecutionTrace& trace_;
  MemoryFlow flow_;
  OperatorGraph graph_;
  std::vector<int> twin_;    // forward unit of a backward one
  std::vector<int> number_;  // of each unit in the graph; -1: not in it
  std::vector<int> parameter_memories_;
};

}  // namespace

absl::StatusOr<OperatorGraph> MakeOperatorGraph(const traces::ExecutionTrace& trace) {
  SEQPOINT_ASSIGN_OR_RETURN(MemoryFlow flow, FollowMemory(trace));
  return Builder(trace, std::move(flow)).Build();
}

}  // namespace seqpoint::placement
