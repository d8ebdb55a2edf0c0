// Changes of a job as a whole by a person: prepare, change, end and delete it.
//
// Threading: thread-safe; each takes the registry's lock. Ownership: none.
#ifndef DAEMON_SERVICE_JOB_CHANGES_H_
#define DAEMON_SERVICE_JOB_CHANGES_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "daemon/service/daemon_parts.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::service {

// The changed jobs' ids are returned, once the store has the change, or after a second where it
// cannot be written; errors are those that proto/seqpoint/v1 specifies.

// A refused request leaves nothing behind.
absl::StatusOr<int64_t> Prepare(const DaemonParts& parts, const v1::PrepareJobRequest& request)
    ABSL_LOCKS_EXCLUDED(parts.registry.mutex());
absl::StatusOr<int64_t> ChangeHorizon(const DaemonParts& parts,
                                      const v1::SetHorizonRequest& request)
    ABSL_LOCKS_EXCLUDED(parts.registry.mutex());
absl::StatusOr<int64_t> ControlJob(const DaemonParts& parts, const v1::ControlRequest& request)
    ABSL_LOCKS_EXCLUDED(parts.registry.mutex());
// Names and tags. Returns once the store has them. Unavailable: nothing was changed.
absl::StatusOr<int64_t> Update(const DaemonParts& parts, const v1::UpdateJobRequest& request)
    ABSL_LOCKS_EXCLUDED(parts.registry.mutex());
absl::StatusOr<v1::DeleteJobReply> Delete(const DaemonParts& parts,
                                          const v1::DeleteJobRequest& request)
    ABSL_LOCKS_EXCLUDED(parts.registry.mutex());

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_JOB_CHANGES_H_
