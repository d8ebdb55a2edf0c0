// RecordedRuns: the recorded runs of jobs, from the store; the one that was asked for last is kept.
//
// Threading: thread-safe. Ownership: keeps a pointer to the store, and a run of at most kKeptTasks.
#ifndef DAEMON_QUERIES_RECORDED_RUNS_H_
#define DAEMON_QUERIES_RECORDED_RUNS_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/recorded_run.h"
#include "daemon/store/store.h"

namespace seqpoint::queries {

class RecordedRuns {
 public:
  explicit RecordedRuns(Store* store) : store_(*store) {}

  // Errors: as ReadRecordedRun.
  absl::StatusOr<std::shared_ptr<const RecordedRun>> Read(const jobs::Snapshot& snapshot,
                                                          Cancelled cancelled);

 private:
  static constexpr int64_t kKeptTasks = 1'000'000;  // about 100 bytes each

  Store& store_;
  absl::Mutex mutex_;
  std::shared_ptr<const RecordedRun> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_RECORDED_RUNS_H_
