#include "daemon/whatif/transform.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <limits>
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
      if (texts == nullptr) continue;
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

 private:
  static bool IsCpu(What what, const CpuTask& task) {
    if (what == What::kGaps) return task.kind == CpuKind::kGap;
    if (task.kind == CpuKind::kGap) return false;
    return what == What::kCalls || task.first_work != kNone;
  }

  bool Holds(const Condition& condition, const std::vector<bool>& by_name, bool gpu, uint32_t t) {
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
    }
    return false;
  }

  Bound BoundOf(uint32_t t) {
    const std::string& name = graph_.names[graph_.gpu[t].name];
    const auto it = bounds_.find(name);
    ++(it == bounds_.end() ? guessed_ : measured_);
    return it == bounds_.end() ? BoundByRule(name, graph_.gpu[t].duration_ns) : it->second;
  }
  uint32_t QueueOf(const CpuTask& call) const {
    return call.first_work == kNone ? call.queue : graph_.gpu[call.first_work].queue;
  }

  const Bounds& bounds_;
  const Graph& graph_;
  uint64_t measured_ = 0, guessed_ = 0;
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
    return std::move(applied_);
  }

 private:
  absl::Status Do(const Step& step) {
    double amount = 0;
    if (step.verb == Verb::kScale || step.verb == Verb::kSet || step.verb == Verb::kInsert) {
      const absl::StatusOr<double> value = Evaluate(step.amount, parameters_);
      if (!value.ok()) return value.status();
      amount = *value;
    }
    const std::vector<uint32_t> selected = selector_.Select(step.selection);
    applied_.tasks.push_back(selected.size());
    const bool gpu = IsGpu(step.selection.what);
    switch (step.verb) {
      case Verb::kScale:
        for (const uint32_t t : selected) {
          SetDuration(gpu, t, Rounded(static_cast<double>(selector_.DurationOf(gpu, t)) * amount));
        }
        break;
      case Verb::kSet:
        for (const uint32_t t : selected) SetDuration(gpu, t, Rounded(amount));
        break;
      case Verb::kRemove:
        for (const uint32_t t : selected) Remove(gpu, t);
        break;
      case Verb::kInsert:
        for (const uint32_t t : selected) Insert(gpu, t, step, Rounded(amount));
        break;
      case Verb::kFuse:
        if (!gpu)
          return absl::InvalidArgumentError("fuse joins work of the GPU, not calls or gaps");
        Fuse(selected, step.name);
        break;
      case Verb::kCapture:
        if (step.selection.what != What::kLaunches) {
          return absl::InvalidArgumentError("capture takes launches");
        }
        Capture(selected);
        break;
    }
    return absl::OkStatus();
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
    const uint32_t call = Unlink(t);
    // A call that launches nothing any more is not made.
    if (call != kNone && graph_.cpu[call].first_work == kNone &&
        graph_.cpu[call].kind != CpuKind::kGap) {
      graph_.cpu[call].duration_ns = graph_.cpu[call].tail_ns = 0;
      graph_.cpu[call].kind = CpuKind::kCall;
    }
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
    task.duration_ns = duration_ns;
    task.kind = WorkKind::kKernel;
    task.name = NameId(step.name);
    task.work = task.collective = kNone;
    task.dependency_count = 0;
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

  // Of each iteration and queue the selected tasks become one, in place of the last: what each took
  // beyond its start adds up. The launches of the others are not made, nor is what the thread did
  // from one to the next.
  void Fuse(const std::vector<uint32_t>& selected, const std::string& name) {
    std::map<uint32_t, std::vector<int64_t>> durations_ns;  // by name
    std::map<std::tuple<int32_t, uint32_t>, std::vector<uint32_t>> groups;
    for (const uint32_t t : selected) {
      const GpuTask& task = graph_.gpu[t];
      if (task.call == kNone) continue;
      durations_ns[task.name].push_back(task.duration_ns);
      groups[{graph_.cpu[task.call].iteration, task.queue}].push_back(t);
    }
    std::map<uint32_t, int64_t> starts_ns;
    for (auto& [kernel, all_ns] : durations_ns) starts_ns[kernel] = StartNs(&all_ns);
    const uint32_t id = NameId(name);
    for (auto& [key, tasks] : groups) {
      if (tasks.size() < 2) continue;
      int64_t sum_ns = 0, start_ns = 0;
      for (const uint32_t t : tasks) {
        const int64_t own_start_ns = starts_ns[graph_.gpu[t].name];
        start_ns = std::max(start_ns, own_start_ns);
        sum_ns += std::max<int64_t>(0, graph_.gpu[t].duration_ns - own_start_ns);
      }
      const uint32_t last = tasks.back();
      RemoveGapsBetween(tasks);
      for (const uint32_t t : tasks) {
        if (t != last) Remove(true, t);
      }
      graph_.gpu[last].duration_ns = start_ns + sum_ns;
      graph_.gpu[last].name = id;
    }
  }

  // Gaps between two selected launches that follow each other on a thread.
  void RemoveGapsBetween(const std::vector<uint32_t>& tasks) {
    std::vector<bool> calls(graph_.cpu.size());
    for (const uint32_t t : tasks) calls[graph_.gpu[t].call] = true;
    for (const std::vector<uint32_t>& order : graph_.order) {
      size_t since = order.size();  // position behind the last selected launch
      for (size_t i = 0; i < order.size(); ++i) {
        const CpuTask& task = graph_.cpu[order[i]];
        if (calls[order[i]]) {
          for (size_t k = since; k < i; ++k) graph_.cpu[order[k]].duration_ns = 0;
          since = i + 1;
        } else if (task.first_work != kNone || task.tail_ns > 0) {
          since = order.size();
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
};

}  // namespace

Bound BoundByRule(const std::string& kernel, int64_t duration_ns) {
  static const RE2* const products = new RE2(
      "(?i)gemm|gemv|convol|_conv|conv[0-9_]|winograd|wgrad|dgrad|fprop|cutlass|xmma|_mma|flash|"
      "attention");
  if (RE2::PartialMatch(kernel, *products)) return Bound::kCompute;
  return duration_ns <= kLatencyNs ? Bound::kLatency : Bound::kMemory;
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
