// The changes of rank_changes.h that have a file of their own.
//
// Threading: free functions. Ownership: the graphs are the caller's.
#ifndef DAEMON_RANKS_CHANGE_KINDS_H_
#define DAEMON_RANKS_CHANGE_KINDS_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/ranks/rank_changes.h"
#include "daemon/ranks/transfer_law.h"

namespace seqpoint::ranks {

// `recordings`: the changed one first, then others of the job.
using Recordings = absl::Span<const RankRecording* const>;

absl::StatusOr<RankEffect> WithoutSlowRank(int32_t rank, Recordings recordings,
                                           std::vector<whatif::Graph>* graphs);
absl::StatusOr<RankEffect> SetBucketSize(double bytes, const RankRecording& recorded,
                                         const TransferLaws& laws,
                                         std::vector<whatif::Graph>* graphs);

absl::StatusOr<RankEffect> SetRanks(size_t count, Recordings recordings, const TransferLaws& laws,
                                    std::vector<whatif::Graph>* graphs);

// The GPU tasks of collectives of a rank in one turn, by collective; kNone: not of this rank.
std::vector<uint32_t> TasksOf(const RankRecording& recorded, const whatif::Graph& graph,
                              uint32_t turn);
// Whether another lane is made to wait for the GPU task `g` between its launch and that of `next`.
bool IsWaitedFor(const whatif::Graph& graph, uint32_t g, uint32_t next);

// Sets the transfers of all collectives. `after_ns`: of a collective, nanoseconds; below 0: as it
// was.
template <typename After>
uint64_t SetTransfers(const RankRecording& recorded, const After& after_ns,
                      std::vector<whatif::Graph>* graphs) {
  std::vector<double> transfers_ns;
  for (const JoinedCollective& collective : recorded.collectives) {
    transfers_ns.push_back(after_ns(collective));
  }
  uint64_t tasks = 0;
  for (whatif::Graph& graph : *graphs) {
    for (whatif::GpuTask& task : graph.gpu) {
      if (task.collective == whatif::kNone) continue;
      const double ns = transfers_ns[recorded.CollectiveOf(task.collective)];
      if (ns < 0) continue;
      task.duration_ns = std::llround(ns);
      ++tasks;
    }
  }
  return tasks;
}

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_CHANGE_KINDS_H_
