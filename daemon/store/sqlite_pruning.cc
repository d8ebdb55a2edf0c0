// Removal of jobs and traces, and how much one call does.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/status_macros.h"
#include "daemon/store/sqlite_store.h"
#include "daemon/store/store.h"

namespace seqpoint {
namespace {

// The most that one call of Prune does.
constexpr int kPruneRows = 20'000;
constexpr int kPrunePages = 4'096;

}  // namespace

absl::Status SqliteStore::Impl::DoomJob(int64_t job_id) {
  // The rows that name the job go at once, so that nobody finds half of it; the many rows follow
  // piece by piece. A process' ring can never come back: its cursor goes too.
  return writer_->Exec(absl::StrCat(
      "INSERT OR IGNORE INTO doomed_job VALUES (", job_id, ");",
      "DELETE FROM job WHERE job_id=", job_id, ";",
      "DELETE FROM ring_cursor WHERE ring_id IN (SELECT ring_id FROM process WHERE job_id=", job_id,
      ");", "DELETE FROM state WHERE job_id=", job_id, ";",
      "DELETE FROM config WHERE job_id=", job_id));
}

absl::Status SqliteStore::Impl::RemoveDoomed(int64_t job_id, int64_t* rows_left) {
  // `?1` is the job, `?2` how many rows may go. A process goes after its names.
  static constexpr const char* kSteps[] = {
      "DELETE FROM trace_segment WHERE segment_id IN "
      "(SELECT segment_id FROM trace_segment WHERE job_id=?1 LIMIT ?2)",
      "DELETE FROM measurement WHERE rowid IN "
      "(SELECT rowid FROM measurement WHERE job_id=?1 LIMIT ?2)",
      "DELETE FROM iteration WHERE job_id=?1 AND (rank, number, incarnation) IN "
      "(SELECT rank, number, incarnation FROM iteration WHERE job_id=?1 LIMIT ?2)",
      "DELETE FROM name WHERE (process_id, name_id) IN (SELECT name.process_id, name.name_id "
      "FROM process JOIN name USING (process_id) WHERE job_id=?1 LIMIT ?2)",
      "DELETE FROM process WHERE process_id IN "
      "(SELECT process_id FROM process WHERE job_id=?1 LIMIT ?2)",
      "DELETE FROM doomed_job WHERE job_id=?1 AND ?2 > 0",
  };
  for (const char* sql : kSteps) {
    SEQPOINT_ASSIGN_OR_RETURN(Statement statement, writer_->Prepare(sql));
    SEQPOINT_RETURN_IF_ERROR(statement.Bind(job_id).Bind(*rows_left).Run());
    SEQPOINT_ASSIGN_OR_RETURN(int64_t removed, writer_->Int("SELECT changes()"));
    *rows_left -= removed;
    if (*rows_left <= 0) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SqliteStore::Impl::UsedBytes() {
  return writer_->Int(
      "SELECT (page_count - freelist_count) * page_size "
      "FROM pragma_page_count, pragma_freelist_count, pragma_page_size");
}

absl::Status SqliteStore::Impl::PruneRows(const PruneOptions& options, PruneResult* result) {
  const std::string keep = absl::StrJoin(options.keep, ",");
  // An ended job, oldest first; `condition` narrows. Job id 0: there is none.
  const auto oldest_ended = [&](const std::string& condition) {
    return writer_->Int(absl::StrCat("SELECT job_id FROM job WHERE end_ns > 0 AND job_id NOT IN (",
                                     keep, ") AND ", condition,
                                     " ORDER BY end_ns, job_id LIMIT 1"));
  };
  int64_t rows_left = kPruneRows;
  while (rows_left > 0) {
    SEQPOINT_ASSIGN_OR_RETURN(
        const int64_t doomed,
        writer_->Int(absl::StrCat("SELECT job_id FROM doomed_job WHERE job_id NOT IN (", keep,
                                  ") LIMIT 1")));
    if (doomed != 0) {
      SEQPOINT_RETURN_IF_ERROR(RemoveDoomed(doomed, &rows_left));
      continue;
    }
    SEQPOINT_ASSIGN_OR_RETURN(const int64_t old,
                              oldest_ended(absl::StrCat("end_ns < ", options.ended_before_ns)));
    if (old != 0) {
      SEQPOINT_RETURN_IF_ERROR(DoomJob(old));
      result->removed_jobs.push_back(old);
      continue;
    }
    SEQPOINT_ASSIGN_OR_RETURN(const int64_t bytes, UsedBytes());
    if (options.max_bytes <= 0 || bytes <= options.max_bytes) return absl::OkStatus();
    SEQPOINT_ASSIGN_OR_RETURN(const int64_t traced,
                              oldest_ended("job_id IN (SELECT job_id FROM trace_segment)"));
    if (traced != 0) {
      SEQPOINT_RETURN_IF_ERROR(
          writer_->Exec(absl::StrCat("DELETE FROM trace_segment WHERE job_id=", traced)));
      SEQPOINT_ASSIGN_OR_RETURN(const int64_t removed, writer_->Int("SELECT changes()"));
      rows_left -= removed;
      result->removed_traces.push_back(traced);
      continue;
    }
    SEQPOINT_ASSIGN_OR_RETURN(const int64_t next, oldest_ended("true"));
    if (next == 0) {
      result->over_limit = true;
      return absl::OkStatus();
    }
    SEQPOINT_RETURN_IF_ERROR(DoomJob(next));
    result->removed_jobs.push_back(next);
  }
  result->more = true;
  return absl::OkStatus();
}

absl::StatusOr<PruneResult> SqliteStore::Prune(const PruneOptions& options) {
  absl::MutexLock guard(&impl_->writer_mutex_);
  Database& database = *impl_->writer_;
  PruneResult result;
  SEQPOINT_RETURN_IF_ERROR(impl_->Transact([&] { return impl_->PruneRows(options, &result); }));
  // Returns free pages at the end of the file to the file system.
  SEQPOINT_ASSIGN_OR_RETURN(Statement vacuum, database.Prepare(absl::StrCat(
                                                  "PRAGMA incremental_vacuum(", kPrunePages, ")")));
  SEQPOINT_RETURN_IF_ERROR(vacuum.Run());
  SEQPOINT_ASSIGN_OR_RETURN(const int64_t free_pages, database.Int("PRAGMA freelist_count"));
  SEQPOINT_ASSIGN_OR_RETURN(result.bytes, impl_->UsedBytes());
  result.more = result.more || free_pages > 0;
  return result;
}

absl::Status SqliteStore::RemoveJob(int64_t job_id) {
  absl::MutexLock guard(&impl_->writer_mutex_);
  return impl_->Transact([&] { return impl_->DoomJob(job_id); });
}

}  // namespace seqpoint
