// Rows of iterations, and of what was measured in them.
#include <string.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/base/status_macros.h"
#include "daemon/store/sqlite_store.h"
#include "daemon/store/store.h"

namespace seqpoint {
namespace {

Blob AsBlob(const std::vector<double>& values) {
  return {{reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)}};
}

}  // namespace

absl::Status SqliteStore::Impl::PutIterationRows(const WriteBatch& batch) {
  for (const IterationRow& row : batch.iterations) {
    SEQPOINT_RETURN_IF_ERROR(put_iteration_.RunWith(
        row.job_id, row.rank, row.number, row.incarnation, row.length_count, row.length[0],
        row.length[1], row.start_ns, row.duration_ns, row.level, row.flags, row.config_id,
        row.phase, row.boundary_ns, row.rest_ns));
  }
  for (const ConfigRow& row : batch.configs) {
    SEQPOINT_RETURN_IF_ERROR(
        put_config_.RunWith(row.job_id, row.config_id, row.name, absl::StrJoin(row.metrics, "\n")));
  }
  for (const MeasurementRow& row : batch.measurements) {
    SEQPOINT_RETURN_IF_ERROR(put_measurement_.RunWith(row.job_id, row.rank, row.number,
                                                      row.incarnation, row.config_id, row.complete,
                                                      AsBlob(row.values)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<IterationRow>> SqliteStore::ReadIterations(int64_t job_id, int32_t rank,
                                                                      int64_t first_number,
                                                                      int limit,
                                                                      bool measured_only) {
  // The inner query finds the number at which the page ends.
  const char* filter = measured_only ? " AND config_id > 0" : "";
  std::string sql = absl::StrCat(
      "SELECT job_id, rank, number, incarnation, length_count, length0, length1, start_ns, "
      "duration_ns, level, flags, config_id, phase, boundary_ns, rest_ns FROM iteration "
      "WHERE job_id=?1 AND rank=?2 AND number>=?3",
      filter,
      " AND number<=(SELECT max(number) FROM (SELECT number FROM iteration WHERE job_id=?1 AND "
      "rank=?2 AND number>=?3",
      filter,
      " ORDER BY number, incarnation LIMIT ?4))"
      " ORDER BY number, incarnation");
  return impl_->ReadAll<IterationRow>(
      sql,
      [](Statement& s, IterationRow& row) {
        s.Read(&row.job_id, &row.rank, &row.number, &row.incarnation, &row.length_count,
               &row.length[0], &row.length[1], &row.start_ns, &row.duration_ns, &row.level,
               &row.flags, &row.config_id, &row.phase, &row.boundary_ns, &row.rest_ns);
      },
      job_id, rank, first_number, limit);
}

absl::StatusOr<std::map<int32_t, int64_t>> SqliteStore::CountIterations(int64_t job_id) {
  using RankCount = std::pair<int32_t, int64_t>;
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto counts,
      impl_->ReadAll<RankCount>(
          "SELECT rank, count(*) FROM iteration WHERE job_id=? AND rank>=0 GROUP BY rank",
          [](Statement& s, RankCount& row) { s.Read(&row.first, &row.second); }, job_id));
  return std::map<int32_t, int64_t>(counts.begin(), counts.end());
}

absl::StatusOr<std::vector<ConfigRow>> SqliteStore::ReadConfigs(int64_t job_id) {
  return impl_->ReadAll<ConfigRow>(
      "SELECT job_id, config_id, name, metrics FROM config WHERE job_id=? ORDER BY config_id",
      [](Statement& s, ConfigRow& row) {
        std::string metrics;
        s.Read(&row.job_id, &row.config_id, &row.name, &metrics);
        row.metrics = absl::StrSplit(metrics, '\n', absl::SkipEmpty());
      },
      job_id);
}

absl::StatusOr<std::vector<MeasurementRow>> SqliteStore::ReadMeasurements(int64_t job_id) {
  return impl_->ReadAll<MeasurementRow>(
      "SELECT job_id, rank, number, incarnation, config_id, complete, value_bytes "
      "FROM measurement WHERE job_id=? ORDER BY rank, number, incarnation, config_id",
      [](Statement& s, MeasurementRow& row) {
        std::string bytes;
        s.Read(&row.job_id, &row.rank, &row.number, &row.incarnation, &row.config_id, &row.complete,
               &bytes);
        row.values.resize(bytes.size() / sizeof(double));
        memcpy(row.values.data(), bytes.data(), row.values.size() * sizeof(double));
      },
      job_id);
}

}  // namespace seqpoint
