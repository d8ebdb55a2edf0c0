#include "daemon/service/profiler_backend.h"

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/compare.h"
#include "daemon/queries/counters.h"
#include "daemon/queries/export.h"
#include "daemon/queries/fleet.h"
#include "daemon/queries/iterations.h"
#include "daemon/queries/kernels.h"
#include "daemon/queries/log_analysis.h"
#include "daemon/queries/playlist.h"
#include "daemon/queries/project.h"
#include "daemon/queries/project_playlist.h"
#include "daemon/queries/rank_what_if.h"
#include "daemon/queries/recorded_run.h"
#include "daemon/queries/replay.h"
#include "daemon/queries/replay_export.h"
#include "daemon/queries/roofline.h"
#include "daemon/queries/run_part.h"
#include "daemon/queries/seqpoints.h"
#include "daemon/queries/what_if.h"
#include "daemon/service/job_changes.h"
#include "daemon/service/job_descriptions.h"
#include "daemon/service/job_imports.h"
#include "daemon/service/node_reports.h"
#include "daemon/service/node_traces.h"
#include "spdlog/spdlog.h"

namespace seqpoint::service {
namespace {

// Both, where there are two.
std::string Join(const std::string& first, absl::string_view second) {
  return absl::StrCat(first, first.empty() || second.empty() ? "" : "; ", second);
}

// An error may be due to what is missing.
absl::Status With(const absl::Status& status, const std::string& missing) {
  if (status.ok() || missing.empty()) return status;
  return {status.code(), absl::StrCat(status.message(), "; ", missing)};
}

// Traces may need more memory than there is: that ends the question, not the daemon.
template <typename Ask>
auto WithMemory(const char* what, const Ask& ask) -> decltype(ask()) {
  try {
    return ask();
  } catch (const std::bad_alloc&) {
    const absl::Status status = absl::ResourceExhaustedError(
        absl::StrCat(what, ": the traces need more memory than there is"));
    spdlog::error("{}", std::string(status.message()));
    return status;
  }
}

// Each call finds its job, takes a snapshot of it, and lets queries/ compute the reply without the
// lock.
class ProfilerBackend : public Backend {
 public:
  ProfilerBackend(const DaemonParts& parts, std::function<v1::GetDaemonReply()> describe_daemon)
      : parts_(parts), describe_daemon_(std::move(describe_daemon)) {}

  absl::StatusOr<v1::GetDaemonReply> GetDaemon(const v1::GetDaemonRequest&) override {
    v1::GetDaemonReply reply = describe_daemon_();
    if (const auto bytes = parts_.store.Bytes(); bytes.ok()) reply.set_store_bytes(*bytes);
    absl::MutexLock lock(&parts_.registry.mutex());
    reply.set_jobs(
        static_cast<int32_t>(parts_.registry.loaded().size() + parts_.registry.stored().size()));
    reply.set_error(Join(parts_.committer.error(), parts_.store.damage()));
    return reply;
  }

  absl::StatusOr<v1::ListNodesReply> ListNodes(const v1::ListNodesRequest&) override {
    if (parts_.nodes == nullptr) {
      return absl::FailedPreconditionError(
          "this daemon is no hub: no node tells it anything; ask one that was started with "
          "--accept-nodes");
    }
    v1::ListNodesReply reply;
    {
      absl::MutexLock lock(&parts_.registry.mutex());
      reply = parts_.nodes->List();
    }
    reply.set_leader(describe_daemon_().peer_address());
    return reply;
  }

  absl::StatusOr<v1::PrepareJobReply> PrepareJob(const v1::PrepareJobRequest& request) override {
    return ReplyWith<v1::PrepareJobReply>(Prepare(parts_, request));
  }

  absl::StatusOr<v1::ListJobsReply> ListJobs(const v1::ListJobsRequest& request) override {
    return List(parts_, request);
  }

  absl::StatusOr<v1::GetFleetReply> GetFleet(const v1::GetFleetRequest& request) override {
    v1::ListJobsRequest jobs = request.jobs();
    jobs.clear_page_token();
    jobs.set_page_size(1000);
    v1::GetFleetReply fleet;
    do {
      SEQPOINT_ASSIGN_OR_RETURN(const v1::ListJobsReply page, List(parts_, jobs));
      for (const v1::Job& job : page.jobs()) {
        if (!job.unused()) queries::AddToFleet(job, &fleet);
      }
      jobs.set_page_token(page.next_page_token());
    } while (!jobs.page_token().empty());
    return fleet;
  }

  absl::StatusOr<v1::GetJobReply> GetJob(const v1::GetJobRequest& request) override {
    return ReplyWith<v1::GetJobReply>(IdOf(request.job()), Detail::kHistogram);
  }

  absl::StatusOr<v1::DeleteJobReply> DeleteJob(const v1::DeleteJobRequest& request) override {
    return Delete(parts_, request);
  }

  absl::StatusOr<v1::UpdateJobReply> UpdateJob(const v1::UpdateJobRequest& request) override {
    return ReplyWith<v1::UpdateJobReply>(Update(parts_, request));
  }

  absl::StatusOr<v1::Job> WaitForJob(const std::string& name, int64_t after_generation,
                                     absl::Duration timeout) override {
    int64_t id;
    {
      absl::MutexLock lock(&parts_.registry.mutex());
      SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts_.registry.Find(name));
      id = job->row().job_id;
      const auto changed = [this, id, after_generation] {
        parts_.registry.mutex().AssertReaderHeld();
        const auto it = parts_.registry.loaded().find(id);
        if (it == parts_.registry.loaded().end())
          return parts_.registry.RowOf(id) == nullptr;  // removed
        return it->second->generation() > after_generation;
      };
      if (!parts_.committer.Await(timeout, changed)) {
        return absl::DeadlineExceededError("the job did not change");
      }
      if (!parts_.registry.loaded().contains(id)) {
        return absl::NotFoundError(absl::StrCat("job ", id, " was removed"));
      }
    }
    return Describe(parts_, id, Detail::kProcesses);
  }

  absl::StatusOr<v1::GetSeqPointsReply> GetSeqPoints(
      const v1::GetSeqPointsRequest& request) override {
    SEQPOINT_ASSIGN_OR_RETURN(const auto snapshot, Take(request.job()));
    if (const auto& data = snapshot->data(); data.imported && !data.traced()) {
      return queries::SeqPointsOfImport(data, parts_.store);
    }
    return queries::GetSeqPoints(*snapshot);
  }

  absl::StatusOr<v1::ListIterationsReply> ListIterations(
      const v1::ListIterationsRequest& request) override {
    SEQPOINT_ASSIGN_OR_RETURN(const auto snapshot, Take(request.job()));
    const absl::Status stored = parts_.committer.AwaitStored(snapshot->data().job_id);
    auto reply = queries::ListIterations(snapshot->data(), request, parts_.store);
    if (reply.ok()) reply->set_message(std::string(stored.message()));
    return reply;
  }

  absl::StatusOr<v1::ProjectReply> Project(const v1::ProjectRequest& request) override {
    const bool time = request.metric().empty() || request.metric() == "time";
    if (request.has_part() && time) {
      v1::Job job;
      SEQPOINT_ASSIGN_OR_RETURN(const auto snapshot, Take(request.job(), nullptr, &job));
      const jobs::SnapshotData& data = snapshot->data();
      SEQPOINT_ASSIGN_OR_RETURN(const auto range, queries::CountedRangeOf(request.part(), data));
      SEQPOINT_RETURN_IF_ERROR(parts_.committer.AwaitStored(data.job_id));
      SEQPOINT_ASSIGN_OR_RETURN(
          auto reply, queries::ProjectPart(*snapshot, range, request.confidence(), parts_.store));
      *reply.mutable_job() = std::move(job);
      return reply;
    }
    return AskFor(request, queries::Project);
  }

  absl::StatusOr<v1::GetCountersReply> GetCounters(const v1::GetCountersRequest& request) override {
    const auto ask = [&](const jobs::Snapshot& job,
                         const v1::GetCountersRequest&) -> absl::StatusOr<v1::GetCountersReply> {
      SEQPOINT_ASSIGN_OR_RETURN(auto reply, queries::GetCounters(job, request));
      SEQPOINT_ASSIGN_OR_RETURN(const auto range, queries::RangeOf(request.part(), job.data()));
      SEQPOINT_RETURN_IF_ERROR(queries::AddMeasuredIterations(job, range, parts_.store, &reply));
      return reply;
    };
    return AskFor(request, ask);
  }

  absl::StatusOr<v1::GetKernelsReply> GetKernels(const v1::GetKernelsRequest& request) override {
    return AskFor(request, queries::GetKernels);
  }

  absl::StatusOr<v1::GetRooflineReply> GetRoofline(const v1::GetRooflineRequest& request) override {
    SEQPOINT_ASSIGN_OR_RETURN(const auto snapshot, Take(request.job()));
    return queries::GetRoofline(snapshot->data(), request);
  }

  absl::StatusOr<v1::GetRanksReply> GetRanks(const v1::GetRanksRequest& request) override {
    absl::MutexLock lock(&parts_.registry.mutex());
    SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts_.registry.Find(request.job()));
    return job->DescribeRanks();
  }

  absl::StatusOr<v1::CompareReply> Compare(const v1::CompareRequest& request) override {
    SEQPOINT_ASSIGN_OR_RETURN(const auto base, Take(request.base()));
    SEQPOINT_ASSIGN_OR_RETURN(const auto other, Take(request.other()));
    if (base->data().job_id == other->data().job_id) {
      return absl::InvalidArgumentError(absl::StrCat("base = \"", request.base(),
                                                     "\" and other = \"", request.other(),
                                                     "\" are the same job; give two"));
    }
    for (const int64_t id : {base->data().job_id, other->data().job_id}) {
      SEQPOINT_RETURN_IF_ERROR(parts_.committer.AwaitStored(id));
    }
    return queries::Compare(*base, *other, request, parts_.store);
  }

  absl::Status Export(const v1::ExportRequest& request,
                      absl::FunctionRef<bool(std::string_view)> write) override {
    SEQPOINT_ASSIGN_OR_RETURN(const auto snapshot, Take(request.job()));
    const jobs::SnapshotData& data = snapshot->data();
    SEQPOINT_RETURN_IF_ERROR(parts_.committer.AwaitStored(data.job_id));
    const bool of_rows = request.format() == v1::ExportRequest::FORMAT_CSV;
    const auto gone = [&] { return !write({}); };
    const std::string missing = of_rows ? "" : FetchTraces(data.job_id, gone);
    if (request.format() == v1::ExportRequest::FORMAT_REPLAY) {
      const absl::Status replayed = WithMemory("replay", [&] {
        const auto run = ReadRun(*snapshot, gone);
        return run.ok() ? queries::ExportReplay(data, **run, parts_.store, write) : run.status();
      });
      return With(replayed, missing);
    }
    const absl::Status written =
        of_rows ? queries::ExportCsv(parts_.store, data, write)
                : With(queries::ExportChrome(parts_.store, data, missing, write), missing);
    absl::MutexLock lock(&parts_.registry.mutex());
    if (!written.ok() || parts_.registry.RowOf(data.job_id) != nullptr) return written;
    return absl::NotFoundError(absl::StrCat(
        "job ", data.job_id, " was removed while it was written; the file is not whole"));
  }

  absl::StatusOr<v1::SetHorizonReply> SetHorizon(const v1::SetHorizonRequest& request) override {
    return ReplyWith<v1::SetHorizonReply>(ChangeHorizon(parts_, request));
  }

  absl::StatusOr<v1::ControlReply> Control(const v1::ControlRequest& request) override {
    return ReplyWith<v1::ControlReply>(ControlJob(parts_, request));
  }

  absl::StatusOr<v1::AnalyzeReply> Analyze(const v1::AnalyzeRequest& request) override {
    return queries::AnalyzeLogs(request);
  }

  absl::StatusOr<v1::ImportJobReply> ImportJob(const v1::ImportJobRequest& request) override {
    return ReplyWith<v1::ImportJobReply>(ImportLog(parts_, request));
  }

  absl::StatusOr<v1::ImportTraceReply> ImportTrace(
      absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next) override {
    std::vector<v1::ImportedTrace> traces;
    auto reply = ReplyWith<v1::ImportTraceReply>(
        WithMemory("import", [&] { return ImportTraces(parts_, next, &traces); }));
    if (!reply.ok()) return reply;
    reply->mutable_traces()->Add(traces.begin(), traces.end());
    return reply;
  }

  absl::StatusOr<v1::ReplayReply> Replay(const v1::ReplayRequest& request,
                                         absl::FunctionRef<bool()> cancelled) override {
    SEQPOINT_ASSIGN_OR_RETURN(const auto snapshot, Take(request.job()));
    const jobs::SnapshotData& data = snapshot->data();
    const absl::Status stored = parts_.committer.AwaitStored(data.job_id);
    const std::string missing = FetchTraces(data.job_id, cancelled);
    auto reply = WithMemory("replay", [&]() -> absl::StatusOr<v1::ReplayReply> {
      SEQPOINT_ASSIGN_OR_RETURN(const auto run, ReadRun(*snapshot, cancelled));
      return queries::Replay(data, *run, cancelled);
    });
    if (!reply.ok()) return With(reply.status(), missing);
    if (!stored.ok()) reply->add_messages(std::string(stored.message()));
    if (!missing.empty()) reply->add_messages(missing);
    return reply;
  }

  absl::StatusOr<v1::WhatIfReply> WhatIf(const v1::WhatIfRequest& request,
                                         absl::FunctionRef<bool()> cancelled) override {
    v1::Job job;
    SEQPOINT_ASSIGN_OR_RETURN(
        const auto snapshot,
        Take(request.job(), request.has_horizon() ? &request.horizon() : nullptr, &job));
    SEQPOINT_ASSIGN_OR_RETURN(const auto of_ranks, queries::ParseRankChanges(request));
    std::vector<queries::NamedChange> changes;
    if (of_ranks.empty()) {
      SEQPOINT_ASSIGN_OR_RETURN(changes, queries::ParseChanges(request));
    }
    const int64_t job_id = snapshot->data().job_id;
    const absl::Status stored = parts_.committer.AwaitStored(job_id);
    const std::string missing = FetchTraces(job_id, cancelled);
    auto reply = WithMemory("what-if", [&]() -> absl::StatusOr<v1::WhatIfReply> {
      if (!of_ranks.empty()) {
        return queries::RankWhatIf(*snapshot, parts_.store, of_ranks, request, cancelled);
      }
      SEQPOINT_ASSIGN_OR_RETURN(const auto run, ReadRun(*snapshot, cancelled));
      return queries::WhatIf(*snapshot, *run, changes, request, cancelled);
    });
    if (!reply.ok()) return With(reply.status(), missing);
    reply->set_basis(Join(Join(reply->basis(), stored.message()), missing));
    *reply->mutable_job() = std::move(job);
    return reply;
  }

  absl::StatusOr<v1::GetPlaylistReply> GetPlaylist(const v1::GetPlaylistRequest& request) override {
    SEQPOINT_ASSIGN_OR_RETURN(const auto snapshot, Take(request.job()));
    const queries::PlaylistOptions options{.points = request.points(),
                                           .target_error = request.target_error(),
                                           .confidence = request.confidence()};
    const jobs::SnapshotData& data = snapshot->data();
    if (data.imported) return queries::PlaylistOfImport(data, options, parts_.store);
    SEQPOINT_ASSIGN_OR_RETURN(const auto playlist, queries::MakePlaylist(*snapshot, options));
    const absl::Status stored = parts_.committer.AwaitStored(data.job_id);
    auto reply = queries::WithIterations(playlist, parts_.store);
    if (reply.ok()) reply->set_message(Join(reply->message(), stored.message()));
    return reply;
  }

  absl::StatusOr<v1::ProjectPlaylistReply> ProjectPlaylist(
      const v1::ProjectPlaylistRequest& request) override {
    return queries::ProjectPlaylist(request);
  }

 private:
  using SharedSnapshot = std::shared_ptr<const jobs::Snapshot>;
  using SharedRun = std::shared_ptr<const queries::RecordedRun>;
  static constexpr int64_t kKeptTasks = 1'000'000;  // of a run; about 100 bytes each

  // On a hub: brings the job's traces from its nodes. Says which are missing; empty: none.
  std::string FetchTraces(int64_t job_id, queries::Cancelled cancelled) {
    return parts_.traces != nullptr ? parts_.traces->Fetch(job_id, cancelled) : "";
  }

  // The job's traces. The run that was asked for last is kept. Errors: as ReadRecordedRun.
  absl::StatusOr<SharedRun> ReadRun(const jobs::Snapshot& snapshot, queries::Cancelled cancelled)
      ABSL_LOCKS_EXCLUDED(recorded_mutex_) {
    const int64_t job_id = snapshot.data().job_id;
    SEQPOINT_ASSIGN_OR_RETURN(const auto pieces, parts_.store.ListTraces(job_id));
    {
      absl::MutexLock lock(&recorded_mutex_);
      const bool same = recorded_ && recorded_->job_id == job_id && recorded_->pieces == pieces;
      if (same) return recorded_;
      recorded_ = nullptr;
    }
    SEQPOINT_ASSIGN_OR_RETURN(auto read,
                              queries::ReadRecordedRun(parts_.store, snapshot, pieces, cancelled));
    auto run = std::make_shared<const queries::RecordedRun>(std::move(read));
    if (run->tasks <= kKeptTasks) {
      absl::MutexLock lock(&recorded_mutex_);
      recorded_ = run;
    }
    return run;
  }

  absl::StatusOr<int64_t> IdOf(std::string_view name) ABSL_LOCKS_EXCLUDED(parts_.registry.mutex()) {
    absl::MutexLock lock(&parts_.registry.mutex());
    SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts_.registry.Find(name));
    return job->row().job_id;
  }

  // `description`, unless it is null, becomes the job as it is in the snapshot.
  absl::StatusOr<SharedSnapshot> Take(std::string_view name, const v1::Horizon* horizon = nullptr,
                                      v1::Job* description = nullptr)
      ABSL_LOCKS_EXCLUDED(parts_.registry.mutex()) {
    int64_t id;
    {
      absl::MutexLock lock(&parts_.registry.mutex());
      SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts_.registry.Find(name));
      if (description == nullptr) return job->TakeSnapshot(horizon);
      id = job->row().job_id;
    }
    absl::StatusOr<SharedSnapshot> snapshot;
    SEQPOINT_ASSIGN_OR_RETURN(
        *description, Describe(parts_, id, Detail::kList,
                               [&](jobs::Job& job) { snapshot = job.TakeSnapshot(horizon); }));
    return snapshot;
  }

  // A snapshot for a part of the iterations, as they are in the store; `words` says which part.
  absl::StatusOr<SharedSnapshot> TakePart(std::string_view name, const v1::Part& part,
                                          std::string* words, v1::Job* description)
      ABSL_LOCKS_EXCLUDED(parts_.registry.mutex()) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto whole, Take(name, nullptr, description));
    const jobs::SnapshotData& data = whole->data();
    SEQPOINT_ASSIGN_OR_RETURN(const auto range, queries::CountedRangeOf(part, data));
    SEQPOINT_RETURN_IF_ERROR(parts_.committer.AwaitStored(data.job_id));
    SEQPOINT_ASSIGN_OR_RETURN(auto lengths, queries::ReadLengths(data, range, parts_.store));
    *words = range.words;
    absl::MutexLock lock(&parts_.registry.mutex());
    SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts_.registry.Find(data.job_id));
    return job->TakePartSnapshot(std::move(lengths.steps), std::move(lengths.work));
  }

  // Asks a snapshot for the request's part, or with its horizon. The reply has the job as it is in
  // the snapshot, and which part it is of.
  template <typename Request, typename Ask>
  auto AskFor(const Request& request, const Ask& ask)
      -> decltype(ask(std::declval<const jobs::Snapshot&>(), request)) {
    std::string part;
    v1::Job job;
    SEQPOINT_ASSIGN_OR_RETURN(
        const auto snapshot,
        request.has_part()
            ? TakePart(request.job(), request.part(), &part, &job)
            : Take(request.job(), request.has_horizon() ? &request.horizon() : nullptr, &job));
    SEQPOINT_ASSIGN_OR_RETURN(auto reply, ask(*snapshot, request));
    reply.set_part(part);
    *reply.mutable_job() = std::move(job);
    return reply;
  }
  // A reply whose only content is the job of this id.
  template <typename Reply>
  absl::StatusOr<Reply> ReplyWith(absl::StatusOr<int64_t> id, Detail detail = Detail::kProcesses) {
    if (!id.ok()) return id.status();
    Reply reply;
    SEQPOINT_ASSIGN_OR_RETURN(*reply.mutable_job(), Describe(parts_, *id, detail));
    return reply;
  }

  const DaemonParts parts_;
  const std::function<v1::GetDaemonReply()> describe_daemon_;
  absl::Mutex recorded_mutex_;
  SharedRun recorded_ ABSL_GUARDED_BY(recorded_mutex_);  // that was asked for last
};

}  // namespace

std::unique_ptr<Backend> MakeProfilerBackend(const DaemonParts& parts,
                                             std::function<v1::GetDaemonReply()> describe_daemon) {
  return std::make_unique<ProfilerBackend>(parts, std::move(describe_daemon));
}

}  // namespace seqpoint::service
