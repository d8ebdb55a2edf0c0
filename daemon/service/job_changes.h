// JobChanges: what a person does to a job as a whole: prepare, change, end and delete it.
//
// Threading: thread-safe; takes the registry's lock.
// Ownership: keeps pointers to the store, the registry, the committer, the retention and the clock.
#ifndef DAEMON_SERVICE_JOB_CHANGES_H_
#define DAEMON_SERVICE_JOB_CHANGES_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/service/committer.h"
#include "daemon/service/job_registry.h"
#include "daemon/service/retention.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::service {

// The changed jobs' ids are returned; errors are those that proto/seqpoint/v1 specifies.
class JobChanges {
 public:
  JobChanges(Store* store, JobRegistry* registry, Committer* committer, Retention* retention,
             const Clock* clock)
      : store_(*store),
        registry_(*registry),
        committer_(*committer),
        retention_(*retention),
        clock_(*clock) {}

  // A refused request leaves nothing behind.
  absl::StatusOr<int64_t> Prepare(const v1::PrepareJobRequest& request)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());
  absl::StatusOr<int64_t> SetHorizon(const v1::SetHorizonRequest& request)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());
  absl::StatusOr<int64_t> Control(const v1::ControlRequest& request)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());
  // Names and tags. Returns once the store has them. Unavailable: nothing was changed.
  absl::StatusOr<int64_t> Update(const v1::UpdateJobRequest& request)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());
  absl::StatusOr<v1::DeleteJobReply> Delete(const v1::DeleteJobRequest& request)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());

 private:
  struct Tags {
    std::set<std::string> wanted, added, removed;
  };

  absl::Status StoreCannotWrite() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  // The job is again what it was. `former_name`: empty where it was not renamed.
  absl::Status UndoUpdate(int64_t id, const std::string& former_name, const Tags& tags)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());

  Store& store_;
  JobRegistry& registry_;
  Committer& committer_;
  Retention& retention_;
  const Clock& clock_;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_JOB_CHANGES_H_
