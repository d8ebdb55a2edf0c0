// Hardware counters of a run, projected from the iterations that were measured.
//
// Threading: thread-safe, as snapshots are; the store may be used by others meanwhile.
#ifndef DAEMON_QUERIES_COUNTERS_H_
#define DAEMON_QUERIES_COUNTERS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/run_part.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// InvalidArgument: a metric that is not collected. FailedPrecondition: nothing can be measured.
absl::StatusOr<v1::GetCountersReply> GetCounters(const jobs::Snapshot& snapshot,
                                                 const v1::GetCountersRequest& request);

// Adds the latest measured iterations of the range, and what measuring did to their time.
absl::Status AddMeasuredIterations(const jobs::Snapshot& snapshot, const IterationRange& range,
                                   Store& store, v1::GetCountersReply* reply);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_COUNTERS_H_
