// Checks and defaults of requests.
// Threading: pure functions.
#ifndef DAEMON_RPC_REQUESTS_H_
#define DAEMON_RPC_REQUESTS_H_

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/horizon.h"
#include "daemon/base/status_macros.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::rpc {

// InvalidArgument names the field and its value.
absl::Status CheckJobName(const std::string& job);
// Columns of equal size, at least one row, every number in its range. `untimed`: a duration may be
// 0.
absl::Status CheckLog(const char* field, const v1::IterationLog& log, bool untimed = false);
// A request that came in pieces is not too large to keep; else ResourceExhausted.
absl::Status CheckSize(const v1::AnalyzeRequest& request);
absl::Status CheckSize(const v1::ImportJobRequest& request);
// A message of a stream of traces; `any_file`: whether one has begun, before it and then after it.
absl::Status CheckTracePiece(const v1::ImportTraceRequest& piece, bool* any_file);
absl::Status CheckShare(const char* field, double share);       // in [0, 1]
absl::Status CheckPoints(int points);                           // measurements of a choice
absl::Status SetConfidence(double confidence, double* result);  // 0 becomes 0.95
absl::Status SetPageSize(int size, int most, int* result);      // 0 becomes 1,000

// The fields that one kind of request alone has.
// The name, the run id, and the size of metric sets.
absl::Status CheckRest(const v1::PrepareJobRequest& request);
// The name, the run id, the source, and the log.
absl::Status CheckRest(const v1::ImportJobRequest& request);
absl::Status CheckRest(const v1::AnalyzeRequest& request);
absl::Status CheckRest(const v1::CompareRequest& request);
// Something is asked for, each change is a preset or a text, and all are of a size people write.
absl::Status CheckRest(const v1::WhatIfRequest& request);
// A known action, a status and a signal that a program can end with.
absl::Status CheckRest(const v1::ControlRequest& request);
// A name that a new job could have, tags of a few letters.
absl::Status CheckRest(const v1::UpdateJobRequest& request);
inline absl::Status CheckRest(const google::protobuf::Message&) { return absl::OkStatus(); }

// Checks a request, and fills in what it may leave out. A field of the same name means the same in
// every request.
template <typename Request>
absl::Status Complete(int max_page_size, Request* request) {
  if constexpr (requires { CheckJobName(request->job()); }) {
    SEQPOINT_RETURN_IF_ERROR(CheckJobName(request->job()));
  }
  if constexpr (requires { CheckHorizon(request->horizon()); }) {
    SEQPOINT_RETURN_IF_ERROR(CheckHorizon(request->horizon()));
  }
  if constexpr (requires { request->has_part() && request->has_horizon(); }) {
    if (request->has_part() && request->has_horizon()) {
      return absl::InvalidArgumentError(
          "part: not with a horizon, which asks about another run; give one of the two");
    }
  }
  if constexpr (requires { request->limit() < 0; }) {
    if (request->limit() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("limit = ", request->limit(), " is negative"));
    }
  }
  if constexpr (requires { CheckPoints(request->points()); }) {
    SEQPOINT_RETURN_IF_ERROR(CheckPoints(request->points()));
  }
  if constexpr (requires { request->target_error(); }) {
    SEQPOINT_RETURN_IF_ERROR(CheckShare("target_error", request->target_error()));
  }
  if constexpr (requires { request->overhead_budget_share(); }) {
    SEQPOINT_RETURN_IF_ERROR(CheckShare("overhead_budget_share", request->overhead_budget_share()));
  }
  SEQPOINT_RETURN_IF_ERROR(CheckRest(*request));
  if constexpr (requires { request->page_size(); }) {
    int page_size = 0;
    SEQPOINT_RETURN_IF_ERROR(SetPageSize(request->page_size(), max_page_size, &page_size));
    request->set_page_size(page_size);
  }
  if constexpr (requires { request->confidence(); }) {
    double confidence = 0;
    SEQPOINT_RETURN_IF_ERROR(SetConfidence(request->confidence(), &confidence));
    request->set_confidence(confidence);
  }
  return absl::OkStatus();
}

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_REQUESTS_H_
