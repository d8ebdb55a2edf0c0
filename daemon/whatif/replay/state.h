// The state of a replay, which its parts share.
//
// Threading: none. Ownership: refers to the graphs and the timeline, which outlive it.
#ifndef DAEMON_WHATIF_REPLAY_STATE_H_
#define DAEMON_WHATIF_REPLAY_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/whatif/graph.h"
#include "daemon/whatif/replay.h"

namespace seqpoint::whatif {

// A thread that can go on, or a lane by priority that can choose.
struct ReplayEvent {
  int64_t time_ns;
  uint32_t rank;
  uint32_t thread;                                  // numbers behind the threads' are lanes
  bool operator<(const ReplayEvent& other) const {  // for a heap with the earliest on top
    if (time_ns != other.time_ns) return time_ns > other.time_ns;
    if (rank != other.rank) return rank > other.rank;
    return thread > other.thread;
  }
};

// A collective that some ranks have started.
struct OpenCollective {
  int64_t latest_ns = 0;
  uint32_t latest_rank = 0;
  std::vector<std::pair<uint32_t, uint32_t>> tasks;  // (rank, GPU task)
};

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

// Those that wait for a task, by the task.
using Waiters = absl::flat_hash_map<uint32_t, std::vector<uint32_t>>;

// Removes those that wait for a task, and answers them.
inline std::vector<uint32_t> TakeWaiters(uint32_t task, Waiters* waiters) {
  if (waiters->empty()) return {};
  auto taken = waiters->extract(task);
  return taken ? std::move(taken.mapped()) : std::vector<uint32_t>();
}

struct RankState {
  const Graph* graph = nullptr;
  RankTimeline* out = nullptr;
  std::vector<LaneState> lanes;
  std::vector<uint32_t> position;             // of each thread, in its order
  std::vector<int64_t> waiting_ns;            // since when a thread waits to be woken, or kNotRun
  std::vector<int64_t> ready_ns;              // of a GPU task: by its launch
  std::vector<std::vector<uint32_t>> events;  // GPU tasks that an event stands for
  // Lanes, tasks and threads that go on when a task is over.
  Waiters lanes_after_gpu, prioritized_after_gpu, threads_after_gpu, threads_after_cpu;
};

struct ReplayState {
  explicit ReplayState(const ReplayOptions& of) : options(of) {}

  bool IsShared(const GpuTask& task) const {
    if (task.collective == kNone || members.empty()) return false;
    const auto it = members.find(task.collective);
    return it != members.end() && it->second > 1;
  }

  void Push(const ReplayEvent& event) {
    heap.push_back(event);
    std::push_heap(heap.begin(), heap.end());
  }

  // `time_ns`: the earliest time at which it goes on; kNotRun: where it stopped.
  void Wake(uint32_t r, uint32_t thread, int64_t time_ns) {
    const int64_t since_ns = std::exchange(ranks[r].waiting_ns[thread], kNotRun);
    if (since_ns != kNotRun) Push({std::max(since_ns, time_ns), r, thread});
  }

  void SetCpuCause(RankTimeline* out, uint32_t task, Cause kind, uint32_t index) const {
    if (!options.causes) return;
    out->cpu_cause[task] = index;
    out->cpu_cause_kind[task] = kind;
  }
  void SetGpuCause(RankTimeline* out, uint32_t g, const GpuTask& task, uint32_t by) const {
    if (!options.causes) return;
    out->gpu_cause[g] = by != kNone ? by : task.call;
    out->gpu_cause_kind[g] = by != kNone          ? Cause::kGpuTask
                             : task.call != kNone ? Cause::kCpuTask
                                                  : Cause::kStart;
  }

  const ReplayOptions options;
  std::vector<RankState> ranks;
  std::vector<ReplayEvent> heap;                    // the earliest event on top
  absl::flat_hash_map<uint32_t, uint32_t> members;  // tasks of a collective, on all ranks
  absl::flat_hash_map<uint32_t, OpenCollective> collectives;
  // By rank and GPU task: the tasks that stream waits before its launch make it follow.
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> extra;
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_REPLAY_STATE_H_
