// What-ifs that need all ranks: without the slow rank, with balanced lengths, with other buckets,
// another bandwidth, another number of ranks. Each but the second changes the graphs of a
// recording; the replay says how long the iteration takes then. What depends on which rank is the
// last one is told by the iterations of the whole run (rank_count.h).
//
//   absl::StatusOr<RankChange> change = ParseRankChange("without-slow-rank,rank=3");
//   std::vector<whatif::Graph> graphs = recorded.recording.graphs;
//   absl::StatusOr<RankEffect> effect = ApplyToRanks(*change, recorded, others, &graphs);
//   double after_ns = recorded.IterationNs(graphs);
//
// For the whole run, the share that each recorded iteration saves is projected as that of a change
// of one rank is (daemon/queries/changed_run.h).
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_RANKS_RANK_CHANGES_H_
#define DAEMON_RANKS_RANK_CHANGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/ranks/rank_recording.h"

namespace seqpoint::ranks {

enum class RankChangeKind : uint8_t {
  kWithoutSlowRank,  // value: the rank. Its kernels and its host take what those of its peers take
  kBalanceLengths,   // the same batches, dealt so that ranks have equal lengths: WithEqualLengths
  kBucketSize,       // value: bytes. All-reduces of gradients are cut anew
  kBandwidth,        // value: factor. Collectives move their bytes so many times as fast
  kRanks,            // value: number. Collectives of all ranks are of so many
};

struct RankChange {
  RankChangeKind kind = RankChangeKind::kWithoutSlowRank;
  double value = 0;
};
// "without-slow-rank,rank=3", "balance-lengths", "bucket-size,bytes=50MB", "bandwidth,factor=2",
// "ranks,count=16". InvalidArgument: none of these.
absl::StatusOr<RankChange> ParseRankChange(const std::string& text);

struct RankEffect {
  std::vector<std::string> assumptions;  // in words
  uint64_t tasks = 0;                    // that were changed, inserted or removed, on all ranks
};

// Changes `graphs`, which are copies of recorded.recording.graphs. `others`: recordings of other
// iterations of the same job, which tell how kernels depend on lengths and transfers on bytes.
// FailedPrecondition: the windows do not tell what the change needs, and what that is.
absl::StatusOr<RankEffect> ApplyToRanks(const RankChange& change, const RankRecording& recorded,
                                        absl::Span<const RankRecording* const> others,
                                        std::vector<whatif::Graph>* graphs);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_RANK_CHANGES_H_
