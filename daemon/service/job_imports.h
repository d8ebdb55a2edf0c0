// JobImports: logs and traces of other tools become jobs that are over.
//
// Threading: thread-safe; takes the registry's lock, but not while it reads and stores the run.
// Ownership: keeps pointers to the store, the registry, the retention and the clock.
#ifndef DAEMON_SERVICE_JOB_IMPORTS_H_
#define DAEMON_SERVICE_JOB_IMPORTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/jobs/imported_run.h"
#include "daemon/service/job_registry.h"
#include "daemon/service/retention.h"
#include "daemon/store/store.h"
#include "daemon/traces/stored_trace.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::service {

// Returned are the new jobs' ids; errors are those that proto/seqpoint/v1 specifies.
class JobImports {
 public:
  JobImports(const std::string& store_path, Store* store, JobRegistry* registry,
             Retention* retention, const Clock* clock)
      : store_path_(store_path),
        store_(*store),
        registry_(*registry),
        retention_(*retention),
        clock_(*clock) {}

  absl::StatusOr<int64_t> ImportLog(const v1::ImportJobRequest& request)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());

  struct ImportedTraces {
    int64_t job_id = 0;
    std::vector<v1::ImportedTrace> traces;
  };
  // `next` as in Backend::ImportTrace.
  absl::StatusOr<ImportedTraces> ImportTraces(
      absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());

 private:
  // A store that is full cannot even be emptied: what does not fit is not begun.
  absl::Status CheckRoom(uint64_t needed, const char* what) const;
  absl::StatusOr<int64_t> Add(JobRow row, const jobs::ImportedRun& run,
                              const std::vector<traces::RecordedTrace>& traces)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());

  const std::string store_path_;
  Store& store_;
  JobRegistry& registry_;
  Retention& retention_;
  const Clock& clock_;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_JOB_IMPORTS_H_
