#include "daemon/placement/memory_flow.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/placement/components.h"
#include "daemon/placement/operator_arguments.h"

namespace seqpoint::placement {
namespace {

using traces::ExecutedOperator;
using traces::ExecutionTrace;
using traces::TensorUse;

// torch/optim/optimizer.py: "Optimizer.step#Adam.step", "Optimizer.zero_grad#Adam.zero_grad".
constexpr std::string_view kOptimizer = "Optimizer.";

class MemoryFollower {
 public:
  explicit MemoryFollower(const ExecutionTrace& trace) : trace_(trace) {}

  absl::StatusOr<MemoryFlow> Follow() {
    SEQPOINT_RETURN_IF_ERROR(FindUnits());
    for (size_t u = 0; u < flow_.units.size(); ++u) Walk(static_cast<int>(u));
    MeasureUpdated();
    return std::move(flow_);
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
    flow_.unit_of.assign(operators.size(), -1);
    flow_.children.resize(operators.size());
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
        flow_.children[parent->second].push_back(static_cast<int>(i));
        flow_.unit_of[i] = flow_.unit_of[parent->second];
        optimizer[i] = optimizer[parent->second];
      }
      if (op.scope == traces::kUserScope) {
        optimizer[i] = optimizer[i] || name.starts_with(kOptimizer);
      } else if (flow_.unit_of[i] < 0) {
        flow_.unit_of[i] = static_cast<int>(flow_.units.size());
        const bool backward = op.scope == traces::kBackwardScope || name.starts_with(kEvaluate);
        flow_.units.push_back({.node = static_cast<int>(i),
                               .backward = backward,
                               .optimizer = optimizer[i] && !backward});
        flow_.training |= backward;
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
    enter(flow_.units[unit].node);
    while (!open.empty()) {
      Open& top = open.back();
      if (top.next_child < flow_.children[top.node].size()) {
        enter(flow_.children[top.node][top.next_child++]);
      } else {
        Write(unit, top.node);
        if (outermost_ == top.node) outermost_ = -1;
        open.pop_back();
      }
    }
    Unit& self = flow_.units[unit];
    SortUnique(&self.producers);
  }

  void Read(int unit, int node) {
    const ExecutedOperator& op = trace_.operators[node];
    const std::vector<Argument>& arguments = SchemaOf(op);
    const absl::Span<const TensorUse> inputs = trace_.Inputs(op);
    Unit& self = flow_.units[unit];
    std::vector<Argument> argument(inputs.size());
    std::vector<size_t> memory(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].argument < arguments.size()) argument[i] = arguments[inputs[i].argument];
      memory[i] = MemoryOf(inputs[i], argument[i], self, node);
      Need(unit, inputs[i], memory[i]);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      Note(unit, node == self.node, inputs[i], argument[i], &flow_.memories[memory[i]]);
    }
  }

  size_t MemoryOf(const TensorUse& use, const Argument& argument, const Unit& self, int node) {
    const auto at = memory_at_.find(use.storage);
    bool resident = false;
    if (at == memory_at_.end()) {
      // Operators also write to memory that they allocate themselves, which is not recorded.
      resident = !argument.written || node == self.node;
    } else {
      const Memory& memory = flow_.memories[at->second];
      const auto origin = origins_.find(Tensor(use.tensor, use.storage));
      const bool given = origin != origins_.end() && origin->second.memory == at->second;
      // An input of an operator of the program was the output of another one, or was there before.
      // Otherwise it is new (a number that became a tensor) at an address that another one had.
      if (given || memory.creator < 0 || self.backward || self.optimizer) return at->second;
    }
    memory_at_[use.storage] = flow_.memories.size();
    flow_.memories.push_back({.resident = resident,
                              .elements = use.elements,
                              .bytes = static_cast<double>(use.bytes())});
    return flow_.memories.size() - 1;
  }

  void Need(int unit, const TensorUse& use, size_t number) {
    Unit& self = flow_.units[unit];
    const Memory& memory = flow_.memories[number];
    const auto origin = origins_.find(Tensor(use.tensor, use.storage));
    const bool view = origin != origins_.end() && origin->second.memory == number &&
                      origin->second.given_at > memory.written_at &&
                      origin->second.unit != memory.writer;
    const int producer = view ? origin->second.unit : memory.writer;
    if (producer < 0 || producer == unit) return;
    self.producers.push_back(producer);
    const Unit& maker = flow_.units[producer];
    self.after_backward |= !self.backward && (maker.backward || maker.after_backward);
    if (self.update()) return;
    const double bytes =
        view ? std::min(memory.bytes, static_cast<double>(use.bytes())) : memory.bytes;
    Moved& moved = flow_.moved[{producer, number, view ? use.tensor : uint64_t{0}}];
    moved.bytes = std::max(moved.bytes, bytes);
    if (moved.consumers.empty() || moved.consumers.back() != unit) {
      moved.consumers.push_back(unit);
    }
  }

  void Note(int unit, bool outermost, const TensorUse& use, const Argument& argument,
            Memory* memory) {
    const Unit& self = flow_.units[unit];
    memory->read_elsewhere |= memory->creator != unit;
    memory->saved |= self.backward;
    if (!outermost) return;
    if (self.update()) {
      const auto number = static_cast<int>(memory - flow_.memories.data());
      flow_.updates.push_back({unit, number, use.element, use.elements});
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
      const bool known = at != memory_at_.end() && (flow_.memories[at->second].writer == unit ||
                                                    IsInput(outermost_, use.storage));
      Memory& memory = known ? flow_.memories[at->second] : Create(unit, use);
      memory.writer = unit;
      memory.written_at = now_;
      memory.gradient |= flow_.units[unit].backward;
    }
    for (const TensorUse& use : trace_.Outputs(op)) {
      const auto at = memory_at_.find(use.storage);
      const bool known = at != memory_at_.end();
      if (known && flow_.memories[at->second].writer == unit) {
        double& bytes = flow_.memories[at->second].bytes;
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
    memory_at_[use.storage] = flow_.memories.size();
    return flow_.memories.emplace_back(Memory{.writer = unit,
                                              .written_at = now_,
                                              .creator = unit,
                                              .gradient = flow_.units[unit].backward,
                                              .elements = use.elements,
                                              .bytes = static_cast<double>(use.bytes())});
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
      flow_.memories[number].bytes = bytes;
    }
  }

  const ExecutionTrace& trace_;
  MemoryFlow flow_;
  absl::flat_hash_map<uint32_t, std::vector<Argument>> schemas_;

  // While a unit is walked: its open operator with a schema that has none around it.
  int outermost_ = -1;
  uint64_t now_ = 0;
  absl::flat_hash_map<uint64_t, size_t> memory_at_;  // by the number of the storage, now
  absl::flat_hash_map<Tensor, Origin> origins_;
  // For each memory that the update uses: (begin, end, bytes of an element) of the part that it
  // uses.
  absl::flat_hash_map<int, std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>> regions_;
};

}  // namespace

absl::StatusOr<MemoryFlow> FollowMemory(const ExecutionTrace& trace) {
  return MemoryFollower(trace).Follow();
}

}  // namespace seqpoint::placement
