#include "daemon/service/ingest_loop.h"

#include <string>
#include <utility>
#include <vector>

#include "daemon/base/retry.h"
#include "daemon/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace seqpoint::service {
namespace {

constexpr absl::Duration kCommitInterval = absl::Milliseconds(50);
constexpr absl::Duration kHeartbeatInterval = absl::Milliseconds(200);
constexpr absl::Duration kRetryInterval = absl::Seconds(1);
constexpr int kBusyPollMs = 1;
constexpr int kIdlePollMs = 10;
// Read from one ring before a commit. A full ring holds 15 times as many.
constexpr uint64_t kRecordsPerPoll = 16'384;

// Gives the job the logs that it waits for (Job::WantedLogs). A run that goes on may repeat those
// iterations of its earlier incarnations.
void LoadResumeLogs(Store& store, jobs::Job& job) {
  constexpr int kPage = 10'000;
  for (const jobs::Job::WantedLog& wanted : job.WantedLogs()) {
    std::vector<jobs::KnownLengths> log(static_cast<size_t>(wanted.end - wanted.begin));
    int64_t next = wanted.begin;
    bool read = true;
    while (next < wanted.end) {
      const auto rows = store.ReadIterations(job.row().job_id, wanted.rank, next, kPage);
      if (!rows.ok()) {
        spdlog::warn("{}", std::string(rows.status().message()));
        // The lengths of damaged rows are not known any more. Otherwise the log is wanted again
        // after the next commit.
        read = absl::IsDataLoss(rows.status());
        break;
      }
      if (rows->empty()) break;
      for (const IterationRow& row : *rows) {
        if (row.length_count == 0 || row.number >= wanted.end) continue;
        log[static_cast<size_t>(row.number - wanted.begin)].emplace(row.length[0], row.length[1]);
      }
      next = rows->back().number + 1;
    }
    if (read) job.SetLog(wanted.process_id, wanted.begin, std::move(log));
  }
}

}  // namespace

IngestLoop::~IngestLoop() { Stop(); }

absl::Status IngestLoop::Start() {
  SEQPOINT_ASSIGN_OR_RETURN(
      server_, RetryWhileTaken(options_.lock_patience, [&] {
        return ingest::InjectServer::Listen(
            options_.directory,
            {.max_processes = options_.max_processes, .allowed_users = options_.allowed_users},
            &connections_);
      }));
  last_turn_ns_ = parts_.clock.MonotonicNs();
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void IngestLoop::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void IngestLoop::Run() {
  absl::Duration last_commit = Now(), last_prune = last_commit;
  last_busy_ = last_commit;
  int wait_ms = kIdlePollMs;
  while (true) {
    const bool stopping = stop_;
    last_turn_ns_.store(parts_.clock.MonotonicNs(), std::memory_order_relaxed);
    connections_.BeforeWatch();
    server_->RunOnce(stopping ? 0 : wait_ms);
    const absl::Duration now = Now();
    bool commit_first = false;
    const Connections::Progress progress = Read(stopping, &commit_first);
    wait_ms = progress.more ? 0 : progress.any ? kBusyPollMs : kIdlePollMs;
    const absl::Duration interval = parts_.committer.failed() ? kRetryInterval : kCommitInterval;
    // A backlog is committed piece by piece: the ring, which may be full, is free again early, and
    // a daemon that is killed soon has read something.
    if (now - last_commit >= interval || stopping || progress.more ||
        (commit_first && !parts_.committer.failed())) {
      const bool again = stopping && parts_.committer.failed();
      Commit();
      if (again && !parts_.committer.failed()) Commit();  // what came since is in no batch yet
      last_commit = Now();
      commit_first = false;
    }
    if (!commit_first && !parts_.committer.failed()) connections_.PublishControls();
    if (now - last_prune >= options_.prune_interval) {
      Prune();
      last_prune = now;
    }
    idle_ = is_private() && now - last_busy_ > options_.end_when_idle;
    if (stopping) return;
  }
}

Connections::Progress IngestLoop::Read(bool stopping, bool* commit_first) {
  absl::MutexLock lock(&parts_.registry.mutex());
  Connections::Progress progress;
  if (!parts_.committer.failed()) {
    progress = connections_.Poll(stopping ? UINT64_MAX : kRecordsPerPoll);
  }
  const absl::Duration now = Now();
  if (now - last_heartbeat_ >= kHeartbeatInterval) {
    connections_.Heartbeat();
    connections_.EndVanished();
    for (const auto& [id, job] : parts_.registry.loaded())
      job->CheckRules(parts_.clock.MonotonicNs());
    last_heartbeat_ = now;
  }
  progress.more |= nodes_behind_ && !parts_.committer.failed();
  if (plans_ != nullptr) connections_.FollowHub(*plans_);
  *commit_first = connections_.StageControls();
  if (connections_.count() > 0 || !parts_.registry.importing().empty()) last_busy_ = now;
  if (stopping && is_private()) {
    for (const auto& [id, job] : parts_.registry.loaded()) job->EndUnused(parts_.clock.WallNs());
  }
  return progress;
}

void IngestLoop::Commit() {
  ReadSoFar read = {.rings = connections_.Cursors()};
  if (parts_.nodes != nullptr) {
    // All that came at once: what a job makes of it takes a look at each of its processes.
    if (!parts_.committer.failed()) {
      absl::MutexLock lock(&parts_.registry.mutex());
      nodes_behind_ = parts_.nodes->Poll();
    }
    read.nodes = parts_.nodes->Cursors();
  }
  const auto stored = parts_.committer.Commit(std::move(read));
  if (!stored) return;
  connections_.Release(stored->rings);
  if (parts_.nodes != nullptr) parts_.nodes->Release(stored->nodes);
  absl::MutexLock lock(&parts_.registry.mutex());
  if (parts_.nodes != nullptr) parts_.nodes->SendPlans();
  for (const auto& [id, job] : parts_.registry.loaded()) LoadResumeLogs(parts_.store, *job);
  parts_.registry.EvictIdle();
}

void IngestLoop::Prune() {
  {
    absl::MutexLock lock(&parts_.registry.mutex());
    if (parts_.nodes != nullptr) parts_.nodes->EndLost();
    parts_.retention.EndForgotten();
    parts_.retention.EndRefused();
  }
  Commit();
  parts_.retention.Prune();
}

}  // namespace seqpoint::service
