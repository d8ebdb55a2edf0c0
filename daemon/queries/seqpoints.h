// The lengths that stand for all iterations of a run, and how often each of them was measured.
//
// Threading: thread-safe, as snapshots are.
#ifndef DAEMON_QUERIES_SEQPOINTS_H_
#define DAEMON_QUERIES_SEQPOINTS_H_

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// FailedPrecondition while there is no iteration.
absl::StatusOr<v1::GetSeqPointsReply> GetSeqPoints(const jobs::Snapshot& snapshot);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_SEQPOINTS_H_
