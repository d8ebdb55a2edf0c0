// Descriptions of the daemon's jobs, one by one and as a list.
//
// Threading: thread-safe; they take the registry's lock. The expensive part of a description is
// computed without it. Ownership: none.
#ifndef DAEMON_SERVICE_JOB_DESCRIPTIONS_H_
#define DAEMON_SERVICE_JOB_DESCRIPTIONS_H_

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "daemon/service/daemon_parts.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::service {

enum class Detail { kList, kProcesses, kHistogram };  // each with those before it

// With a summary that is not too old. NotFound when the job was removed meanwhile. `also` is
// called with the job, under the lock under which it is described.
absl::StatusOr<v1::Job> Describe(const DaemonParts& parts, int64_t id, Detail detail,
                                 const std::function<void(jobs::Job&)>& also = {})
    ABSL_LOCKS_EXCLUDED(parts.registry.mutex());

// A page of the jobs that the request wants, the latest first.
absl::StatusOr<v1::ListJobsReply> List(const DaemonParts& parts, const v1::ListJobsRequest& request)
    ABSL_LOCKS_EXCLUDED(parts.registry.mutex());

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_JOB_DESCRIPTIONS_H_
