// Committer: writes what the jobs hand out into the store, together with the cursors of the rings
// that it comes from. Only then is ring space released.
//
//   ingest thread:  if (auto stored = committer.Commit({connections.Cursors()})) release(*stored);
//   any thread:     committer.AwaitStored(job_id);
//
// Where the disk is full, traces are dropped and counted. A batch that the store cannot take
// without them either is kept and tried again. No ring is read meanwhile: rings fill, drop and
// count, and nothing else that was there is lost.
//
// Threading: Commit() and failed() belong to the ingest thread; the others say which lock they
// need. Ownership: the batch on its way. Keeps pointers to the store, the registry and the clock.
#ifndef DAEMON_SERVICE_COMMITTER_H_
#define DAEMON_SERVICE_COMMITTER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "daemon/base/change_signal.h"
#include "daemon/base/clock.h"
#include "daemon/ingest/cursor.h"
#include "daemon/service/job_registry.h"
#include "daemon/service/node_reports.h"
#include "daemon/service/outbox.h"
#include "daemon/store/store.h"

namespace seqpoint::service {

// How far a ring was read.
struct RingCursor {
  ingest::Cursor cursor;
  bool ended = false;  // it is drained, and its process is gone
};

// How far everything was read.
struct ReadSoFar {
  std::vector<RingCursor> rings;
  std::vector<NodeCursor> nodes;
};

class Committer {
 public:
  // `outbox`: of a node that has a hub; else null.
  Committer(Store* store, JobRegistry* registry, Outbox* outbox, const Clock* clock)
      : store_(*store),
        registry_(*registry),
        outbox_(outbox),
        clock_(*clock),
        last_commit_ns_(clock->MonotonicNs()) {}

  // Returns the cursors that are in the store now: `read`, or those of an earlier call whose batch
  // could not be written then. Nothing: the store could not take the batch.
  std::optional<ReadSoFar> Commit(ReadSoFar read) ABSL_LOCKS_EXCLUDED(registry_.mutex());
  // The last batch is not in the store.
  bool failed() const { return failed_; }

  // No batch is on its way.
  bool settled() const ABSL_SHARED_LOCKS_REQUIRED(registry_.mutex()) {
    return commits_done_ == commits_begun_;
  }
  // Why the store cannot be written now; empty when it can.
  const std::string& error() const ABSL_SHARED_LOCKS_REQUIRED(registry_.mutex()) { return error_; }

  // Since the last batch that the store took; an empty one counts.
  absl::Duration since_last_commit() const ABSL_SHARED_LOCKS_REQUIRED(registry_.mutex()) {
    return absl::Nanoseconds(clock_.MonotonicNs() - last_commit_ns_);
  }

  // False: everything that is known now was not in the store within `timeout`.
  bool AwaitNext(absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  // Waits until everything that is known of the job is in the store. Unavailable when it was not
  // after a second: an answer from the store then lacks what came last, and the message says so.
  absl::Status AwaitStored(int64_t job_id) ABSL_LOCKS_EXCLUDED(registry_.mutex());
  // Looks at `condition`, which is asked with the lock, after each commit; there is one a second at
  // least. False after `timeout`.
  template <typename Condition>
  bool Await(absl::Duration timeout, Condition condition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex()) {
    return committed_.Await(registry_.mutex(), timeout, condition);
  }

 private:
  // Writes the batch, or what is left of it without traces where the disk is full.
  absl::Status Write() ABSL_LOCKS_EXCLUDED(registry_.mutex());
  // Has the jobs say what the store set aside of them.
  void TellDamage() ABSL_LOCKS_EXCLUDED(registry_.mutex());
  void SetError(std::string message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());

  Store& store_;
  JobRegistry& registry_;
  Outbox* const outbox_;
  const Clock& clock_;
  ChangeSignal committed_;

  std::string error_ ABSL_GUARDED_BY(registry_.mutex());
  int64_t commits_begun_ ABSL_GUARDED_BY(registry_.mutex()) = 0;
  int64_t commits_done_ ABSL_GUARDED_BY(registry_.mutex()) = 0;
  // The last that succeeded, of the monotonic clock.
  int64_t last_commit_ns_ ABSL_GUARDED_BY(registry_.mutex());

  // These belong to the ingest thread.
  WriteBatch batch_;
  ReadSoFar batch_read_;
  bool failed_ = false;
  bool drops_traces_ = false;       // the last batch that had any
  std::set<int64_t> damaged_jobs_;  // that have not said so
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_COMMITTER_H_
