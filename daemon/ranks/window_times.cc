#include "daemon/ranks/window_times.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "daemon/base/statistics.h"
#include "daemon/trace/correlations.h"

namespace seqpoint::ranks {
namespace {

using trace::Call;
using trace::CallKind;
using trace::Trace;
using trace::Work;
using trace::WorkKind;

// A launch that takes longer does something else before, such as to load a module.
constexpr int64_t kLongCallNs = 50'000;

// From one work to the next the GPU needs one to three microseconds. A collective that waits
// meanwhile does not hold it up.
constexpr int64_t kGapNs = 5'000;

struct Interval {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

bool IsKernel(WorkKind kind) { return kind == WorkKind::kKernel || kind == WorkKind::kGraph; }
bool LaunchesKernels(CallKind kind) {
  return kind == CallKind::kLaunch || kind == CallKind::kGraphLaunch;
}
bool Synchronises(CallKind kind) {
  return kind == CallKind::kStreamSync || kind == CallKind::kEventSync ||
         kind == CallKind::kContextSync;
}

// The times in which the host had not launched what the GPU could have run.
class LateHost {
 public:
  explicit LateHost(const RankWindow& window)
      : window_(window), trace_(*window.trace), correlations_(trace_) {
    for (uint32_t i = 0; i < trace_.calls.size(); ++i) calls_.push_back(i);
    std::sort(calls_.begin(), calls_.end(), [&](uint32_t a, uint32_t b) {
      return trace_.calls[a].begin_ns < trace_.calls[b].begin_ns;
    });
    for (const uint32_t i : calls_) {
      const Call& call = trace_.calls[i];
      if (Synchronises(call.kind)) syncs_.push_back({call.begin_ns, call.end_ns});
    }
  }

  // Sets the times in which it was late, and those in which the GPU goes from one work to the next.
  void Find(std::vector<Interval>* times, std::vector<Interval>* gaps) const {
    std::vector<uint32_t> works;
    for (uint32_t i = 0; i < trace_.works.size(); ++i) {
      if (trace_.works[i].kind != WorkKind::kCollective) works.push_back(i);
    }
    std::sort(works.begin(), works.end(), [&](uint32_t a, uint32_t b) {
      return trace_.works[a].start_ns < trace_.works[b].start_ns;
    });
    struct Late {
      int64_t idle_ns, called_ns, start_ns;
    };
    std::vector<Late> all;
    std::vector<int64_t> latencies_ns;
    int64_t idle_ns = window_.begin_ns;
    for (const uint32_t i : works) {
      const Work& work = trace_.works[i];
      if (work.start_ns - idle_ns <= kGapNs) gaps->push_back({idle_ns, work.start_ns});
      const uint32_t index = correlations_.CallOf(work.correlation);
      if (index != trace::kNone) {
        const Call& call = trace_.calls[index];
        if (call.begin_ns >= idle_ns) {
          all.push_back({idle_ns, call.begin_ns, work.start_ns});
          latencies_ns.push_back(work.start_ns - call.begin_ns);
        } else if (call.end_ns - call.begin_ns > kLongCallNs && call.end_ns > idle_ns) {
          all.push_back({idle_ns, call.end_ns, work.start_ns});
        }
      }
      idle_ns = std::max(idle_ns, work.end_ns);
    }
    // A launch into an idle GPU takes as long; what starts later waits for something else.
    const int64_t latency_ns = Median(std::move(latencies_ns));
    for (const Late& late : all) {
      AddUnlessBlocked({late.idle_ns, std::min(late.start_ns, late.called_ns + latency_ns)}, times);
    }
    AddUnlessBlocked({idle_ns, window_.end_ns}, times);
  }

  // Where the host prepared the batch: the longest time without a call before the batch's copy.
  // Over the border of the iteration where nothing was launched between that and the copy.
  std::vector<Interval> Loading() const {
    const uint32_t copy = BatchCopy();
    if (copy == trace::kNone) return {};
    const Call& batch = trace_.calls[copy];
    Interval longest = {batch.begin_ns, batch.begin_ns};
    int64_t next_ns = batch.begin_ns;
    bool first = true;
    for (auto it = std::find(calls_.rbegin(), calls_.rend(), copy); it != calls_.rend(); ++it) {
      const Call& call = trace_.calls[*it];
      if (call.thread != batch.thread || *it == copy) continue;
      if (next_ns - call.end_ns > longest.end_ns - longest.begin_ns) {
        longest = {call.end_ns, next_ns};
      }
      next_ns = call.begin_ns;
      if (!LaunchesKernels(call.kind)) continue;
      first = false;
      break;
    }
    if (!first) return {longest};
    int64_t last_ns = window_.begin_ns;
    for (const Call& call : trace_.calls) {
      if (call.thread == batch.thread) last_ns = std::max(last_ns, call.end_ns);
    }
    return {longest, {window_.begin_ns, next_ns}, {last_ns, window_.end_ns}};
  }

 private:
  // The call of the first copy to the GPU that moves at least a quarter of what the largest does:
  // smaller ones are scalars.
  uint32_t BatchCopy() const {
    uint64_t most = 0;
    for (const Work& work : trace_.works) {
      if (work.kind == WorkKind::kCopyH2D) most = std::max(most, work.bytes);
    }
    uint32_t first = trace::kNone;
    for (const Work& work : trace_.works) {
      if (work.kind != WorkKind::kCopyH2D || work.bytes < most / 4) continue;
      const uint32_t call = correlations_.CallOf(work.correlation);
      if (call == trace::kNone) continue;
      if (first == trace::kNone || trace_.calls[call].begin_ns < trace_.calls[first].begin_ns) {
        first = call;
      }
    }
    return first;
  }

  // A host that waits for the GPU is not late.
  void AddUnlessBlocked(Interval late, std::vector<Interval>* times) const {
    for (const Interval& sync : syncs_) {
      if (sync.end_ns <= late.begin_ns) continue;
      if (sync.begin_ns >= late.end_ns) break;
      if (sync.begin_ns > late.begin_ns) times->push_back({late.begin_ns, sync.begin_ns});
      late.begin_ns = sync.end_ns;
    }
    if (late.begin_ns < late.end_ns) times->push_back(late);
  }

  const RankWindow& window_;
  const Trace& trace_;
  const trace::Correlations correlations_;
  std::vector<uint32_t> calls_;  // by their starts
  std::vector<Interval> syncs_;
};

// Counts what goes on at each moment.
class Sweep {
 public:
  enum Activity : uint8_t { kKernel, kCopy, kLate, kLoading, kGap, kWait, kTransfer, kActivities };

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
    if (active[kGap] > 0) return Spent::kOther;
    if (active[kWait] > 0 && active[kTransfer] == 0) return Spent::kWaiting;
    return active[kTransfer] > 0 ? Spent::kTransfer : Spent::kOther;
  }

  std::vector<Edge> edges_;
};

// A collective that starts within this time after the one before it in its stream was held by it:
// gaps between works of a stream are a few microseconds.
constexpr int64_t kHeldNs = 10'000;

// The collectives of a window, by work.
struct Waits {
  std::vector<int64_t> wait_ns;      // 0: none
  std::vector<uint32_t> collective;  // kNone: none
  // The collective for which the rank waits during the transfer, too; kNone: none.
  std::vector<uint32_t> next;
  std::vector<bool> behind;  // see RankTime::InCollective
};

// The work before each one in its stream; kNone: none.
std::vector<uint32_t> BeforeInStream(const Trace& trace) {
  std::vector<uint32_t> order(trace.works.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return trace.works[a].start_ns < trace.works[b].start_ns;
  });
  std::vector<uint32_t> before(trace.works.size(), trace::kNone);
  std::vector<uint32_t> last(trace.streams.size(), trace::kNone);
  for (const uint32_t i : order) {
    before[i] = std::exchange(last[trace.works[i].stream], i);
  }
  return before;
}

// A rank that waits for the last one in two collectives, one right behind the other, waits for it
// during the transfer of the first one, too, if the last rank came late to the second one for its
// own reasons: without that transfer it would wait as much longer behind it.
std::vector<Waits> WaitsOf(absl::Span<const RankWindow> windows, const WindowJoin& join) {
  std::vector<Waits> waits;
  std::vector<std::vector<uint32_t>> before;
  for (const RankWindow& window : windows) {
    const size_t count = window.trace->works.size();
    waits.push_back({std::vector<int64_t>(count), std::vector<uint32_t>(count, trace::kNone),
                     std::vector<uint32_t>(count, trace::kNone), std::vector<bool>(count)});
    before.push_back(BeforeInStream(*window.trace));
  }
  const auto held_by = [&](const CollectivePart& part) {
    const uint32_t other = before[part.window][part.work];
    if (other == trace::kNone) return other;
    const std::vector<Work>& works = windows[part.window].trace->works;
    const int64_t gap_ns = works[part.work].start_ns - works[other].end_ns;
    return gap_ns <= kHeldNs ? other : trace::kNone;
  };
  for (uint32_t c = 0; c < join.collectives.size(); ++c) {
    const WindowCollective& collective = join.collectives[c];
    const bool last_was_held = held_by(collective.parts[collective.last]) != trace::kNone;
    for (const CollectivePart& part : collective.parts) {
      waits[part.window].wait_ns[part.work] = part.wait_ns;
      waits[part.window].collective[part.work] = c;
      const uint32_t other = held_by(part);
      waits[part.window].behind[part.work] = other != trace::kNone;
      if (last_was_held || part.wait_ns == 0) continue;
      if (other != trace::kNone) waits[part.window].next[other] = c;
    }
  }
  return waits;
}

RankTime TimeOf(const RankWindow& window, const Waits& waits, size_t collectives) {
  Sweep sweep;
  int64_t end_ns = window.end_ns;
  double all_wait_ns = 0;
  std::vector<RankTime::InCollective> in_collectives(collectives);
  for (size_t i = 0; i < waits.wait_ns.size(); ++i) {
    const Work& work = window.trace->works[i];
    end_ns = std::max(end_ns, work.end_ns);
    if (work.kind != WorkKind::kCollective) {
      sweep.Add(IsKernel(work.kind) ? Sweep::kKernel : Sweep::kCopy, {work.start_ns, work.end_ns});
      continue;
    }
    const int64_t moves_ns = work.start_ns + waits.wait_ns[i];
    sweep.Add(Sweep::kWait, {work.start_ns, moves_ns}, waits.collective[i]);
    const bool waits_on = waits.next[i] != trace::kNone;
    sweep.Add(waits_on ? Sweep::kWait : Sweep::kTransfer, {moves_ns, work.end_ns}, waits.next[i]);
    all_wait_ns += static_cast<double>(waits.wait_ns[i]);
    if (waits.collective[i] == trace::kNone) continue;
    RankTime::InCollective& in_collective = in_collectives[waits.collective[i]];
    in_collective.takes_part = true;
    in_collective.behind |= waits.behind[i];
  }
  const LateHost host(window);
  std::vector<Interval> late, gaps;
  host.Find(&late, &gaps);
  for (const Interval& one : late) sweep.Add(Sweep::kLate, one);
  for (const Interval& one : gaps) sweep.Add(Sweep::kGap, one);
  for (const Interval& loading : host.Loading()) sweep.Add(Sweep::kLoading, loading);
  RankTime time = sweep.Times(window.begin_ns, end_ns, &in_collectives);
  time.wait_ns = all_wait_ns;
  time.collectives = std::move(in_collectives);
  return time;
}

}  // namespace

const char* SpentName(Spent spent) {
  static constexpr const char* kNames[] = {"kernels", "copies",   "batch late", "launches late",
                                           "waiting", "transfer", "other"};
  static_assert(std::size(kNames) == static_cast<size_t>(Spent::kCount));
  return kNames[static_cast<size_t>(spent)];
}

std::vector<RankTime> TimesOf(absl::Span<const RankWindow> windows, const WindowJoin& join) {
  const std::vector<Waits> waits = WaitsOf(windows, join);
  std::vector<RankTime> times;
  for (size_t w = 0; w < windows.size(); ++w) {
    times.push_back(TimeOf(windows[w], waits[w], join.collectives.size()));
  }
  return times;
}

}  // namespace seqpoint::ranks
