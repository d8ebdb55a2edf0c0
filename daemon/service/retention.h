// Retention: which jobs end although no process says so, and which ended ones leave the store.
//
// Threading: SetOptions() and options() from any thread; Prune() belongs to the ingest thread; the
// others say which lock they need. Ownership: keeps pointers to the store, the registry, the
// committer and the clock.
#ifndef DAEMON_SERVICE_RETENTION_H_
#define DAEMON_SERVICE_RETENTION_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "daemon/base/clock.h"
#include "daemon/service/committer.h"
#include "daemon/service/job_registry.h"
#include "daemon/store/store.h"

namespace seqpoint::service {

struct RetentionOptions {
  int64_t max_store_bytes = 4ll << 30;       // 0: no limit
  int64_t max_job_age_s = 30ll * 24 * 3600;  // after a job's end; 0: no limit
};

class Retention {
 public:
  Retention(const RetentionOptions& options, Store* store, JobRegistry* registry,
            Committer* committer, const Clock* clock)
      : options_(options),
        store_(*store),
        registry_(*registry),
        committer_(*committer),
        clock_(*clock),
        start_ns_(clock->MonotonicNs()) {}

  // From the next Prune() on.
  void SetOptions(const RetentionOptions& options) ABSL_LOCKS_EXCLUDED(registry_.mutex()) {
    absl::MutexLock lock(&registry_.mutex());
    options_ = options;
  }
  RetentionOptions options() const ABSL_LOCKS_EXCLUDED(registry_.mutex()) {
    absl::MutexLock lock(&registry_.mutex());
    return options_;
  }

  // Removes the oldest ended jobs beyond the limits. Right after a commit.
  void Prune() ABSL_LOCKS_EXCLUDED(registry_.mutex());
  // No ended job may be opened again while this is true.
  bool pruning() const ABSL_SHARED_LOCKS_REQUIRED(registry_.mutex()) { return pruning_; }
  // Returns when no pruning is under way.
  void AwaitPruned() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());

  // Jobs whose state cannot be read end with the last of their processes.
  void EndRefused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  // Prepared jobs that no process came for in a day end; one that comes later opens its job again.
  void EndForgotten() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());

 private:
  RetentionOptions options_ ABSL_GUARDED_BY(registry_.mutex());
  Store& store_;
  JobRegistry& registry_;
  const Committer& committer_;
  const Clock& clock_;
  const int64_t start_ns_;  // of the monotonic clock
  bool pruning_ ABSL_GUARDED_BY(registry_.mutex()) = false;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_RETENTION_H_
