#include "daemon/service/retention.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/ingest/process_identity.h"
#include "spdlog/spdlog.h"

namespace seqpoint::service {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kWaitNs = 24ll * 3600 * kSecondNs;

}  // namespace

void Retention::AwaitPruned() {
  const auto pruned = [this] {
    registry_.mutex().AssertReaderHeld();
    return !pruning_;
  };
  registry_.mutex().Await(absl::Condition(&pruned));
}

void Retention::Prune() {
  const RetentionOptions limits = this->options();
  PruneOptions options{.max_bytes = limits.max_store_bytes};
  if (limits.max_job_age_s > 0) {
    const int64_t most_s = clock_.WallNs() / kSecondNs;
    options.ended_before_ns = clock_.WallNs() - std::min(limits.max_job_age_s, most_s) * kSecondNs;
  }
  {
    absl::MutexLock lock(&registry_.mutex());
    pruning_ = true;
    // The store may still have the end of a job that goes on; a batch that could not be written
    // would bring back parts of a job that was removed.
    for (const auto& [id, job] : registry_.loaded()) {
      if (committer_.failed() || !registry_.Over(*job)) options.keep.push_back(id);
    }
    for (const auto& [run, id] : registry_.importing()) options.keep.push_back(id);
  }
  const auto result = store_.Prune(options);
  absl::MutexLock lock(&registry_.mutex());
  pruning_ = false;
  if (!result.ok()) {
    spdlog::warn("{}", std::string(result.status().message()));
    return;
  }
  for (const int64_t id : result->removed_jobs) {
    const JobRow* const row = registry_.RowOf(id);
    spdlog::info("removed {}: retention", row == nullptr ? absl::StrCat("job ", id) : Title(*row));
    registry_.Remove(id);
  }
}

void Retention::EndRefused() {
  for (const auto& [id, job] : registry_.loaded()) {
    if (job->refused().empty() || job->row().end_ns != 0) continue;
    const auto processes = store_.ListProcesses(id);
    if (!processes.ok()) continue;
    const bool runs =
        std::any_of(processes->begin(), processes->end(), [&](const ProcessRow& process) {
          if (process.end_ns != 0) return false;
          if (process.pid <= 0) return clock_.MonotonicNs() - start_ns_ < kWaitNs;
          return ingest::StillRuns(process.pid, process.identity);
        });
    if (!runs) job->EndRefused(clock_.WallNs());
  }
}

void Retention::EndForgotten() {
  for (const auto& [id, job] : registry_.loaded()) {
    // Since when a job waits is not stored: after a restart it waits from our start on.
    const int64_t since_ns = std::max(job->waiting_since_ns(), start_ns_);
    if (clock_.MonotonicNs() - since_ns > kWaitNs) job->EndUnused(clock_.WallNs());
  }
}

}  // namespace seqpoint::service
