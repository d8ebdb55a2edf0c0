// Opening the database file of a store: its health, its schema, and a damaged file out of the way.
//
// Threading: free functions. Ownership: the caller holds the file's lock (file_lock.h).
#ifndef DAEMON_STORE_OPEN_DATABASE_H_
#define DAEMON_STORE_OPEN_DATABASE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/store/sqlite.h"

namespace seqpoint {

// Makes the tables in an empty file. DataLoss: the file is damaged. FailedPrecondition: another
// program, or a newer version of this one, wrote it.
absl::StatusOr<std::unique_ptr<Database>> OpenDatabase(const std::string& path,
                                                       const std::string& vfs);

// Renames the file and its log to PATH.corrupt-N.
absl::Status MoveAside(const std::string& path);

}  // namespace seqpoint

#endif  // DAEMON_STORE_OPEN_DATABASE_H_
