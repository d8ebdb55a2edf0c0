// What-ifs that need all ranks of a job: the iterations that they traced together are replayed as
// they were and changed, and the share of their time that the change saves is projected onto the
// run.
//
// Threading: thread-safe, as snapshots are; seconds, and the memory of all windows.
#ifndef DAEMON_QUERIES_RANK_WHAT_IF_H_
#define DAEMON_QUERIES_RANK_WHAT_IF_H_

#include <vector>

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/recorded_run.h"
#include "daemon/ranks/rank_changes.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/whatif.pb.h"

namespace seqpoint::queries {

// All changes of the request, where each is one of all ranks; empty: none is. InvalidArgument:
// such changes together with others.
absl::StatusOr<std::vector<ranks::RankChange>> ParseRankChanges(const v1::WhatIfRequest& request);

// All changes together. FailedPrecondition: no iteration was traced by all ranks, or the traces do
// not tell what a change needs. Cancelled when `cancelled` says so.
absl::StatusOr<v1::WhatIfReply> RankWhatIf(const jobs::Snapshot& snapshot, Store& store,
                                           const std::vector<ranks::RankChange>& changes,
                                           const v1::WhatIfRequest& request, Cancelled cancelled);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_RANK_WHAT_IF_H_
