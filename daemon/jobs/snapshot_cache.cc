#include "daemon/jobs/snapshot_cache.h"

namespace seqpoint::jobs {

std::shared_ptr<const Snapshot> SnapshotCache::Take(Collect collect) {
  if (!snapshot_ || knowledge_ != changes_.knowledge()) {
    snapshot_ = std::make_shared<const Snapshot>(collect());
    knowledge_ = changes_.knowledge();
  }
  return snapshot_;
}

bool SnapshotCache::Due(uint64_t iterations, bool live) const {
  if (iterations == 0 || summary_.generation == changes_.generation()) return false;
  const bool recent = iterations <= summary_.iterations + summary_.iterations / 256;
  return !holds() || !live || !recent;
}

std::shared_ptr<const Snapshot> SnapshotCache::TakeDue(uint64_t iterations, bool live,
                                                       Collect collect) {
  if (under_way_ || !Due(iterations, live)) return nullptr;
  under_way_ = true;
  under_way_figures_ = changes_.figures();
  return Take(collect);
}

void SnapshotCache::Set(const Summary& summary) {
  under_way_ = false;
  // A change may have made it void meanwhile. A summary from before the job's end may come after
  // that of its end.
  if (under_way_figures_ != changes_.figures()) return;
  if (holds() && summary.generation < summary_.generation) return;
  summary_ = summary;
  summary_figures_ = under_way_figures_;
}

const Summary& SnapshotCache::Recent(uint64_t iterations, bool live, Collect collect) {
  // The summary of a job that has ended is stored, and stays.
  const bool wait = under_way_ && holds() && live;
  if (Due(iterations, live) && !wait) {
    summary_ = Take(collect)->Summarise();
    summary_figures_ = changes_.figures();
  }
  return summary_;
}

}  // namespace seqpoint::jobs
