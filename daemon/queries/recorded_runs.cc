#include "daemon/queries/recorded_runs.h"

#include <utility>

#include "daemon/base/status_macros.h"

namespace seqpoint::queries {
absl::StatusOr<std::shared_ptr<const RecordedRun>> RecordedRuns::Read(
    const jobs::Snapshot& snapshot, Cancelled cancelled) {
  const jobs::SnapshotData& job = snapshot.data();
  SEQPOINT_ASSIGN_OR_RETURN(const auto pieces, store_.ListTraces(job.job_id));
  {
    absl::MutexLock lock(&mutex_);
    if (kept_ && kept_->job_id == job.job_id && kept_->pieces == pieces) return kept_;
    kept_ = nullptr;
  }
  SEQPOINT_ASSIGN_OR_RETURN(auto read, ReadRecordedRun(store_, snapshot, pieces, cancelled));
  auto run = std::make_shared<const RecordedRun>(std::move(read));
  if (run->tasks <= kKeptTasks) {
    absl::MutexLock lock(&mutex_);
    kept_ = run;
  }
  return run;
}

}  // namespace seqpoint::queries
