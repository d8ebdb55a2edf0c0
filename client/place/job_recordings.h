// The recordings of a job that `seqpoint run --operators` made, and how much of the run each stands
// for (docs/formats/operator-costs.md, "By seqpoint run").
// Threading: none. Ownership: values only.
#ifndef CLIENT_PLACE_JOB_RECORDINGS_H_
#define CLIENT_PLACE_JOB_RECORDINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/place/recordings.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

struct JobRecordings {
  std::string job;                    // "train@20261123-101500-7f3a"
  std::vector<TraceArgument> traces;  // with names and weights
  std::string note;                   // a sentence; empty: all SeqPoints were recorded
};

// Asks the daemon about the job. `socket`: the daemon's; empty: it is searched for. The daemon's
// errors, and FailedPrecondition with a sentence where nothing was recorded or the files are not on
// this machine.
absl::StatusOr<JobRecordings> FindJobRecordings(const std::string& socket, const std::string& job);

// The same without a daemon: the files of the job's folder, weighted by its SeqPoints. Each
// SeqPoint counts for the recorded length that is nearest to its own.
absl::StatusOr<JobRecordings> WeighJobRecordings(const v1::Job& job,
                                                 const v1::GetSeqPointsReply& seqpoints);

}  // namespace seqpoint::client

#endif  // CLIENT_PLACE_JOB_RECORDINGS_H_
