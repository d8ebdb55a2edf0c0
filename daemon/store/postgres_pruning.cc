// Removal of jobs and traces, and how much one call does.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/store/iteration_block.h"
#include "daemon/store/postgres_store_impl.h"

namespace seqpoint {
namespace {

// The most that one call of Prune does. A block of iterations counts as so many.
constexpr int64_t kRowsOfOneCall = 20'000;

// 0: there is none.
int64_t FirstId(pqxx::work& transaction, const std::string& sql) {
  const pqxx::result found = transaction.exec(sql);
  return found.empty() ? 0 : found[0][0].as<int64_t>();
}

void Doom(pqxx::work& transaction, int64_t job_id) {
  // The rows that name the job go at once, so that nobody finds half of it; the many rows follow
  // piece by piece. A process' ring can never come back: its cursor goes too.
  for (const char* sql : {"INSERT INTO seqpoint.doomed_job VALUES ($1) ON CONFLICT DO NOTHING",
                          "DELETE FROM seqpoint.job WHERE job_id = $1",
                          "DELETE FROM seqpoint.ring_cursor WHERE ring_id IN "
                          "(SELECT ring_id FROM seqpoint.process WHERE job_id = $1)",
                          "DELETE FROM seqpoint.state WHERE job_id = $1",
                          "DELETE FROM seqpoint.config WHERE job_id = $1"}) {
    transaction.exec_params0(sql, job_id);
  }
}

// Deletes at most `rows_left` rows of a doomed job; counts them off.
void RemoveRows(pqxx::work& transaction, int64_t job_id, int64_t* rows_left) {
  // `KEY` is what names a row of the table, beside the job where it is a part of the key.
  struct Step {
    const char* table;
    const char* key;
    const char* of_job;
    int64_t rows;  // that one row counts as
  };
  static constexpr Step kSteps[] = {
      {"trace_segment", "rank, number, process_id, digest", "job_id = $1", 1},
      {"measurement", "rank, number, incarnation, config_id", "job_id = $1", 1},
      {"iteration_block", "rank, block", "job_id = $1", kBlockNumbers},
      {"damaged_block", "rank, block, damage_id", "job_id = $1", kBlockNumbers},
      // A process goes after its names.
      {"name", "process_id, name_id",
       "process_id IN (SELECT process_id FROM seqpoint.process WHERE job_id = $1)", 1},
      {"process", "process_id", "job_id = $1", 1},
      {"doomed_job", "job_id", "job_id = $1", 1},
  };
  for (const Step& step : kSteps) {
    const pqxx::result removed = transaction.exec_params(
        absl::StrCat("DELETE FROM seqpoint.", step.table, " WHERE ", step.of_job, " AND (",
                     step.key, ") IN (SELECT ", step.key, " FROM seqpoint.", step.table, " WHERE ",
                     step.of_job, " LIMIT $2)"),
        job_id, (*rows_left + step.rows - 1) / step.rows);
    *rows_left -= static_cast<int64_t>(removed.affected_rows()) * step.rows;
    if (*rows_left <= 0) return;
  }
}

void PruneRows(pqxx::work& transaction, const PruneOptions& options, PruneResult* result) {
  // An attempt whose commit is not known may have removed jobs: these are told, too.
  result->more = result->over_limit = false;
  const auto add = [](int64_t id, std::vector<int64_t>& to) {
    if (std::find(to.begin(), to.end(), id) == to.end()) to.push_back(id);
  };
  const std::string kept = absl::StrCat("job_id NOT IN (0", options.keep.empty() ? "" : ", ",
                                        absl::StrJoin(options.keep, ", "), ")");
  // An ended job, oldest first; `condition` narrows.
  const auto oldest_ended = [&](const std::string& condition) {
    return FirstId(transaction,
                   absl::StrCat("SELECT job_id FROM seqpoint.job WHERE end_ns > 0 AND ", kept,
                                " AND ", condition, " ORDER BY end_ns, job_id LIMIT 1"));
  };
  int64_t rows_left = kRowsOfOneCall;
  while (rows_left > 0) {
    const int64_t doomed =
        FirstId(transaction,
                absl::StrCat("SELECT job_id FROM seqpoint.doomed_job WHERE ", kept, " LIMIT 1"));
    if (doomed != 0) {
      RemoveRows(transaction, doomed, &rows_left);
      continue;
    }
    const int64_t old = oldest_ended(absl::StrCat("end_ns < ", options.ended_before_ns));
    if (old != 0) {
      Doom(transaction, old);
      add(old, result->removed_jobs);
      continue;
    }
    if (options.max_bytes <= 0) return;
    if (FirstId(transaction, kUsedBytes) <= options.max_bytes) return;
    const int64_t traced = oldest_ended("job_id IN (SELECT job_id FROM seqpoint.trace_segment)");
    if (traced != 0) {
      rows_left -= static_cast<int64_t>(
          transaction.exec_params0("DELETE FROM seqpoint.trace_segment WHERE job_id = $1", traced)
              .affected_rows());
      add(traced, result->removed_traces);
      continue;
    }
    const int64_t next = oldest_ended("true");
    if (next == 0) {
      result->over_limit = true;
      return;
    }
    Doom(transaction, next);
    add(next, result->removed_jobs);
  }
  result->more = true;
}

}  // namespace

absl::StatusOr<PruneResult> PostgresStore::Prune(const PruneOptions& options) {
  PruneResult result;
  SEQPOINT_RETURN_IF_ERROR(impl_->Transact([&](pqxx::work& transaction) {
    PruneRows(transaction, options, &result);
    result.bytes = FirstId(transaction, kUsedBytes);
    return absl::OkStatus();
  }));
  return result;
}

absl::Status PostgresStore::RemoveJob(int64_t job_id) {
  return impl_->Transact([&](pqxx::work& transaction) {
    Doom(transaction, job_id);
    return absl::OkStatus();
  });
}

}  // namespace seqpoint
