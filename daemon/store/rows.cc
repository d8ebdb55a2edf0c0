#include "daemon/store/rows.h"

#include <zstd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace seqpoint {
namespace {

constexpr size_t kRingIdBytes = 16;
// Behind the id of a node, for the checksum of its last batch.
constexpr size_t kSuffixBytes = 4;

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
    if (row.ring_id.size() != kRingIdBytes && row.ring_id.size() != kRingIdBytes + kSuffixBytes) {
      return absl::InvalidArgumentError(absl::StrCat("cursor: ring id has ", row.ring_id.size(),
                                                     " bytes, not ", kRingIdBytes, " or ",
                                                     kRingIdBytes + kSuffixBytes));
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

absl::Status UnpackRecords(const std::string& compressed, int64_t record_count,
                           const std::string& store, TraceSegmentRow* row) {
  if (record_count < 0 || record_count > kMaxSegmentBytes / kTraceRecordBytes) record_count = 0;
  row->records.resize(record_count * kTraceRecordBytes);
  const size_t size = ZSTD_decompress(row->records.data(), row->records.size(), compressed.data(),
                                      compressed.size());
  if (!ZSTD_isError(size) && size == row->records.size()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("store ", store, ": trace of iteration ", row->number, " of rank ", row->rank,
                   " is damaged; the other iterations are not touched by that"));
}

}  // namespace seqpoint
