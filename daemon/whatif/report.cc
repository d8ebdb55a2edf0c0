#include "daemon/whatif/report.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace seqpoint::whatif {
namespace {

constexpr int64_t kUnset = std::numeric_limits<int64_t>::max();

Share ShareOf(WorkKind kind) {
  switch (kind) {
    case WorkKind::kKernel:
    case WorkKind::kGraph:
      return Share::kKernel;
    case WorkKind::kCollective:
      return Share::kCommunication;
    default:
      return Share::kCopy;
  }
}

Share ShareOf(const Graph& graph, const CpuTask& task) {
  if (task.first_work != kNone) return Share::kLaunch;
  if (task.kind != CpuKind::kGap) return Share::kCall;
  return IsDataLoading(graph.names[task.label]) ? Share::kDataLoading : Share::kCpu;
}

void Add(Share share, int64_t ns, Shares* shares) {
  if (ns > 0) (*shares)[static_cast<size_t>(share)] += ns;
}

// Walks back from a CPU task to `until_ns`.
class Walk {
 public:
  Walk(const Graph& graph, const RankTimeline& timeline, std::vector<int64_t>* calls_ns = nullptr)
      : graph_(graph), timeline_(timeline), calls_ns_(calls_ns) {}

  // Starts at the end of a GPU task (`gpu`) or of a CPU task. Time after `at_ns` does not count.
  void Back(bool gpu, uint32_t task, int64_t at_ns, int64_t until_ns, Shares* shares) const {
    while (task != kNone && at_ns > until_ns) {
      if (gpu) {
        const GpuTask& work = graph_.gpu[task];
        const int64_t begin_ns = timeline_.gpu_begin_ns[task];
        Add(ShareOf(work.kind), at_ns - std::max(begin_ns, until_ns), shares);
        at_ns = std::min(at_ns, begin_ns);
        const uint32_t cause = timeline_.gpu_cause[task];
        switch (timeline_.gpu_cause_kind[task]) {
          case Cause::kGpuTask:
            Add(Share::kLane, at_ns - std::max(timeline_.gpu_end_ns[cause], until_ns), shares);
            at_ns = std::min(at_ns, timeline_.gpu_end_ns[cause]);
            task = cause;
            break;
          case Cause::kCpuTask:
            Add(Share::kLaunch, at_ns - std::max(timeline_.cpu_begin_ns[cause], until_ns), shares);
            at_ns = std::min(at_ns, timeline_.cpu_begin_ns[cause]);
            task = Before(cause);
            gpu = false;
            break;
          default:
            task = kNone;
        }
        continue;
      }
      const CpuTask& call = graph_.cpu[task];
      const uint32_t cause = timeline_.cpu_cause[task];
      if (timeline_.cpu_cause_kind[task] == Cause::kGpuTask && cause != kNone) {
        // It ended because the GPU was done.
        const int64_t tail_ns = at_ns - std::max(timeline_.gpu_end_ns[cause], until_ns);
        Add(Share::kCall, tail_ns, shares);
        AddCall(call.name, tail_ns);
        at_ns = std::min(at_ns, timeline_.gpu_end_ns[cause]);
        task = cause;
        gpu = true;
        continue;
      }
      const int64_t begin_ns = timeline_.cpu_begin_ns[task];
      const Share share = ShareOf(graph_, call);
      Add(share, at_ns - std::max(begin_ns, until_ns), shares);
      if (share == Share::kCall) AddCall(call.name, at_ns - std::max(begin_ns, until_ns));
      at_ns = std::min(at_ns, begin_ns);
      task = cause;
    }
    // The time before the first task of a thread that no other thread started.
    Add(Share::kCpu, at_ns - until_ns, shares);
  }

 private:
  // The CPU task after which a launch began.
  uint32_t Before(uint32_t task) const {
    return timeline_.cpu_cause_kind[task] == Cause::kCpuTask ? timeline_.cpu_cause[task] : kNone;
  }

  void AddCall(uint32_t name, int64_t ns) const {
    if (calls_ns_ != nullptr && ns > 0) (*calls_ns_)[name] += ns;
  }

  const Graph& graph_;
  const RankTimeline& timeline_;
  std::vector<int64_t>* const calls_ns_;
};

// The tasks that start each iteration.
struct Starts {
  struct Task {
    int64_t at_ns = kUnset;
    uint32_t index = kNone;
    void Try(int64_t ns, uint32_t task) {
      if (ns < at_ns) *this = {ns, task};
    }
  };
  std::vector<Task> gpu, cpu;
  int64_t end_ns = 0;  // of all

  Starts(const Graph& graph, const RankTimeline& timeline)
      : gpu(static_cast<size_t>(graph.iterations)), cpu(gpu) {
    for (uint32_t i = 0; i < graph.gpu.size(); ++i) {
      const GpuTask& task = graph.gpu[i];
      if (task.work == kNone || task.call == kNone || timeline.gpu_end_ns[i] == kNotRun) continue;
      end_ns = std::max(end_ns, timeline.gpu_end_ns[i]);
      const int32_t iteration = graph.cpu[task.call].iteration;
      if (iteration >= 0) gpu[static_cast<size_t>(iteration)].Try(timeline.gpu_begin_ns[i], i);
    }
    for (uint32_t i = 0; i < graph.cpu.size(); ++i) {
      const CpuTask& task = graph.cpu[i];
      if (task.call == kNone || timeline.cpu_end_ns[i] == kNotRun) continue;
      end_ns = std::max(end_ns, timeline.cpu_end_ns[i]);
      if (task.iteration >= 0) {
        cpu[static_cast<size_t>(task.iteration)].Try(timeline.cpu_begin_ns[i], i);
      }
    }
  }
  // `gpu` where this iteration and the next one have GPU work, else `cpu` where both have calls;
  // null: neither. `i` is not the last iteration.
  const std::vector<Task>* By(size_t i) const {
    for (const std::vector<Task>* by : {&gpu, &cpu}) {
      if ((*by)[i].index != kNone && (*by)[i + 1].index != kNone) return by;
    }
    return nullptr;
  }
  // For the last iteration.
  int64_t First(size_t i) const { return std::min(gpu[i].at_ns, cpu[i].at_ns); }
};

}  // namespace

const char* ShareName(Share share) {
  static constexpr const char* kNames[] = {
      "kernels",          "copies",       "communication",     "launches",   "between GPU tasks",
      "other CUDA calls", "data loading", "CPU between calls", "other ranks"};
  static_assert(std::size(kNames) == static_cast<size_t>(Share::kCount));
  return kNames[static_cast<size_t>(share)];
}

bool IsDataLoading(const std::string& label) {
  return label.find("DataLoader") != std::string::npos ||
         label.find("dataloader") != std::string::npos ||
         label.find("data_loading") != std::string::npos;
}

std::vector<int64_t> IterationDurations(const Graph& graph, const RankTimeline& timeline) {
  const Starts starts(graph, timeline);
  std::vector<int64_t> durations(starts.gpu.size());
  for (size_t i = 0; i < durations.size(); ++i) {
    if (i + 1 == durations.size()) {
      if (starts.First(i) != kUnset) durations[i] = starts.end_ns - starts.First(i);
    } else if (const auto* by = starts.By(i)) {
      durations[i] = (*by)[i + 1].at_ns - (*by)[i].at_ns;
    }
  }
  return durations;
}

RankTimeline Measured(const Trace& trace, const Graph& graph) {
  RankTimeline timeline;
  timeline.cpu_begin_ns.assign(graph.cpu.size(), kNotRun);
  timeline.cpu_end_ns = timeline.cpu_begin_ns;
  timeline.gpu_begin_ns.assign(graph.gpu.size(), kNotRun);
  timeline.gpu_end_ns = timeline.gpu_begin_ns;
  for (size_t i = 0; i < graph.cpu.size(); ++i) {
    if (graph.cpu[i].call == kNone) continue;
    const Call& call = trace.calls[graph.cpu[i].call];
    timeline.cpu_begin_ns[i] = call.begin_ns - graph.begin_ns;
    timeline.cpu_end_ns[i] = call.end_ns - graph.begin_ns;
    timeline.end_ns = std::max(timeline.end_ns, timeline.cpu_end_ns[i]);
  }
  for (size_t i = 0; i < graph.gpu.size(); ++i) {
    if (graph.gpu[i].work == kNone) continue;
    const Work& work = trace.works[graph.gpu[i].work];
    timeline.gpu_begin_ns[i] = work.start_ns - graph.begin_ns;
    timeline.gpu_end_ns[i] = work.end_ns - graph.begin_ns;
    timeline.end_ns = std::max(timeline.end_ns, timeline.gpu_end_ns[i]);
  }
  return timeline;
}

namespace {

// The task that ends last.
struct Last {
  bool gpu = false;
  uint32_t task = kNone;
  int64_t end_ns = kNotRun;
};
Last LastOf(const RankTimeline& timeline) {
  Last last;
  for (uint32_t i = 0; i < timeline.cpu_end_ns.size(); ++i) {
    if (timeline.cpu_end_ns[i] > last.end_ns) last = {false, i, timeline.cpu_end_ns[i]};
  }
  for (uint32_t i = 0; i < timeline.gpu_end_ns.size(); ++i) {
    if (timeline.gpu_end_ns[i] > last.end_ns) last = {true, i, timeline.gpu_end_ns[i]};
  }
  return last;
}

}  // namespace

std::vector<Shares> IterationPaths(const Graph& graph, const RankTimeline& timeline,
                                   std::vector<int64_t>* calls_ns) {
  const Starts starts(graph, timeline);
  if (calls_ns != nullptr) calls_ns->resize(graph.names.size());
  const Walk walk(graph, timeline, calls_ns);
  std::vector<Shares> paths(starts.gpu.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    if (i + 1 == paths.size()) {
      const Last last = LastOf(timeline);
      if (starts.First(i) == kUnset || last.task == kNone) continue;
      walk.Back(last.gpu, last.task, last.end_ns, starts.First(i), &paths[i]);
    } else if (const auto* by = starts.By(i)) {
      const Starts::Task& next = (*by)[i + 1];
      walk.Back(by == &starts.gpu, next.index, next.at_ns, (*by)[i].at_ns, &paths[i]);
    }
  }
  return paths;
}

std::vector<Shares> IterationIdle(const Graph& graph, const RankTimeline& timeline) {
  const Starts starts(graph, timeline);
  std::vector<Shares> idle(starts.gpu.size());
  std::vector<std::pair<int64_t, size_t>> with_work;  // of the iterations that have work
  for (size_t i = 0; i < starts.gpu.size(); ++i) {
    if (starts.gpu[i].index != kNone) with_work.emplace_back(starts.gpu[i].at_ns, i);
  }
  std::sort(with_work.begin(), with_work.end());
  std::vector<uint32_t> order;
  order.reserve(graph.gpu.size());
  for (uint32_t i = 0; i < graph.gpu.size(); ++i) {
    if (timeline.gpu_end_ns[i] != kNotRun) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return timeline.gpu_begin_ns[a] < timeline.gpu_begin_ns[b];
  });
  const Walk walk(graph, timeline);
  int64_t busy_until_ns = kUnset;
  for (const uint32_t i : order) {
    const int64_t begin_ns = timeline.gpu_begin_ns[i];
    const int64_t idle_since_ns = busy_until_ns;
    if (busy_until_ns == kUnset || timeline.gpu_end_ns[i] > busy_until_ns) {
      busy_until_ns = timeline.gpu_end_ns[i];
    }
    // The gap before the first work of an iteration belongs to the iteration before.
    const auto next =
        std::lower_bound(with_work.begin(), with_work.end(), std::pair(begin_ns, size_t{0}));
    if (begin_ns <= idle_since_ns || next == with_work.begin()) continue;
    Shares& shares = idle[std::prev(next)->second];
    const uint32_t cause = timeline.gpu_cause[i];
    switch (timeline.gpu_cause_kind[i]) {
      case Cause::kGpuTask:
        Add(Share::kLane, begin_ns - idle_since_ns, &shares);
        break;
      case Cause::kRank:
        Add(Share::kOtherRank, begin_ns - idle_since_ns, &shares);
        break;
      case Cause::kCpuTask: {
        const int64_t call_ns = timeline.cpu_begin_ns[cause];
        Add(Share::kLaunch, begin_ns - std::max(call_ns, idle_since_ns), &shares);
        if (call_ns > idle_since_ns) {
          walk.Back(false, timeline.cpu_cause[cause], call_ns, idle_since_ns, &shares);
        }
        break;
      }
      case Cause::kStart:
        break;
    }
  }
  return idle;
}

}  // namespace seqpoint::whatif
