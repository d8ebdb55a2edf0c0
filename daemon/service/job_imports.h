// Logs and traces of other tools become jobs that are over.
//
// Threading: thread-safe; they take the registry's lock, but not while they read and store the run.
// Ownership: none.
#ifndef DAEMON_SERVICE_JOB_IMPORTS_H_
#define DAEMON_SERVICE_JOB_IMPORTS_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/service/daemon_parts.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::service {

// Returned are the new jobs' ids; errors are those that proto/seqpoint/v1 specifies.
absl::StatusOr<int64_t> ImportLog(const DaemonParts& parts, const v1::ImportJobRequest& request)
    ABSL_LOCKS_EXCLUDED(parts.registry.mutex());

// `next` as in Backend::ImportTrace. `described`: the files, as they were understood.
absl::StatusOr<int64_t> ImportTraces(
    const DaemonParts& parts, absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next,
    std::vector<v1::ImportedTrace>* described) ABSL_LOCKS_EXCLUDED(parts.registry.mutex());

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_JOB_IMPORTS_H_
