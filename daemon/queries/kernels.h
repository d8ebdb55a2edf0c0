// The kernels of a run by the time that they take, projected from the iterations that were traced.
//
// Threading: thread-safe, as snapshots are.
#ifndef DAEMON_QUERIES_KERNELS_H_
#define DAEMON_QUERIES_KERNELS_H_

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// FailedPrecondition while no iteration was traced.
absl::StatusOr<v1::GetKernelsReply> GetKernels(const jobs::Snapshot& snapshot,
                                               const v1::GetKernelsRequest& request);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_KERNELS_H_
