#include "daemon/whatif/transform.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/base/status_macros.h"
#include "daemon/whatif/language/evaluate.h"
#include "daemon/whatif/queues.h"

namespace seqpoint::whatif {
namespace {

// An empty kernel takes about as long.
constexpr int64_t kLatencyNs = 3000;
// A graph launch takes a thread about as long (2.5 us and 1 ns a node, NVIDIA's blog "Constant Time
// Launch for Straight-Line CUDA Graphs", 2024).
constexpr int64_t kGraphLaunchNs = 2500;
// What no sensible question asks for: 18 years in one trace, and many times as many tasks.
constexpr double kMostNs = 1LL << 59;
constexpr size_t kMostTimesTasks = 4;
constexpr size_t kMoreTasks = 1 << 20;
constexpr double kMostTimesIterations = 1e6;

bool IsGpu(What what) {
  return what != What::kLaunches && what != What::kCalls && what != What::kGaps &&
         what != What::kIterations;
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
  return std::llround(std::min(ns, kMostNs));  // more is refused when the step is done
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

// Matrix products, convolutions, attention and persistent recurrent layers, as cuBLAS, cuDNN,
// CUTLASS, rocBLAS (Cijk_...), MIOpen, Composable Kernel and Triton name them.
bool IsProduct(const std::string& kernel) {
  static const RE2* const products = new RE2(
      "(?i)gemm|gemv|convol|_conv|conv[0-9_]|asmconv|miopen.*conv|winograd|wgrad|dgrad|fprop|"
      "[shdi468]cudnn_|cutlass|cijk_|xmma|_mma|triton_(tem|mm|bmm|conv)|rnn_blockpersist|flash|"
      "fmha|attention|attn_");
  // They prepare a product or join its parts.
  static const RE2* const beside = new RE2(
      "(?i)im2col|col2im|winograd_nonfused|winogradWgrad(Data|Delta|Output)|reduce_wgrad|"
      "splitkreduce|precompute_indices|computeoffsets|nchwToNhwc|nhwcToNchw");
  // Arguments may be of a type that is named after products; they follow the last template
  // argument.
  static constexpr absl::string_view kAnonymous = "(anonymous namespace)";
  absl::string_view name = kernel;
  int depth = 0;
  for (size_t at = 0; at < name.size(); ++at) {
    depth += name[at] == '<' ? 1 : name[at] == '>' ? -1 : 0;
    if (name[at] != '(' || depth > 0 || absl::StartsWith(name.substr(at), kAnonymous)) continue;
    name = name.substr(0, at);
  }
  const re2::StringPiece text(name.data(), name.size());
  return RE2::PartialMatch(text, *products) && !RE2::PartialMatch(text, *beside);
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
  // Different kernels whose bound was looked at.
  uint64_t measured() const { return measured_; }
  uint64_t guessed() const { return guessed_; }
  uint64_t without_counter() const { return without_counter_; }

 private:
  static bool IsCpu(What what, const CpuTask& task) {
    if (what == What::kIterations) return false;
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
        if (gpu && value == nullptr && IsNew(t, &without_value_)) ++without_counter_;
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
    if (IsNew(t, &bound_looked_up_)) ++(known.measured ? measured_ : guessed_);
    return known.measured || known.bound == Bound::kCompute
               ? known.bound
               : BoundOfOthers(graph_.gpu[t].duration_ns);
  }
  // Several steps, and several conditions of one, look at the same task.
  static bool IsNew(uint32_t t, std::vector<bool>* seen) {
    if (t >= seen->size()) seen->resize(t + 1);
    if ((*seen)[t]) return false;
    (*seen)[t] = true;
    return true;
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
  std::vector<bool> bound_looked_up_, without_value_;  // by GPU task
  uint64_t measured_ = 0, guessed_ = 0, without_counter_ = 0;
};

class Transformer {
 public:
  Transformer(const std::map<std::string, double>& parameters, const Bounds& bounds, Graph* graph)
      : parameters_(parameters),
        selector_(bounds, *graph),
        graph_(*graph),
        most_tasks_(kMostTimesTasks * graph->gpu.size() + kMoreTasks) {}

  absl::StatusOr<Applied> Run(const Request& request) {
    for (size_t i = 0; i < request.steps.size(); ++i) {
      const Step& step = request.steps[i];
      absl::Status status = Do(step);
      if (status.ok()) status = CheckTimes();
      if (!status.ok()) {
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
      SEQPOINT_ASSIGN_OR_RETURN(const double amount, Evaluate(step.amount, parameters_, {1, 1}));
      amount_ = NeedsTask(step.amount) ? std::nullopt : std::optional<double>(amount);
    }
    if (step.selection.what == What::kIterations) {
      if (step.verb != Verb::kScale || !step.selection.conditions.empty() || !amount_) {
        return absl::InvalidArgumentError(
            "iterations can only be scaled, all of them, by a number: scale iterations by 1/2");
      }
      applied_.iterations *= *amount_;
      if (applied_.iterations * kMostTimesIterations < 1 ||
          applied_.iterations > kMostTimesIterations) {
        return absl::InvalidArgumentError(
            absl::StrCat("a run of ", applied_.iterations,
                         " times its iterations: give a factor from 1e-6 to 1e6"));
      }
      applied_.tasks.push_back(static_cast<uint64_t>(graph_.iterations));
      return absl::OkStatus();
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
          SEQPOINT_ASSIGN_OR_RETURN(const double amount, AmountFor(step.amount, gpu, t));
          SetDuration(gpu, t, Rounded(step.verb == Verb::kScale ? now_ns * amount : amount));
        }
        break;
      case Verb::kRemove:
        if (gpu) {
          RemoveWork(selected);
        } else {
          for (const uint32_t t : selected) RemoveCall(t);
        }
        break;
      case Verb::kInsert:
        if (!step.queue.empty()) return InsertBeside(selected, step);
        return Insert(gpu, selected, step);
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
        Prefer(selected, step.first, &graph_);
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

  void RemoveCall(uint32_t t) {
    CpuTask& task = graph_.cpu[t];
    task.duration_ns = task.tail_ns = 0;
    if (IsWait(task.kind)) task.kind = CpuKind::kCall;
  }

  // Out of the chains of their calls; nobody waits for them any more.
  void RemoveWork(const std::vector<uint32_t>& tasks) {
    std::vector<bool> removed(graph_.gpu.size());
    std::vector<uint32_t> calls;
    for (const uint32_t t : tasks) {
      graph_.gpu[t].before = false;
      if (graph_.gpu[t].call == kNone) continue;
      removed[t] = true;
      calls.push_back(graph_.gpu[t].call);
    }
    std::sort(calls.begin(), calls.end());
    calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
    for (const uint32_t c : calls) {
      CpuTask& call = graph_.cpu[c];
      for (uint32_t g = call.first_work; g != kNone; g = graph_.gpu[g].next) {
        const GpuTask& inserted = graph_.gpu[g];
        if (inserted.work != kNone || removed[g]) continue;
        // What was inserted beside a task still comes when its turn is.
        for (uint32_t i = 0; i < inserted.dependency_count; ++i) {
          const uint32_t t = graph_.dependencies[inserted.first_dependency + i];
          if (!removed[t] || graph_.gpu[t].call != c) continue;
          removed[t] = false;
          graph_.gpu[t].duration_ns = graph_.gpu[t].gap_ns = 0;
          call.duration_ns = 0;
        }
      }
      uint32_t* link = &call.first_work;
      for (uint32_t g = call.first_work; g != kNone;) {
        GpuTask& task = graph_.gpu[g];
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
      // One that launches nothing any more is not made.
      if (call.first_work == kNone && call.kind != CpuKind::kGap) {
        call.duration_ns = call.tail_ns = 0;
        call.kind = CpuKind::kCall;
      }
    }
  }

  absl::Status CheckTasks(size_t more) const {
    if (graph_.gpu.size() + more <= most_tasks_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "with ", more, " tasks inserted the trace would have ", graph_.gpu.size() + more,
        ", more than ", most_tasks_, ": insert fewer, larger ones"));
  }

  // All that a path of the replay can be long: then no time of it overflows.
  absl::Status CheckTimes() const {
    double sum_ns = 0;
    for (const CpuTask& task : graph_.cpu) {
      sum_ns += static_cast<double>(task.duration_ns) + static_cast<double>(task.tail_ns);
    }
    for (const GpuTask& task : graph_.gpu) {
      sum_ns += static_cast<double>(task.duration_ns) + static_cast<double>(task.latency_ns);
    }
    if (sum_ns < kMostNs) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the tasks of a trace would take ",
                                                   sum_ns / 86400e9, " days: is the unit right?"));
  }

  absl::Status Insert(bool gpu, const std::vector<uint32_t>& selected, const Step& step) {
    std::vector<uint32_t> before;  // the task before each of the same call
    if (gpu) {
      SEQPOINT_RETURN_IF_ERROR(CheckTasks(selected.size()));
      before.assign(graph_.gpu.size(), kNone);
      for (uint32_t g = 0; g < graph_.gpu.size(); ++g) {
        if (graph_.gpu[g].next != kNone) before[graph_.gpu[g].next] = g;
      }
    }
    const uint32_t name = gpu ? NameId(step.name) : 0;
    for (const uint32_t t : selected) {
      SEQPOINT_ASSIGN_OR_RETURN(const double amount, AmountFor(step.amount, gpu, t));
      const uint32_t call = gpu ? graph_.gpu[t].call : t;
      if (call == kNone) continue;  // of before the trace
      if (!gpu || step.made == Made::kCall) {
        SetDuration(false, call, graph_.cpu[call].duration_ns + Rounded(amount));
        continue;
      }
      GpuTask task = graph_.gpu[t];
      Make(step, name, Rounded(amount), &task);
      const auto added = static_cast<uint32_t>(graph_.gpu.size());
      if (step.before) {
        task.next = t;
        (before[t] == kNone ? graph_.cpu[task.call].first_work : graph_.gpu[before[t]].next) =
            added;
      } else {
        graph_.gpu[t].next = added;
      }
      graph_.gpu.push_back(task);
    }
    return absl::OkStatus();
  }

  // Of a task that is a copy of another one, an own one.
  static void Make(const Step& step, uint32_t name, int64_t duration_ns, GpuTask* task) {
    task->duration_ns = duration_ns;
    task->kind = step.made == Made::kCollective ? WorkKind::kCollective
                 : step.made == Made::kCopy     ? WorkKind::kCopyOther
                                                : WorkKind::kKernel;
    task->name = name;
    task->work = task->collective = kNone;
    task->dependency_count = 0;
  }

  absl::Status InsertBeside(const std::vector<uint32_t>& selected, const Step& step) {
    std::optional<double> shared, piece_bytes;
    for (const auto& [amount, value] :
         {std::pair(&step.shared, &shared), std::pair(&step.piece, &piece_bytes)}) {
      if (!*amount) continue;
      SEQPOINT_ASSIGN_OR_RETURN(const double evaluated, Evaluate(**amount, parameters_));
      *value = evaluated;
    }
    std::vector<uint32_t> needed_by;
    if (step.needed_by) {
      if (!IsGpu(step.needed_by->what)) {
        return absl::InvalidArgumentError("what is needed is needed by work of the GPU");
      }
      needed_by = selector_.Select(*step.needed_by);
    }
    SEQPOINT_ASSIGN_OR_RETURN(const std::vector<Piece> pieces,
                              Pieces(graph_, selected, shared, piece_bytes));
    SEQPOINT_RETURN_IF_ERROR(CheckTasks(pieces.size()));
    const uint32_t name = NameId(step.name);
    QueueInserter inserter(step.queue, step.with, needed_by, step.reversed, &graph_);
    for (const Piece& piece : pieces) {
      SEQPOINT_ASSIGN_OR_RETURN(const double amount,
                                AmountOf(step.amount, piece.bytes, /*gpu=*/true, piece.after));
      GpuTask task = graph_.gpu[piece.after];
      Make(step, name, Rounded(amount), &task);
      SEQPOINT_RETURN_IF_ERROR(inserter.Insert(piece, task));
    }
    inserter.Finish();
    return absl::OkStatus();
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
    std::vector<uint32_t> fused;  // into another one
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
      fused.insert(fused.end(), tasks.begin(), std::prev(tasks.end()));
      graph_.gpu[last].duration_ns = step.longest ? longest_ns : start_ns + sum_ns;
      graph_.gpu[last].name = id;
    }
    RemoveWork(fused);
  }

  // Numbers, by task: those that follow each other in a queue, all selected, have the same.
  std::vector<uint32_t> Chains(const std::vector<uint32_t>& selected) {
    std::vector<uint32_t> chains(graph_.gpu.size());
    std::vector<uint32_t> number(graph_.queues.size());
    std::vector<bool> is(graph_.gpu.size());
    for (const uint32_t t : selected) is[t] = true;
    for (const uint32_t t : LaunchOrder(graph_)) {
      uint32_t& current = number[graph_.gpu[t].queue];
      if (is[t]) {
        chains[t] = current;
      } else {
        ++current;
      }
    }
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
  // next is not done. But for allocations: without them it is a change of the program, which can
  // be asked for (remove calls where name ~ "Malloc|Free").
  void Capture(const std::vector<uint32_t>& selected) {
    std::vector<bool> launches(graph_.cpu.size());
    for (const uint32_t t : selected) launches[t] = true;
    for (const std::vector<uint32_t>& order : graph_.order) {
      std::vector<uint32_t> run, since;  // launches; what is behind the last of them
      int32_t iteration = -1;
      const auto end_run = [&] {
        for (size_t i = 0; run.size() > 1 && i < run.size(); ++i) {
          applied_.captured_ns += graph_.cpu[run[i]].duration_ns;
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
            for (const uint32_t between : since) {
              if (IsAllocation(graph_.cpu[between])) continue;
              applied_.captured_ns += std::exchange(graph_.cpu[between].duration_ns, 0);
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
  }

  // cudaMalloc, hipFree, cuMemAlloc_v2, ...: some wait for the GPU, some take long.
  bool IsAllocation(const CpuTask& task) const {
    static const RE2* const names = new RE2("^(cuda|hip|cu)[A-Za-z]*(Malloc|Free|Alloc)");
    return task.kind == CpuKind::kCall && task.first_work == kNone &&
           RE2::PartialMatch(graph_.names[task.name], *names);
  }

  const std::map<std::string, double>& parameters_;
  Selector selector_;
  Graph& graph_;
  const size_t most_tasks_;
  Applied applied_;
  std::optional<double> amount_;  // of the step, where it is the same for all tasks
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

int64_t ChangedNs(const Graph& before, const Graph& after) {
  int64_t sum_ns = 0;
  for (size_t i = 0; i < before.cpu.size(); ++i) {
    sum_ns += std::abs(after.cpu[i].duration_ns - before.cpu[i].duration_ns);
  }
  const auto time_ns = [](const GpuTask& task) { return IsRemoved(task) ? 0 : task.duration_ns; };
  for (size_t i = 0; i < after.gpu.size(); ++i) {
    const int64_t before_ns = i < before.gpu.size() ? time_ns(before.gpu[i]) : 0;
    sum_ns += std::abs(time_ns(after.gpu[i]) - before_ns);
  }
  return sum_ns;
}

}  // namespace seqpoint::whatif
