#include "daemon/store/sqlite_store.h"

#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/store/log_damage.h"
#include "daemon/store/open_database.h"
#include "daemon/store/rows.h"

namespace seqpoint {
SqliteStore::Impl::Impl(FileLock lock, std::unique_ptr<Database> writer,
                        std::unique_ptr<Database> reader)
    : lock_(std::move(lock)),
      writer_(std::move(writer)),
      reserve_(lock_.fd(), absl::StrCat(writer_->path(), "-wal")),
      reader_(std::move(reader)),
      zstd_(ZSTD_createCCtx()) {}

SqliteStore::Impl::~Impl() {
  // The next start then finds no log to replay. That start does what fails here.
  writer_->Exec("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
  ZSTD_freeCCtx(zstd_);
}

absl::Status SqliteStore::Impl::Prepare() {
  absl::MutexLock guard(&writer_mutex_);
  const std::pair<Statement*, const char*> statements[] = {
      {&begin_, "BEGIN IMMEDIATE"},
      {&commit_, "COMMIT"},
      // Names may be exchanged among the jobs of a batch, in any order of its rows.
      {&free_name_,
       "UPDATE job SET name=char(1)||job_id WHERE job_id=?1 AND (name<>?2 OR run_id<>?3)"},
      {&put_job_,
       "INSERT INTO job VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (job_id) DO UPDATE SET "
       "name=excluded.name, run_id=excluded.run_id, host=excluded.host, "
       "command=excluded.command, state=excluded.state, start_ns=excluded.start_ns, "
       "end_ns=excluded.end_ns"},
      {&spare_job_, "DELETE FROM doomed_job WHERE job_id=?"},
      {&put_process_, "INSERT OR REPLACE INTO process VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"},
      {&put_state_, "INSERT OR REPLACE INTO state VALUES (?,?,?,?)"},
      {&delete_state_, "DELETE FROM state WHERE job_id=? AND part=?"},
      {&put_cursor_, "INSERT OR REPLACE INTO ring_cursor VALUES (?,?)"},
      {&delete_cursor_, "DELETE FROM ring_cursor WHERE ring_id=?"},
      {&put_name_, "INSERT OR REPLACE INTO name VALUES (?,?,?,?)"},
      {&put_iteration_, "INSERT OR REPLACE INTO iteration VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
      {&put_config_, "INSERT OR REPLACE INTO config VALUES (?,?,?,?)"},
      {&put_measurement_, "INSERT OR REPLACE INTO measurement VALUES (?,?,?,?,?,?,?)"},
      {&put_trace_segment_, "INSERT INTO trace_segment VALUES (NULL,?,?,?,?,?,?)"},
      {&put_outbox_, "INSERT OR REPLACE INTO outbox VALUES (?,?)"},
      {&set_last_sequence_, "UPDATE node SET last_sequence=?1 WHERE last_sequence<?1"},
      {&set_node_id_, "UPDATE node SET node_id=?"},
      {&delete_outbox_, "DELETE FROM outbox WHERE sequence<=?"},
  };
  for (auto& [statement, sql] : statements) {
    SEQPOINT_ASSIGN_OR_RETURN(*statement, writer_->Prepare(sql));
  }
  for (auto [next, table] : {std::pair(&next_job_id_, "job"), {&next_process_id_, "process"}}) {
    SEQPOINT_ASSIGN_OR_RETURN(
        int64_t last,
        writer_->Int(absl::StrCat("SELECT seq FROM sqlite_sequence WHERE name='", table, "'")));
    *next = last + 1;
  }
  // A job that never became whole still has rows under its id.
  SEQPOINT_ASSIGN_OR_RETURN(int64_t begun, writer_->Int("SELECT max(job_id) FROM doomed_job"));
  next_job_id_ = std::max<int64_t>(next_job_id_, begun + 1);
  return absl::OkStatus();
}

SqliteStore::SqliteStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SqliteStore::~SqliteStore() = default;

absl::StatusOr<std::unique_ptr<Store>> SqliteStore::Open(const std::string& given_path,
                                                         const StoreOptions& options) {
  std::filesystem::path directory = std::filesystem::path(given_path).parent_path();
  std::error_code error;
  if (!directory.empty() && std::filesystem::create_directories(directory, error)) {
    std::filesystem::permissions(directory, std::filesystem::perms::owner_all, error);
  }
  if (error) return FileError("make directory", directory, error.value());
  SEQPOINT_ASSIGN_OR_RETURN(FileLock lock, FileLock::Take(given_path));
  // The log, and a file that is moved aside, lie next to the file itself, not next to a symbolic
  // link to it.
  std::string path = given_path;
  if (std::filesystem::is_symlink(path, error)) path = std::filesystem::canonical(path, error);
  if (error) return FileError("resolve", given_path, error.value());
  std::optional<LogDamage> damage = FindLogDamage(path);
  absl::StatusOr<std::unique_ptr<Database>> writer = OpenDatabase(path, options.vfs);
  if (absl::IsDataLoss(writer.status()) && options.move_corrupt_aside) {
    SEQPOINT_RETURN_IF_ERROR(MoveAside(path));
    damage.reset();  // the new store lacks nothing
    SEQPOINT_ASSIGN_OR_RETURN(lock, FileLock::Take(path));
    writer = OpenDatabase(path, options.vfs);
  }
  if (!writer.ok()) return writer.status();
  SEQPOINT_ASSIGN_OR_RETURN(std::unique_ptr<Database> reader, Database::Open(path, options.vfs));
  SEQPOINT_RETURN_IF_ERROR(reader->Exec("PRAGMA query_only=1; PRAGMA temp_store=MEMORY"));
  auto impl = std::make_unique<Impl>(std::move(lock), *std::move(writer), std::move(reader));
  SEQPOINT_RETURN_IF_ERROR(impl->Prepare());
  if (damage) {
    impl->damage_ = absl::StrCat(
        "the store's log ", path, "-wal is damaged or cut at byte ", damage->offset, ": at least ",
        damage->transactions, damage->transactions == 1 ? " transaction" : " transactions",
        " written there and behind it could not be read, and what they held is lost where the "
        "store does not have it yet; restore the store and its log from a copy, if there is one");
  }
  return std::unique_ptr<Store>(new SqliteStore(std::move(impl)));
}

int64_t SqliteStore::NewJobId() { return impl_->next_job_id_++; }
int64_t SqliteStore::NewProcessId() { return impl_->next_process_id_++; }
const std::string& SqliteStore::damage() const { return impl_->damage_; }
const std::string& SqliteStore::path() const { return impl_->writer_->path(); }

absl::Status SqliteStore::Write(const WriteBatch& batch) {
  SEQPOINT_RETURN_IF_ERROR(CheckRows(batch));
  absl::MutexLock guard(&impl_->writer_mutex_);
  SEQPOINT_RETURN_IF_ERROR(impl_->RenewReserve(batch));
  absl::Status status = impl_->Transact([&]() -> absl::Status {
    SEQPOINT_RETURN_IF_ERROR(impl_->PutJobRows(batch));
    SEQPOINT_RETURN_IF_ERROR(impl_->PutIterationRows(batch));
    SEQPOINT_RETURN_IF_ERROR(impl_->PutTraceRows(batch));
    return impl_->PutOutboxRows(batch);
  });
  // The log may have grown to where the disk ends: merged, it begins again.
  if (absl::IsResourceExhausted(status)) impl_->UseReserve();
  return status;
}

void SqliteStore::Impl::UseReserve() {
  reserve_.OnFull();
  // The log must fit into its part of the reserve: 256 pages of 4 KiB. What fails here comes with
  // the next write.
  writer_->Exec("PRAGMA wal_checkpoint(PASSIVE); PRAGMA wal_autocheckpoint=256").IgnoreError();
}

absl::Status SqliteStore::Impl::RenewReserve(const WriteBatch& batch) {
  const bool was_in_use = reserve_.in_use();
  reserve_.Renew();
  if (reserve_.in_use() && !was_in_use) UseReserve();
  if (!reserve_.in_use() && was_in_use) {
    SEQPOINT_RETURN_IF_ERROR(writer_->Exec("PRAGMA wal_autocheckpoint=4096"));
  }
  if (!reserve_.in_use() || batch.trace_segments.empty()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "store ", writer_->path(), " takes no traces: its file system has less than ",
      DiskReserve::kFileBytes >> 20,
      " MiB, which iterations may need; free space on it, or lower the store's limit"));
}

absl::Status SqliteStore::BeginJob(int64_t job_id) {
  absl::MutexLock guard(&impl_->writer_mutex_);
  return impl_->writer_->Exec(absl::StrCat("INSERT INTO doomed_job VALUES (", job_id, ")"));
}

absl::StatusOr<int64_t> SqliteStore::Bytes() {
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto bytes,
      impl_->ReadFirst<int64_t>(
          "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
          [](Statement& s, int64_t& count) { count = s.Int(); }));
  return bytes.value_or(0);
}

}  // namespace seqpoint
