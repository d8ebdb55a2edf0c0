// Checks and defaults of requests.
// Threading: pure functions.
#ifndef DAEMON_RPC_REQUESTS_H_
#define DAEMON_RPC_REQUESTS_H_

#include <string>

#include "absl/status/status.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::rpc {

// InvalidArgument names the field and its value.
absl::Status CheckJobName(const std::string& job);
// The name, the run id, the size of metric sets, and the horizon.
absl::Status CheckPrepare(const v1::PrepareJobRequest& request);
// The name, the run id, the source, and the log.
absl::Status CheckImport(const v1::ImportJobRequest& request);
// Columns of equal size, at least one row, every number in its range. `untimed`: a duration may be
// 0.
absl::Status CheckLog(const char* field, const v1::IterationLog& log, bool untimed = false);
// A request that came in pieces is not too large to keep; else ResourceExhausted.
absl::Status CheckSize(const v1::AnalyzeRequest& request);
absl::Status CheckSize(const v1::ImportJobRequest& request);
// A message of a stream of traces; `any_file`: whether one has begun, before it and then after it.
absl::Status CheckTracePiece(const v1::ImportTraceRequest& piece, bool* any_file);
// Something is asked for, each change is a preset or a text, and all are of a size people write.
absl::Status CheckChanges(const v1::WhatIfRequest& request);
// A status and a signal that a program can end with.
absl::Status CheckProgramEnd(const v1::ControlRequest& request);
// A name that a new job could have, tags of a few letters.
absl::Status CheckUpdate(const v1::UpdateJobRequest& request);
absl::Status CheckShare(const char* field, double share);       // in [0, 1]
absl::Status CheckPoints(int points);                           // measurements of a choice
absl::Status SetConfidence(double confidence, double* result);  // 0 becomes 0.95

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_REQUESTS_H_
