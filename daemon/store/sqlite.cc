#include "daemon/store/sqlite.h"

#include <errno.h>
#include <string.h>

#include "absl/strings/str_cat.h"

namespace seqpoint {
namespace {

// Why the file or its log could not be written: SQLite distinguishes only one kind of full disk
// from other errors, and sqlite3_system_errno() does not cover commits.
int WriteErrno(sqlite3* connection) {
  for (const int which : {SQLITE_FCNTL_FILE_POINTER, SQLITE_FCNTL_JOURNAL_POINTER}) {
    sqlite3_file* file = nullptr;
    sqlite3_file_control(connection, "main", which, &file);
    int error = 0;
    if (file == nullptr || file->pMethods == nullptr) continue;
    file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &error);
    if (error == EFBIG || error == EDQUOT) return error;
  }
  return 0;
}

}  // namespace

absl::Status Statement::Run() {
  while (Next()) {
  }
  absl::Status status = status_;
  Reset();
  return status;
}

bool Statement::Next() {
  if (!status_.ok()) return false;
  next_column_ = 0;
  int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) status_ = database_->Error(code);
  return false;
}

Statement& Statement::Reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  next_parameter_ = 1;
  status_ = absl::OkStatus();
  return *this;
}

Statement& Statement::Bind(int64_t value) {
  sqlite3_bind_int64(statement_.get(), next_parameter_++, value);
  return *this;
}

Statement& Statement::Bind(std::string_view text) {
  // A null pointer would bind NULL.
  sqlite3_bind_text64(statement_.get(), next_parameter_++, text.empty() ? "" : text.data(),
                      text.size(), SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Statement& Statement::Bind(Blob blob) {
  sqlite3_bind_blob64(statement_.get(), next_parameter_++,
                      blob.bytes.empty() ? "" : blob.bytes.data(), blob.bytes.size(),
                      SQLITE_STATIC);
  return *this;
}

int64_t Statement::Int() { return sqlite3_column_int64(statement_.get(), next_column_++); }

std::string Statement::Text() {
  int column = next_column_++;
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  int size = sqlite3_column_bytes(statement_.get(), column);
  return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path,
                                                         const std::string& vfs) {
  auto database = std::unique_ptr<Database>(new Database(path));
  sqlite3* connection = nullptr;
  int code = sqlite3_open_v2(
      path.c_str(), &connection,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
      vfs.empty() ? nullptr : vfs.c_str());
  database->connection_.reset(connection);
  if (code != SQLITE_OK) return database->Error(code);
  sqlite3_extended_result_codes(connection, 1);
  sqlite3_busy_timeout(connection, 5000);
  return database;
}

absl::Status Database::Exec(const std::string& sql) {
  int code = sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<Statement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* raw = nullptr;
  int code = sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  if (code != SQLITE_OK) return Error(code);
  Statement statement;
  statement.database_ = this;
  statement.statement_.reset(raw);
  return statement;
}

void Database::Rollback() {
  if (sqlite3_get_autocommit(connection_.get()) == 0) {
    sqlite3_exec(connection_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

absl::Status Database::Error(int code) const {
  std::string what =
      connection_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(connection_.get());
  std::string thing = absl::StrCat("store ", path_, ": ", what, " (SQLite ", code, ")");
  const int cause = (code & 0xff) == SQLITE_IOERR ? WriteErrno(connection_.get()) : 0;
  if (cause != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(thing, ": ", strerror(cause),
                     "; raise the limit on file sizes (ulimit -f) or the quota of its owner, or "
                     "lower the store's limit"));
  }
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(
          absl::StrCat(thing, "; free space on its file system, or lower the store's limit"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(absl::StrCat(
          thing, "; restore it from a copy, or start with --move-corrupt-store-aside"));
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(absl::StrCat(
          thing, "; make the file and its directory writable, or choose another with --store"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(thing, "; close the program that has it open"));
    case SQLITE_CONSTRAINT:
    case SQLITE_TOOBIG:
    case SQLITE_MISMATCH:
      return absl::InvalidArgumentError(thing);
    case SQLITE_IOERR:
      return absl::UnavailableError(absl::StrCat(thing, "; see the kernel's log for the disk"));
    default:
      return absl::InternalError(thing);
  }
}

}  // namespace seqpoint
