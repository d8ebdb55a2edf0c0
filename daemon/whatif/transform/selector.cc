#include "daemon/whatif/transform/selector.h"

#include <re2/re2.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/whatif/transform/graph_edits.h"

namespace seqpoint::whatif {
namespace {

bool IsKind(Target target, WorkKind kind) {
  switch (target) {
    case Target::kWork:
      return true;
    case Target::kKernels:
      return kind == WorkKind::kKernel || kind == WorkKind::kGraph;
    case Target::kCollectives:
      return kind == WorkKind::kCollective;
    case Target::kMemsets:
      return kind == WorkKind::kMemset;
    case Target::kCopies:
      return kind == WorkKind::kCopyH2D || kind == WorkKind::kCopyD2H ||
             kind == WorkKind::kCopyD2D || kind == WorkKind::kCopyOther;
    default:
      return false;
  }
}

bool Fulfils(Compare compare, double value, double with) {
  switch (compare) {
    case Compare::kLess:
      return value < with;
    case Compare::kGreater:
      return value > with;
    case Compare::kNotEqual:
      return value != with;
    default:
      return value == with;
  }
}

bool IsCpuTarget(Target target, const CpuTask& task) {
  if (target == Target::kIterations) return false;
  if (target == Target::kGaps) return task.kind == CpuKind::kGap;
  if (task.kind == CpuKind::kGap) return false;
  return target == Target::kCalls || task.first_work != kNone;
}

// Which of the texts a condition holds for. A text is the annotations around a task, a line each;
// one line is enough.
std::vector<bool> HoldsFor(const Condition& condition, const std::vector<std::string>& texts) {
  const bool regular =
      condition.compare == Compare::kMatches || condition.compare == Compare::kMatchesNot;
  const RE2 expression(
      absl::StrCat("(?m)", regular ? condition.text
                                   : absl::StrCat("^", RE2::QuoteMeta(condition.text), "$")),
      RE2::Quiet);
  const bool wanted =
      condition.compare == Compare::kMatches || condition.compare == Compare::kEqual;
  std::vector<bool> holds;
  holds.reserve(texts.size());
  for (const std::string& text : texts) {
    holds.push_back(RE2::PartialMatch(text, expression) == wanted);
  }
  return holds;
}

uint32_t LaneOf(const Graph& graph, const CpuTask& call) {
  return call.first_work == kNone ? call.lane : graph.gpu[call.first_work].lane;
}

// Several steps, and several conditions of one, look at the same task.
bool IsNew(uint32_t t, std::vector<bool>* seen) {
  if (t >= seen->size()) seen->resize(t + 1);
  if ((*seen)[t]) return false;
  (*seen)[t] = true;
  return true;
}

}  // namespace

bool IsGpu(Target target) {
  return target != Target::kLaunches && target != Target::kCalls && target != Target::kGaps &&
         target != Target::kIterations;
}

std::vector<uint32_t> Selector::Select(const Selection& selection) {
  std::vector<uint32_t> selected;
  // Conditions on a name alone are decided once for each name.
  std::vector<std::vector<bool>> by_name(selection.conditions.size());
  for (size_t i = 0; i < selection.conditions.size(); ++i) {
    const Condition& condition = selection.conditions[i];
    if (!condition.parameter.empty()) continue;
    if (condition.field == Field::kName || condition.field == Field::kIn) {
      by_name[i] = HoldsFor(condition, graph_.names);
    } else if (condition.field == Field::kThread) {
      by_name[i] = HoldsFor(condition, graph_.threads);
    }
  }
  const bool gpu = IsGpu(selection.target);
  const size_t count = gpu ? graph_.gpu.size() : graph_.cpu.size();
  for (uint32_t t = 0; t < count; ++t) {
    if (gpu ? !IsKind(selection.target, graph_.gpu[t].kind) || IsRemoved(graph_.gpu[t])
            : !IsCpuTarget(selection.target, graph_.cpu[t])) {
      continue;
    }
    bool all = true;
    for (size_t i = 0; i < selection.conditions.size() && all; ++i) {
      all = Holds(selection.conditions[i], by_name[i], gpu, t);
    }
    if (all) selected.push_back(t);
  }
  return selected;
}

bool Selector::Holds(const Condition& condition, const std::vector<bool>& by_name, bool gpu,
                     uint32_t t) {
  if (!condition.parameter.empty()) return false;
  const uint32_t call = gpu ? graph_.gpu[t].call : t;
  switch (condition.field) {
    case Field::kName:
      return by_name[gpu ? graph_.gpu[t].name : graph_.cpu[t].name];
    case Field::kIn:
      return by_name[gpu ? graph_.gpu[t].layer : graph_.cpu[t].label];
    case Field::kThread:
      return call != kNone && by_name[graph_.cpu[call].thread];
    case Field::kStream: {
      const uint32_t lane = gpu ? graph_.gpu[t].lane : LaneOf(graph_, graph_.cpu[t]);
      return lane != kNone &&
             Fulfils(condition.compare,
                     static_cast<double>(graph_.streams[graph_.lanes[lane].stream].id),
                     condition.number);
    }
    case Field::kDuration:
      return Fulfils(condition.compare, static_cast<double>(DurationOf(graph_, gpu, t)),
                     condition.number);
    case Field::kBytes:
      return gpu &&
             Fulfils(condition.compare, static_cast<double>(graph_.gpu[t].bytes), condition.number);
    case Field::kBound: {
      if (!gpu) return false;
      static constexpr const char* kWords[] = {"compute", "memory", "latency"};
      const bool is = condition.text == kWords[static_cast<int>(BoundOf(t))];
      return is == (condition.compare == Compare::kEqual);
    }
    case Field::kPhase: {
      const Phase phase = call == kNone ? Phase::kUnknown : graph_.cpu[call].phase;
      return (condition.text == PhaseName(phase)) == (condition.compare == Compare::kEqual);
    }
    case Field::kCounter: {
      const double* value = gpu ? CounterOf(t, condition.text) : nullptr;
      if (gpu && value == nullptr && IsNew(t, &without_value_)) ++without_counter_;
      return value != nullptr && Fulfils(condition.compare, *value, condition.number);
    }
  }
  return false;
}

const double* Selector::CounterOf(uint32_t t, const std::string& metric) const {
  const auto kernel = bounds_.counters.find(graph_.names[graph_.gpu[t].name]);
  if (kernel == bounds_.counters.end()) return nullptr;
  const auto value = kernel->second.find(metric);
  return value == kernel->second.end() ? nullptr : &value->second;
}

Bound Selector::BoundOf(uint32_t t) {
  const uint32_t id = graph_.gpu[t].name;
  if (id >= by_name_.size()) by_name_.resize(graph_.names.size());
  NameBound& known = by_name_[id];
  if (!std::exchange(known.looked_up, true)) {
    const auto it = bounds_.find(graph_.names[id]);
    known.measured = it != bounds_.end();
    known.bound = known.measured                ? it->second
                  : IsProduct(graph_.names[id]) ? Bound::kCompute
                                                : Bound::kMemory;
  }
  if (IsNew(t, &bound_looked_up_)) ++(known.measured ? measured_ : guessed_);
  return known.measured || known.bound == Bound::kCompute ? known.bound
                                                          : BoundByTime(graph_.gpu[t].duration_ns);
}

SelectedTime TimeOf(const Selection& selection, const Bounds& bounds, const Graph& graph) {
  SelectedTime time;
  for (const uint32_t t : Selector(bounds, graph).Select(selection)) {
    ++time.tasks;
    time.time_ns += DurationOf(graph, IsGpu(selection.target), t);
  }
  return time;
}

}  // namespace seqpoint::whatif
