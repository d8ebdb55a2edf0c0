// SnapshotCache: what was made of a job to answer questions, for as long as it holds.
//
//   snapshot  of what the job knows, shared by all who ask until something changes
//   summary   the expensive part of a description; it is made again when the job has grown by a
//             256th, when it ended, or when figures do not hold any more
//
// Threading: one thread at a time. Ownership: keeps the snapshot and the summary; `changes`
// outlives it.
#ifndef DAEMON_JOBS_SNAPSHOT_CACHE_H_
#define DAEMON_JOBS_SNAPSHOT_CACHE_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "daemon/jobs/change_tracker.h"
#include "daemon/jobs/snapshot.h"

namespace seqpoint::jobs {

class SnapshotCache {
 public:
  using Collect = absl::FunctionRef<SnapshotData()>;

  explicit SnapshotCache(const ChangeTracker& changes) : changes_(changes) {}

  std::shared_ptr<const Snapshot> Take(Collect collect);

  // The snapshot of which somebody else makes the summary, without the daemon's lock; null when
  // none is due, or one is under way.
  std::shared_ptr<const Snapshot> TakeDue(uint64_t iterations, bool live, Collect collect);
  void Set(const Summary& summary);

  // While one is under way a live job has the one before.
  const Summary& Recent(uint64_t iterations, bool live, Collect collect);

 private:
  bool Due(uint64_t iterations, bool live) const;
  bool holds() const { return summary_figures_ == changes_.figures(); }

  const ChangeTracker& changes_;
  std::shared_ptr<const Snapshot> snapshot_;
  int64_t knowledge_ = 0;  // ChangeTracker::knowledge() then
  Summary summary_;
  int64_t summary_figures_ = 0;  // ChangeTracker::figures() then; 0: there is no summary
  bool under_way_ = false;
  int64_t under_way_figures_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_SNAPSHOT_CACHE_H_
