#include "daemon/ranks/window_times.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/ranks/late_host.h"

namespace seqpoint::ranks {
namespace {

using trace::Trace;
using trace::Work;
using trace::WorkKind;

// From one work to the next the GPU needs one to three microseconds. A collective that runs
// meanwhile does not hold it up.
constexpr int64_t kGapNs = 5'000;

// A rank's collectives as they would be if it waited for nobody: each starts when the rank is ready
// and the one before it in its stream is over, and takes its transfer time.
class OwnPace {
 public:
  struct Kernel {
    uint32_t work = 0;
    uint32_t collective = trace::kNone;  // of the join; kNone: of no other rank
    int64_t transfer_ns = 0;
  };
  // What holds up the GPU in an idle time: its own transfer, then others.
  struct Held {
    Interval transfer, wait;
    uint32_t collective = trace::kNone;
  };

  // `kernels`: by their ends.
  OwnPace(const Trace& trace, const LateHost& host, std::vector<Kernel> kernels)
      : trace_(trace), host_(host), kernels_(std::move(kernels)), free_ns_(trace.streams.size()) {}

  // Idle times come in order. Until the end of the last collective in it the GPU could not go on;
  // without others it could have at that collective's own end.
  Held In(const Interval& idle) {
    const Kernel* last = nullptr;
    int64_t own_end_ns = 0;
    for (; next_ < kernels_.size(); ++next_) {
      const Kernel& kernel = kernels_[next_];
      const Work& work = trace_.works[kernel.work];
      if (work.end_ns > idle.end_ns) break;
      int64_t& free_ns = free_ns_[work.stream];
      free_ns =
          std::min(std::max(free_ns, host_.ReadyNs(kernel.work)) + kernel.transfer_ns, work.end_ns);
      if (work.end_ns <= idle.begin_ns) continue;
      last = &kernel;
      own_end_ns = free_ns;
    }
    if (last == nullptr || idle.end_ns - idle.begin_ns <= kGapNs) return {};
    const Work& work = trace_.works[last->work];
    const int64_t own_ns = std::max(idle.begin_ns, own_end_ns);
    // What the rank does from now on is later by the wait.
    free_ns_[work.stream] = work.end_ns;
    return {{idle.begin_ns, own_ns}, {own_ns, work.end_ns}, last->collective};
  }

 private:
  const Trace& trace_;
  const LateHost& host_;
  const std::vector<Kernel> kernels_;
  size_t next_ = 0;
  std::vector<int64_t> free_ns_;  // of each stream: the own end of its last collective
};

// Counts what goes on at each moment.
class Sweep {
 public:
  enum Activity : uint8_t { kKernel, kCopy, kLate, kLoading, kWait, kTransfer, kActivities };

  // `collective`: of a wait.
  void Add(Activity activity, const Interval& interval, uint32_t collective = trace::kNone) {
    if (interval.begin_ns >= interval.end_ns) return;
    edges_.push_back({interval.begin_ns, activity, 1, collective});
    edges_.push_back({interval.end_ns, activity, -1, collective});
  }

  // Adds to the exposed waits of `collectives`.
  RankTime Times(int64_t begin_ns, int64_t end_ns,
                 std::vector<RankTime::InCollective>* collectives) {
    std::sort(edges_.begin(), edges_.end(),
              [](const Edge& a, const Edge& b) { return a.at_ns < b.at_ns; });
    RankTime time;
    time.iteration_ns = static_cast<double>(end_ns - begin_ns);
    std::array<int32_t, kActivities> active = {};
    std::vector<uint32_t> waits;  // collectives that wait now
    int64_t at_ns = begin_ns;
    edges_.push_back({end_ns, kActivities, 0, trace::kNone});
    for (const Edge& edge : edges_) {
      const int64_t until_ns = std::clamp(edge.at_ns, begin_ns, end_ns);
      const auto passed_ns = static_cast<double>(until_ns - at_ns);
      const Spent cause = CauseOf(active);
      time[cause] += passed_ns;
      if (cause == Spent::kWaiting) {
        for (const uint32_t collective : waits) (*collectives)[collective].exposed_ns += passed_ns;
      }
      at_ns = std::max(at_ns, until_ns);
      if (edge.activity == kActivities) continue;
      active[edge.activity] += edge.change;
      if (edge.activity != kWait) continue;
      if (edge.change > 0) {
        waits.push_back(edge.collective);
      } else {
        waits.erase(std::find(waits.begin(), waits.end(), edge.collective));
      }
    }
    return time;
  }

 private:
  struct Edge {
    int64_t at_ns;
    Activity activity;
    int32_t change;
    uint32_t collective;
  };

  static Spent CauseOf(const std::array<int32_t, kActivities>& active) {
    if (active[kKernel] > 0) return Spent::kKernels;
    if (active[kCopy] > 0) return Spent::kCopies;
    if (active[kLate] > 0) return active[kLoading] > 0 ? Spent::kLoader : Spent::kLaunch;
    if (active[kWait] > 0) return Spent::kWaiting;
    return active[kTransfer] > 0 ? Spent::kTransfer : Spent::kOther;
  }

  std::vector<Edge> edges_;
};

bool IsKernel(WorkKind kind) { return kind == WorkKind::kKernel || kind == WorkKind::kGraph; }

// `kernels`: of collectives, in any order.
RankTime TimeOf(const RankWindow& window, std::vector<OwnPace::Kernel> kernels,
                std::vector<RankTime::InCollective> collectives) {
  const Trace& trace = *window.trace;
  Sweep sweep;
  int64_t end_ns = window.end_ns;
  double wait_ns = 0;
  for (const Work& work : trace.works) {
    end_ns = std::max(end_ns, work.end_ns);
    if (work.kind == WorkKind::kCollective) continue;
    sweep.Add(IsKernel(work.kind) ? Sweep::kKernel : Sweep::kCopy, {work.start_ns, work.end_ns});
  }
  for (const OwnPace::Kernel& kernel : kernels) {
    const Work& work = trace.works[kernel.work];
    wait_ns += static_cast<double>(work.end_ns - work.start_ns - kernel.transfer_ns);
  }
  std::sort(kernels.begin(), kernels.end(),
            [&](const OwnPace::Kernel& a, const OwnPace::Kernel& b) {
              return trace.works[a.work].end_ns < trace.works[b.work].end_ns;
            });
  const LateHost host(window);
  for (const Interval& late : host.LateTimes()) sweep.Add(Sweep::kLate, late);
  for (const Interval& loading : host.LoadingTimes()) sweep.Add(Sweep::kLoading, loading);
  OwnPace pace(trace, host, std::move(kernels));
  for (const Interval& idle : host.IdleTimes()) {
    const OwnPace::Held held = pace.In(idle);
    sweep.Add(Sweep::kTransfer, held.transfer);
    if (held.collective == trace::kNone) continue;
    sweep.Add(Sweep::kWait, held.wait, held.collective);
  }
  RankTime time = sweep.Times(window.begin_ns, end_ns, &collectives);
  time.wait_ns = wait_ns;
  time.collectives = std::move(collectives);
  return time;
}

// A collective that starts within this time after the one before it in its stream was held by it:
// gaps between works of a stream are a few microseconds.
constexpr int64_t kHeldNs = 10'000;

// By work: whether the work before it in its stream held it.
std::vector<bool> HeldByStream(const Trace& trace) {
  std::vector<uint32_t> order(trace.works.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return trace.works[a].start_ns < trace.works[b].start_ns;
  });
  std::vector<bool> held(order.size());
  std::vector<int64_t> end_ns(trace.streams.size(), INT64_MIN / 2);
  for (const uint32_t i : order) {
    const Work& work = trace.works[i];
    held[i] = work.start_ns - std::exchange(end_ns[work.stream], work.end_ns) <= kHeldNs;
  }
  return held;
}

}  // namespace

const char* SpentName(Spent spent) {
  static constexpr const char* kNames[] = {"kernels", "copies",   "batch late", "launches late",
                                           "waiting", "transfer", "other"};
  static_assert(std::size(kNames) == static_cast<size_t>(Spent::kCount));
  return kNames[static_cast<size_t>(spent)];
}

std::vector<RankTime> TimesOf(absl::Span<const RankWindow> windows, const WindowJoin& join) {
  std::vector<std::vector<OwnPace::Kernel>> kernels(windows.size());
  std::vector<std::vector<RankTime::InCollective>> collectives(
      windows.size(), std::vector<RankTime::InCollective>(join.collectives.size()));
  std::vector<std::vector<bool>> held, joined;
  for (const RankWindow& window : windows) {
    held.push_back(HeldByStream(*window.trace));
    joined.emplace_back(window.trace->works.size());
  }
  for (uint32_t c = 0; c < join.collectives.size(); ++c) {
    for (const CollectivePart& part : join.collectives[c].parts) {
      RankTime::InCollective& in_collective = collectives[part.window][c];
      in_collective.takes_part = true;
      in_collective.behind = held[part.window][part.work];
      // A kernel may carry out several sends and receives.
      if (joined[part.window][part.work]) continue;
      joined[part.window][part.work] = true;
      kernels[part.window].push_back({part.work, c, part.duration_ns - part.wait_ns});
    }
  }
  std::vector<RankTime> times;
  for (size_t w = 0; w < windows.size(); ++w) {
    const std::vector<Work>& works = windows[w].trace->works;
    for (uint32_t i = 0; i < works.size(); ++i) {
      if (works[i].kind != WorkKind::kCollective || joined[w][i]) continue;
      kernels[w].push_back({i, trace::kNone, works[i].end_ns - works[i].start_ns});
    }
    times.push_back(TimeOf(windows[w], std::move(kernels[w]), std::move(collectives[w])));
  }
  return times;
}

}  // namespace seqpoint::ranks
