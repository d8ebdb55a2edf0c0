#include "daemon/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "daemon/store/log_damage.h"
#include "daemon/store/schema.h"
#include "daemon/store/sqlite.h"

namespace seqpoint {
namespace {

// Opening reads the whole file when it is at most this large; in a larger one damage is found when
// the damaged page is read.
constexpr int64_t kCheckedAtOpenBytes = 64 << 20;
// Faster than level 1 by an eighth, larger by a seventh: the trace path must keep up with 5 M
// records per second.
constexpr int kZstdLevel = -1;
constexpr int64_t kMaxSegmentBytes = 256 << 20;
// What one call of Prune does at most.
constexpr int kPruneRows = 20'000;
constexpr int kPrunePages = 4'096;

#define SEQPOINT_RETURN_IF_ERROR(expression)                \
  if (absl::Status status_ = (expression); !status_.ok()) { \
    return status_;                                         \
  }

absl::Status FileError(const char* what, const std::string& path, int error) {
  std::string text = absl::StrCat("cannot ", what, " ", path, ": ", strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(absl::StrCat(text, "; free space on its file system"));
    default:
      return absl::PermissionDeniedError(
          absl::StrCat(text, "; make the directory writable, or choose another file with --store"));
  }
}

// Where a daemon of this machine answers, as the kernel lists its sockets; empty: not to be seen.
std::string SocketFolderOf(const std::string& pid) {
  std::vector<std::string> open;  // "socket:[4711]"
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
    std::error_code gone;
    open.push_back(std::filesystem::read_symlink(entry, gone));
  }
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    // "0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/seqpoint/api.sock"
    const size_t path = line.find('/');
    if (path == std::string::npos || !absl::EndsWith(line, "/api.sock")) continue;
    const std::vector<std::string> fields =
        absl::StrSplit(line.substr(0, path), ' ', absl::SkipEmpty());
    const std::string socket = absl::StrCat("socket:[", fields.back(), "]");
    if (std::find(open.begin(), open.end(), socket) != open.end()) {
      return std::filesystem::path(line.substr(path)).parent_path();
    }
  }
  return "";
}

// The process that holds the flock on a file, as the kernel lists it, and how to use it.
std::string OwnerOf(const struct stat& file) {
  std::ifstream locks("/proc/locks");
  const std::string inode = absl::StrCat(":", file.st_ino);
  for (std::string line; std::getline(locks, line);) {
    // "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234567 0 EOF"
    const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields.size() > 5 && fields[1] == "FLOCK" && absl::EndsWith(fields[5], inode)) {
      const std::string folder = SocketFolderOf(fields[4]);
      return absl::StrCat(
          "process ", fields[4], "; ",
          folder.empty() ? "use that daemon" : "to use that daemon set SEQPOINT_DIR=" + folder);
    }
  }
  return "another process; use that daemon";
}

// The lock that keeps a second daemon out, on the database file itself, so that it holds under all
// of the file's names. SQLite's own locks would let two daemons take turns, each with its own idea
// of the jobs; they are of another kind (fcntl) and do not meet this one. But any close() of the
// file ends them: this lock is taken before SQLite opens the file and left after it has closed it.
class FileLock {
 public:
  // Makes an empty file when there is none: SQLite would make it readable by everyone.
  static absl::StatusOr<FileLock> Take(const std::string& path) {
    struct stat named;
    if (stat(path.c_str(), &named) == 0 && !S_ISREG(named.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat("store ", path, " is not a regular file; choose another file with --store"));
    }
    FileLock lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (lock.fd_ < 0) return FileError("open", path, errno);
    struct stat locked;
    if (fstat(lock.fd_, &locked) != 0) return FileError("read", path, errno);
    // A file that has another name by now was moved aside by the daemon that has the new one.
    if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0 || stat(path.c_str(), &named) != 0 ||
        named.st_ino != locked.st_ino || named.st_dev != locked.st_dev) {
      return absl::AlreadyExistsError(
          absl::StrCat("store ", path, " is in use by ", OwnerOf(locked),
                       ", stop it, or choose another file with --store"));
    }
    return lock;
  }

  explicit FileLock(int fd) : fd_(fd) {}
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  int fd_;
};

absl::Status Migrate(Database& database) {
  absl::StatusOr<int64_t> version = database.Int("PRAGMA user_version");
  if (!version.ok()) return version.status();
  absl::StatusOr<int64_t> application = database.Int("PRAGMA application_id");
  if (!application.ok()) return application.status();
  absl::StatusOr<int64_t> tables = database.Int("SELECT count(*) FROM sqlite_schema");
  if (!tables.ok()) return tables.status();

  if (*application != kStoreApplicationId && (*tables != 0 || *version != 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", database.path(),
                     " is a database of another program; choose another file with --store"));
  }
  if (*version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "store ", database.path(), " has schema version ", *version, ", this program knows ",
        kSchemaVersion,
        "; use the newer seqpointd that wrote it, or choose another file with --store"));
  }
  if (*tables == 0) {
    // Only possible before the first table is made.
    SEQPOINT_RETURN_IF_ERROR(database.Exec("PRAGMA auto_vacuum=INCREMENTAL"));
  }
  SEQPOINT_RETURN_IF_ERROR(
      database.Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
                    "PRAGMA wal_autocheckpoint=4096; PRAGMA journal_size_limit=67108864;"
                    "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-8192"));
  for (int64_t step = *version; step < kSchemaVersion; ++step) {
    absl::Status status = database.Exec(
        absl::StrCat("BEGIN IMMEDIATE;", kSchemaSteps[step], "PRAGMA user_version=", step + 1,
                     ";PRAGMA application_id=", kStoreApplicationId, ";COMMIT"));
    if (!status.ok()) {
      database.Rollback();
      return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Database>> OpenChecked(const std::string& path,
                                                      const std::string& vfs) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(path, vfs);
  if (!database.ok()) return database.status();
  struct stat file;
  if (stat(path.c_str(), &file) == 0 && file.st_size <= kCheckedAtOpenBytes) {
    absl::StatusOr<std::string> check = (*database)->Text("PRAGMA quick_check(1)");
    if (!check.ok()) return check.status();
    if (*check != "ok") {
      return absl::DataLossError(
          absl::StrCat("store ", path, " is damaged: ", absl::StrReplaceAll(*check, {{"\n", "; "}}),
                       "; restore it from a copy, or start with --move-corrupt-store-aside"));
    }
  }
  SEQPOINT_RETURN_IF_ERROR(Migrate(**database));
  return database;
}

absl::Status MoveAside(const std::string& path) {
  std::string target;
  for (int i = 1;; ++i) {
    target = absl::StrCat(path, ".corrupt-", i);
    if (access(target.c_str(), F_OK) != 0) break;
  }
  for (const char* suffix : {"", "-wal", "-shm"}) {
    std::string from = path + suffix;
    if (rename(from.c_str(), (target + suffix).c_str()) != 0 && errno != ENOENT) {
      return FileError("rename", from, errno);
    }
  }
  return absl::OkStatus();
}

std::string_view DoublesAsBytes(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

absl::Status Check(const WriteBatch& batch) {
  for (const ProcessRow& row : batch.processes) {
    if (row.ring_id.size() != 16) {
      return absl::InvalidArgumentError(absl::StrCat("process ", row.process_id, ": ring id has ",
                                                     row.ring_id.size(), " bytes, not 16"));
    }
  }
  for (const CursorRow& row : batch.cursors) {
    if (row.ring_id.size() != 16) {
      return absl::InvalidArgumentError(
          absl::StrCat("cursor: ring id has ", row.ring_id.size(), " bytes, not 16"));
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

}  // namespace

bool WriteBatch::Empty() const {
  return jobs.empty() && processes.empty() && states.empty() && cursors.empty() && names.empty() &&
         iterations.empty() && configs.empty() && measurements.empty() && trace_segments.empty();
}

void WriteBatch::Clear() {
  jobs.clear();
  processes.clear();
  states.clear();
  cursors.clear();
  names.clear();
  iterations.clear();
  configs.clear();
  measurements.clear();
  trace_segments.clear();
}

class Store::Impl {
 public:
  Impl(FileLock lock, std::unique_ptr<Database> writer, std::unique_ptr<Database> reader)
      : lock_(std::move(lock)),
        writer_(std::move(writer)),
        reader_(std::move(reader)),
        zstd_(ZSTD_createCCtx()) {}
  ~Impl() {
    // So that the next start finds no log to replay. What fails here is done by that start.
    writer_->Exec("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
    ZSTD_freeCCtx(zstd_);
  }

  absl::Status Prepare() {
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
        {&put_iteration_,
         "INSERT OR REPLACE INTO iteration VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
        {&put_config_, "INSERT OR REPLACE INTO config VALUES (?,?,?,?)"},
        {&put_measurement_, "INSERT OR REPLACE INTO measurement VALUES (?,?,?,?,?,?,?)"},
        {&put_trace_segment_, "INSERT INTO trace_segment VALUES (NULL,?,?,?,?,?,?)"},
    };
    for (auto& [statement, sql] : statements) {
      absl::StatusOr<Statement> prepared = writer_->Prepare(sql);
      if (!prepared.ok()) return prepared.status();
      *statement = *std::move(prepared);
    }
    for (auto [next, table] : {std::pair(&next_job_id_, "job"), {&next_process_id_, "process"}}) {
      absl::StatusOr<int64_t> last =
          writer_->Int(absl::StrCat("SELECT seq FROM sqlite_sequence WHERE name='", table, "'"));
      if (!last.ok()) return last.status();
      *next = *last + 1;
    }
    // A job that never became whole still has rows under its id.
    absl::StatusOr<int64_t> begun = writer_->Int("SELECT max(job_id) FROM doomed_job");
    if (!begun.ok()) return begun.status();
    next_job_id_ = std::max<int64_t>(next_job_id_, *begun + 1);
    return absl::OkStatus();
  }

  // Runs `body` in a transaction on the writing connection.
  template <typename Body>
  absl::Status Transact(Body body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_) {
    SEQPOINT_RETURN_IF_ERROR(begin_.Reset().Run());
    absl::Status status = body();
    if (status.ok()) status = commit_.Reset().Run();
    if (!status.ok()) writer_->Rollback();
    return status;
  }

  absl::Status Apply(const WriteBatch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::Status PutTraceSegment(const TraceSegmentRow& row)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::Status DoomJob(int64_t job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  // Deletes at most `rows_left` rows of a doomed job; counts them off.
  absl::Status RemoveDoomed(int64_t job_id, int64_t* rows_left)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::StatusOr<PruneResult> Prune(const PruneOptions& options);

  // Runs a query and hands each row to `row`. `bind` binds.
  template <typename Bind, typename Row>
  absl::Status Query(std::string_view sql, Bind bind, Row row) {
    absl::MutexLock guard(&reader_mutex_);
    absl::StatusOr<Statement> statement = reader_->Prepare(sql);
    if (!statement.ok()) return statement.status();
    bind(*statement);
    while (statement->Next()) row(*statement);
    return statement->status();
  }

  const FileLock lock_;
  absl::Mutex writer_mutex_;
  const std::unique_ptr<Database> writer_;
  absl::Mutex reader_mutex_;
  const std::unique_ptr<Database> reader_;

  std::string damage_;
  Statement begin_, commit_, free_name_, put_job_, spare_job_, put_process_, put_state_,
      delete_state_, put_cursor_, delete_cursor_, put_name_, put_iteration_, put_config_,
      put_measurement_, put_trace_segment_;
  ZSTD_CCtx* const zstd_;
  std::string compressed_;
  std::atomic<int64_t> next_job_id_{1};
  std::atomic<int64_t> next_process_id_{1};
};

absl::Status Store::Impl::PutTraceSegment(const TraceSegmentRow& row) {
  compressed_.resize(ZSTD_compressBound(row.records.size()));
  size_t size = ZSTD_compressCCtx(zstd_, compressed_.data(), compressed_.size(), row.records.data(),
                                  row.records.size(), kZstdLevel);
  if (ZSTD_isError(size)) {
    return absl::InternalError(absl::StrCat("cannot compress the trace of iteration ", row.number,
                                            ": ", ZSTD_getErrorName(size)));
  }
  return put_trace_segment_.Reset()
      .Bind(row.job_id)
      .Bind(row.rank)
      .Bind(row.number)
      .Bind(row.process_id)
      .Bind(row.records.size() / kTraceRecordBytes)
      .BindBlob({compressed_.data(), size})
      .Run();
}

absl::Status Store::Impl::Apply(const WriteBatch& batch) {
  for (const JobRow& row : batch.jobs) {
    SEQPOINT_RETURN_IF_ERROR(
        free_name_.Reset().Bind(row.job_id).Bind(row.name).Bind(row.run_id).Run());
  }
  for (const JobRow& row : batch.jobs) {
    SEQPOINT_RETURN_IF_ERROR(put_job_.Reset()
                                 .Bind(row.job_id)
                                 .Bind(row.name)
                                 .Bind(row.run_id)
                                 .Bind(row.host)
                                 .Bind(row.command)
                                 .Bind(row.state)
                                 .Bind(row.start_ns)
                                 .Bind(row.end_ns)
                                 .Run());
    SEQPOINT_RETURN_IF_ERROR(spare_job_.Reset().Bind(row.job_id).Run());
  }
  for (const ProcessRow& row : batch.processes) {
    SEQPOINT_RETURN_IF_ERROR(put_process_.Reset()
                                 .Bind(row.process_id)
                                 .Bind(row.job_id)
                                 .Bind(row.rank)
                                 .Bind(row.incarnation)
                                 .Bind(row.pid)
                                 .Bind(row.host)
                                 .BindBlob(row.ring_id)
                                 .Bind(row.text)
                                 .Bind(row.start_ns)
                                 .Bind(row.end_ns)
                                 .Bind(row.lost)
                                 .Bind(row.identity)
                                 .Run());
  }
  for (const StateRow& row : batch.states) {
    if (row.bytes.empty()) {
      SEQPOINT_RETURN_IF_ERROR(delete_state_.Reset().Bind(row.job_id).Bind(row.part).Run());
      continue;
    }
    SEQPOINT_RETURN_IF_ERROR(put_state_.Reset()
                                 .Bind(row.job_id)
                                 .Bind(row.part)
                                 .Bind(row.version)
                                 .BindBlob(row.bytes)
                                 .Run());
  }
  for (const CursorRow& row : batch.cursors) {
    if (row.bytes.empty()) {
      SEQPOINT_RETURN_IF_ERROR(delete_cursor_.Reset().BindBlob(row.ring_id).Run());
    } else {
      SEQPOINT_RETURN_IF_ERROR(put_cursor_.Reset().BindBlob(row.ring_id).BindBlob(row.bytes).Run());
    }
  }
  for (const NameRow& row : batch.names) {
    SEQPOINT_RETURN_IF_ERROR(put_name_.Reset()
                                 .Bind(row.process_id)
                                 .Bind(row.name_id)
                                 .Bind(static_cast<int64_t>(row.name_hash))
                                 .Bind(row.text)
                                 .Run());
  }
  for (const IterationRow& row : batch.iterations) {
    SEQPOINT_RETURN_IF_ERROR(put_iteration_.Reset()
                                 .Bind(row.job_id)
                                 .Bind(row.rank)
                                 .Bind(row.number)
                                 .Bind(row.incarnation)
                                 .Bind(row.length_count)
                                 .Bind(row.length[0])
                                 .Bind(row.length[1])
                                 .Bind(row.start_ns)
                                 .Bind(row.duration_ns)
                                 .Bind(row.level)
                                 .Bind(row.flags)
                                 .Bind(row.config_id)
                                 .Bind(row.phase)
                                 .Bind(row.boundary_ns)
                                 .Bind(row.rest_ns)
                                 .Run());
  }
  for (const ConfigRow& row : batch.configs) {
    std::string metrics = absl::StrJoin(row.metrics, "\n");
    SEQPOINT_RETURN_IF_ERROR(put_config_.Reset()
                                 .Bind(row.job_id)
                                 .Bind(row.config_id)
                                 .Bind(row.name)
                                 .Bind(metrics)
                                 .Run());
  }
  for (const MeasurementRow& row : batch.measurements) {
    SEQPOINT_RETURN_IF_ERROR(put_measurement_.Reset()
                                 .Bind(row.job_id)
                                 .Bind(row.rank)
                                 .Bind(row.number)
                                 .Bind(row.incarnation)
                                 .Bind(row.config_id)
                                 .Bind(row.complete)
                                 .BindBlob(DoublesAsBytes(row.values))
                                 .Run());
  }
  for (const TraceSegmentRow& row : batch.trace_segments) {
    SEQPOINT_RETURN_IF_ERROR(PutTraceSegment(row));
  }
  return absl::OkStatus();
}

absl::Status Store::Impl::DoomJob(int64_t job_id) {
  // The rows that name the job go at once, so that nobody finds half of it; the many rows follow
  // piece by piece. A process' ring can never come back: its cursor goes too.
  return writer_->Exec(absl::StrCat(
      "INSERT OR IGNORE INTO doomed_job VALUES (", job_id, ");",
      "DELETE FROM job WHERE job_id=", job_id, ";",
      "DELETE FROM ring_cursor WHERE ring_id IN (SELECT ring_id FROM process WHERE job_id=", job_id,
      ");", "DELETE FROM state WHERE job_id=", job_id, ";",
      "DELETE FROM config WHERE job_id=", job_id));
}

absl::Status Store::Impl::RemoveDoomed(int64_t job_id, int64_t* rows_left) {
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
    absl::StatusOr<Statement> statement = writer_->Prepare(sql);
    if (!statement.ok()) return statement.status();
    SEQPOINT_RETURN_IF_ERROR(statement->Bind(job_id).Bind(*rows_left).Run());
    absl::StatusOr<int64_t> removed = writer_->Int("SELECT changes()");
    if (!removed.ok()) return removed.status();
    *rows_left -= *removed;
    if (*rows_left <= 0) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<PruneResult> Store::Impl::Prune(const PruneOptions& options) {
  absl::MutexLock guard(&writer_mutex_);
  PruneResult result;
  auto used_bytes = [&] {
    return writer_->Int(
        "SELECT (page_count - freelist_count) * page_size "
        "FROM pragma_page_count, pragma_freelist_count, pragma_page_size");
  };
  // An ended job, oldest first; `condition` narrows. Job id 0: there is none.
  const std::string keep = absl::StrJoin(options.keep, ",");
  auto oldest_ended = [&](const std::string& condition) {
    return writer_->Int(absl::StrCat("SELECT job_id FROM job WHERE end_ns > 0 AND job_id NOT IN (",
                                     keep, ") AND ", condition,
                                     " ORDER BY end_ns, job_id LIMIT 1"));
  };

  int64_t rows_left = kPruneRows;
  absl::Status status = Transact([&]() -> absl::Status {
    while (rows_left > 0) {
      absl::StatusOr<int64_t> doomed = writer_->Int(
          absl::StrCat("SELECT job_id FROM doomed_job WHERE job_id NOT IN (", keep, ") LIMIT 1"));
      if (!doomed.ok()) return doomed.status();
      if (*doomed != 0) {
        SEQPOINT_RETURN_IF_ERROR(RemoveDoomed(*doomed, &rows_left));
        continue;
      }
      absl::StatusOr<int64_t> old =
          oldest_ended(absl::StrCat("end_ns < ", options.ended_before_ns));
      if (!old.ok()) return old.status();
      if (*old != 0) {
        SEQPOINT_RETURN_IF_ERROR(DoomJob(*old));
        result.removed_jobs.push_back(*old);
        continue;
      }
      absl::StatusOr<int64_t> bytes = used_bytes();
      if (!bytes.ok()) return bytes.status();
      if (options.max_bytes <= 0 || *bytes <= options.max_bytes) return absl::OkStatus();
      absl::StatusOr<int64_t> traced = oldest_ended("job_id IN (SELECT job_id FROM trace_segment)");
      if (!traced.ok()) return traced.status();
      if (*traced != 0) {
        SEQPOINT_RETURN_IF_ERROR(
            writer_->Exec(absl::StrCat("DELETE FROM trace_segment WHERE job_id=", *traced)));
        absl::StatusOr<int64_t> removed = writer_->Int("SELECT changes()");
        if (!removed.ok()) return removed.status();
        rows_left -= *removed;
        result.removed_traces.push_back(*traced);
        continue;
      }
      absl::StatusOr<int64_t> next = oldest_ended("true");
      if (!next.ok()) return next.status();
      if (*next == 0) {
        result.over_limit = true;
        return absl::OkStatus();
      }
      SEQPOINT_RETURN_IF_ERROR(DoomJob(*next));
      result.removed_jobs.push_back(*next);
    }
    result.more = true;
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  // Returns free pages at the end of the file to the file system.
  absl::StatusOr<Statement> vacuum =
      writer_->Prepare(absl::StrCat("PRAGMA incremental_vacuum(", kPrunePages, ")"));
  if (!vacuum.ok()) return vacuum.status();
  SEQPOINT_RETURN_IF_ERROR(vacuum->Run());
  absl::StatusOr<int64_t> free_pages = writer_->Int("PRAGMA freelist_count");
  if (!free_pages.ok()) return free_pages.status();
  absl::StatusOr<int64_t> bytes = used_bytes();
  if (!bytes.ok()) return bytes.status();
  result.bytes = *bytes;
  result.more = result.more || *free_pages > 0;
  return result;
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& given_path,
                                                   const StoreOptions& options) {
  std::filesystem::path directory = std::filesystem::path(given_path).parent_path();
  std::error_code error;
  if (!directory.empty() && std::filesystem::create_directories(directory, error)) {
    std::filesystem::permissions(directory, std::filesystem::perms::owner_all, error);
  }
  if (error) return FileError("make directory", directory, error.value());
  absl::StatusOr<FileLock> lock = FileLock::Take(given_path);
  if (!lock.ok()) return lock.status();
  // The log is beside the file, not beside a symbolic link to it; so is what is moved aside.
  std::string path = given_path;
  if (std::filesystem::is_symlink(path, error)) path = std::filesystem::canonical(path, error);
  if (error) return FileError("resolve", given_path, error.value());
  std::optional<LogDamage> damage = FindLogDamage(path);
  absl::StatusOr<std::unique_ptr<Database>> writer = OpenChecked(path, options.vfs);
  if (absl::IsDataLoss(writer.status()) && options.move_corrupt_aside) {
    SEQPOINT_RETURN_IF_ERROR(MoveAside(path));
    damage.reset();  // the new store lacks nothing
    absl::StatusOr<FileLock> new_lock = FileLock::Take(path);
    if (!new_lock.ok()) return new_lock.status();
    *lock = *std::move(new_lock);
    writer = OpenChecked(path, options.vfs);
  }
  if (!writer.ok()) return writer.status();
  absl::StatusOr<std::unique_ptr<Database>> reader = Database::Open(path, options.vfs);
  if (!reader.ok()) return reader.status();
  SEQPOINT_RETURN_IF_ERROR((*reader)->Exec("PRAGMA query_only=1; PRAGMA temp_store=MEMORY"));
  auto impl = std::make_unique<Impl>(*std::move(lock), *std::move(writer), *std::move(reader));
  SEQPOINT_RETURN_IF_ERROR(impl->Prepare());
  if (damage) {
    impl->damage_ = absl::StrCat(
        "the store's log ", path, "-wal is damaged or cut at byte ", damage->offset, ": at least ",
        damage->transactions, damage->transactions == 1 ? " transaction" : " transactions",
        " written there and behind it could not be read, and what they held is lost where the "
        "store does not have it yet; restore the store and its log from a copy, if there is one");
  }
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

int64_t Store::NewJobId() { return impl_->next_job_id_++; }
int64_t Store::NewProcessId() { return impl_->next_process_id_++; }
const std::string& Store::damage() const { return impl_->damage_; }
const std::string& Store::path() const { return impl_->writer_->path(); }

absl::Status Store::Write(const WriteBatch& batch) {
  SEQPOINT_RETURN_IF_ERROR(Check(batch));
  absl::MutexLock guard(&impl_->writer_mutex_);
  return impl_->Transact([&] { return impl_->Apply(batch); });
}

absl::Status Store::BeginJob(int64_t job_id) {
  absl::MutexLock guard(&impl_->writer_mutex_);
  return impl_->writer_->Exec(absl::StrCat("INSERT INTO doomed_job VALUES (", job_id, ")"));
}

absl::StatusOr<std::vector<JobRow>> Store::ListJobs() {
  std::vector<JobRow> rows;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT job_id, name, run_id, host, command, state, start_ns, end_ns FROM job "
      "ORDER BY start_ns DESC, job_id DESC",
      [](Statement&) {},
      [&](Statement& s) {
        JobRow& row = rows.emplace_back();
        row.job_id = s.Int();
        row.name = s.Text();
        row.run_id = s.Text();
        row.host = s.Text();
        row.command = s.Text();
        row.state = static_cast<int32_t>(s.Int());
        row.start_ns = s.Int();
        row.end_ns = s.Int();
      }));
  return rows;
}

namespace {

constexpr const char* kProcessColumns =
    "SELECT process_id, job_id, rank, incarnation, pid, host, ring_id, text, start_ns, end_ns, "
    "lost, identity FROM process ";

ProcessRow ReadProcess(Statement& s) {
  ProcessRow row;
  row.process_id = s.Int();
  row.job_id = s.Int();
  row.rank = static_cast<int32_t>(s.Int());
  row.incarnation = static_cast<int32_t>(s.Int());
  row.pid = static_cast<int32_t>(s.Int());
  row.host = s.Text();
  row.ring_id = s.Text();
  row.text = s.Text();
  row.start_ns = s.Int();
  row.end_ns = s.Int();
  row.lost = s.Int() != 0;
  row.identity = s.Text();
  return row;
}

}  // namespace

absl::StatusOr<std::vector<ProcessRow>> Store::ListProcesses(int64_t job_id) {
  std::vector<ProcessRow> rows;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      absl::StrCat(kProcessColumns, "WHERE job_id=? ORDER BY rank, incarnation, process_id"),
      [&](Statement& s) { s.Bind(job_id); },
      [&](Statement& s) { rows.push_back(ReadProcess(s)); }));
  return rows;
}

absl::StatusOr<std::optional<ProcessRow>> Store::FindProcess(std::string_view ring_id) {
  std::optional<ProcessRow> found;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      absl::StrCat(kProcessColumns,
                   "WHERE ring_id=? AND job_id IN (SELECT job_id FROM job) "
                   "ORDER BY process_id DESC LIMIT 1"),
      [&](Statement& s) { s.BindBlob(ring_id); }, [&](Statement& s) { found = ReadProcess(s); }));
  return found;
}

absl::StatusOr<std::vector<StateRow>> Store::LoadStates(int64_t job_id) {
  std::vector<StateRow> rows;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT part, version, bytes FROM state WHERE job_id=? ORDER BY part",
      [&](Statement& s) { s.Bind(job_id); },
      [&](Statement& s) {
        StateRow& row = rows.emplace_back();
        row.job_id = job_id;
        row.part = s.Text();
        row.version = static_cast<int32_t>(s.Int());
        row.bytes = s.Text();
      }));
  return rows;
}

absl::StatusOr<std::optional<StateRow>> Store::LoadPart(int64_t job_id, std::string_view part) {
  std::optional<StateRow> row;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT version, bytes FROM state WHERE job_id=? AND part=?",
      [&](Statement& s) { s.Bind(job_id).Bind(part); },
      [&](Statement& s) {
        row = StateRow{.job_id = job_id, .part = std::string(part)};
        row->version = static_cast<int32_t>(s.Int());
        row->bytes = s.Text();
      }));
  return row;
}

absl::Status Store::RemoveJob(int64_t job_id) {
  absl::MutexLock guard(&impl_->writer_mutex_);
  return impl_->Transact([&] { return impl_->DoomJob(job_id); });
}

absl::StatusOr<std::map<int32_t, int64_t>> Store::CountIterations(int64_t job_id) {
  std::map<int32_t, int64_t> ranks;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT rank, count(*) FROM iteration WHERE job_id=? AND rank>=0 GROUP BY rank",
      [&](Statement& s) { s.Bind(job_id); },
      [&](Statement& s) {
        const auto rank = static_cast<int32_t>(s.Int());
        ranks[rank] = s.Int();
      }));
  return ranks;
}

absl::StatusOr<std::optional<std::string>> Store::LoadCursor(std::string_view ring_id) {
  std::optional<std::string> bytes;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT bytes FROM ring_cursor WHERE ring_id=?", [&](Statement& s) { s.BindBlob(ring_id); },
      [&](Statement& s) { bytes = s.Text(); }));
  return bytes;
}

absl::StatusOr<std::vector<NameRow>> Store::ReadNames(int64_t process_id) {
  std::vector<NameRow> rows;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT name_id, name_hash, text FROM name WHERE process_id=? ORDER BY name_id",
      [&](Statement& s) { s.Bind(process_id); },
      [&](Statement& s) {
        NameRow& row = rows.emplace_back();
        row.process_id = process_id;
        row.name_id = static_cast<uint32_t>(s.Int());
        row.name_hash = static_cast<uint64_t>(s.Int());
        row.text = s.Text();
      }));
  return rows;
}

absl::StatusOr<std::vector<ConfigRow>> Store::ReadConfigs(int64_t job_id) {
  std::vector<ConfigRow> rows;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT config_id, name, metrics FROM config WHERE job_id=? ORDER BY config_id",
      [&](Statement& s) { s.Bind(job_id); },
      [&](Statement& s) {
        ConfigRow& row = rows.emplace_back();
        row.job_id = job_id;
        row.config_id = static_cast<uint32_t>(s.Int());
        row.name = s.Text();
        row.metrics = absl::StrSplit(s.Text(), '\n', absl::SkipEmpty());
      }));
  return rows;
}

absl::StatusOr<std::vector<MeasurementRow>> Store::ReadMeasurements(int64_t job_id) {
  std::vector<MeasurementRow> rows;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT rank, number, incarnation, config_id, complete, value_bytes FROM measurement "
      "WHERE job_id=? ORDER BY rank, number, incarnation, config_id",
      [&](Statement& s) { s.Bind(job_id); },
      [&](Statement& s) {
        MeasurementRow& row = rows.emplace_back();
        row.job_id = job_id;
        row.rank = static_cast<int32_t>(s.Int());
        row.number = s.Int();
        row.incarnation = static_cast<int32_t>(s.Int());
        row.config_id = static_cast<uint32_t>(s.Int());
        row.complete = s.Int() != 0;
        std::string bytes = s.Text();
        row.values.resize(bytes.size() / sizeof(double));
        memcpy(row.values.data(), bytes.data(), row.values.size() * sizeof(double));
      }));
  return rows;
}

absl::StatusOr<std::vector<IterationRow>> Store::ReadIterations(int64_t job_id, int32_t rank,
                                                                int64_t first_number, int limit,
                                                                bool measured_only) {
  // The inner query finds the number at which the page ends.
  const char* filter = measured_only ? " AND config_id > 0" : "";
  std::string sql = absl::StrCat(
      "SELECT number, incarnation, length_count, length0, length1, start_ns, duration_ns, level, "
      "flags, config_id, phase, boundary_ns, rest_ns FROM iteration WHERE job_id=?1 AND rank=?2 "
      "AND "
      "number>=?3",
      filter,
      " AND number<=(SELECT max(number) FROM (SELECT number FROM iteration WHERE job_id=?1 AND "
      "rank=?2 AND number>=?3",
      filter,
      " ORDER BY number, incarnation LIMIT ?4))"
      " ORDER BY number, incarnation");
  std::vector<IterationRow> rows;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      sql, [&](Statement& s) { s.Bind(job_id).Bind(rank).Bind(first_number).Bind(limit); },
      [&](Statement& s) {
        IterationRow& row = rows.emplace_back();
        row.job_id = job_id;
        row.rank = rank;
        row.number = s.Int();
        row.incarnation = static_cast<int32_t>(s.Int());
        row.length_count = static_cast<int32_t>(s.Int());
        row.length[0] = s.Int();
        row.length[1] = s.Int();
        row.start_ns = s.Int();
        row.duration_ns = s.Int();
        row.level = static_cast<int32_t>(s.Int());
        row.flags = static_cast<uint32_t>(s.Int());
        row.config_id = static_cast<uint32_t>(s.Int());
        row.phase = static_cast<int32_t>(s.Int());
        row.boundary_ns = s.Int();
        row.rest_ns = s.Int();
      }));
  return rows;
}

absl::StatusOr<std::vector<std::pair<int32_t, int64_t>>> Store::ListTraces(int64_t job_id) {
  std::vector<std::pair<int32_t, int64_t>> traces;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT DISTINCT rank, number FROM trace_segment WHERE job_id=? ORDER BY rank, number",
      [&](Statement& s) { s.Bind(job_id); },
      [&](Statement& s) {
        int32_t rank = static_cast<int32_t>(s.Int());
        traces.emplace_back(rank, s.Int());
      }));
  return traces;
}

absl::StatusOr<std::vector<TraceSegmentRow>> Store::ReadTrace(int64_t job_id, int32_t rank,
                                                              int64_t number) {
  std::vector<TraceSegmentRow> rows;
  absl::Status damage;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT process_id, record_count, zstd_bytes FROM trace_segment "
      "WHERE job_id=? AND rank=? AND number=? ORDER BY segment_id",
      [&](Statement& s) { s.Bind(job_id).Bind(rank).Bind(number); },
      [&](Statement& s) {
        TraceSegmentRow& row = rows.emplace_back();
        row.job_id = job_id;
        row.rank = rank;
        row.number = number;
        row.process_id = s.Int();
        int64_t record_count = s.Int();
        std::string compressed = s.Text();
        if (record_count < 0 || record_count > kMaxSegmentBytes / kTraceRecordBytes) {
          record_count = 0;
        }
        row.records.resize(record_count * kTraceRecordBytes);
        size_t size = ZSTD_decompress(row.records.data(), row.records.size(), compressed.data(),
                                      compressed.size());
        if (ZSTD_isError(size) || size != row.records.size()) {
          damage = absl::DataLossError(
              absl::StrCat("store ", path(), ": trace of iteration ", number, " of rank ", rank,
                           " is damaged; the other iterations are not touched by that"));
        }
      }));
  if (!damage.ok()) return damage;
  return rows;
}

absl::StatusOr<PruneResult> Store::Prune(const PruneOptions& options) {
  return impl_->Prune(options);
}

absl::StatusOr<int64_t> Store::Bytes() {
  int64_t bytes = 0;
  SEQPOINT_RETURN_IF_ERROR(impl_->Query(
      "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", [](Statement&) {},
      [&](Statement& s) { bytes = s.Int(); }));
  return bytes;
}

}  // namespace seqpoint
