#include "daemon/whatif/replay.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace seqpoint::whatif {
namespace {

// A thread that can go on, or a queue by rank that can choose.
struct Event {
  int64_t time_ns;
  uint32_t rank;
  uint32_t thread;                            // behind the threads: queues
  bool operator<(const Event& other) const {  // for a heap with the earliest on top
    if (time_ns != other.time_ns) return time_ns > other.time_ns;
    if (rank != other.rank) return rank > other.rank;
    return thread > other.thread;
  }
};

// The ranks of a job: collectives that some have begun.
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
        Enqueue(r, t, /*ready_ns=*/rank.graph->gpu[t].latency_ns);
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
  struct QueueState {
    uint32_t last = kNone;             // given
    uint32_t free_by = kNone;          // the last whose end is known
    std::vector<uint32_t> unresolved;  // in order; the first of them waits
    size_t next = 0;
    bool advancing = false;
    // Of a queue by rank: when it chooses next, what it chose last, what can start when (a heap),
    // and what could by now, by rank (a heap).
    int64_t choice_ns = kNotRun;
    uint32_t running = kNone;
    std::vector<std::pair<int64_t, uint32_t>> known;
    std::vector<std::pair<uint32_t, uint32_t>> able;
    std::vector<uint32_t> waits;  // tasks that the next launch comes after
  };
  struct Rank {
    const Graph* graph = nullptr;
    RankTimeline* out = nullptr;
    std::vector<QueueState> queues;
    std::vector<uint32_t> position;             // of each thread, in its order
    std::vector<int64_t> waiting_ns;            // since when a thread waits to be woken; or kNotRun
    std::vector<int64_t> ready_ns;              // of a GPU task: by its launch
    std::vector<std::vector<uint32_t>> events;  // GPU tasks that an event stands for
    // Who goes on when a task is over.
    absl::flat_hash_map<uint32_t, std::vector<uint32_t>> queues_after_gpu;
    absl::flat_hash_map<uint32_t, std::vector<uint32_t>> ranked_after_gpu;
    absl::flat_hash_map<uint32_t, std::vector<uint32_t>> threads_after_gpu;
    absl::flat_hash_map<uint32_t, std::vector<uint32_t>> threads_after_cpu;
  };

  void Prepare(const Graph& graph, uint32_t r) {
    Rank& rank = ranks_[r];
    rank.graph = &graph;
    rank.out = &timeline_.ranks[r];
    rank.queues.resize(graph.queues.size());
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

  // A collective of which this job has one rank is a kernel like any other.
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
          // Others may be earlier now.
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
          // Its end comes from the GPU: who follows looks there.
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

  // What a CPU task does to the queues at its begin.
  void Begin(uint32_t r, const CpuTask& task, int64_t now_ns) {
    Rank& rank = ranks_[r];
    if (task.kind == CpuKind::kRecord) {
      // A stream without any work has no queue: the event stands for nothing.
      rank.events[task.event].assign(1, task.queue == kNone ? kNone : rank.queues[task.queue].last);
    } else if (task.kind == CpuKind::kStreamWait) {
      std::vector<uint32_t>& waits = rank.queues[task.queue].waits;
      if (task.event != kNone && !rank.events[task.event].empty()) {
        waits.push_back(rank.events[task.event][0]);
      } else if (task.source != kNone) {
        waits.push_back(rank.queues[task.source].last);
      }
    }
    for (uint32_t g = task.first_work; g != kNone; g = rank.graph->gpu[g].next) {
      Enqueue(r, g, now_ns + rank.graph->gpu[g].latency_ns);
    }
  }

  // The last task that a call waits for, in `last`; answers one whose end is not known yet.
  uint32_t WaitedFor(const Rank& rank, const CpuTask& task, uint32_t* last) const {
    const auto look = [&](uint32_t g) {
      if (g == kNone) return kNone;
      if (rank.out->gpu_end_ns[g] == kNotRun) return g;
      if (*last == kNone || rank.out->gpu_end_ns[g] > rank.out->gpu_end_ns[*last]) *last = g;
      return kNone;
    };
    // Of a queue by rank the last one given need not be the last one that runs.
    const auto look_at = [&](uint32_t q) {
      const QueueState& queue = rank.queues[q];
      if (!rank.graph->queues[q].by_rank) return look(queue.last);
      const auto open = std::find_if(
          queue.unresolved.begin() + static_cast<int64_t>(queue.next), queue.unresolved.end(),
          [&](uint32_t g) { return rank.out->gpu_end_ns[g] == kNotRun; });
      return look(open == queue.unresolved.end() ? queue.running : *open);
    };
    uint32_t unknown = kNone;
    switch (task.kind) {
      case CpuKind::kWaitStream:
        return look_at(task.queue);
      case CpuKind::kWaitEvent:
        if (rank.events[task.event].empty()) return look_at(task.queue);
        return look(rank.events[task.event][0]);
      case CpuKind::kWaitAll:
        for (uint32_t q = 0; q < rank.queues.size(); ++q) {
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

  void Enqueue(uint32_t r, uint32_t g, int64_t ready_ns) {
    Rank& rank = ranks_[r];
    const GpuTask& task = rank.graph->gpu[g];
    QueueState& queue = rank.queues[task.queue];
    rank.ready_ns[g] = ready_ns;
    if (!queue.waits.empty()) {
      extra_[{r, g}] = std::move(queue.waits);
      queue.waits.clear();
    }
    queue.last = g;
    if (rank.graph->queues[task.queue].by_rank) {
      queue.unresolved.push_back(g);
      EnqueueRanked(r, g);
      return;
    }
    if (queue.next < queue.unresolved.size()) {
      queue.unresolved.push_back(g);
    } else if (!Resolve(r, g)) {
      queue.unresolved.assign(1, g);
      queue.next = 0;
    }
  }

  // When a task can start for all but its queue, and what it comes after (kNone: its launch);
  // false: not known yet, and its queue goes on when it is.
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
        if (rank.ready_ns[other] == kNotRun) continue;  // comes later now: no room was taken
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
    const uint32_t queue = rank->graph->gpu[g].queue;
    if (rank->graph->queues[queue].by_rank) {
      rank->ranked_after_gpu[other].push_back(g);
    } else {
      rank->queues_after_gpu[other].push_back(queue);
    }
  }
  void Follow(uint32_t r, uint32_t g, uint32_t other, int64_t* begin_ns, uint32_t* by) const {
    const std::vector<GpuTask>& gpu = ranks_[r].graph->gpu;
    const bool same = gpu[other].queue == gpu[g].queue;
    const int64_t end_ns =
        ranks_[r].out->gpu_end_ns[other] + (same ? gpu[g].gap_ns : gpu[g].wait_gap_ns);
    if (end_ns <= *begin_ns) return;
    *begin_ns = end_ns;
    *by = other;
  }

  // Finds begin and end of the first task of a queue whose are not known; false: they cannot be
  // yet.
  bool Resolve(uint32_t r, uint32_t g) {
    int64_t begin_ns = 0;
    uint32_t by = kNone;
    if (!Ready(r, g, &begin_ns, &by)) return false;
    const QueueState& queue = ranks_[r].queues[ranks_[r].graph->gpu[g].queue];
    if (queue.free_by != kNone) Follow(r, g, queue.free_by, &begin_ns, &by);
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

  // --- Queues by rank ---
  // One chooses when it is free and something can start. Threads and other queues are then as far,
  // so nothing that becomes known later could have been chosen.

  void EnqueueRanked(uint32_t r, uint32_t g) {
    QueueState& queue = ranks_[r].queues[ranks_[r].graph->gpu[g].queue];
    int64_t begin_ns = 0;
    uint32_t by = kNone;
    if (!Ready(r, g, &begin_ns, &by)) return;
    queue.known.emplace_back(begin_ns, g);
    std::push_heap(queue.known.begin(), queue.known.end(), std::greater<>());
    PlanChoice(r, ranks_[r].graph->gpu[g].queue);
  }

  void PlanChoice(uint32_t r, uint32_t q) {
    const Rank& rank = ranks_[r];
    QueueState& queue = ranks_[r].queues[q];
    while (queue.next < queue.unresolved.size() &&
           rank.out->gpu_end_ns[queue.unresolved[queue.next]] != kNotRun) {
      ++queue.next;
    }
    int64_t at_ns = kNotRun;
    if (queue.running != kNone) {
      at_ns = rank.out->gpu_end_ns[queue.running];
      if (at_ns == kNotRun) return;  // a collective that others lack
    }
    if (queue.able.empty()) {
      if (queue.known.empty()) return;
      at_ns = std::max(at_ns, queue.known.front().first);
    }
    if (at_ns == queue.choice_ns) return;
    queue.choice_ns = at_ns;
    Push({at_ns, r, static_cast<uint32_t>(rank.graph->order.size()) + q});
  }

  void Choose(uint32_t r, uint32_t q, int64_t now_ns) {
    const std::vector<GpuTask>& gpu = ranks_[r].graph->gpu;
    QueueState& queue = ranks_[r].queues[q];
    if (queue.choice_ns != now_ns) return;  // planned anew
    queue.choice_ns = kNotRun;
    while (!queue.known.empty() && queue.known.front().first <= now_ns) {
      const uint32_t g = queue.known.front().second;
      std::pop_heap(queue.known.begin(), queue.known.end(), std::greater<>());
      queue.known.pop_back();
      queue.able.emplace_back(gpu[g].rank, g);
      std::push_heap(queue.able.begin(), queue.able.end(), std::greater<>());
    }
    const uint32_t g = queue.able.front().second;
    std::pop_heap(queue.able.begin(), queue.able.end(), std::greater<>());
    queue.able.pop_back();
    int64_t begin_ns = 0;
    uint32_t by = kNone;
    Ready(r, g, &begin_ns, &by);
    if (queue.running != kNone) Follow(r, g, queue.running, &begin_ns, &by);
    queue.running = g;
    if (Start(r, g, begin_ns, by)) PlanChoice(r, q);
  }

  void End(uint32_t r, uint32_t g, int64_t end_ns) {
    Rank& rank = ranks_[r];
    QueueState& queue = rank.queues[rank.graph->gpu[g].queue];
    rank.out->gpu_end_ns[g] = end_ns;
    queue.free_by = g;
    if (!rank.threads_after_gpu.empty()) {
      if (const auto it = rank.threads_after_gpu.find(g); it != rank.threads_after_gpu.end()) {
        for (const uint32_t thread : it->second) Wake(r, thread, kNotRun);
        rank.threads_after_gpu.erase(it);
      }
    }
    if (!rank.ranked_after_gpu.empty()) {
      if (const auto it = rank.ranked_after_gpu.find(g); it != rank.ranked_after_gpu.end()) {
        const std::vector<uint32_t> tasks = std::move(it->second);
        rank.ranked_after_gpu.erase(it);
        for (const uint32_t task : tasks) EnqueueRanked(r, task);
      }
    }
    if (!rank.queues_after_gpu.empty()) {
      if (const auto it = rank.queues_after_gpu.find(g); it != rank.queues_after_gpu.end()) {
        const std::vector<uint32_t> queues = std::move(it->second);
        rank.queues_after_gpu.erase(it);
        for (const uint32_t q : queues) Advance(r, q);
      }
    }
  }

  // Goes on with a queue that waited.
  void Advance(uint32_t r, uint32_t q) {
    QueueState& queue = ranks_[r].queues[q];
    if (ranks_[r].graph->queues[q].by_rank) {
      PlanChoice(r, q);
      return;
    }
    // The end of one of its tasks may lead here again: who began goes on.
    if (std::exchange(queue.advancing, true)) return;
    const RankTimeline& out = *ranks_[r].out;
    for (; queue.next < queue.unresolved.size(); ++queue.next) {
      const uint32_t g = queue.unresolved[queue.next];
      if (out.gpu_end_ns[g] != kNotRun) continue;
      // One that has begun is a collective that others lack.
      if (out.gpu_begin_ns[g] != kNotRun || !Resolve(r, g)) break;
    }
    queue.advancing = false;
    if (queue.next < queue.unresolved.size()) return;
    queue.unresolved.clear();
    queue.next = 0;
  }

  // The data move when all are there: the rank that came last had to wait for nobody, so the
  // shortest duration is what moving takes.
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
      if (rank != r || other != g) Advance(rank, ranks_[rank].graph->gpu[other].queue);
    }
    return true;
  }

  // `time_ns`: not before; kNotRun: where it stopped.
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
