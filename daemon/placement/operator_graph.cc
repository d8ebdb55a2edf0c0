#include "daemon/placement/operator_graph.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/disjoint_sets.h"
#include "daemon/base/status_macros.h"

namespace seqpoint::placement {
namespace {

using traces::ExecutedOperator;
using traces::ExecutionTrace;
using traces::TensorUse;

// torch/csrc/autograd/engine.cpp, Engine::evaluate_function; the node itself is its child.
constexpr std::string_view kEvaluate = "autograd::engine::evaluate_function: ";
// torch/csrc/autograd/functions/accumulate_grad.h: the end of the backward pass of a parameter.
constexpr std::string_view kAccumulate = "AccumulateGrad";
// torch/optim/optimizer.py: "Optimizer.step#Adam.step", "Optimizer.zero_grad#Adam.zero_grad".
constexpr std::string_view kOptimizer = "Optimizer.";

// The names that native_functions.yaml gives to arguments that are parameters of modules: weight,
// in_proj_bias, ffn_weight_1; params of aten::lstm, w_ih of aten::lstm_cell.
bool NamesParameter(std::string_view argument) {
  static const auto* const kNames =
      new absl::flat_hash_set<std::string_view>{"params", "w_ih", "w_hh", "b_ih", "b_hh"};
  return argument.find("weight") != argument.npos || argument.find("bias") != argument.npos ||
         argument.starts_with("running_") || kNames->contains(argument);
}

struct Argument {
  bool parameter = false;  // by its name
  bool written = false;    // "Tensor(a!) self"
};

// The arguments of "aten::mul_.Tensor(Tensor(a!) self, Tensor other, *, int[2] x=[1, 2]) -> ...".
std::vector<Argument> ArgumentsOf(std::string_view schema) {
  std::vector<Argument> arguments;
  const size_t open = schema.find('(');
  if (open == schema.npos) return arguments;
  int depth = 0;
  size_t begin = open + 1;
  for (size_t at = begin; at < schema.size(); ++at) {
    const char c = schema[at];
    const bool last = c == ')' && depth == 0;
    if (last || (c == ',' && depth == 0)) {
      std::string_view text = schema.substr(begin, at - begin);
      begin = at + 1;
      const bool written = text.find('!') != text.npos;
      text = text.substr(0, text.find('='));
      const size_t blank = text.rfind(' ');
      const std::string_view name = blank == text.npos ? text : text.substr(blank + 1);
      if (!name.empty() && name != "*") arguments.push_back({NamesParameter(name), written});
      if (last) break;
    }
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
  }
  return arguments;
}

// An allocation. Its address may have been another one's before.
struct Memory {
  int writer = -1;  // unit
  uint64_t written_at = 0;
  int creator = -1;  // unit; -1: it was there before, or its allocation is not recorded
  // It was there before the iteration: the first that happens to it is a read, or an update.
  bool resident = false;
  bool saved = false;           // read by the backward pass
  bool gradient = false;        // written by the backward pass
  bool read_elsewhere = false;  // by another unit than its creator
  bool named = false;           // arrives as an argument that is called like a parameter
  bool updated = false;         // used by the optimizer's step,
  bool changed = false;         // which writes it in place
  uint64_t elements = 0;
  double bytes = 0;
  std::vector<int> readers;  // forward units that do not write it
};

// One operator of the graph to be, with all that it calls.
struct Unit {
  int node = 0;
  bool backward = false;
  bool optimizer = false;       // within the optimizer's annotation
  bool after_backward = false;  // uses memory that the backward pass made, and is no part of it
  std::vector<int> producers;

  bool update() const { return optimizer || after_backward; }
};

class Builder {
 public:
  explicit Builder(const ExecutionTrace& trace) : trace_(trace) {}

  absl::StatusOr<OperatorGraph> Build() {
    SEQPOINT_RETURN_IF_ERROR(FindUnits());
    for (size_t u = 0; u < units_.size(); ++u) Walk(static_cast<int>(u));
    SEQPOINT_RETURN_IF_ERROR(FindTwins());
    MeasureUpdated();
    FindParameters();
    Number();
    Color();
    ShareUpdates();
    Size();
    return std::move(graph_);
  }

 private:
  // By its number and the number of its memory.
  using Tensor = std::pair<uint64_t, uint64_t>;
  // The last operator that gave it out.
  struct Origin {
    int unit = -1;
    size_t memory = 0;
    uint64_t given_at = 0;
  };

  absl::Status FindUnits() {
    const std::vector<ExecutedOperator>& operators = trace_.operators;
    absl::flat_hash_map<uint64_t, int> index;
    unit_of_.assign(operators.size(), -1);
    children_.resize(operators.size());
    std::vector<bool> optimizer(operators.size());
    for (size_t i = 0; i < operators.size(); ++i) {
      const ExecutedOperator& op = operators[i];
      const std::string& name = trace_.NameOf(op);
      if (op.compiled) {
        return absl::FailedPreconditionError(absl::StrCat(
            trace_.source, ": operator ", op.id,
            " is a kernel of torch.compile, of which PyTorch does not record what it writes; "
            "record the model without torch.compile"));
      }
      index.emplace(op.id, static_cast<int>(i));
      // A parent that did not end while the observer was on is not in the file.
      const auto parent = index.find(op.parent);
      if (parent != index.end()) {
        children_[parent->second].push_back(static_cast<int>(i));
        unit_of_[i] = unit_of_[parent->second];
        optimizer[i] = optimizer[parent->second];
      }
      if (op.scope == traces::kUserScope) {
        optimizer[i] = optimizer[i] || name.starts_with(kOptimizer);
      } else if (unit_of_[i] < 0) {
        unit_of_[i] = static_cast<int>(units_.size());
        const bool backward = op.scope == traces::kBackwardScope || name.starts_with(kEvaluate);
        units_.push_back({.node = static_cast<int>(i),
                          .backward = backward,
                          .optimizer = optimizer[i] && !backward});
        graph_.training |= backward;
      }
    }
    return absl::OkStatus();
  }

  const std::vector<Argument>& SchemaOf(const ExecutedOperator& op) {
    const auto [it, added] = schemas_.try_emplace(op.schema);
    if (added) it->second = ArgumentsOf(trace_.names[op.schema]);
    return it->second;
  }

  // Depth first, so that the memory that an inner operator makes is known before the outer one
  // ends. A unit needs the inputs of its outermost operators with a schema: inner ones also use
  // memory whose allocation is not recorded, at addresses that others had before.
  void Walk(int unit) {
    struct Open {
      int node;
      size_t next_child = 0;
    };
    std::vector<Open> open;
    const auto enter = [&](int node) {
      open.push_back({node});
      if (outermost_ >= 0) return;
      Read(unit, node);
      if (trace_.operators[node].schema != 0) outermost_ = node;
    };
    enter(units_[unit].node);
    while (!open.empty()) {
      Open& top = open.back();
      if (top.next_child < children_[top.node].size()) {
        enter(children_[top.node][top.next_child++]);
      } else {
        Write(unit, top.node);
        if (outermost_ == top.node) outermost_ = -1;
        open.pop_back();
      }
    }
    Unit& self = units_[unit];
    std::sort(self.producers.begin(), self.producers.end());
    self.producers.erase(std::unique(self.producers.begin(), self.producers.end()),
                         self.producers.end());
  }

  void Read(int unit, int node) {
    const ExecutedOperator& op = trace_.operators[node];
    const std::vector<Argument>& arguments = SchemaOf(op);
    const absl::Span<const TensorUse> inputs = trace_.Inputs(op);
    Unit& self = units_[unit];
    std::vector<Argument> argument(inputs.size());
    std::vector<size_t> memory(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].argument < arguments.size()) argument[i] = arguments[inputs[i].argument];
      memory[i] = MemoryOf(inputs[i], argument[i], self, node);
      Need(unit, inputs[i], memory[i]);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      Note(unit, node == self.node, inputs[i], argument[i], &memories_[memory[i]]);
    }
  }

  size_t MemoryOf(const TensorUse& use, const Argument& argument, const Unit& self, int node) {
    const auto at = memory_at_.find(use.storage);
    bool resident = false;
    if (at == memory_at_.end()) {
      // Operators also write to memory that they allocate themselves, which is not recorded.
      resident = !argument.written || node == self.node;
    } else {
      const Memory& memory = memories_[at->second];
      const auto origin = origins_.find(Tensor(use.tensor, use.storage));
      const bool given = origin != origins_.end() && origin->second.memory == at->second;
      // An input of an operator of the program was the output of another one, or was there before.
      // Otherwise it is new (a number that became a tensor) at an address that another one had.
      if (given || memory.creator < 0 || self.backward || self.optimizer) return at->second;
    }
    memory_at_[use.storage] = memories_.size();
    memories_.push_back({.resident = resident,
                         .elements = use.elements,
                         .bytes = static_cast<double>(use.bytes())});
    return memories_.size() - 1;
  }

  void Need(int unit, const TensorUse& use, size_t number) {
    Unit& self = units_[unit];
    const Memory& memory = memories_[number];
    const auto origin = origins_.find(Tensor(use.tensor, use.storage));
    const bool view = origin != origins_.end() && origin->second.memory == number &&
                      origin->second.given_at > memory.written_at &&
                      origin->second.unit != memory.writer;
    const int producer = view ? origin->second.unit : memory.writer;
    if (producer < 0 || producer == unit) return;
    self.producers.push_back(producer);
    const Unit& maker = units_[producer];
    self.after_backward |= !self.backward && (maker.backward || maker.after_backward);
    if (self.update()) return;
    const double bytes =
        view ? std::min(memory.bytes, static_cast<double>(use.bytes())) : memory.bytes;
    Moved& moved = moved_[{producer, number, view ? use.tensor : uint64_t{0}}];
    moved.bytes = std::max(moved.bytes, bytes);
    if (moved.consumers.empty() || moved.consumers.back() != unit) {
      moved.consumers.push_back(unit);
    }
  }

  void Note(int unit, bool outermost, const TensorUse& use, const Argument& argument,
            Memory* memory) {
    const Unit& self = units_[unit];
    memory->read_elsewhere |= memory->creator != unit;
    memory->saved |= self.backward;
    if (!outermost) return;
    if (self.update()) {
      const auto number = static_cast<int>(memory - memories_.data());
      updates_.push_back({unit, number, use.element, use.elements});
      // The first use of a parameter may be one that is expanded; the optimizer's never is.
      if (!memory->updated) memory->elements = use.elements;
      memory->updated = true;
      const uint64_t end = use.offset + std::min(use.elements, UINT64_MAX - use.offset);
      regions_[number].push_back({use.offset, end, use.item_bytes});
      memory->changed |= argument.written;
    } else if (!self.backward && !argument.written) {
      memory->named |= argument.parameter;
      if (memory->readers.empty() || memory->readers.back() != unit) {
        memory->readers.push_back(unit);
      }
    }
  }

  void Write(int unit, int node) {
    const ExecutedOperator& op = trace_.operators[node];
    if (op.schema == 0) return;  // hands on what its operators made
    const std::vector<Argument>& arguments = SchemaOf(op);
    ++now_;
    for (const TensorUse& use : trace_.Inputs(op)) {
      if (use.argument >= arguments.size() || !arguments[use.argument].written) continue;
      const auto at = memory_at_.find(use.storage);
      const bool known = at != memory_at_.end() &&
                         (memories_[at->second].writer == unit || IsInput(outermost_, use.storage));
      Memory& memory = known ? memories_[at->second] : Create(unit, use);
      memory.writer = unit;
      memory.written_at = now_;
      memory.gradient |= units_[unit].backward;
    }
    for (const TensorUse& use : trace_.Outputs(op)) {
      const auto at = memory_at_.find(use.storage);
      const bool known = at != memory_at_.end();
      if (known && memories_[at->second].writer == unit) {
        double& bytes = memories_[at->second].bytes;
        bytes = std::max(bytes, static_cast<double>(use.bytes()));
      } else if (!IsInput(node, use.storage)) {
        Create(unit, use);
      } else if (!known) {
        continue;  // the inputs of an inner operator
      }
      origins_[Tensor(use.tensor, use.storage)] = {unit, memory_at_[use.storage], now_};
    }
  }

  bool IsInput(int node, uint64_t storage) const {
    const auto inputs = trace_.Inputs(trace_.operators[node]);
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const TensorUse& input) { return input.storage == storage; });
  }

  Memory& Create(int unit, const TensorUse& use) {
    memory_at_[use.storage] = memories_.size();
    return memories_.emplace_back(Memory{.writer = unit,
                                         .written_at = now_,
                                         .creator = unit,
                                         .gradient = units_[unit].backward,
                                         .elements = use.elements,
                                         .bytes = static_cast<double>(use.bytes())});
  }

  // PyTorch numbers the backward nodes of a thread as it makes them. A forward operator has the
  // number of the next one: the last operator with a number made that node. Source:
  // torch/csrc/autograd/profiler_kineto.cpp, generateForwardBackwardLink.
  absl::Status FindTwins() {
    absl::flat_hash_map<std::pair<uint64_t, int64_t>, int> makers;
    for (size_t i = 0; i < trace_.operators.size(); ++i) {
      const ExecutedOperator& op = trace_.operators[i];
      if (unit_of_[i] < 0 || op.sequence < 0 || units_[unit_of_[i]].backward) continue;
      makers[{op.thread, op.sequence}] = unit_of_[i];
    }
    twin_.assign(units_.size(), -1);
    for (size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].backward) continue;
      const ExecutedOperator* node = BackwardNode(units_[u].node);
      if (node == nullptr) continue;
      const auto maker = makers.find({node->forward_thread, node->sequence});
      if (maker == makers.end()) continue;
      if (units_[maker->second].after_backward) {
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
    for (const int child : children_[node]) {
      const ExecutedOperator& inner = trace_.operators[child];
      if (inner.scope == traces::kBackwardScope && inner.sequence >= 0) return &inner;
    }
    return nullptr;
  }

  // Gradients may share their memory (the buckets of DistributedDataParallel), and be used one by
  // one and together.
  void MeasureUpdated() {
    for (auto& [number, regions] : regions_) {
      std::sort(regions.begin(), regions.end());
      double bytes = 0;
      uint64_t counted = 0;  // up to this element
      for (const auto& [begin, end, item_bytes] : regions) {
        const uint64_t from = std::max(begin, counted);
        if (end <= from) continue;
        bytes += static_cast<double>(end - from) * static_cast<double>(item_bytes);
        counted = end;
      }
      memories_[number].bytes = bytes;
    }
  }

  // The memory that the optimizer updates; without one, the memory that the operators call a
  // parameter.
  void FindParameters() {
    const auto find = [&](auto accept) {
      for (size_t m = 0; m < memories_.size(); ++m) {
        Memory& memory = memories_[m];
        // A unit of several operators may turn out to be an update after its first reads.
        std::erase_if(memory.readers, [&](int reader) { return units_[reader].update(); });
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
      return memories_[a].readers[0] < memories_[b].readers[0];
    });
  }

  void Number() {
    number_.assign(units_.size(), -1);
    for (size_t u = 0; u < units_.size(); ++u) {
      const Unit& unit = units_[u];
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
    DisjointSets sets(units_.size());
    for (const int m : parameter_memories_) {
      const std::vector<int>& readers = memories_[m].readers;
      const auto parameter = static_cast<int>(graph_.parameters.size());
      graph_.parameters.push_back({.elements = memories_[m].elements,
                                   .bytes = memories_[m].bytes,
                                   .first_reader = number_[readers[0]]});
      for (const int reader : readers) {
        sets.Join(reader, readers[0]);
        graph_.operators[number_[reader]].parameters.push_back(parameter);
      }
    }
    for (size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].backward) continue;
      if (twin_[u] >= 0 && number_[twin_[u]] >= 0) sets.Join(static_cast<int>(u), twin_[u]);
      // A gradient is kept where it comes from: where its parameter is used.
      if (trace_.NameOf(trace_.operators[units_[u].node]).ends_with(kAccumulate)) {
        for (const int producer : units_[u].producers) {
          if (units_[producer].backward) sets.Join(static_cast<int>(u), producer);
        }
      }
    }
    absl::flat_hash_map<int, std::vector<int>> members;  // operators, by the set's unit
    for (size_t u = 0; u < units_.size(); ++u) {
      if (number_[u] >= 0) members[sets.Find(static_cast<int>(u))].push_back(number_[u]);
    }
    for (size_t u = 0; u < units_.size(); ++u) {
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
    DisjointSets sets(memories_.size());
    for (size_t begin = 0, end = 0; begin < updates_.size(); begin = end) {
      std::map<std::pair<uint32_t, uint64_t>, int> together;  // by place in the list, and size
      for (end = begin; end < updates_.size() && updates_[end].unit == updates_[begin].unit;
           ++end) {
        const int memory = updates_[end].memory;
        const auto [it, first] =
            together.try_emplace({updates_[end].element, updates_[end].elements}, memory);
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
    for (size_t m = 0; m < memories_.size(); ++m) {
      const Memory& memory = memories_[m];
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
        parameter.resident_bytes = parameter.bytes * (graph_.training ? 2 : 1);
      }
    }

    std::vector<std::set<int>> touched(units_.size());
    for (const Use& use : updates_) {
      const auto it = of_set.find(sets.Find(use.memory));
      if (it != of_set.end()) touched[use.unit].insert(it->second.begin(), it->second.end());
    }
    for (size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].update()) continue;
      graph_.updates.push_back({units_[u].node, {touched[u].begin(), touched[u].end()}});
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
    for (const Memory& memory : memories_) {
      if (memory.creator < 0 || number_[memory.creator] < 0 || units_[memory.creator].backward) {
        continue;
      }
      if (graph_.training ? memory.saved : memory.read_elsewhere) {
        graph_.operators[number_[memory.creator]].activation_bytes += memory.bytes;
      }
    }
    for (const auto& [output, moved] : moved_) {
      Output out = {.producer = number_[std::get<0>(output)], .bytes = moved.bytes};
      for (const int consumer : moved.consumers) {
        if (number_[consumer] >= 0) out.consumers.push_back(number_[consumer]);
      }
      if (out.producer >= 0 && !out.consumers.empty()) graph_.outputs.push_back(std::move(out));
    }
  }

  struct Use {
    int unit;
    int memory;
    uint32_t element;
    uint64_t elements;
  };
  struct Moved {
    double bytes = 0;
    std::vector<int> consumers;  // units
  };

  const ExecutionTrace& trace_;
  OperatorGraph graph_;
  std::vector<Unit> units_;
  std::vector<int> unit_of_;                // of each node; -1: of none
  std::vector<std::vector<int>> children_;  // of each node
  std::vector<int> twin_;                   // forward unit of a backward one
  std::vector<int> number_;                 // of each unit in the graph; -1: not in it
  absl::flat_hash_map<uint32_t, std::vector<Argument>> schemas_;

  int outermost_ =
      -1;  // while a unit is walked: its open operator with a schema that has none around
  uint64_t now_ = 0;
  std::vector<Memory> memories_;
  absl::flat_hash_map<uint64_t, size_t> memory_at_;  // by the number of the storage, now
  absl::flat_hash_map<Tensor, Origin> origins_;
  std::map<std::tuple<int, size_t, uint64_t>, Moved> moved_;  // by producer, memory and view
  // For each memory that the update uses: (begin, end, bytes of an element) of the part that it
  // uses.
  absl::flat_hash_map<int, std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>> regions_;
  std::vector<Use> updates_;  // in the order of their units
  std::vector<int> parameter_memories_;
};

}  // namespace

absl::StatusOr<OperatorGraph> MakeOperatorGraph(const traces::ExecutionTrace& trace) {
  return Builder(trace).Build();
}

}  // namespace seqpoint::placement
