#include "daemon/whatif/replay.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace seqpoint::whatif {
namespace {

// A thread that can go on, or a lane by priority that can choose.
struct Event {
  int64_t time_ns;
  uint32_t rank;
  uint32_t thread;                            // numbers behind the threads' are lanes
  bool operator<(const Event& other) const {  // for a heap with the earliest on top
    if (time_ns != other.time_ns) return time_ns > other.time_ns;
    if (rank != other.rank) return rank > other.rank;
    return thread > other.thread;
  }
};

// A collective that some ranks have started.
struct Collective {
  int64_t latest_ns = 0;
  uint32_t latest_rank = 0;
  std::vector<std::pair<uint32_t, uint32_t>> tasks;  // (rank, GPU task)
};

class Machine {
 public:
  Machine(absl::Span<const Graph* const> graphs, const ReplayOptions& options) : options_(options) {
    timeline_.ranks.resize(graphs.size());
    ranks_.resize(graphs.size());
    for (uint32_t r = 0; r < graphs.size(); ++r) Prepare(*graphs[r], r);
    CountCollectives();
  }

  Timeline Run() {
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      for (uint32_t t = 0; t < rank.graph->gpu.size(); ++t) {
        if (!rank.graph->gpu[t].before) break;
        Enlane(r, t, /*ready_ns=*/rank.graph->gpu[t].latency_ns);
      }
      for (uint32_t thread = 0; thread < rank.graph->order.size(); ++thread) {
        if (!rank.graph->order[thread].empty()) {
          Push({rank.graph->thread_begin_ns[thread], r, thread});
        }
      }
    }
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Event event = heap_.back();
      heap_.pop_back();
      const auto threads = static_cast<uint32_t>(ranks_[event.rank].graph->order.size());
      if (event.thread < threads) {
        RunThread(event);
      } else {
        Choose(event.rank, event.thread - threads, event.time_ns);
      }
    }
    Finish();
    return std::move(timeline_);
  }

 private:
  struct LaneState {
    uint32_t last = kNone;             // given
    uint32_t free_by = kNone;          // the last whose end is known
    std::vector<uint32_t> unresolved;  // in order; the first of them waits
    size_t next = 0;
    bool advancing = false;
    // A lane by priority: when it chooses next, the task that it chose last, the tasks that can
    // start by their times (a heap), and those that can start now by priority (a heap).
    int64_t choice_ns = kNotRun;
    uint32_t running = kNone;
    std::vector<std::pair<int64_t, uint32_t>> known;
    std::vector<std::pair<uint32_t, uint32_t>> able;
    std::vector<uint32_t> waits;  // tasks that the next launch has to follow
  };
  struct Rank {
    const Graph* graph = nullptr;
    RankTimeline* out = nullptr;
    std::vector<LaneState> lanes;
    std::vector<uint32_t> position;             // of each thread, in its order
    std::vector<int64_t> waiting_ns;            // since when a thread waits to be woken, or kNotRun
    std::vector<int64_t> ready_ns;              // of a GPU task: by its launch
    std::vector<std::vector<uint32_t>> events;  // GPU tasks that an event stands for
    // Lanes, tasks and threads that go on when a task is over.
    absl::flat_hash_map<uint32_t, std::vector<uint32_t>> lanes_after_gpu;
    absl::flat_hash_map<uint32_t, std::vector<uint32_t>> prioritized_after_gpu;
    absl::flat_hash_map<uint32_t, std::vector<uint32_t>> threads_after_gpu;
    absl::flat_hash_map<uint32_t, std::vector<uint32_t>> threads_after_cpu;
  };

  void Prepare(const Graph& graph, uint32_t r) {
    Rank& rank = ranks_[r];
    rank.graph = &graph;
    rank.out = &timeline_.ranks[r];
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
    if (!options_.causes) return;
    out.cpu_cause.assign(graph.cpu.size(), kNone);
    out.gpu_cause.assign(graph.gpu.size(), kNone);
    out.cpu_cause_kind.assign(graph.cpu.size(), Cause::kStart);
    out.gpu_cause_kind.assign(graph.gpu.size(), Cause::kStart);
  }

  // A collective of which the job has one rank is treated as a kernel.
  void CountCollectives() {
    if (ranks_.size() < 2) return;
    for (const Rank& rank : ranks_) {
      for (const GpuTask& task : rank.graph->gpu) {
        if (task.collective != kNone) ++members_[task.collective];
      }
    }
  }
  bool IsShared(const GpuTask& task) const {
    if (task.collective == kNone || members_.empty()) return false;
    const auto it = members_.find(task.collective);
    return it != members_.end() && it->second > 1;
  }

  void Push(const Event& event) {
    heap_.push_back(event);
    std::push_heap(heap_.begin(), heap_.end());
  }

  // Runs a thread until another one would be earlier.
  void RunThread(const Event& event) {
    Rank& rank = ranks_[event.rank];
    const Graph& graph = *rank.graph;
    RankTimeline& out = *rank.out;
    const std::vector<uint32_t>& order = graph.order[event.thread];
    int64_t now_ns = event.time_ns;
    uint32_t& position = rank.position[event.thread];
    while (position < order.size()) {
      if (!heap_.empty() && heap_.front().time_ns < now_ns) {
        Push({now_ns, event.rank, event.thread});
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
        if (after_ns >= now_ns) SetCpuCause(&out, t, Cause::kCpuTask, task.after);
        if (after_ns > now_ns) {
          now_ns = after_ns;
          // Other threads may be earlier now.
          if (!heap_.empty() && heap_.front().time_ns < now_ns) {
            Push({now_ns, event.rank, event.thread});
            return;
          }
        }
      }
      if (position > 0 && options_.causes && out.cpu_cause[t] == kNone) {
        SetCpuCause(&out, t, Cause::kCpuTask, order[position - 1]);
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
          SetCpuCause(&out, t, Cause::kGpuTask, last);
        }
      }
      out.cpu_end_ns[t] = now_ns = end_ns;
      ++position;
      if (!rank.threads_after_cpu.empty()) {
        if (const auto it = rank.threads_after_cpu.find(t); it != rank.threads_after_cpu.end()) {
          for (const uint32_t thread : it->second) Wake(event.rank, thread, end_ns);
          rank.threads_after_cpu.erase(it);
        }
      }
    }
  }

  // Applies the effects of a CPU task on the lanes at its start.
  void Begin(uint32_t r, const CpuTask& task, int64_t now_ns) {
    Rank& rank = ranks_[r];
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
      Enlane(r, g, now_ns + rank.graph->gpu[g].latency_ns);
    }
  }

  // Sets `last` to the last task that a call waits for. Returns one whose end is not known yet, or
  // kNone.
  uint32_t WaitedFor(const Rank& rank, const CpuTask& task, uint32_t* last) const {
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
      const auto open = std::find_if(
          lane.unresolved.begin() + static_cast<int64_t>(lane.next), lane.unresolved.end(),
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

  void Enlane(uint32_t r, uint32_t g, int64_t ready_ns) {
    Rank& rank = ranks_[r];
    const GpuTask& task = rank.graph->gpu[g];
    LaneState& lane = rank.lanes[task.lane];
    rank.ready_ns[g] = ready_ns;
    if (!lane.waits.empty()) {
      extra_[{r, g}] = std::move(lane.waits);
      lane.waits.clear();
    }
    lane.last = g;
    if (rank.graph->lanes[task.lane].by_priority) {
      lane.unresolved.push_back(g);
      EnlaneRanked(r, g);
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
  bool Ready(uint32_t r, uint32_t g, int64_t* begin_ns, uint32_t* by) {
    Rank& rank = ranks_[r];
    const Graph& graph = *rank.graph;
    const GpuTask& task = graph.gpu[g];
    const RankTimeline& out = *rank.out;
    *begin_ns = rank.ready_ns[g];
    const auto follow = [&](uint32_t other) { Follow(r, g, other, begin_ns, by); };
    for (uint32_t i = 0; i < task.dependency_count; ++i) {
      const uint32_t other = graph.dependencies[task.first_dependency + i];
      if (out.gpu_end_ns[other] == kNotRun) {
        if (rank.ready_ns[other] == kNotRun)
          continue;  // it comes later in this replay, so it takes no room
        Await(&rank, other, g);
        return false;
      }
      follow(other);
    }
    if (extra_.empty()) return true;
    if (const auto it = extra_.find({r, g}); it != extra_.end()) {
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
  static void Await(Rank* rank, uint32_t other, uint32_t g) {
    const uint32_t lane = rank->graph->gpu[g].lane;
    if (rank->graph->lanes[lane].by_priority) {
      rank->prioritized_after_gpu[other].push_back(g);
    } else {
      rank->lanes_after_gpu[other].push_back(lane);
    }
  }
  void Follow(uint32_t r, uint32_t g, uint32_t other, int64_t* begin_ns, uint32_t* by) const {
    const std::vector<GpuTask>& gpu = ranks_[r].graph->gpu;
    const bool same = gpu[other].lane == gpu[g].lane;
    const int64_t end_ns =
        ranks_[r].out->gpu_end_ns[other] + (same ? gpu[g].gap_ns : gpu[g].wait_gap_ns);
    if (end_ns <= *begin_ns) return;
    *begin_ns = end_ns;
    *by = other;
  }

  // Finds start and end of the first task of a lane for which they are not known. False: not
  // possible yet.
  bool Resolve(uint32_t r, uint32_t g) {
    int64_t begin_ns = 0;
    uint32_t by = kNone;
    if (!Ready(r, g, &begin_ns, &by)) return false;
    const LaneState& lane = ranks_[r].lanes[ranks_[r].graph->gpu[g].lane];
    if (lane.free_by != kNone) Follow(r, g, lane.free_by, &begin_ns, &by);
    return Start(r, g, begin_ns, by);
  }

  bool Start(uint32_t r, uint32_t g, int64_t begin_ns, uint32_t by) {
    RankTimeline& out = *ranks_[r].out;
    const GpuTask& task = ranks_[r].graph->gpu[g];
    if (!extra_.empty()) extra_.erase({r, g});
    out.gpu_begin_ns[g] = begin_ns;
    SetGpuCause(&out, g, task, by);
    if (IsShared(task)) return Arrive(r, g, begin_ns);
    End(r, g, begin_ns + task.duration_ns);
    return true;
  }

  // --- Lanes by priority --- A lane by priority chooses when it is free and a task can start.
  // Threads and other lanes have then reached that time, so no task that becomes known later could
  // have been chosen.

  void EnlaneRanked(uint32_t r, uint32_t g) {
    LaneState& lane = ranks_[r].lanes[ranks_[r].graph->gpu[g].lane];
    int64_t begin_ns = 0;
    uint32_t by = kNone;
    if (!Ready(r, g, &begin_ns, &by)) return;
    lane.known.emplace_back(begin_ns, g);
    std::push_heap(lane.known.begin(), lane.known.end(), std::greater<>());
    PlanChoice(r, ranks_[r].graph->gpu[g].lane);
  }

  void PlanChoice(uint32_t r, uint32_t q) {
    const Rank& rank = ranks_[r];
    LaneState& lane = ranks_[r].lanes[q];
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
    Push({at_ns, r, static_cast<uint32_t>(rank.graph->order.size()) + q});
  }

  void Choose(uint32_t r, uint32_t q, int64_t now_ns) {
    const std::vector<GpuTask>& gpu = ranks_[r].graph->gpu;
    LaneState& lane = ranks_[r].lanes[q];
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

  void End(uint32_t r, uint32_t g, int64_t end_ns) {
    Rank& rank = ranks_[r];
    LaneState& lane = rank.lanes[rank.graph->gpu[g].lane];
    rank.out->gpu_end_ns[g] = end_ns;
    lane.free_by = g;
    if (!rank.threads_after_gpu.empty()) {
      if (const auto it = rank.threads_after_gpu.find(g); it != rank.threads_after_gpu.end()) {
        for (const uint32_t thread : it->second) Wake(r, thread, kNotRun);
        rank.threads_after_gpu.erase(it);
      }
    }
    if (!rank.prioritized_after_gpu.empty()) {
      if (const auto it = rank.prioritized_after_gpu.find(g);
          it != rank.prioritized_after_gpu.end()) {
        const std::vector<uint32_t> tasks = std::move(it->second);
        rank.prioritized_after_gpu.erase(it);
        for (const uint32_t task : tasks) EnlaneRanked(r, task);
      }
    }
    if (!rank.lanes_after_gpu.empty()) {
      if (const auto it = rank.lanes_after_gpu.find(g); it != rank.lanes_after_gpu.end()) {
        const std::vector<uint32_t> lanes = std::move(it->second);
        rank.lanes_after_gpu.erase(it);
        for (const uint32_t q : lanes) Advance(r, q);
      }
    }
  }

  // Continues a lane that waited.
  void Advance(uint32_t r, uint32_t q) {
    LaneState& lane = ranks_[r].lanes[q];
    if (ranks_[r].graph->lanes[q].by_priority) {
      PlanChoice(r, q);
      return;
    }
    // The end of one of its tasks may lead here again: the first caller goes on.
    if (std::exchange(lane.advancing, true)) return;
    const RankTimeline& out = *ranks_[r].out;
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
  bool Arrive(uint32_t r, uint32_t g, int64_t begin_ns) {
    const GpuTask& task = ranks_[r].graph->gpu[g];
    Collective& collective = collectives_[task.collective];
    if (collective.tasks.empty() || begin_ns > collective.latest_ns) {
      collective.latest_ns = begin_ns;
      collective.latest_rank = r;
    }
    collective.tasks.emplace_back(r, g);
    if (collective.tasks.size() < members_[task.collective]) return false;
    int64_t move_ns = INT64_MAX;
    for (const auto& [rank, other] : collective.tasks) {
      move_ns = std::min(move_ns, ranks_[rank].graph->gpu[other].duration_ns);
    }
    const Collective done = std::move(collective);
    collectives_.erase(task.collective);
    for (const auto& [rank, other] : done.tasks) {
      if (options_.causes && rank != done.latest_rank) {
        ranks_[rank].out->gpu_cause[other] = done.latest_rank;
        ranks_[rank].out->gpu_cause_kind[other] = Cause::kRank;
      }
      End(rank, other, done.latest_ns + move_ns);
    }
    for (const auto& [rank, other] : done.tasks) {
      if (rank != r || other != g) Advance(rank, ranks_[rank].graph->gpu[other].lane);
    }
    return true;
  }

  // `time_ns`: the earliest time at which it goes on; kNotRun: where it stopped.
  void Wake(uint32_t r, uint32_t thread, int64_t time_ns) {
    const int64_t since_ns = std::exchange(ranks_[r].waiting_ns[thread], kNotRun);
    if (since_ns != kNotRun) Push({std::max(since_ns, time_ns), r, thread});
  }

  void SetCpuCause(RankTimeline* out, uint32_t task, Cause kind, uint32_t index) const {
    if (!options_.causes) return;
    out->cpu_cause[task] = index;
    out->cpu_cause_kind[task] = kind;
  }
  void SetGpuCause(RankTimeline* out, uint32_t g, const GpuTask& task, uint32_t by) const {
    if (!options_.causes) return;
    out->gpu_cause[g] = by != kNone ? by : task.call;
    out->gpu_cause_kind[g] = by != kNone          ? Cause::kGpuTask
                             : task.call != kNone ? Cause::kCpuTask
                                                  : Cause::kStart;
  }

  void Finish() {
    for (const Rank& rank : ranks_) {
      RankTimeline& out = *rank.out;
      for (const int64_t end_ns : out.cpu_end_ns) {
        timeline_.not_run += end_ns == kNotRun ? 1 : 0;
        out.end_ns = std::max(out.end_ns, end_ns);
      }
      for (size_t i = 0; i < out.gpu_end_ns.size(); ++i) {
        const bool wanted = !IsRemoved(rank.graph->gpu[i]);
        timeline_.not_run += out.gpu_end_ns[i] == kNotRun && wanted ? 1 : 0;
        out.end_ns = std::max(out.end_ns, out.gpu_end_ns[i]);
      }
    }
  }

  const ReplayOptions options_;
  Timeline timeline_;
  std::vector<Rank> ranks_;
  std::vector<Event> heap_;
  absl::flat_hash_map<uint32_t, uint32_t> members_;
  absl::flat_hash_map<uint32_t, Collective> collectives_;
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> extra_;
};

}  // namespace

Timeline Replay(absl::Span<const Graph* const> ranks, const ReplayOptions& options) {
  return Machine(ranks, options).Run();
}

}  // namespace seqpoint::whatif
