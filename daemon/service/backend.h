// Backend: what the Profiler service asks of the daemon's jobs, one function per call of
// proto/seqpoint/v1/profiler.proto, where requests, replies and errors are specified.
//
// Threading: called from many gRPC threads at once; implementations are thread-safe. Every call
// but WaitForJob, Export, Analyze, ImportJob, ImportTrace, Replay, WhatIf and what reads a job's
// rows (GetPlaylist; of an imported job GetSeqPoints) should return within milliseconds.
// Ownership: the server keeps a pointer; the backend outlives it.
//
// An absl::Status reaches the client with its code and message as they are: a message names the
// thing, the value and the way out.
#ifndef DAEMON_SERVICE_BACKEND_H_
#define DAEMON_SERVICE_BACKEND_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::service {

class Backend {
 public:
  virtual ~Backend() = default;

  // All but api_socket, tcp_address, watchers and the rpc limits, which the server fills in.
  virtual absl::StatusOr<v1::GetDaemonReply> GetDaemon(const v1::GetDaemonRequest& request) = 0;

  virtual absl::StatusOr<v1::ListNodesReply> ListNodes(const v1::ListNodesRequest& request) = 0;

  virtual absl::StatusOr<v1::PrepareJobReply> PrepareJob(const v1::PrepareJobRequest& request) = 0;
  virtual absl::StatusOr<v1::ListJobsReply> ListJobs(const v1::ListJobsRequest& request) = 0;
  virtual absl::StatusOr<v1::GetFleetReply> GetFleet(const v1::GetFleetRequest& request) = 0;
  virtual absl::StatusOr<v1::GetJobReply> GetJob(const v1::GetJobRequest& request) = 0;
  // The name and the tags are checked.
  virtual absl::StatusOr<v1::DeleteJobReply> DeleteJob(const v1::DeleteJobRequest& request) = 0;
  virtual absl::StatusOr<v1::UpdateJobReply> UpdateJob(const v1::UpdateJobRequest& request) = 0;

  // The job, as soon as its generation is above `after_generation` (-1: at once), or
  // DeadlineExceeded when it was not within `timeout`. The server calls it in slices of a fraction
  // of a second, so that it notices when a watcher goes away.
  virtual absl::StatusOr<v1::Job> WaitForJob(const std::string& job, int64_t after_generation,
                                             absl::Duration timeout) = 0;

  virtual absl::StatusOr<v1::GetSeqPointsReply> GetSeqPoints(
      const v1::GetSeqPointsRequest& request) = 0;
  // page_size is from 1 to the server's limit here.
  virtual absl::StatusOr<v1::ListIterationsReply> ListIterations(
      const v1::ListIterationsRequest& request) = 0;
  // confidence is set and in (0, 1) in these three.
  virtual absl::StatusOr<v1::ProjectReply> Project(const v1::ProjectRequest& request) = 0;
  virtual absl::StatusOr<v1::GetCountersReply> GetCounters(
      const v1::GetCountersRequest& request) = 0;
  virtual absl::StatusOr<v1::GetKernelsReply> GetKernels(const v1::GetKernelsRequest& request) = 0;
  virtual absl::StatusOr<v1::GetRooflineReply> GetRoofline(
      const v1::GetRooflineRequest& request) = 0;
  virtual absl::StatusOr<v1::GetRanksReply> GetRanks(const v1::GetRanksRequest& request) = 0;
  // confidence is set and in (0, 1).
  virtual absl::StatusOr<v1::CompareReply> Compare(const v1::CompareRequest& request) = 0;

  // Hands the file over in pieces of any size; an empty one only asks. `write` returns false when
  // the client is gone: then stop, and return Cancelled.
  virtual absl::Status Export(const v1::ExportRequest& request,
                              absl::FunctionRef<bool(std::string_view)> write) = 0;

  virtual absl::StatusOr<v1::SetHorizonReply> SetHorizon(const v1::SetHorizonRequest& request) = 0;
  virtual absl::StatusOr<v1::ControlReply> Control(const v1::ControlRequest& request) = 0;

  // The pieces of a log are put together here, its columns checked; confidence is set.
  virtual absl::StatusOr<v1::AnalyzeReply> Analyze(const v1::AnalyzeRequest& request) = 0;
  virtual absl::StatusOr<v1::ImportJobReply> ImportJob(const v1::ImportJobRequest& request) = 0;
  virtual absl::StatusOr<v1::GetPlaylistReply> GetPlaylist(
      const v1::GetPlaylistRequest& request) = 0;
  virtual absl::StatusOr<v1::ProjectPlaylistReply> ProjectPlaylist(
      const v1::ProjectPlaylistRequest& request) = 0;

  // `next` gives the messages in order, checked: the first has the job's name, and no data comes
  // before a file. False: that was the last one. An error (the client is gone, or sent what cannot
  // be): then keep nothing, and return it.
  virtual absl::StatusOr<v1::ImportTraceReply> ImportTrace(
      absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next) = 0;
  // Both take seconds for large traces. `cancelled`: nobody waits for the answer any more; asked
  // now and then, on the caller's thread.
  virtual absl::StatusOr<v1::ReplayReply> Replay(const v1::ReplayRequest& request,
                                                 absl::FunctionRef<bool()> cancelled) = 0;
  // confidence is set and in (0, 1).
  virtual absl::StatusOr<v1::WhatIfReply> WhatIf(const v1::WhatIfRequest& request,
                                                 absl::FunctionRef<bool()> cancelled) = 0;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_BACKEND_H_
