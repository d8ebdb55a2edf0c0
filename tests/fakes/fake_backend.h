// FakeBackend: answers with one made-up job, "gnmt@r1", so that the service and the client can be
// tested without jobs. Its figures are constants; tests know them.
// Threading: thread-safe.
#ifndef TESTS_FAKES_FAKE_BACKEND_H_
#define TESTS_FAKES_FAKE_BACKEND_H_

#include <atomic>
#include <climits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "daemon/service/backend.h"

namespace seqpoint::rpc {

class FakeBackend : public service::Backend {
 public:
  // 1,000 iterations of 40 ms seen, 64 of 64 measurements taken, state MARKING, no horizon.
  static v1::Job SampleJob();

  FakeBackend();

  // Adds or replaces; watchers see it.
  void PutJob(v1::Job job);
  v1::Job JobNow(const std::string& id);
  // Iterations that ListIterations and Export go through. Default: 2,500.
  void SetIterations(int64_t iterations);
  // A page of ListJobs has no more jobs. Default: as many as are asked for.
  void SetJobsPerPage(int jobs);
  // Every question about figures fails with this from now on.
  void SetError(absl::Status status);
  std::optional<v1::ControlRequest> last_control();
  v1::AnalyzeRequest last_analysis();  // empty: none
  v1::ImportJobRequest last_import();
  // The last import that came to its end.
  struct TraceImport {
    std::string name, run_id, marker;
    std::vector<std::pair<std::string, std::string>> files;  // name, data
    size_t largest_piece_bytes = 0;
  };
  TraceImport last_trace_import();
  v1::WhatIfRequest last_what_if();
  // Until so many replays of the job "endless", or imports of traces, are under way.
  void AwaitReplays(int count);
  void AwaitTraces(int count);

  absl::StatusOr<v1::GetDaemonReply> GetDaemon(const v1::GetDaemonRequest& request) override;
  absl::StatusOr<v1::PrepareJobReply> PrepareJob(const v1::PrepareJobRequest& request) override;
  absl::StatusOr<v1::ListJobsReply> ListJobs(const v1::ListJobsRequest& request) override;
  absl::StatusOr<v1::GetJobReply> GetJob(const v1::GetJobRequest& request) override;
  // A job that has not ended is neither deleted nor renamed.
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
  absl::StatusOr<v1::GetFleetReply> GetFleet(const v1::GetFleetRequest& request) override;
  absl::StatusOr<v1::ListNodesReply> ListNodes(const v1::ListNodesRequest& request) override;
  absl::StatusOr<v1::GetRanksReply> GetRanks(const v1::GetRanksRequest& request) override;
  absl::Status Export(const v1::ExportRequest& request,
                      absl::FunctionRef<bool(std::string_view)> write) override;
  absl::StatusOr<v1::SetHorizonReply> SetHorizon(const v1::SetHorizonRequest& request) override;
  absl::StatusOr<v1::ControlReply> Control(const v1::ControlRequest& request) override;
  absl::StatusOr<v1::AnalyzeReply> Analyze(const v1::AnalyzeRequest& request) override;
  absl::StatusOr<v1::ImportJobReply> ImportJob(const v1::ImportJobRequest& request) override;
  absl::StatusOr<v1::GetPlaylistReply> GetPlaylist(const v1::GetPlaylistRequest& request) override;
  absl::StatusOr<v1::ProjectPlaylistReply> ProjectPlaylist(
      const v1::ProjectPlaylistRequest& request) override;
  // Data that begins with "not a trace" is none.
  absl::StatusOr<v1::ImportTraceReply> ImportTrace(
      absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next) override;
  // 30 iterations of each of two ranks, of which number 17 of rank 1 is replayed worst.
  absl::StatusOr<v1::ReplayReply> Replay(const v1::ReplayRequest& request,
                                         absl::FunctionRef<bool()> cancelled) override;
  // A quarter of the time is saved; short iterations take longer. cuda-graphs is in doubt, and
  // batch-norm does not apply.
  absl::StatusOr<v1::WhatIfReply> WhatIf(const v1::WhatIfRequest& request,
                                         absl::FunctionRef<bool()> cancelled) override;

 private:
  // By id, "name@run_id" or name; null: none.
  v1::Job* Find(const std::string& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<v1::Job*> FindForFigures(const std::string& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Iteration MakeIteration(int64_t number) const;

  absl::Mutex mutex_;
  std::map<std::string, v1::Job> jobs_ ABSL_GUARDED_BY(mutex_);
  int64_t iterations_ ABSL_GUARDED_BY(mutex_) = 2'500;
  int jobs_per_page_ ABSL_GUARDED_BY(mutex_) = INT_MAX;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::ControlRequest> last_control_ ABSL_GUARDED_BY(mutex_);
  v1::AnalyzeRequest last_analysis_ ABSL_GUARDED_BY(mutex_);
  v1::ImportJobRequest last_import_ ABSL_GUARDED_BY(mutex_);
  TraceImport last_trace_import_ ABSL_GUARDED_BY(mutex_);
  v1::WhatIfRequest last_what_if_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> replays_ = 0, traces_ = 0;
};

}  // namespace seqpoint::rpc

#endif  // TESTS_FAKES_FAKE_BACKEND_H_
