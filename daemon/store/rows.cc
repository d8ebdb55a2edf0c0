#include "daemon/store/rows.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace seqpoint {
namespace {

constexpr size_t kRingIdBytes = 16;

}  // namespace

absl::Status CheckRows(const WriteBatch& batch) {
  for (const ProcessRow& row : batch.processes) {
    if (row.ring_id.size() != kRingIdBytes) {
      return absl::InvalidArgumentError(absl::StrCat("process ", row.process_id, ": ring id has ",
                                                     row.ring_id.size(), " bytes, not ",
                                                     kRingIdBytes));
    }
  }
  for (const CursorRow& row : batch.cursors) {
    if (row.ring_id.size() != kRingIdBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("cursor: ring id has ", row.ring_id.size(), " bytes, not ", kRingIdBytes));
    }
  }
  for (const ConfigRow& row : batch.configs) {
    for (const std::string& metric : row.metrics) {
      if (metric.empty() || metric.find('\n') != std::string::npos) {
        return absl::InvalidArgumentError(absl::StrCat("configuration ", row.config_id,
                                                       ": metric name \"", metric,
                                                       "\" is empty or has a line break"));
      }
    }
  }
  for (const TraceSegmentRow& row : batch.trace_segments) {
    if (row.records.size() % kTraceRecordBytes != 0 ||
        row.records.size() > static_cast<size_t>(kMaxSegmentBytes)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "trace of iteration ", row.number, ": ", row.records.size(),
          " bytes; it must be a multiple of ", kTraceRecordBytes, ", at most ", kMaxSegmentBytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace seqpoint
