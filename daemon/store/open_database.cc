#include "daemon/store/open_database.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "daemon/base/status_macros.h"
#include "daemon/store/file_lock.h"
#include "daemon/store/schema.h"

namespace seqpoint {
namespace {

// Opening reads the whole file when it is at most this large; in a larger one damage is found when
// the damaged page is read.
constexpr int64_t kCheckedAtOpenBytes = 64 << 20;

absl::Status PrepareSchema(Database& database) {
  SEQPOINT_ASSIGN_OR_RETURN(const int64_t version, database.Int("PRAGMA user_version"));
  SEQPOINT_ASSIGN_OR_RETURN(const int64_t application, database.Int("PRAGMA application_id"));
  SEQPOINT_ASSIGN_OR_RETURN(const int64_t tables,
                            database.Int("SELECT count(*) FROM sqlite_schema"));
  const bool empty = tables == 0 && version == 0;
  if (application != kStoreApplicationId && !empty) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", database.path(),
                     " is a database of another program; choose another file with --store"));
  }
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "store ", database.path(), " has schema version ", version, ", this program knows ",
        kSchemaVersion,
        "; use the newer seqpointd that wrote it, or choose another file with --store"));
  }
  // Only possible before the first table is made.
  if (empty) {
    SEQPOINT_RETURN_IF_ERROR(database.Exec("PRAGMA auto_vacuum=INCREMENTAL"));
  }
  SEQPOINT_RETURN_IF_ERROR(
      database.Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
                    "PRAGMA wal_autocheckpoint=4096; PRAGMA journal_size_limit=67108864;"
                    "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-8192"));
  if (version == kSchemaVersion) return absl::OkStatus();
  std::string sql = "BEGIN IMMEDIATE;";
  if (empty) sql += kSchema;
  for (int64_t from = std::max<int64_t>(version, 1); from < kSchemaVersion; ++from) {
    sql += kMigrations[from - 1];
  }
  absl::StrAppend(&sql, "PRAGMA user_version=", kSchemaVersion,
                  ";PRAGMA application_id=", kStoreApplicationId, ";COMMIT");
  const absl::Status made = database.Exec(sql);
  if (!made.ok()) database.Rollback();
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Database>> OpenDatabase(const std::string& path,
                                                       const std::string& vfs) {
  SEQPOINT_ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(path, vfs));
  struct stat file;
  if (stat(path.c_str(), &file) == 0 && file.st_size <= kCheckedAtOpenBytes) {
    SEQPOINT_ASSIGN_OR_RETURN(std::string check,
                              database->First<std::string>("PRAGMA quick_check(1)"));
    if (check != "ok") {
      return absl::DataLossError(
          absl::StrCat("store ", path, " is damaged: ", absl::StrReplaceAll(check, {{"\n", "; "}}),
                       "; restore it from a copy, or start with --move-corrupt-store-aside"));
    }
  }
  SEQPOINT_RETURN_IF_ERROR(PrepareSchema(*database));
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

}  // namespace seqpoint
