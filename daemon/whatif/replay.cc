#include "daemon/whatif/replay.h"

#include <algorithm>

#include "daemon/whatif/replay/cpu_threads.h"
#include "daemon/whatif/replay/gpu_lanes.h"
#include "daemon/whatif/replay/state.h"

namespace seqpoint::whatif {
namespace {

void Prepare(const Graph& graph, const ReplayOptions& options, RankTimeline* timeline,
             RankState* state) {
  RankState& rank = *state;
  rank.graph = &graph;
  rank.out = timeline;
  rank.lanes.resize(graph.lanes.size());
  rank.position.assign(graph.order.size(), 0);
  rank.waiting_ns.assign(graph.order.size(), kNotRun);
  rank.ready_ns.assign(graph.gpu.size(), kNotRun);
  rank.events.resize(graph.events);
  RankTimeline& out = *rank.out;
  out.cpu_begin_ns.assign(graph.cpu.size(), kNotRun);
  out.cpu_end_ns.assign(graph.cpu.size(), kNotRun);
  out.gpu_begin_ns.assign(graph.gpu.size(), kNotRun);
  out.gpu_end_ns.assign(graph.gpu.size(), kNotRun);
  if (!options.causes) return;
  out.cpu_cause.assign(graph.cpu.size(), kNone);
  out.gpu_cause.assign(graph.gpu.size(), kNone);
  out.cpu_cause_kind.assign(graph.cpu.size(), Cause::kStart);
  out.gpu_cause_kind.assign(graph.gpu.size(), Cause::kStart);
}

// A collective of which the job has one rank is treated as a kernel.
void CountCollectives(ReplayState* state) {
  if (state->ranks.size() < 2) return;
  for (const RankState& rank : state->ranks) {
    for (const GpuTask& task : rank.graph->gpu) {
      if (task.collective != kNone) ++state->members[task.collective];
    }
  }
}

void Finish(const ReplayState& state, Timeline* timeline) {
  for (const RankState& rank : state.ranks) {
    RankTimeline& out = *rank.out;
    for (const int64_t end_ns : out.cpu_end_ns) {
      timeline->not_run += end_ns == kNotRun ? 1 : 0;
      out.end_ns = std::max(out.end_ns, end_ns);
    }
    for (size_t i = 0; i < out.gpu_end_ns.size(); ++i) {
      const bool wanted = !IsRemoved(rank.graph->gpu[i]);
      timeline->not_run += out.gpu_end_ns[i] == kNotRun && wanted ? 1 : 0;
      out.end_ns = std::max(out.end_ns, out.gpu_end_ns[i]);
    }
  }
}

}  // namespace

Timeline Replay(absl::Span<const Graph* const> graphs, const ReplayOptions& options) {
  Timeline timeline;
  timeline.ranks.resize(graphs.size());
  ReplayState state(options);
  state.ranks.resize(graphs.size());
  for (size_t r = 0; r < graphs.size(); ++r) {
    Prepare(*graphs[r], options, &timeline.ranks[r], &state.ranks[r]);
  }
  CountCollectives(&state);
  GpuLanes lanes(&state);
  CpuThreads threads(&state, &lanes);
  for (uint32_t r = 0; r < graphs.size(); ++r) {
    const Graph& graph = *graphs[r];
    for (uint32_t t = 0; t < graph.gpu.size() && graph.gpu[t].before; ++t) {
      lanes.Enqueue(r, t, /*ready_ns=*/graph.gpu[t].latency_ns);
    }
    for (uint32_t thread = 0; thread < graph.order.size(); ++thread) {
      if (!graph.order[thread].empty()) state.Push({graph.thread_begin_ns[thread], r, thread});
    }
  }
  while (!state.heap.empty()) {
    std::pop_heap(state.heap.begin(), state.heap.end());
    const ReplayEvent event = state.heap.back();
    state.heap.pop_back();
    const auto count = static_cast<uint32_t>(graphs[event.rank]->order.size());
    if (event.thread < count) {
      threads.Run(event);
    } else {
      lanes.Choose(event.rank, event.thread - count, event.time_ns);
    }
  }
  Finish(state, &timeline);
  return timeline;
}

}  // namespace seqpoint::whatif
