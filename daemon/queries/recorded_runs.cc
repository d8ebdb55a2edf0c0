#include "daemon/queries/recorded_runs.h"

#include <utility>

namespace seqpoint::queries {
absl::StatusOr<std::shared_ptr<const RecordedRun>> RecordedRuns::Read(
    const jobs::Snapshot& snapshot, Cancelled cancelled) {
  const jobs::SnapshotData& job = snapshot.data();
  const auto pieces = store_.ListTraces(job.job_id);
  if (!pieces.ok()) return pieces.status();
  {
    absl::MutexLock lock(&mutex_);
    if (kept_ && kept_->job_id == job.job_id && kept_->pieces == *pieces) return kept_;
    kept_ = nullptr;
  }
  absl::StatusOr<RecordedRun> read = ReadRecordedRun(store_, snapshot, *pieces, cancelled);
  if (!read.ok()) return read.status();
  auto run = std::make_shared<const RecordedRun>(*std::move(read));
  if (run->tasks <= kKeptTasks) {
    absl::MutexLock lock(&mutex_);
    kept_ = run;
  }
  return run;
}

}  // namespace seqpoint::queries
