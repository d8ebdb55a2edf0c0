#include "daemon/whatif/replay/gpu_lanes.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace seqpoint::whatif {

void GpuLanes::Enqueue(uint32_t r, uint32_t g, int64_t ready_ns) {
  RankState& rank = state_.ranks[r];
  const GpuTask& task = rank.graph->gpu[g];
  LaneState& lane = rank.lanes[task.lane];
  rank.ready_ns[g] = ready_ns;
  if (!lane.waits.empty()) {
    state_.extra[{r, g}] = std::move(lane.waits);
    lane.waits.clear();
  }
  lane.last = g;
  if (rank.graph->lanes[task.lane].by_priority) {
    lane.unresolved.push_back(g);
    EnqueueByPriority(r, g);
    return;
  }
  if (lane.next < lane.unresolved.size()) {
    lane.unresolved.push_back(g);
  } else if (!Resolve(r, g)) {
    lane.unresolved.assign(1, g);
    lane.next = 0;
  }
}

// Finds when a task can start, apart from its lane, and the task that it follows (kNone: its
// launch). False: not known yet; its lane goes on when it is.
bool GpuLanes::Ready(uint32_t r, uint32_t g, int64_t* begin_ns, uint32_t* by) {
  RankState& rank = state_.ranks[r];
  const Graph& graph = *rank.graph;
  const GpuTask& task = graph.gpu[g];
  const RankTimeline& out = *rank.out;
  *begin_ns = rank.ready_ns[g];
  const auto follow = [&](uint32_t other) { Follow(r, g, other, begin_ns, by); };
  for (uint32_t i = 0; i < task.dependency_count; ++i) {
    const uint32_t other = graph.dependencies[task.first_dependency + i];
    if (out.gpu_end_ns[other] == kNotRun) {
      // It comes later in this replay, so it takes no room.
      if (rank.ready_ns[other] == kNotRun) continue;
      Await(&rank, other, g);
      return false;
    }
    follow(other);
  }
  if (state_.extra.empty()) return true;
  if (const auto it = state_.extra.find({r, g}); it != state_.extra.end()) {
    for (const uint32_t other : it->second) {
      if (other == kNone) continue;
      if (out.gpu_end_ns[other] == kNotRun) {
        Await(&rank, other, g);
        return false;
      }
      follow(other);
    }
  }
  return true;
}

void GpuLanes::Await(RankState* rank, uint32_t other, uint32_t g) {
  const uint32_t lane = rank->graph->gpu[g].lane;
  if (rank->graph->lanes[lane].by_priority) {
    rank->prioritized_after_gpu[other].push_back(g);
  } else {
    rank->lanes_after_gpu[other].push_back(lane);
  }
}

void GpuLanes::Follow(uint32_t r, uint32_t g, uint32_t other, int64_t* begin_ns,
                      uint32_t* by) const {
  const std::vector<GpuTask>& gpu = state_.ranks[r].graph->gpu;
  const bool same = gpu[other].lane == gpu[g].lane;
  const int64_t end_ns =
      state_.ranks[r].out->gpu_end_ns[other] + (same ? gpu[g].gap_ns : gpu[g].wait_gap_ns);
  if (end_ns <= *begin_ns) return;
  *begin_ns = end_ns;
  *by = other;
}

// Finds start and end of the first task of a lane for which they are not known. False: not
// possible yet.
bool GpuLanes::Resolve(uint32_t r, uint32_t g) {
  int64_t begin_ns = 0;
  uint32_t by = kNone;
  if (!Ready(r, g, &begin_ns, &by)) return false;
  const LaneState& lane = state_.ranks[r].lanes[state_.ranks[r].graph->gpu[g].lane];
  if (lane.free_by != kNone) Follow(r, g, lane.free_by, &begin_ns, &by);
  return Start(r, g, begin_ns, by);
}

bool GpuLanes::Start(uint32_t r, uint32_t g, int64_t begin_ns, uint32_t by) {
  RankTimeline& out = *state_.ranks[r].out;
  const GpuTask& task = state_.ranks[r].graph->gpu[g];
  if (!state_.extra.empty()) state_.extra.erase({r, g});
  out.gpu_begin_ns[g] = begin_ns;
  state_.SetGpuCause(&out, g, task, by);
  if (state_.IsShared(task)) return Arrive(r, g, begin_ns);
  End(r, g, begin_ns + task.duration_ns);
  return true;
}

// A lane by priority chooses when it is free and a task can start. Threads and other lanes have
// then reached that time, so no task that becomes known later could have been chosen.
void GpuLanes::EnqueueByPriority(uint32_t r, uint32_t g) {
  LaneState& lane = state_.ranks[r].lanes[state_.ranks[r].graph->gpu[g].lane];
  int64_t begin_ns = 0;
  uint32_t by = kNone;
  if (!Ready(r, g, &begin_ns, &by)) return;
  lane.known.emplace_back(begin_ns, g);
  std::push_heap(lane.known.begin(), lane.known.end(), std::greater<>());
  PlanChoice(r, state_.ranks[r].graph->gpu[g].lane);
}

void GpuLanes::PlanChoice(uint32_t r, uint32_t q) {
  const RankState& rank = state_.ranks[r];
  LaneState& lane = state_.ranks[r].lanes[q];
  while (lane.next < lane.unresolved.size() &&
         rank.out->gpu_end_ns[lane.unresolved[lane.next]] != kNotRun) {
    ++lane.next;
  }
  int64_t at_ns = kNotRun;
  if (lane.running != kNone) {
    at_ns = rank.out->gpu_end_ns[lane.running];
    if (at_ns == kNotRun) return;  // a collective that others lack
  }
  if (lane.able.empty()) {
    if (lane.known.empty()) return;
    at_ns = std::max(at_ns, lane.known.front().first);
  }
  if (at_ns == lane.choice_ns) return;
  lane.choice_ns = at_ns;
  state_.Push({at_ns, r, static_cast<uint32_t>(rank.graph->order.size()) + q});
}

void GpuLanes::Choose(uint32_t r, uint32_t q, int64_t now_ns) {
  const std::vector<GpuTask>& gpu = state_.ranks[r].graph->gpu;
  LaneState& lane = state_.ranks[r].lanes[q];
  if (lane.choice_ns != now_ns) return;  // planned again
  lane.choice_ns = kNotRun;
  while (!lane.known.empty() && lane.known.front().first <= now_ns) {
    const uint32_t g = lane.known.front().second;
    std::pop_heap(lane.known.begin(), lane.known.end(), std::greater<>());
    lane.known.pop_back();
    lane.able.emplace_back(gpu[g].priority, g);
    std::push_heap(lane.able.begin(), lane.able.end(), std::greater<>());
  }
  const uint32_t g = lane.able.front().second;
  std::pop_heap(lane.able.begin(), lane.able.end(), std::greater<>());
  lane.able.pop_back();
  int64_t begin_ns = 0;
  uint32_t by = kNone;
  Ready(r, g, &begin_ns, &by);
  if (lane.running != kNone) Follow(r, g, lane.running, &begin_ns, &by);
  lane.running = g;
  if (Start(r, g, begin_ns, by)) PlanChoice(r, q);
}

void GpuLanes::End(uint32_t r, uint32_t g, int64_t end_ns) {
  RankState& rank = state_.ranks[r];
  LaneState& lane = rank.lanes[rank.graph->gpu[g].lane];
  rank.out->gpu_end_ns[g] = end_ns;
  lane.free_by = g;
  for (const uint32_t thread : TakeWaiters(g, &rank.threads_after_gpu)) {
    state_.Wake(r, thread, kNotRun);
  }
  for (const uint32_t task : TakeWaiters(g, &rank.prioritized_after_gpu)) {
    EnqueueByPriority(r, task);
  }
  for (const uint32_t q : TakeWaiters(g, &rank.lanes_after_gpu)) Advance(r, q);
}

// Continues a lane that waited.
void GpuLanes::Advance(uint32_t r, uint32_t q) {
  LaneState& lane = state_.ranks[r].lanes[q];
  if (state_.ranks[r].graph->lanes[q].by_priority) {
    PlanChoice(r, q);
    return;
  }
  // The end of one of its tasks may lead here again: the first caller goes on.
  if (std::exchange(lane.advancing, true)) return;
  const RankTimeline& out = *state_.ranks[r].out;
  for (; lane.next < lane.unresolved.size(); ++lane.next) {
    const uint32_t g = lane.unresolved[lane.next];
    if (out.gpu_end_ns[g] != kNotRun) continue;
    // A task that has started is a collective that other ranks have not reached.
    if (out.gpu_begin_ns[g] != kNotRun || !Resolve(r, g)) break;
  }
  lane.advancing = false;
  if (lane.next < lane.unresolved.size()) return;
  lane.unresolved.clear();
  lane.next = 0;
}

// The data move when all ranks are there. The rank that came last did not wait, so the shortest
// duration is the time of moving.
bool GpuLanes::Arrive(uint32_t r, uint32_t g, int64_t begin_ns) {
  const GpuTask& task = state_.ranks[r].graph->gpu[g];
  OpenCollective& collective = state_.collectives[task.collective];
  if (collective.tasks.empty() || begin_ns > collective.latest_ns) {
    collective.latest_ns = begin_ns;
    collective.latest_rank = r;
  }
  collective.tasks.emplace_back(r, g);
  if (collective.tasks.size() < state_.members[task.collective]) return false;
  int64_t move_ns = INT64_MAX;
  for (const auto& [rank, other] : collective.tasks) {
    move_ns = std::min(move_ns, state_.ranks[rank].graph->gpu[other].duration_ns);
  }
  const OpenCollective done = std::move(collective);
  state_.collectives.erase(task.collective);
  for (const auto& [rank, other] : done.tasks) {
    if (state_.options.causes && rank != done.latest_rank) {
      state_.ranks[rank].out->gpu_cause[other] = done.latest_rank;
      state_.ranks[rank].out->gpu_cause_kind[other] = Cause::kRank;
    }
    End(rank, other, done.latest_ns + move_ns);
  }
  for (const auto& [rank, other] : done.tasks) {
    if (rank != r || other != g) Advance(rank, state_.ranks[rank].graph->gpu[other].lane);
  }
  return true;
}

}  // namespace seqpoint::whatif
