// The iterations of a job, one by one, as the store has them.
//
// Threading: thread-safe, as snapshots are; the store may be used by others meanwhile.
#ifndef DAEMON_QUERIES_ITERATIONS_H_
#define DAEMON_QUERIES_ITERATIONS_H_

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/run_part.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// Finished iterations of each rank. A job whose state cannot be read has them in the store alone.
absl::StatusOr<std::map<int32_t, int64_t>> CountIterations(const jobs::SnapshotData& job,
                                                           Store& store);

// A page of the rows of one rank: the first that has any, where the request names none.
absl::StatusOr<v1::ListIterationsReply> ListIterations(const jobs::SnapshotData& job,
                                                       const v1::ListIterationsRequest& request,
                                                       Store& store);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_ITERATIONS_H_
