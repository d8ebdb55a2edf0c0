// The kernels of a job that were measured by themselves, on the roofline of its GPU.
//
// Threading: pure functions.
#ifndef DAEMON_QUERIES_ROOFLINE_H_
#define DAEMON_QUERIES_ROOFLINE_H_

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// FailedPrecondition: it was not asked for, or nothing was measured yet, and why.
absl::StatusOr<v1::GetRooflineReply> GetRoofline(const jobs::SnapshotData& job,
                                                 const v1::GetRooflineRequest& request);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_ROOFLINE_H_
