#include "daemon/rpc/requests.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/horizon.h"
#include "daemon/base/limits.h"

namespace seqpoint::rpc {
namespace {

// Beyond these nothing real is meant, and sums stay exact in a double.
constexpr double kMinDuration = 1e-18;  // squares of shorter ones vanish
constexpr double kMaxDuration = 1e18;
constexpr int kMaxLogRows = 1 << 22;
constexpr int kMaxPoints = 1'000'000;
constexpr size_t kMaxChangeBytes = size_t{64} << 10;
constexpr int kMaxChanges = 64;
constexpr size_t kMostTagBytes = 64;

absl::Status CheckLogSize(const v1::IterationLog& log) {
  if (std::max({log.lengths_size(), log.second_lengths_size(), log.durations_size(),
                log.groups_size()}) <= kMaxLogRows) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the log has more than ", kMaxLogRows,
                   " iterations, which is as many as this daemon takes; send a part of it"));
}

absl::Status CheckBytes(const std::string& field, const std::string& text, size_t most) {
  if (text.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", text.size(), " bytes; it may have ", most));
}

}  // namespace

absl::Status CheckJobName(const std::string& job) {
  if (!job.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("job is empty; give its id or name, as ListJobs shows them");
}

absl::Status CheckRest(const v1::CompareRequest& request) {
  SEQPOINT_RETURN_IF_ERROR(CheckJobName(request.base()));
  return CheckJobName(request.other());
}

absl::Status CheckRest(const v1::AnalyzeRequest& request) {
  SEQPOINT_RETURN_IF_ERROR(CheckLog("log", request.log()));
  return request.has_against() ? CheckLog("against", request.against()) : absl::OkStatus();
}

absl::Status CheckRest(const v1::ControlRequest& request) {
  constexpr int32_t kMostStatus = 255, kMostSignal = 64;
  if (request.exit_status() < 0 || request.exit_status() > kMostStatus) {
    return absl::InvalidArgumentError(
        absl::StrCat("exit_status = ", request.exit_status(), " is not in 0 ... ", kMostStatus));
  }
  if (request.signal() < 0 || request.signal() > kMostSignal) {
    return absl::InvalidArgumentError(
        absl::StrCat("signal = ", request.signal(), " is not in 0 ... ", kMostSignal));
  }
  if (!v1::ControlRequest::Action_IsValid(request.action()) ||
      request.action() == v1::ControlRequest::ACTION_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat("action = ", static_cast<int>(request.action()),
                                                   " is not one that this daemon knows"));
  }
  return CheckJobText("launch", request.launch());
}

absl::Status CheckRest(const v1::UpdateJobRequest& request) {
  if (!request.name().empty()) {
    SEQPOINT_RETURN_IF_ERROR(CheckNewJob(request.name(), ""));
  }
  for (const auto* tags : {&request.add_tags(), &request.remove_tags()}) {
    for (const std::string& tag : *tags) {
      // A comma parts tags on the command line.
      if (tag.empty() || tag.find(',') != std::string::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("tag \"", tag, "\" is ", tag.empty() ? "empty" : "two: it has a comma"));
      }
      SEQPOINT_RETURN_IF_ERROR(CheckJobText("tag", tag));
      SEQPOINT_RETURN_IF_ERROR(CheckBytes("tag", tag, kMostTagBytes));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLog(const char* field, const v1::IterationLog& log, bool untimed) {
  const int rows = log.lengths_size();
  const auto error = [&](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", parts...));
  };
  if (rows == 0) return error("it has no iteration");
  if (log.durations_size() != rows ||
      (log.second_lengths_size() != 0 && log.second_lengths_size() != rows) ||
      (log.groups_size() != 0 && log.groups_size() != rows)) {
    return error("lengths, second_lengths, durations and groups have ", rows, ", ",
                 log.second_lengths_size(), ", ", log.durations_size(), " and ", log.groups_size(),
                 " entries; all that are not empty must have the same");
  }
  int without_time = 0;
  for (int i = 0; i < rows; ++i) {
    const auto bad = [](int64_t length) { return length < 0 || length > kMaxLength; };
    if (bad(log.lengths(i))) return error("lengths[", i, "] = ", log.lengths(i), " is no length");
    if (log.second_lengths_size() > 0 && bad(log.second_lengths(i))) {
      return error("second_lengths[", i, "] = ", log.second_lengths(i), " is no length");
    }
    if (untimed && log.durations(i) == 0) {
      ++without_time;
    } else if (!(log.durations(i) >= kMinDuration && log.durations(i) <= kMaxDuration)) {
      return error("durations[", i, "] = ", log.durations(i), " is not a positive number in ",
                   kMinDuration, " ... ", kMaxDuration);
    }
    if (log.groups_size() > 0 && (log.groups(i) < 0 || log.groups(i) >= rows)) {
      return error("groups[", i, "] = ", log.groups(i), " is not in 0 ... ", rows - 1);
    }
  }
  if (without_time == rows) return error("none of its iterations has a time");
  return absl::OkStatus();
}

absl::Status CheckSize(const v1::AnalyzeRequest& request) {
  SEQPOINT_RETURN_IF_ERROR(CheckLogSize(request.log()));
  SEQPOINT_RETURN_IF_ERROR(CheckLogSize(request.against()));
  if (request.horizon().histogram_size() <= kMaxLogRows) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("horizon: the histogram has more than ", kMaxLogRows,
                   " entries, which is as many as this daemon takes"));
}

absl::Status CheckSize(const v1::ImportJobRequest& request) { return CheckLogSize(request.log()); }

absl::Status CheckTracePiece(const v1::ImportTraceRequest& piece, bool* any_file) {
  *any_file = *any_file || !piece.file().empty();
  if (!*any_file && !piece.data().empty()) {
    return absl::InvalidArgumentError("data comes before a file; say in `file` which one begins");
  }
  for (const auto& [field, text] : {std::pair("run_id", &piece.run_id()),
                                    {"marker", &piece.marker()},
                                    {"file", &piece.file()}}) {
    SEQPOINT_RETURN_IF_ERROR(CheckBytes(field, *text, kMaxWordBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckRest(const v1::WhatIfRequest& request) {
  if (request.list() == (request.changes_size() > 0)) {
    return absl::InvalidArgumentError(
        request.list() ? "list goes without changes: it tries each preset on its own"
                       : "changes is empty; give a preset or steps, or set list");
  }
  if (request.changes_size() > kMaxChanges) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", request.changes_size(), " changes; there may be ", kMaxChanges));
  }
  for (int i = 0; i < request.changes_size(); ++i) {
    const v1::WhatIfChange& change = request.changes(i);
    const std::string field = absl::StrCat("changes[", i, "]");
    if (change.preset().empty() == change.text().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, change.text().empty() ? ": neither preset nor text is given"
                                                    : ": give a preset or a text, not both"));
    }
    for (const auto& [name, text, most] : {std::tuple(".preset", &change.preset(), kMaxWordBytes),
                                           {".text", &change.text(), kMaxChangeBytes},
                                           {".name", &change.name(), kMaxWordBytes},
                                           {".parameters", &change.parameters(), kMaxWordBytes}}) {
      SEQPOINT_RETURN_IF_ERROR(CheckBytes(field + name, *text, most));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRest(const v1::ImportJobRequest& request) {
  SEQPOINT_RETURN_IF_ERROR(CheckNewJob(request.name(), request.run_id()));
  SEQPOINT_RETURN_IF_ERROR(CheckBytes("source", request.source(), kMaxWordBytes));
  return CheckLog("log", request.log(), /*untimed=*/true);
}

absl::Status CheckRest(const v1::PrepareJobRequest& request) {
  SEQPOINT_RETURN_IF_ERROR(CheckNewJob(request.name(), request.run_id()));
  size_t bytes = 0;
  for (const std::string& name : request.metric_sets()) bytes += name.size() + 1;
  for (const v1::MetricSet& set : request.own_metric_sets()) bytes += set.ByteSizeLong();
  if (bytes > kMaxMetricSetsBytes) {
    return absl::InvalidArgumentError(absl::StrCat("metric_sets and own_metric_sets have ", bytes,
                                                   " bytes; they may have ", kMaxMetricSetsBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckShare(const char* field, double share) {
  if (share >= 0 && share <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " = ", share, " is not in [0, 1]"));
}

absl::Status CheckPoints(int points) {
  if (points >= 0 && points <= kMaxPoints) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("points = ", points, " is not in 0 ... ", kMaxPoints));
}

absl::Status SetPageSize(int size, int most, int* result) {
  constexpr int kDefaultPageSize = 1'000;
  *result = std::min(size == 0 ? kDefaultPageSize : size, most);
  if (size >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("page_size = ", size, " is negative"));
}

absl::Status SetConfidence(double confidence, double* result) {
  *result = confidence == 0 ? 0.95 : confidence;
  if (*result > 0 && *result < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("confidence = ", confidence, " is not in (0, 1)"));
}

}  // namespace seqpoint::rpc
