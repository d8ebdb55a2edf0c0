#include "daemon/whatif/replay/cpu_threads.h"

#include <algorithm>

namespace seqpoint::whatif {
namespace {

// Sets `last` to the last task that a call waits for. Returns one whose end is not known yet, or
// kNone.
uint32_t WaitedFor(const RankState& rank, const CpuTask& task, uint32_t* last) {
  const auto look = [&](uint32_t g) {
    if (g == kNone) return kNone;
    if (rank.out->gpu_end_ns[g] == kNotRun) return g;
    if (*last == kNone || rank.out->gpu_end_ns[g] > rank.out->gpu_end_ns[*last]) *last = g;
    return kNone;
  };
  // In a lane by priority the last one launched into it need not be the last one that runs.
  const auto look_at = [&](uint32_t q) {
    const LaneState& lane = rank.lanes[q];
    if (!rank.graph->lanes[q].by_priority) return look(lane.last);
    const auto open = std::find_if(lane.unresolved.begin() + static_cast<int64_t>(lane.next),
                                   lane.unresolved.end(),
                                   [&](uint32_t g) { return rank.out->gpu_end_ns[g] == kNotRun; });
    return look(open == lane.unresolved.end() ? lane.running : *open);
  };
  uint32_t unknown = kNone;
  switch (task.kind) {
    case CpuKind::kWaitStream:
      return look_at(task.lane);
    case CpuKind::kWaitEvent:
      if (rank.events[task.event].empty()) return look_at(task.lane);
      return look(rank.events[task.event][0]);
    case CpuKind::kWaitAll:
      for (uint32_t q = 0; q < rank.lanes.size(); ++q) {
        unknown = look_at(q);
        if (unknown != kNone) return unknown;
      }
      return kNone;
    default:
      for (uint32_t g = task.first_work; g != kNone; g = rank.graph->gpu[g].next) {
        unknown = look(g);
        if (unknown != kNone) return unknown;
      }
      return kNone;
  }
}

}  // namespace

void CpuThreads::Run(const ReplayEvent& event) {
  RankState& rank = state_.ranks[event.rank];
  const Graph& graph = *rank.graph;
  RankTimeline& out = *rank.out;
  const std::vector<uint32_t>& order = graph.order[event.thread];
  int64_t now_ns = event.time_ns;
  uint32_t& position = rank.position[event.thread];
  while (position < order.size()) {
    if (!state_.heap.empty() && state_.heap.front().time_ns < now_ns) {
      state_.Push({now_ns, event.rank, event.thread});
      return;
    }
    const uint32_t t = order[position];
    const CpuTask& task = graph.cpu[t];
    if (task.after != kNone) {
      const int64_t after_ns = out.cpu_end_ns[task.after];
      if (after_ns == kNotRun) {
        rank.threads_after_cpu[task.after].push_back(event.thread);
        rank.waiting_ns[event.thread] = now_ns;
        return;
      }
      if (after_ns >= now_ns) state_.SetCpuCause(&out, t, Cause::kCpuTask, task.after);
      if (after_ns > now_ns) {
        now_ns = after_ns;
        // Other threads may be earlier now.
        if (!state_.heap.empty() && state_.heap.front().time_ns < now_ns) {
          state_.Push({now_ns, event.rank, event.thread});
          return;
        }
      }
    }
    if (position > 0 && state_.options.causes && out.cpu_cause[t] == kNone) {
      state_.SetCpuCause(&out, t, Cause::kCpuTask, order[position - 1]);
    }
    if (out.cpu_begin_ns[t] == kNotRun) {
      out.cpu_begin_ns[t] = now_ns;
      Begin(event.rank, task, now_ns);
    }
    int64_t end_ns = out.cpu_begin_ns[t] + task.duration_ns;
    if (IsWait(task.kind)) {
      uint32_t last = kNone;
      const uint32_t unknown = WaitedFor(rank, task, &last);
      if (unknown != kNone) {
        rank.threads_after_gpu[unknown].push_back(event.thread);
        rank.waiting_ns[event.thread] = now_ns;
        return;
      }
      if (last != kNone && out.gpu_end_ns[last] + task.tail_ns > end_ns &&
          out.gpu_end_ns[last] > out.cpu_begin_ns[t]) {
        end_ns = out.gpu_end_ns[last] + task.tail_ns;
        // The GPU decides its end, so its successors' cause is there.
        state_.SetCpuCause(&out, t, Cause::kGpuTask, last);
      }
    }
    out.cpu_end_ns[t] = now_ns = end_ns;
    ++position;
    for (const uint32_t thread : TakeWaiters(t, &rank.threads_after_cpu)) {
      state_.Wake(event.rank, thread, end_ns);
    }
  }
}

// Applies the effects of a CPU task on the lanes at its start.
void CpuThreads::Begin(uint32_t r, const CpuTask& task, int64_t now_ns) {
  RankState& rank = state_.ranks[r];
  if (task.kind == CpuKind::kRecord) {
    // A stream without work has no lane: the event stands for nothing.
    rank.events[task.event].assign(1, task.lane == kNone ? kNone : rank.lanes[task.lane].last);
  } else if (task.kind == CpuKind::kStreamWait) {
    std::vector<uint32_t>& waits = rank.lanes[task.lane].waits;
    if (task.event != kNone && !rank.events[task.event].empty()) {
      waits.push_back(rank.events[task.event][0]);
    } else if (task.source != kNone) {
      waits.push_back(rank.lanes[task.source].last);
    }
  }
  for (uint32_t g = task.first_work; g != kNone; g = rank.graph->gpu[g].next) {
    lanes_.Enqueue(r, g, now_ns + rank.graph->gpu[g].latency_ns);
  }
}

}  // namespace seqpoint::whatif
