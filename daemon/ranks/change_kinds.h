// The changes of rank_changes.h that have a file of their own.
//
// Threading: free functions. Ownership: the graphs are the caller's.
#ifndef DAEMON_RANKS_CHANGE_KINDS_H_
#define DAEMON_RANKS_CHANGE_KINDS_H_

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
absl::StatusOr<RankEffect> BalanceLengths(Recordings recordings,
                                          std::vector<whatif::Graph>* graphs);
absl::StatusOr<RankEffect> SetBucketSize(double bytes, const RankRecording& recorded,
                                         const TransferLaws& laws,
                                         std::vector<whatif::Graph>* graphs);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_CHANGE_KINDS_H_
