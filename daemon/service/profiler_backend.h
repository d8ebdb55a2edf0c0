// ProfilerBackend: the Profiler service's calls on the jobs of this daemon. Each finds its job,
// takes a snapshot of it, and lets queries/ compute the reply without the lock; what changes a job
// is in job_changes.h and job_imports.h.
//
// Threading: thread-safe.
// Ownership: keeps pointers to the parts of the daemon.
#ifndef DAEMON_SERVICE_PROFILER_BACKEND_H_
#define DAEMON_SERVICE_PROFILER_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/recorded_runs.h"
#include "daemon/service/backend.h"
#include "daemon/service/daemon_parts.h"
#include "daemon/service/job_descriptions.h"

namespace seqpoint::service {

class ProfilerBackend : public Backend {
 public:
  // `describe_daemon`: GetDaemon's reply but for jobs and the store's errors.
  ProfilerBackend(const DaemonParts& parts, std::function<v1::GetDaemonReply()> describe_daemon)
      : parts_(parts), describe_daemon_(std::move(describe_daemon)), recorded_runs_(&parts.store) {}

  absl::StatusOr<v1::GetDaemonReply> GetDaemon(const v1::GetDaemonRequest& request) override;
  absl::StatusOr<v1::PrepareJobReply> PrepareJob(const v1::PrepareJobRequest& request) override;
  absl::StatusOr<v1::ListJobsReply> ListJobs(const v1::ListJobsRequest& request) override;
  absl::StatusOr<v1::GetJobReply> GetJob(const v1::GetJobRequest& request) override;
  absl::StatusOr<v1::DeleteJobReply> DeleteJob(const v1::DeleteJobRequest& request) override;
  absl::StatusOr<v1::UpdateJobReply> UpdateJob(const v1::UpdateJobRequest& request) override;
  absl::StatusOr<v1::Job> WaitForJob(const std::string& job, int64_t after_generation,
                                     absl::Duration timeout) override;
  absl::StatusOr<v1::GetSeqPointsReply> GetSeqPoints(
      const v1::GetSeqPointsRequest& request) override;
  absl::StatusOr<v1::ListIterationsReply> ListIterations(
      const v1::ListIterationsRequest& request) override;
  absl::StatusOr<v1::ProjectReply> Project(const v1::ProjectRequest& request) override;
  absl::StatusOr<v1::GetCountersReply> GetCounters(const v1::GetCountersRequest& request) override;
  absl::StatusOr<v1::GetKernelsReply> GetKernels(const v1::GetKernelsRequest& request) override;
  absl::StatusOr<v1::CompareReply> Compare(const v1::CompareRequest& request) override;
  absl::StatusOr<v1::GetRooflineReply> GetRoofline(const v1::GetRooflineRequest& request) override;
  absl::Status Export(const v1::ExportRequest& request,
                      absl::FunctionRef<bool(std::string_view)> write) override;
  absl::StatusOr<v1::SetHorizonReply> SetHorizon(const v1::SetHorizonRequest& request) override;
  absl::StatusOr<v1::ControlReply> Control(const v1::ControlRequest& request) override;
  absl::StatusOr<v1::AnalyzeReply> Analyze(const v1::AnalyzeRequest& request) override;
  absl::StatusOr<v1::ImportJobReply> ImportJob(const v1::ImportJobRequest& request) override;
  absl::StatusOr<v1::GetPlaylistReply> GetPlaylist(const v1::GetPlaylistRequest& request) override;
  absl::StatusOr<v1::ProjectPlaylistReply> ProjectPlaylist(
      const v1::ProjectPlaylistRequest& request) override;
  absl::StatusOr<v1::ImportTraceReply> ImportTrace(
      absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next) override;
  absl::StatusOr<v1::ReplayReply> Replay(const v1::ReplayRequest& request,
                                         absl::FunctionRef<bool()> cancelled) override;
  absl::StatusOr<v1::WhatIfReply> WhatIf(const v1::WhatIfRequest& request,
                                         absl::FunctionRef<bool()> cancelled) override;

 private:
  using SharedSnapshot = std::shared_ptr<const jobs::Snapshot>;

  // `description`, unless it is null, becomes the job as it is in the snapshot.
  absl::StatusOr<SharedSnapshot> Take(std::string_view name, const v1::Horizon* horizon = nullptr,
                                      v1::Job* description = nullptr)
      ABSL_LOCKS_EXCLUDED(parts_.registry.mutex());
  // A snapshot for a part of the iterations, as they are in the store; `words` says which part.
  absl::StatusOr<SharedSnapshot> TakePart(std::string_view name, const v1::Part& part,
                                          std::string* words, v1::Job* description)
      ABSL_LOCKS_EXCLUDED(parts_.registry.mutex());
  // Asks a snapshot for the request's part, or with its horizon. The reply has the job as it is in
  // the snapshot, and which part it is of.
  template <typename Request, typename Ask>
  auto AskFor(const Request& request, const Ask& ask)
      -> decltype(ask(std::declval<const jobs::Snapshot&>())) {
    std::string part;
    v1::Job job;
    SEQPOINT_ASSIGN_OR_RETURN(
        const auto snapshot,
        request.has_part()
            ? TakePart(request.job(), request.part(), &part, &job)
            : Take(request.job(), request.has_horizon() ? &request.horizon() : nullptr, &job));
    SEQPOINT_ASSIGN_OR_RETURN(auto reply, ask(*snapshot));
    reply.set_part(part);
    *reply.mutable_job() = std::move(job);
    return reply;
  }
  // A reply whose only content is the job of this id.
  template <typename Reply>
  absl::StatusOr<Reply> ReplyWith(absl::StatusOr<int64_t> id) {
    if (!id.ok()) return id.status();
    Reply reply;
    SEQPOINT_ASSIGN_OR_RETURN(*reply.mutable_job(), Describe(parts_, *id, Detail::kProcesses));
    return reply;
  }

  const DaemonParts parts_;
  const std::function<v1::GetDaemonReply()> describe_daemon_;
  queries::RecordedRuns recorded_runs_;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_PROFILER_BACKEND_H_
