// JobRegistry: the jobs of this daemon, by id, name and run. Jobs that run are in memory, and so
// are the ended ones that were asked for last. The others are loaded when they are asked for.
//
//   absl::MutexLock lock(&registry.mutex());
//   const absl::StatusOr<SharedJob> job = registry.Find("bert@2");
//
// Threading: thread-safe. mutex() guards the registry and every job in it.
// Ownership: jobs are shared. One that was evicted or removed stays valid for those who hold it,
// but it is not the daemon's any more: after the lock was released, find it again by its id. Keeps
// pointers to the store and the clock.
#ifndef DAEMON_SERVICE_JOB_REGISTRY_H_
#define DAEMON_SERVICE_JOB_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/clock.h"
#include "daemon/jobs/job.h"
#include "daemon/store/store.h"

namespace seqpoint::service {

using SharedJob = std::shared_ptr<jobs::Job>;

// "job 7 (bert@2)"
std::string Title(const JobRow& row);

// The job of the row, with what the store has of it. A state that cannot be read is logged, and
// Job::refused() says why. Errors: as the store's.
absl::StatusOr<SharedJob> ReadStoredJob(Store& store, const JobRow& row,
                                        const jobs::JobOptions& options);

class JobRegistry {
 public:
  static constexpr size_t kEndedJobsKept = 8;  // in memory

  // A job that ended and is not in memory.
  struct StoredJob {
    JobRow row;
    int64_t generation = 1;  // it goes on from there
  };

  JobRegistry(Store* store, const jobs::JobOptions& options, const Clock* clock)
      : store_(*store), options_(options), clock_(*clock) {}

  absl::Mutex& mutex() const ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  const jobs::JobOptions& job_options() const { return options_; }

  // Takes over every job of the store. Errors: as the store's.
  absl::Status Recover() ABSL_LOCKS_EXCLUDED(mutex_);

  // The latest job with this id, name or NAME@RUN_ID; an id wins over a name that looks like one.
  absl::StatusOr<SharedJob> Find(std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<SharedJob> Find(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null when there is none. Both may hold an "@". AlreadyExists while it is being imported.
  absl::StatusOr<SharedJob> FindRun(std::string_view name, std::string_view run_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same; a row without a run id gets a new one. InvalidArgument for a name that no job can
  // have.
  absl::StatusOr<SharedJob> FindOrName(JobRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A new job; it gets an id.
  SharedJob Add(JobRow row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It was removed from the store.
  void Remove(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // An import takes its name and run id, and gets a job id, before it is stored: nobody sees the
  // job yet. AlreadyExists when there is one.
  absl::Status BeginImport(JobRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `job`: null when the import failed.
  void EndImport(const JobRow& row, SharedJob job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Name and run id of imports, and their job ids.
  const std::map<std::pair<std::string, std::string>, int64_t>& importing() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return importing_;
  }

  // A ring is read for the job; it stays in memory meanwhile.
  void Connect(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { connected_.insert(id); }
  void Disconnect(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    connected_.erase(connected_.find(id));
  }
  // It ended, everything of it was given to the store, and no ring is read for it.
  bool Over(const jobs::Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All but the last kEndedJobsKept of those leave memory.
  void EvictIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::map<int64_t, SharedJob>& loaded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return loaded_;
  }
  const std::map<int64_t, StoredJob>& stored() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stored_;
  }
  // Null when there is no such job.
  const JobRow* RowOf(int64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  absl::StatusOr<SharedJob> Load(const JobRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A loaded job, which is asked for now.
  SharedJob Use(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store& store_;
  const jobs::JobOptions options_;
  const Clock& clock_;

  mutable absl::Mutex mutex_;
  std::map<int64_t, SharedJob> loaded_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, StoredJob> stored_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, int64_t> last_use_ ABSL_GUARDED_BY(mutex_);  // of loaded jobs, by id
  int64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  std::multiset<int64_t> connected_ ABSL_GUARDED_BY(mutex_);  // job ids, one a ring
  std::map<std::pair<std::string, std::string>, int64_t> importing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_JOB_REGISTRY_H_
