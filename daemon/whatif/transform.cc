#include "daemon/whatif/transform.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace seqpoint::whatif {
namespace {

// An empty kernel takes about as long.
constexpr int64_t kLatencyNs = 3000;
// A graph launch takes a thread about as long (2.5 us and 1 ns a node, NVIDIA's blog "Constant Time
// Launch for Straight-Line CUDA Graphs", 2024).
constexpr int64_t kGraphLaunchNs = 2500;
constexpr double kMostPieces = 100'000;

bool IsGpu(What what) {
  return what != What::kLaunches && what != What::kCalls && what != What::kGaps;
}

bool IsKind(What what, WorkKind kind) {
  switch (what) {
    case What::kWork:
      return true;
    case What::kKernels:
      return kind == WorkKind::kKernel || kind == WorkKind::kGraph;
    case What::kCollectives:
      return kind == WorkKind::kCollective;
    case What::kMemsets:
      return kind == WorkKind::kMemset;
    case What::kCopies:
      return kind == WorkKind::kCopyH2D || kind == WorkKind::kCopyD2H ||
             kind == WorkKind::kCopyD2D || kind == WorkKind::kCopyOther;
    default:
      return false;
  }
}

int64_t Rounded(double ns) {
  return std::llround(std::min(ns, static_cast<double>(std::numeric_limits<int64_t>::max() / 8)));
}

bool Compares(Compare compare, double value, double with) {
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

// Matrix products and convolutions.
bool IsProduct(const std::string& kernel) {
  static const RE2* const products = new RE2(
      "(?i)gemm|gemv|convol|_conv|conv[0-9_]|winograd|wgrad|dgrad|fprop|cutlass|xmma|_mma|flash|"
      "attention");
  return RE2::PartialMatch(kernel, *products);
}
Bound BoundOfOthers(int64_t duration_ns) {
  return duration_ns <= kLatencyNs ? Bound::kLatency : Bound::kMemory;
}

class Selector {
 public:
  Selector(const Bounds& bounds, const Graph& graph) : bounds_(bounds), graph_(graph) {}

  std::vector<uint32_t> Select(const Selection& selection) {
    std::vector<uint32_t> selected;
    // What depends on a name alone is looked at once for each name.
    std::vector<std::vector<bool>> by_name(selection.conditions.size());
    for (size_t i = 0; i < selection.conditions.size(); ++i) {
      const Condition& condition = selection.conditions[i];
      const std::vector<std::string>* texts = nullptr;
      if (condition.field == Field::kName || condition.field == Field::kIn) texts = &graph_.names;
      if (condition.field == Field::kThread) texts = &graph_.threads;
      if (texts == nullptr || !condition.parameter.empty()) continue;
      // Of the annotations around a task, a line each, one is enough.
      const bool regular =
          condition.compare == Compare::kMatches || condition.compare == Compare::kMatchesNot;
      const RE2 expression(
          absl::StrCat("(?m)", regular ? condition.text
                                       : absl::StrCat("^", RE2::QuoteMeta(condition.text), "$")),
          RE2::Quiet);
      for (const std::string& text : *texts) {
        const bool is = RE2::PartialMatch(text, expression);
        by_name[i].push_back(
            is == (condition.compare == Compare::kMatches || condition.compare == Compare::kEqual));
      }
    }
    const bool gpu = IsGpu(selection.what);
    const size_t count = gpu ? graph_.gpu.size() : graph_.cpu.size();
    for (uint32_t t = 0; t < count; ++t) {
      if (gpu ? !IsKind(selection.what, graph_.gpu[t].kind) || IsRemoved(graph_.gpu[t])
              : !IsCpu(selection.what, graph_.cpu[t])) {
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

  int64_t DurationOf(bool gpu, uint32_t t) const {
    return gpu ? graph_.gpu[t].duration_ns : graph_.cpu[t].duration_ns;
  }
  // Kernels whose bound was looked at.
  uint64_t measured() const { return measured_; }
  uint64_t guessed() const { return guessed_; }
  uint64_t without_counter() const { return without_counter_; }

 private:
  static bool IsCpu(What what, const CpuTask& task) {
    if (what == What::kGaps) return task.kind == CpuKind::kGap;
    if (task.kind == CpuKind::kGap) return false;
    return what == What::kCalls || task.first_work != kNone;
  }

  bool Holds(const Condition& condition, const std::vector<bool>& by_name, bool gpu, uint32_t t) {
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
        const uint32_t queue = gpu ? graph_.gpu[t].queue : QueueOf(graph_.cpu[t]);
        return queue != kNone &&
               Compares(condition.compare,
                        static_cast<double>(graph_.streams[graph_.queues[queue].stream].id),
                        condition.number);
      }
      case Field::kDuration:
        return Compares(condition.compare, static_cast<double>(DurationOf(gpu, t)),
                        condition.number);
      case Field::kBytes:
        return gpu && Compares(condition.compare, static_cast<double>(graph_.gpu[t].bytes),
                               condition.number);
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
        if (value == nullptr) ++without_counter_;
        return value != nullptr && Compares(condition.compare, *value, condition.number);
      }
    }
    return false;
  }

  const double* CounterOf(uint32_t t, const std::string& metric) const {
    const auto kernel = bounds_.counters.find(graph_.names[graph_.gpu[t].name]);
    if (kernel == bounds_.counters.end()) return nullptr;
    const auto value = kernel->second.find(metric);
    return value == kernel->second.end() ? nullptr : &value->second;
  }

  Bound BoundOf(uint32_t t) {
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
    ++(known.measured ? measured_ : guessed_);
    return known.measured || known.bound == Bound::kCompute
               ? known.bound
               : BoundOfOthers(graph_.gpu[t].duration_ns);
  }
  uint32_t QueueOf(const CpuTask& call) const {
    return call.first_work == kNone ? call.queue : graph_.gpu[call.first_work].queue;
  }

  struct NameBound {
    bool looked_up = false, measured = false;
    Bound bound = Bound::kMemory;
  };
  const Bounds& bounds_;
  const Graph& graph_;
  std::vector<NameBound> by_name_;
  uint64_t measured_ = 0, guessed_ = 0, without_counter_ = 0;
};

class Transformer {
 public:
  Transformer(const std::map<std::string, double>& parameters, const Bounds& bounds, Graph* graph)
      : parameters_(parameters), selector_(bounds, *graph), graph_(*graph) {}

  absl::StatusOr<Applied> Run(const Request& request) {
    for (size_t i = 0; i < request.steps.size(); ++i) {
      const Step& step = request.steps[i];
      if (absl::Status status = Do(step); !status.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("step ", i + 1, ": ", std::string(status.message())));
      }
    }
    applied_.measured_bounds = selector_.measured();
    applied_.guessed_bounds = selector_.guessed();
    applied_.without_counter = selector_.without_counter();
    return std::move(applied_);
  }

 private:
  absl::Status Do(const Step& step) {
    for (const Selection* selection :
         {&step.selection, step.needed_by ? &*step.needed_by : nullptr}) {
      if (selection == nullptr) continue;
      for (const Condition& condition : selection->conditions) {
        if (condition.parameter.empty()) continue;
        return absl::InvalidArgumentError(absl::StrCat("the parameter $", condition.parameter,
                                                       " has no value; give ", condition.parameter,
                                                       "=TEXT"));
      }
    }
    if (step.verb == Verb::kScale || step.verb == Verb::kSet || step.verb == Verb::kInsert) {
      // Where nothing is selected, too, parameters must have values.
      const absl::StatusOr<double> amount = Evaluate(step.amount, parameters_, {1, 1});
      if (!amount.ok()) return amount.status();
      amount_ = NeedsTask(step.amount) ? std::nullopt : std::optional<double>(*amount);
    }
    const std::vector<uint32_t> selected = selector_.Select(step.selection);
    applied_.tasks.push_back(selected.size());
    const bool gpu = IsGpu(step.selection.what);
    if (!gpu &&
        (step.verb == Verb::kFuse || step.verb == Verb::kReschedule || !step.queue.empty())) {
      return absl::InvalidArgumentError(
          "calls and gaps are no work of the GPU, which fuse, reschedule and into \"QUEUE\" take");
    }
    switch (step.verb) {
      case Verb::kScale:
      case Verb::kSet:
        for (const uint32_t t : selected) {
          const double now_ns = static_cast<double>(selector_.DurationOf(gpu, t));
          const absl::StatusOr<double> amount = AmountFor(step.amount, gpu, t);
          if (!amount.ok()) return amount.status();
          SetDuration(gpu, t, Rounded(step.verb == Verb::kScale ? now_ns * *amount : *amount));
        }
        break;
      case Verb::kRemove:
        for (const uint32_t t : selected) Remove(gpu, t);
        break;
      case Verb::kInsert:
        if (!step.queue.empty()) return InsertBeside(selected, step);
        for (const uint32_t t : selected) {
          const absl::StatusOr<double> amount = AmountFor(step.amount, gpu, t);
          if (!amount.ok()) return amount.status();
          Insert(gpu, t, step, Rounded(*amount));
        }
        break;
      case Verb::kFuse:
        Fuse(selected, step);
        break;
      case Verb::kCapture:
        if (step.selection.what != What::kLaunches) {
          return absl::InvalidArgumentError("capture takes launches");
        }
        Capture(selected);
        break;
      case Verb::kReschedule:
        Reschedule(selected, step.first);
        break;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> AmountFor(const Amount& amount, bool gpu, uint32_t t) const {
    return AmountOf(amount, gpu ? static_cast<double>(graph_.gpu[t].bytes) : 0.0, gpu, t);
  }
  // Of a task that moves, or makes, so many bytes.
  absl::StatusOr<double> AmountOf(const Amount& amount, double bytes, bool gpu, uint32_t t) const {
    if (amount_) return *amount_;
    if (bytes == 0 && NeedsBytes(amount)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the trace has no bytes of \"",
                       graph_.names[gpu ? graph_.gpu[t].name : graph_.cpu[t].name],
                       "\"; select with bytes > 0, or give a time"));
    }
    return Evaluate(amount, parameters_,
                    {bytes, static_cast<double>(selector_.DurationOf(gpu, t))});
  }

  void SetDuration(bool gpu, uint32_t t, int64_t duration_ns) {
    if (gpu) {
      graph_.gpu[t].duration_ns = duration_ns;
      return;
    }
    // Work starts when its call has got to hand it over, so later by what the call takes longer.
    const int64_t longer_ns = duration_ns - graph_.cpu[t].duration_ns;
    graph_.cpu[t].duration_ns = duration_ns;
    for (uint32_t g = graph_.cpu[t].first_work; g != kNone; g = graph_.gpu[g].next) {
      graph_.gpu[g].latency_ns = std::max<int64_t>(0, graph_.gpu[g].latency_ns + longer_ns);
    }
  }

  void Remove(bool gpu, uint32_t t) {
    if (!gpu) {
      CpuTask& task = graph_.cpu[t];
      task.duration_ns = task.tail_ns = 0;
      if (IsWait(task.kind)) task.kind = CpuKind::kCall;
      return;
    }
    if (HasDependents(t)) {
      // What was inserted beside it still comes when its turn is.
      GpuTask& task = graph_.gpu[t];
      task.duration_ns = task.gap_ns = 0;
      graph_.cpu[task.call].duration_ns = 0;
      return;
    }
    const uint32_t call = Unlink(t);
    // A call that launches nothing any more is not made.
    if (call != kNone && graph_.cpu[call].first_work == kNone &&
        graph_.cpu[call].kind != CpuKind::kGap) {
      graph_.cpu[call].duration_ns = graph_.cpu[call].tail_ns = 0;
      graph_.cpu[call].kind = CpuKind::kCall;
    }
  }

  // That were inserted, and so are of the same call.
  bool HasDependents(uint32_t t) const {
    for (uint32_t g = graph_.gpu[t].next; g != kNone; g = graph_.gpu[g].next) {
      const GpuTask& other = graph_.gpu[g];
      const auto first = graph_.dependencies.begin() + other.first_dependency;
      if (other.work == kNone && std::count(first, first + other.dependency_count, t) > 0) {
        return true;
      }
    }
    return false;
  }

  // Takes a task out of the chain of its call; answers the call. Nobody waits for it any more.
  uint32_t Unlink(uint32_t t) {
    GpuTask& task = graph_.gpu[t];
    const uint32_t call = task.call;
    task.before = false;
    if (call == kNone) return kNone;
    for (uint32_t* link = &graph_.cpu[call].first_work; *link != kNone;
         link = &graph_.gpu[*link].next) {
      if (*link != t) continue;
      *link = task.next;
      break;
    }
    task.next = task.call = kNone;
    return call;
  }

  void Insert(bool gpu, uint32_t t, const Step& step, int64_t duration_ns) {
    if (!gpu) {
      SetDuration(false, t, graph_.cpu[t].duration_ns + duration_ns);
      return;
    }
    if (graph_.gpu[t].call == kNone) return;  // of before the trace
    GpuTask task = graph_.gpu[t];
    Make(step, duration_ns, &task);
    const auto added = static_cast<uint32_t>(graph_.gpu.size());
    if (step.before) {
      task.next = t;
      uint32_t* link = &graph_.cpu[task.call].first_work;
      while (*link != t) link = &graph_.gpu[*link].next;
      *link = added;
    } else {
      graph_.gpu[t].next = added;
    }
    graph_.gpu.push_back(task);
  }

  // Of a task that is a copy of another one, an own one.
  void Make(const Step& step, int64_t duration_ns, GpuTask* task) {
    task->duration_ns = duration_ns;
    task->kind = step.made == Made::kCollective ? WorkKind::kCollective
                 : step.made == Made::kCopy     ? WorkKind::kCopyOther
                                                : WorkKind::kKernel;
    task->name = NameId(step.name);
    task->work = task->collective = kNone;
    task->dependency_count = 0;
  }

  // --- Work in a queue of its own ---

  // One to be inserted.
  struct Beside {
    uint32_t after = 0;  // the selected task that makes it possible
    double bytes = 0;
    double behind = 0;  // share of the iteration's selected time that comes after that
  };

  absl::Status InsertBeside(const std::vector<uint32_t>& selected, const Step& step) {
    double shared = 0, piece = 0;
    if (step.shared) {
      const absl::StatusOr<double> value = Evaluate(*step.shared, parameters_);
      if (!value.ok()) return value.status();
      shared = *value;
    }
    if (step.piece) {
      const absl::StatusOr<double> value = Evaluate(*step.piece, parameters_);
      if (!value.ok()) return value.status();
      piece = *value;
      if (piece * kMostPieces < shared) {
        return absl::InvalidArgumentError(absl::StrCat("pieces of ", piece, " bytes are more than ",
                                                       kMostPieces,
                                                       " an iteration: take larger ones"));
      }
    }
    std::vector<uint32_t> needed_by;
    if (step.needed_by) {
      if (!IsGpu(step.needed_by->what)) {
        return absl::InvalidArgumentError("what is needed is needed by work of the GPU");
      }
      needed_by = InOrder(selector_.Select(*step.needed_by));
    }
    const uint32_t queue = QueueNamed(step.queue);
    const std::vector<uint32_t> order = InOrder(selected);
    // The task before each one in its queue.
    std::vector<uint32_t> before;
    if (step.with) {
      before.assign(graph_.gpu.size(), kNone);
      std::vector<uint32_t> last(graph_.queues.size(), kNone);
      for (const uint32_t t : launched_) {
        before[t] = std::exchange(last[graph_.gpu[t].queue], t);
      }
    }
    std::vector<uint32_t> places(graph_.gpu.size());
    for (uint32_t i = 0; i < launched_.size(); ++i) places[launched_[i]] = i;

    const std::vector<Consumer> consumers = Consumers(needed_by, places);
    uint32_t last = kNone, last_after = kNone;
    for (const Beside& each : Pieces(order, step, shared, piece)) {
      const absl::StatusOr<double> amount =
          AmountOf(step.amount, each.bytes, /*gpu=*/true, each.after);
      if (!amount.ok()) return amount.status();
      GpuTask task = graph_.gpu[each.after];
      Make(step, Rounded(*amount), &task);
      task.queue = queue;
      task.bytes = static_cast<uint64_t>(each.bytes);
      task.wait_gap_ns = task.gap_ns = 0;
      const uint32_t trigger = step.with ? before[each.after] : each.after;
      if (step.with) {  // what holds that one holds this one
        const GpuTask& other = graph_.gpu[each.after];
        for (uint32_t i = 0; i < other.dependency_count; ++i) {
          AddDependency(uint32_t{graph_.dependencies[other.first_dependency + i]}, &task);
        }
      }
      if (trigger != kNone) AddDependency(trigger, &task);
      // Behind those that were inserted after the same one.
      if (each.after != last_after) last = last_after = each.after;
      task.next = graph_.gpu[last].next;
      const auto added = static_cast<uint32_t>(graph_.gpu.size());
      graph_.gpu[last].next = added;
      last = added;
      graph_.gpu.push_back(task);
      const uint32_t consumer = ConsumerOf(each, places[each.after], step.reversed, consumers);
      if (consumer == kNone) continue;
      if (graph_.gpu[consumer].dependency_count == UINT16_MAX) {
        return absl::InvalidArgumentError(absl::StrCat(
            "more than ", UINT16_MAX, " tasks are needed by one: make fewer, larger ones"));
      }
      AddDependency(added, &graph_.gpu[consumer]);
    }
    launched_.clear();
    return absl::OkStatus();
  }

  std::vector<Beside> Pieces(const std::vector<uint32_t>& order, const Step& step, double shared,
                             double piece) const {
    // The iterations, one after the other: index of the first task, time.
    std::vector<std::pair<size_t, double>> iterations;
    double inner_ns = 0, inner = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || IterationOf(order[i]) != IterationOf(order[i - 1]))
        iterations.emplace_back(i, 0);
      iterations.back().second += Weight(order[i]);
      if (IterationOf(order[i]) < 0) continue;
      inner_ns += Weight(order[i]);
      if (i == iterations.back().first) ++inner;
    }
    std::vector<Beside> pieces;
    for (size_t n = 0; n < iterations.size(); ++n) {
      const auto& [begin, whole_ns] = iterations[n];
      const size_t end = n + 1 < iterations.size() ? iterations[n + 1].first : order.size();
      // What comes before the first iteration is a part of one.
      double all = shared;
      if (inner > 0 && IterationOf(order[begin]) < 0) {
        all *= std::min(1.0, whole_ns * inner / inner_ns);
      }
      double so_far_ns = 0, sent = 0;
      for (size_t i = begin; i < end; ++i) {
        Beside each = {order[i], static_cast<double>(graph_.gpu[order[i]].bytes), 0};
        so_far_ns += Weight(order[i]);
        each.behind = 1 - so_far_ns / whole_ns;
        if (!step.piece) {
          if (step.shared) each.bytes = all * Weight(order[i]) / whole_ns;
          pieces.push_back(each);
          continue;
        }
        // Whole pieces as they are full, the rest with the last task.
        const double made = all * (1 - each.behind);
        while (made - sent >= piece * (1 - 1e-9) || (i + 1 == end && all - sent > 0.5)) {
          each.bytes = std::min(piece, all - sent);
          sent += each.bytes;
          pieces.push_back(each);
        }
      }
    }
    return pieces;
  }
  // So that tasks without a duration count, too.
  double Weight(uint32_t t) const { return static_cast<double>(graph_.gpu[t].duration_ns) + 1; }
  int32_t IterationOf(uint32_t t) const { return graph_.cpu[graph_.gpu[t].call].iteration; }

  // Those that a call of the trace launches, in this order.
  std::vector<uint32_t> InOrder(const std::vector<uint32_t>& tasks) {
    if (launched_.empty()) {
      for (const CpuTask& call : graph_.cpu) {
        for (uint32_t g = call.first_work; g != kNone; g = graph_.gpu[g].next) {
          launched_.push_back(g);
        }
      }
    }
    std::vector<bool> is(graph_.gpu.size());
    for (const uint32_t t : tasks) is[t] = true;
    std::vector<uint32_t> order;
    for (const uint32_t t : launched_) {
      if (is[t]) order.push_back(t);
    }
    return order;
  }

  // In order of launch.
  struct Consumer {
    uint32_t place = 0;
    uint32_t task = 0;
    double until = 0;          // share of its iteration's time up to its end
    size_t iteration_end = 0;  // index
  };
  std::vector<Consumer> Consumers(const std::vector<uint32_t>& order,
                                  const std::vector<uint32_t>& places) const {
    std::vector<Consumer> consumers;
    for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      double whole_ns = 0, so_far_ns = 0;
      for (; end < order.size() && IterationOf(order[end]) == IterationOf(order[begin]); ++end) {
        whole_ns += Weight(order[end]);
      }
      for (size_t i = begin; i < end; ++i) {
        so_far_ns += Weight(order[i]);
        consumers.push_back({places[order[i]], order[i], so_far_ns / whole_ns, end});
      }
    }
    return consumers;
  }

  // The next one, or of the iteration of that the one where as much time is before it as came
  // behind the inserted task.
  static uint32_t ConsumerOf(const Beside& each, uint32_t place, bool reversed,
                             const std::vector<Consumer>& consumers) {
    auto next = std::upper_bound(consumers.begin(), consumers.end(), place,
                                 [](uint32_t at, const Consumer& c) { return at < c.place; });
    if (next == consumers.end()) return kNone;
    if (reversed) {
      const auto end = consumers.begin() + static_cast<int64_t>(next->iteration_end);
      next = std::upper_bound(next, std::prev(end), each.behind + 1e-9,
                              [](double share, const Consumer& c) { return share < c.until; });
    }
    return next->task;
  }

  uint32_t QueueNamed(const std::string& name) {
    for (uint32_t q = 0; q < graph_.queues.size(); ++q) {
      if (graph_.queues[q].name == name) return q;
    }
    Queue queue;
    queue.stream = static_cast<uint32_t>(graph_.streams.size());
    queue.name = name;
    graph_.streams.push_back({0, -1 - static_cast<int64_t>(graph_.streams.size())});
    graph_.queues.push_back(queue);
    return static_cast<uint32_t>(graph_.queues.size() - 1);
  }

  // The dependencies of a task follow each other: another one moves them to the end.
  void AddDependency(uint32_t other, GpuTask* task) {
    std::vector<uint32_t>& all = graph_.dependencies;
    if (task->first_dependency + task->dependency_count != all.size()) {
      const auto first = static_cast<uint32_t>(all.size());
      for (uint32_t i = 0; i < task->dependency_count; ++i) {
        all.push_back(uint32_t{all[task->first_dependency + i]});
      }
      task->first_dependency = first;
    }
    all.push_back(other);
    ++task->dependency_count;
  }

  // What is needed earliest is what the first task in order of launch depends on.
  void Reschedule(const std::vector<uint32_t>& selected, bool first) {
    std::vector<bool> is(graph_.gpu.size());
    for (const uint32_t t : selected) {
      is[t] = true;
      graph_.queues[graph_.gpu[t].queue].by_rank = true;
      graph_.gpu[t].rank = first ? 0 : kNone;
    }
    if (first) return;
    uint32_t place = 0;
    InOrder({});
    for (const uint32_t t : launched_) {
      const GpuTask& task = graph_.gpu[t];
      ++place;
      for (uint32_t i = 0; i < task.dependency_count; ++i) {
        const uint32_t other = graph_.dependencies[task.first_dependency + i];
        if (is[other]) graph_.gpu[other].rank = std::min(graph_.gpu[other].rank, place);
      }
    }
    launched_.clear();
  }

  uint32_t NameId(const std::string& name) {
    const auto it = std::find(graph_.names.begin(), graph_.names.end(), name);
    if (it != graph_.names.end()) return static_cast<uint32_t>(it - graph_.names.begin());
    graph_.names.push_back(name);
    return static_cast<uint32_t>(graph_.names.size() - 1);
  }

  // What starting a kernel takes, by the durations of all of its name: so long as small ones take,
  // of which there are many when it is a quarter of them; one alone may be of a rounded time. Never
  // more than an empty kernel: what takes longer works.
  static int64_t StartNs(std::vector<int64_t>* durations_ns) {
    std::sort(durations_ns->begin(), durations_ns->end());
    const int64_t quartile_ns = (*durations_ns)[durations_ns->size() / 4];
    return quartile_ns <= kLatencyNs ? quartile_ns : std::min(durations_ns->front(), kLatencyNs);
  }

  // Of each iteration and queue the selected tasks, or each chain of them, become one, in place of
  // the last: what each took beyond its start adds up, or the longest counts. The launches of the
  // others are not made, nor is what the thread did from one to the next.
  void Fuse(const std::vector<uint32_t>& selected, const Step& step) {
    std::map<uint32_t, std::vector<int64_t>> durations_ns;  // by name
    // By the chain's number in the queue.
    std::map<std::tuple<int32_t, uint32_t, uint32_t>, std::vector<uint32_t>> groups;
    std::vector<uint32_t> chains;
    if (step.chains) chains = Chains(selected);
    for (const uint32_t t : selected) {
      const GpuTask& task = graph_.gpu[t];
      if (task.call == kNone) continue;
      durations_ns[task.name].push_back(task.duration_ns);
      groups[{graph_.cpu[task.call].iteration, task.queue, step.chains ? chains[t] : 0}].push_back(
          t);
    }
    std::map<uint32_t, int64_t> starts_ns;
    for (auto& [kernel, all_ns] : durations_ns) starts_ns[kernel] = StartNs(&all_ns);
    const uint32_t id = NameId(step.name);
    std::vector<uint32_t> together(graph_.cpu.size());  // the group of a call, from 1 on
    uint32_t number = 0;
    for (auto& [key, tasks] : groups) {
      ++number;
      if (tasks.size() < 2) continue;
      for (const uint32_t t : tasks) together[graph_.gpu[t].call] = number;
    }
    RemoveGapsWithin(together);
    for (auto& [key, tasks] : groups) {
      if (tasks.size() < 2) continue;
      int64_t sum_ns = 0, start_ns = 0, longest_ns = 0;
      for (const uint32_t t : tasks) {
        const int64_t own_start_ns = starts_ns[graph_.gpu[t].name];
        start_ns = std::max(start_ns, own_start_ns);
        sum_ns += std::max<int64_t>(0, graph_.gpu[t].duration_ns - own_start_ns);
        longest_ns = std::max(longest_ns, graph_.gpu[t].duration_ns);
      }
      const uint32_t last = tasks.back();
      for (const uint32_t t : tasks) {
        if (t != last) Remove(true, t);
      }
      graph_.gpu[last].duration_ns = step.longest ? longest_ns : start_ns + sum_ns;
      graph_.gpu[last].name = id;
    }
  }

  // Numbers, by task: those that follow each other in a queue, all selected, have the same.
  std::vector<uint32_t> Chains(const std::vector<uint32_t>& selected) {
    std::vector<uint32_t> chains(graph_.gpu.size());
    std::vector<uint32_t> number(graph_.queues.size());
    std::vector<bool> is(graph_.gpu.size());
    for (const uint32_t t : selected) is[t] = true;
    InOrder({});
    for (const uint32_t t : launched_) {
      uint32_t& current = number[graph_.gpu[t].queue];
      if (is[t]) {
        chains[t] = current;
      } else {
        ++current;
      }
    }
    launched_.clear();
    return chains;
  }

  // Gaps between two launches of one group that follow each other on a thread.
  void RemoveGapsWithin(const std::vector<uint32_t>& groups) {
    for (const std::vector<uint32_t>& order : graph_.order) {
      size_t since = order.size();  // position behind the last launch of `group`
      uint32_t group = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        const CpuTask& task = graph_.cpu[order[i]];
        if (groups[order[i]] != 0) {
          if (groups[order[i]] == group) {
            for (size_t k = since; k < i; ++k) graph_.cpu[order[k]].duration_ns = 0;
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

  // CUDA graphs: in each iteration launches that follow each other on a thread, with nothing
  // between that waits for the GPU, become one graph launch; what the thread did from one to the
  // next is not done.
  void Capture(const std::vector<uint32_t>& selected) {
    std::vector<bool> launches(graph_.cpu.size());
    for (const uint32_t t : selected) launches[t] = true;
    for (const std::vector<uint32_t>& order : graph_.order) {
      std::vector<uint32_t> run, since;  // launches; what is behind the last of them
      int32_t iteration = -1;
      const auto end_run = [&] {
        for (size_t i = 0; run.size() > 1 && i < run.size(); ++i) {
          SetDuration(false, run[i], i == 0 ? kGraphLaunchNs : 0);
        }
        run.clear();
        since.clear();
      };
      for (const uint32_t t : order) {
        const CpuTask& task = graph_.cpu[t];
        const bool waits = task.kind != CpuKind::kGap && task.tail_ns > 0;
        if (waits || task.iteration != iteration || (task.first_work != kNone && !launches[t])) {
          end_run();
        }
        iteration = task.iteration;
        if (waits) continue;
        if (launches[t]) {
          if (!run.empty()) {
            for (const uint32_t between : since) graph_.cpu[between].duration_ns = 0;
          }
          since.clear();
          run.push_back(t);
        } else {
          since.push_back(t);
        }
      }
      end_run();
    }
  }

  const std::map<std::string, double>& parameters_;
  Selector selector_;
  Graph& graph_;
  Applied applied_;
  std::vector<uint32_t> launched_;  // GPU tasks in order of launch; empty: to be found
  std::optional<double> amount_;    // of the step, where it is the same for all tasks
};

}  // namespace

Bound BoundByRule(const std::string& kernel, int64_t duration_ns) {
  return IsProduct(kernel) ? Bound::kCompute : BoundOfOthers(duration_ns);
}

SelectedTime TimeOf(const Selection& selection, const Bounds& bounds, const Graph& graph) {
  Selector selector(bounds, graph);
  SelectedTime time;
  for (const uint32_t t : selector.Select(selection)) {
    ++time.tasks;
    time.time_ns += selector.DurationOf(IsGpu(selection.what), t);
  }
  return time;
}

absl::StatusOr<Applied> Apply(const Request& request,
                              const std::map<std::string, double>& parameters, const Bounds& bounds,
                              Graph* graph) {
  return Transformer(parameters, bounds, graph).Run(request);
}

}  // namespace seqpoint::whatif
