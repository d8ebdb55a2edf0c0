// Projects a metric onto a run: time, a counter, or a sum of counters.
//
// Threading: thread-safe, as snapshots are.
#ifndef DAEMON_QUERIES_PROJECT_H_
#define DAEMON_QUERIES_PROJECT_H_

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// InvalidArgument: the metric is not collected, with those that are. FailedPrecondition: nothing is
// known of it yet.
absl::StatusOr<v1::ProjectReply> Project(const jobs::Snapshot& snapshot,
                                         const v1::ProjectRequest& request);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_PROJECT_H_
