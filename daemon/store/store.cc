#include "daemon/store/store.h"

#include "absl/strings/match.h"
#include "daemon/store/postgres_store.h"
#include "daemon/store/sqlite_store.h"

namespace seqpoint {

bool WriteBatch::Empty() const {
  return jobs.empty() && processes.empty() && states.empty() && cursors.empty() && names.empty() &&
         iterations.empty() && configs.empty() && measurements.empty() && trace_segments.empty() &&
         outbox.empty() && acknowledged == 0;
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& address,
                                                   const StoreOptions& options) {
  if (absl::StartsWith(address, "postgresql:") || absl::StartsWith(address, "postgres:")) {
    return PostgresStore::Open(address, options);
  }
  return SqliteStore::Open(address, options);
}

}  // namespace seqpoint
