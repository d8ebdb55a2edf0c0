// What-ifs that need all ranks: without the slow rank, with balanced lengths, with other buckets,
// another bandwidth, another number of ranks. Each changes the graphs of a recording; the replay
// says what the iteration takes then.
//
//   absl::StatusOr<RankChange> change = ParseRankChange("without-slow-rank,rank=3");
//   std::vector<whatif::Graph> graphs = recorded.recording.graphs;
//   absl::StatusOr<RankEffect> effect = ApplyToRanks(*change, recorded, laws, &graphs);
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_RANKS_RANK_CHANGES_H_
#define DAEMON_RANKS_RANK_CHANGES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/ranks/rank_recording.h"
#include "daemon/ranks/transfer_law.h"

namespace seqpoint::ranks {

enum class RankChangeKind : uint8_t {
  kWithoutSlowRank,  // value: the rank
  kBalanceLengths,
  kBucketSize,  // value: bytes
  kBandwidth,   // value: factor
  kRanks,       // value: number of ranks
};

struct RankChange {
  RankChangeKind kind = RankChangeKind::kWithoutSlowRank;
  double value = 0;
};
// "without-slow-rank,rank=3", "balance-lengths", "bucket-size,bytes=50MB", "bandwidth,factor=2",
// "ranks,count=16". InvalidArgument: none of these.
absl::StatusOr<RankChange> ParseRankChange(std::string_view text);

struct RankEffect {
  std::vector<std::string> assumptions;  // in words
  uint64_t tasks = 0;                    // changed, inserted or removed
};

// Changes `graphs`, which are copies of recorded.recording.graphs. `others`: recordings of other
// iterations of the same job, which tell how kernels depend on lengths; may be empty.
// FailedPrecondition: the windows do not tell what the change needs, and what that is.
absl::StatusOr<RankEffect> ApplyToRanks(const RankChange& change, const RankRecording& recorded,
                                        absl::Span<const RankRecording> others,
                                        const TransferLaws& laws,
                                        std::vector<whatif::Graph>* graphs);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_RANK_CHANGES_H_
