// A replay of a dependency graph: when each task starts and ends on the machine that the graph
// describes.
//
// CPU threads run their tasks in order. A launch puts its work at the end of a lane, where the work
// starts when the work before it, and all that it depends on, is over. When a call is reached, the
// lanes' contents at that time decide which work it waits for. Several graphs are the ranks of one
// job: a collective starts to move data when its last rank has arrived, and ends on all of them at
// the same time.
//
//   Timeline timeline = Replay({&graph});
//   timeline.ranks[0].gpu_begin_ns[i]
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_REPLAY_H_
#define DAEMON_WHATIF_REPLAY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

// The cause of a task's start.
enum class Cause : uint8_t {
  kStart,    // of the trace
  kCpuTask,  // index of a CPU task: the one before on its thread, a cross-thread dependency, or the
             // launch
  kGpuTask,  // index of a GPU task
  kRank,     // another rank's arrival at the collective; index: the rank
};

struct RankTimeline {
  // By task, nanoseconds from the trace's start. kNotRun: never reached (a task that waits for a
  // collective in which a rank does not take part).
  std::vector<int64_t> cpu_begin_ns, cpu_end_ns, gpu_begin_ns, gpu_end_ns;
  std::vector<uint32_t> cpu_cause, gpu_cause;  // index, see Cause
  std::vector<Cause> cpu_cause_kind, gpu_cause_kind;
  int64_t end_ns = 0;  // of the last task
};
inline constexpr int64_t kNotRun = INT64_MIN;

struct Timeline {
  std::vector<RankTimeline> ranks;
  uint64_t not_run = 0;  // tasks
};

struct ReplayOptions {
  bool causes = false;  // fill in the causes
};

Timeline Replay(absl::Span<const Graph* const> ranks, const ReplayOptions& options = {});

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_REPLAY_H_
