// Rows of trace records, compressed.
#include <zstd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/store/rows.h"
#include "daemon/store/sqlite_store.h"

namespace seqpoint {

absl::Status SqliteStore::Impl::PutTraceRows(const WriteBatch& batch) {
  for (const TraceSegmentRow& row : batch.trace_segments) {
    compressed_.resize(ZSTD_compressBound(row.records.size()));
    const size_t size = ZSTD_compressCCtx(zstd_, compressed_.data(), compressed_.size(),
                                          row.records.data(), row.records.size(), kTraceZstdLevel);
    if (ZSTD_isError(size)) {
      return absl::InternalError(absl::StrCat("cannot compress the trace of iteration ", row.number,
                                              ": ", ZSTD_getErrorName(size)));
    }
    SEQPOINT_RETURN_IF_ERROR(put_trace_segment_.RunWith(
        row.job_id, row.rank, row.number, row.process_id, row.records.size() / kTraceRecordBytes,
        Blob{{compressed_.data(), size}}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<int32_t, int64_t>>> SqliteStore::ListTraces(int64_t job_id) {
  using Trace = std::pair<int32_t, int64_t>;
  return impl_->ReadAll<Trace>(
      "SELECT DISTINCT rank, number FROM trace_segment WHERE job_id=? ORDER BY rank, number",
      [](Statement& s, Trace& trace) { s.Read(&trace.first, &trace.second); }, job_id);
}

absl::StatusOr<std::vector<TraceSegmentRow>> SqliteStore::ReadTrace(int64_t job_id, int32_t rank,
                                                                    int64_t number) {
  absl::Status damage;
  auto rows = impl_->ReadAll<TraceSegmentRow>(
      "SELECT job_id, rank, number, process_id, record_count, zstd_bytes FROM trace_segment "
      "WHERE job_id=? AND rank=? AND number=? ORDER BY segment_id",
      [&](Statement& s, TraceSegmentRow& row) {
        int64_t record_count = 0;
        std::string compressed;
        s.Read(&row.job_id, &row.rank, &row.number, &row.process_id, &record_count, &compressed);
        damage.Update(UnpackRecords(compressed, record_count, path(), &row));
      },
      job_id, rank, number);
  if (rows.ok() && !damage.ok()) return damage;
  return rows;
}

}  // namespace seqpoint
