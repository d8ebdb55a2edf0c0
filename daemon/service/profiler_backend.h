// The Profiler service's calls on the jobs of this daemon. What changes a job is in job_changes.h
// and job_imports.h.
//
// Threading: the backend is thread-safe. Ownership: it keeps pointers to the parts of the daemon.
#ifndef DAEMON_SERVICE_PROFILER_BACKEND_H_
#define DAEMON_SERVICE_PROFILER_BACKEND_H_

#include <functional>
#include <memory>
#include <optional>

#include "daemon/service/backend.h"
#include "daemon/service/daemon_parts.h"

namespace seqpoint::service {

// `describe_daemon`: GetDaemon's reply but for jobs and the store's errors.
std::unique_ptr<Backend> MakeProfilerBackend(const DaemonParts& parts,
                                             std::function<v1::GetDaemonReply()> describe_daemon);

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_PROFILER_BACKEND_H_
