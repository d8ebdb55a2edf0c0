#include "daemon/whatif/report.h"

#include <algorithm>
#include <limits>

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
  Walk(const Graph& graph, const RankTimeline& timeline) : graph_(graph), timeline_(timeline) {}

  // From a GPU task's end (`gpu`) or a CPU task's, whose time after `at_ns` does not count.
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
            Add(Share::kQueue, at_ns - std::max(timeline_.gpu_end_ns[cause], until_ns), shares);
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
        Add(Share::kCall, at_ns - std::max(timeline_.gpu_end_ns[cause], until_ns), shares);
        at_ns = std::min(at_ns, timeline_.gpu_end_ns[cause]);
        task = cause;
        gpu = true;
        continue;
      }
      const int64_t begin_ns = timeline_.cpu_begin_ns[task];
      Add(ShareOf(graph_, call), at_ns - std::max(begin_ns, until_ns), shares);
      at_ns = std::min(at_ns, begin_ns);
      task = cause;
    }
    // Before the first task of a thread that nobody started.
    Add(Share::kCpu, at_ns - until_ns, shares);
  }

 private:
  // The CPU task after which a launch began.
  uint32_t Before(uint32_t task) const {
    return timeline_.cpu_cause_kind[task] == Cause::kCpuTask ? timeline_.cpu_cause[task] : kNone;
  }

  const Graph& graph_;
  const RankTimeline& timeline_;
};

}  // namespace

const char* ShareName(Share share) {
  switch (share) {
    case Share::kKernel:
      return "kernels";
    case Share::kCopy:
      return "copies";
    case Share::kCommunication:
      return "communication";
    case Share::kLaunch:
      return "launches";
    case Share::kQueue:
      return "between GPU tasks";
    case Share::kCall:
      return "other CUDA calls";
    case Share::kDataLoading:
      return "data loading";
    case Share::kCpu:
      return "CPU between calls";
    case Share::kOtherRank:
      return "other ranks";
    case Share::kCount:
      break;
  }
  return "";
}

bool IsDataLoading(const std::string& label) {
  return label.find("DataLoader") != std::string::npos ||
         label.find("dataloader") != std::string::npos ||
         label.find("data_loading") != std::string::npos;
}

std::vector<int64_t> IterationDurations(const Graph& graph, const RankTimeline& timeline) {
  const auto count = static_cast<size_t>(graph.iterations);
  std::vector<int64_t> gpu_ns(count, kUnset), cpu_ns(count, kUnset);
  int64_t end_ns = 0;
  for (uint32_t i = 0; i < graph.gpu.size(); ++i) {
    const GpuTask& task = graph.gpu[i];
    if (task.work == kNone || task.call == kNone || timeline.gpu_end_ns[i] == kNotRun) continue;
    end_ns = std::max(end_ns, timeline.gpu_end_ns[i]);
    const int32_t iteration = graph.cpu[task.call].iteration;
    if (iteration < 0) continue;
    int64_t& begin_ns = gpu_ns[static_cast<size_t>(iteration)];
    begin_ns = std::min(begin_ns, timeline.gpu_begin_ns[i]);
  }
  for (uint32_t i = 0; i < graph.cpu.size(); ++i) {
    const CpuTask& task = graph.cpu[i];
    if (task.call == kNone || timeline.cpu_end_ns[i] == kNotRun) continue;
    end_ns = std::max(end_ns, timeline.cpu_end_ns[i]);
    if (task.iteration < 0) continue;
    int64_t& begin_ns = cpu_ns[static_cast<size_t>(task.iteration)];
    begin_ns = std::min(begin_ns, timeline.cpu_begin_ns[i]);
  }
  std::vector<int64_t> durations(count);
  for (size_t i = 0; i < count; ++i) {
    if (i + 1 == count) {
      const int64_t begin_ns = std::min(gpu_ns[i], cpu_ns[i]);
      if (begin_ns != kUnset) durations[i] = end_ns - begin_ns;
    } else if (gpu_ns[i] != kUnset && gpu_ns[i + 1] != kUnset) {
      durations[i] = gpu_ns[i + 1] - gpu_ns[i];
    } else if (cpu_ns[i] != kUnset && cpu_ns[i + 1] != kUnset) {
      durations[i] = cpu_ns[i + 1] - cpu_ns[i];
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

std::vector<IterationTime> IterationTimes(const Trace& trace, const Graph& graph,
                                          const RankTimeline& timeline) {
  const std::vector<int64_t> measured = IterationDurations(graph, Measured(trace, graph));
  const std::vector<int64_t> replayed = IterationDurations(graph, timeline);
  std::vector<IterationTime> times;
  for (size_t i = 0; i < measured.size(); ++i) {
    times.push_back({static_cast<int32_t>(i), measured[i], replayed[i]});
  }
  return times;
}

Shares CriticalPath(const Graph& graph, const RankTimeline& timeline) {
  Shares shares = {};
  bool gpu = false;
  uint32_t last = kNone;
  int64_t end_ns = kNotRun;
  for (uint32_t i = 0; i < timeline.cpu_end_ns.size(); ++i) {
    if (timeline.cpu_end_ns[i] <= end_ns) continue;
    end_ns = timeline.cpu_end_ns[i];
    last = i;
  }
  for (uint32_t i = 0; i < timeline.gpu_end_ns.size(); ++i) {
    if (timeline.gpu_end_ns[i] <= end_ns) continue;
    end_ns = timeline.gpu_end_ns[i];
    last = i;
    gpu = true;
  }
  // Of several ranks one may begin later than the others.
  int64_t begin_ns = end_ns;
  for (const std::vector<int64_t>* begins_ns : {&timeline.cpu_begin_ns, &timeline.gpu_begin_ns}) {
    for (const int64_t task_begin_ns : *begins_ns) {
      if (task_begin_ns != kNotRun) begin_ns = std::min(begin_ns, task_begin_ns);
    }
  }
  if (last != kNone) Walk(graph, timeline).Back(gpu, last, end_ns, begin_ns, &shares);
  return shares;
}

Shares IdleTime(const Graph& graph, const RankTimeline& timeline) {
  Shares shares = {};
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
    if (begin_ns > busy_until_ns) {
      const uint32_t cause = timeline.gpu_cause[i];
      switch (timeline.gpu_cause_kind[i]) {
        case Cause::kGpuTask:
          Add(Share::kQueue, begin_ns - busy_until_ns, &shares);
          break;
        case Cause::kRank:
          Add(Share::kOtherRank, begin_ns - busy_until_ns, &shares);
          break;
        case Cause::kCpuTask: {
          const int64_t call_ns = timeline.cpu_begin_ns[cause];
          Add(Share::kLaunch, begin_ns - std::max(call_ns, busy_until_ns), &shares);
          if (call_ns > busy_until_ns) {
            walk.Back(false, timeline.cpu_cause[cause], call_ns, busy_until_ns, &shares);
          }
          break;
        }
        case Cause::kStart:
          break;
      }
    }
    if (busy_until_ns == kUnset || timeline.gpu_end_ns[i] > busy_until_ns) {
      busy_until_ns = timeline.gpu_end_ns[i];
    }
  }
  return shares;
}

}  // namespace seqpoint::whatif
