#include "daemon/service/committer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace seqpoint::service {
namespace {

// How long an answer from the store waits for a commit.
constexpr absl::Duration kPatience = absl::Seconds(1);

}  // namespace

std::optional<ReadSoFar> Committer::Commit(ReadSoFar read) {
  if (!failed_) {
    absl::MutexLock lock(&registry_.mutex());
    ++commits_begun_;
    for (const auto& [id, job] : registry_.loaded()) {
      job->TakeRows(batch_);
      if (outbox_ != nullptr) outbox_->Collect(job->TakeReports());
    }
    if (outbox_ != nullptr) outbox_->AddRows(clock_.MonotonicNs(), batch_);
    batch_read_ = std::move(read);
    for (const RingCursor& ring : batch_read_.rings) {
      batch_.cursors.push_back(
          {.ring_id = ring.cursor.ring_id, .bytes = ring.ended ? "" : ring.cursor.Serialize()});
    }
    for (const NodeCursor& node : batch_read_.nodes) node.AddTo(batch_);
  }
  const absl::Status status = batch_.Empty() ? absl::OkStatus() : Write();
  TellDamage();
  absl::MutexLock lock(&registry_.mutex());
  if (!status.ok()) {
    // Cursors and results belong together: the batch stays as it is.
    std::string message = absl::StrCat(status.message(), "; it is tried again");
    if (!failed_) spdlog::error("{}", message);
    failed_ = true;
    SetError(std::move(message));
    return std::nullopt;
  }
  if (failed_) spdlog::info("the store can be written again");
  failed_ = false;
  commits_done_ = commits_begun_;
  last_commit_ns_ = clock_.MonotonicNs();
  committed_.NotifyAll();
  SetError("");
  batch_ = {};
  if (outbox_ != nullptr) outbox_->OnStored();
  return std::exchange(batch_read_, {});
}

absl::Status Committer::Write() {
  const bool has_traces = !batch_.trace_segments.empty();
  absl::Status status = store_.Write(batch_);
  if (!has_traces) return status;
  if (!absl::IsResourceExhausted(status)) {
    if (status.ok() && std::exchange(drops_traces_, false)) spdlog::info("traces are stored again");
    return status;
  }
  if (!std::exchange(drops_traces_, true)) {
    spdlog::error("{}; traces are dropped and counted", std::string(status.message()));
  }
  {
    absl::MutexLock lock(&registry_.mutex());
    for (const TraceSegmentRow& row : batch_.trace_segments) {
      const auto job = registry_.loaded().find(row.job_id);
      if (job == registry_.loaded().end()) continue;
      job->second->OnUnstored(row.process_id,
                              static_cast<int64_t>(row.records.size()) / kTraceRecordBytes);
    }
  }
  batch_.trace_segments.clear();
  return store_.Write(batch_);
}

void Committer::TellDamage() {
  damaged_jobs_.merge(store_.TakeDamagedJobs());
  while (!damaged_jobs_.empty()) {
    const int64_t job_id = *damaged_jobs_.begin();
    const auto message = store_.DescribeDamage(job_id);
    if (!message.ok()) return;  // it is asked again after the next batch
    damaged_jobs_.erase(damaged_jobs_.begin());
    if (message->empty()) continue;  // the write that met it failed, or the job was removed
    absl::MutexLock lock(&registry_.mutex());
    const auto job = registry_.loaded().find(job_id);
    if (job == registry_.loaded().end()) continue;
    spdlog::error("{}: {}", Title(job->second->row()), *message);
    job->second->SetStoreDamage(*message);
  }
}

// Watchers of every job see it.
void Committer::SetError(std::string message) {
  if (message == error_) return;
  error_ = std::move(message);
  for (const auto& [id, job] : registry_.loaded()) job->SetGeneration(job->generation() + 1);
}

bool Committer::AwaitNext(absl::Duration timeout) {
  const int64_t wanted = commits_begun_ + 1;
  return Await(timeout, [this, wanted] {
    registry_.mutex().AssertReaderHeld();
    return commits_done_ >= wanted;
  });
}

absl::Status Committer::AwaitStored(int64_t job_id) {
  absl::MutexLock lock(&registry_.mutex());
  SEQPOINT_ASSIGN_OR_RETURN(const auto job, registry_.Find(job_id));
  if (registry_.Over(*job) || AwaitNext(kPatience)) return absl::OkStatus();
  const int64_t since_s = (clock_.MonotonicNs() - last_commit_ns_) / 1'000'000'000;
  return absl::UnavailableError(absl::StrCat(
      "this answer may lack what came last: nothing was written into the store for ", since_s, " s",
      error_.empty() ? "" : absl::StrCat(" (", error_, ")"), "; ask again later"));
}

}  // namespace seqpoint::service
