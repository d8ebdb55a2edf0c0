#include "daemon/store/store.h"

#include "daemon/store/postgres_store.h"
#include "daemon/store/sqlite_store.h"

namespace seqpoint {

bool WriteBatch::Empty() const {
  return jobs.empty() && processes.empty() && states.empty() && cursors.empty() && names.empty() &&
         iterations.empty() && configs.empty() && measurements.empty() && trace_segments.empty() &&
         outbox.empty() && acknowledged == 0 && node_id.empty();
}

bool IsPostgresAddress(std::string_view address) {
  return address.starts_with("postgresql:") || address.starts_with("postgres:");
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& address,
                                                   const StoreOptions& options) {
  if (IsPostgresAddress(address)) {
    return PostgresStore::Open(address, options);
  }
  return SqliteStore::Open(address, options);
}

}  // namespace seqpoint
