// Rows of jobs and processes, their state, their names and their rings' cursors.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/store/sqlite_store.h"
#include "daemon/store/store.h"

namespace seqpoint {
namespace {

constexpr const char* kProcessColumns =
    "SELECT process_id, job_id, rank, incarnation, pid, host, ring_id, text, start_ns, end_ns, "
    "lost, identity FROM process ";

void ReadProcess(Statement& s, ProcessRow& row) {
  s.Read(&row.process_id, &row.job_id, &row.rank, &row.incarnation, &row.pid, &row.host,
         &row.ring_id, &row.text, &row.start_ns, &row.end_ns, &row.lost, &row.identity);
}

constexpr const char* kStateColumns = "SELECT job_id, part, version, bytes FROM state ";

void ReadState(Statement& s, StateRow& row) {
  s.Read(&row.job_id, &row.part, &row.version, &row.bytes);
}

}  // namespace

absl::Status SqliteStore::Impl::PutJobRows(const WriteBatch& batch) {
  for (const JobRow& row : batch.jobs) {
    SEQPOINT_RETURN_IF_ERROR(free_name_.RunWith(row.job_id, row.name, row.run_id));
  }
  for (const JobRow& row : batch.jobs) {
    SEQPOINT_RETURN_IF_ERROR(put_job_.RunWith(row.job_id, row.name, row.run_id, row.host,
                                              row.command, row.state, row.start_ns, row.end_ns));
    SEQPOINT_RETURN_IF_ERROR(spare_job_.RunWith(row.job_id));
  }
  for (const ProcessRow& row : batch.processes) {
    SEQPOINT_RETURN_IF_ERROR(put_process_.RunWith(
        row.process_id, row.job_id, row.rank, row.incarnation, row.pid, row.host, Blob{row.ring_id},
        row.text, row.start_ns, row.end_ns, row.lost, row.identity));
  }
  for (const StateRow& row : batch.states) {
    SEQPOINT_RETURN_IF_ERROR(
        row.bytes.empty() ? delete_state_.RunWith(row.job_id, row.part)
                          : put_state_.RunWith(row.job_id, row.part, row.version, Blob{row.bytes}));
  }
  for (const CursorRow& row : batch.cursors) {
    SEQPOINT_RETURN_IF_ERROR(row.bytes.empty()
                                 ? delete_cursor_.RunWith(Blob{row.ring_id})
                                 : put_cursor_.RunWith(Blob{row.ring_id}, Blob{row.bytes}));
  }
  for (const NameRow& row : batch.names) {
    SEQPOINT_RETURN_IF_ERROR(put_name_.RunWith(row.process_id, row.name_id,
                                               static_cast<int64_t>(row.name_hash), row.text));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JobRow>> SqliteStore::ListJobs() {
  return impl_->ReadAll<JobRow>(
      "SELECT job_id, name, run_id, host, command, state, start_ns, end_ns FROM job "
      "ORDER BY start_ns DESC, job_id DESC",
      [](Statement& s, JobRow& row) {
        s.Read(&row.job_id, &row.name, &row.run_id, &row.host, &row.command, &row.state,
               &row.start_ns, &row.end_ns);
      });
}

absl::StatusOr<std::vector<ProcessRow>> SqliteStore::ListProcesses(int64_t job_id) {
  return impl_->ReadAll<ProcessRow>(
      absl::StrCat(kProcessColumns, "WHERE job_id=? ORDER BY rank, incarnation, process_id"),
      ReadProcess, job_id);
}

absl::StatusOr<std::optional<ProcessRow>> SqliteStore::FindProcess(std::string_view ring_id) {
  return impl_->ReadFirst<ProcessRow>(
      absl::StrCat(kProcessColumns,
                   "WHERE ring_id=? AND job_id IN (SELECT job_id FROM job) "
                   "ORDER BY process_id DESC LIMIT 1"),
      ReadProcess, Blob{ring_id});
}

absl::StatusOr<std::vector<StateRow>> SqliteStore::LoadStates(int64_t job_id) {
  return impl_->ReadAll<StateRow>(absl::StrCat(kStateColumns, "WHERE job_id=? ORDER BY part"),
                                  ReadState, job_id);
}

absl::StatusOr<std::optional<StateRow>> SqliteStore::LoadPart(int64_t job_id,
                                                              std::string_view part) {
  return impl_->ReadFirst<StateRow>(absl::StrCat(kStateColumns, "WHERE job_id=? AND part=?"),
                                    ReadState, job_id, part);
}

absl::StatusOr<std::optional<std::string>> SqliteStore::LoadCursor(std::string_view ring_id) {
  return impl_->ReadFirst<std::string>(
      "SELECT bytes FROM ring_cursor WHERE ring_id=?",
      [](Statement& s, std::string& bytes) { bytes = s.Text(); }, Blob{ring_id});
}

absl::StatusOr<std::vector<NameRow>> SqliteStore::ReadNames(int64_t process_id) {
  return impl_->ReadAll<NameRow>(
      "SELECT process_id, name_id, name_hash, text FROM name WHERE process_id=? ORDER BY name_id",
      [](Statement& s, NameRow& row) {
        s.Read(&row.process_id, &row.name_id, &row.name_hash, &row.text);
      },
      process_id);
}

}  // namespace seqpoint
