// The parts of a PostgresStore that its files share.
//
// Threading: writes hold writer_mutex_, queries reader_mutex_; the lease has a thread that renews
// it. Ownership: see PostgresStore.
#ifndef DAEMON_STORE_POSTGRES_STORE_IMPL_H_
#define DAEMON_STORE_POSTGRES_STORE_IMPL_H_

#include <cstdint>
#include <optional>
#include <pqxx/pqxx>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/change_signal.h"
#include "daemon/base/clock.h"
#include "daemon/base/status_macros.h"
#include "daemon/store/postgres.h"
#include "daemon/store/postgres_store.h"

namespace seqpoint {

class PostgresStore::Impl {
 public:
  Impl(const std::string& address, const std::string& parameters, const StoreOptions& options);
  ~Impl();  // gives the lease up

  // Runs `body` in a transaction on the writing connection. It begins with a look at the lease,
  // which nobody takes until it ends. AlreadyExists: the lease is not ours.
  absl::Status Transact(absl::FunctionRef<absl::Status(pqxx::work&)> body)
      ABSL_LOCKS_EXCLUDED(writer_mutex_, lease_mutex_);

  absl::StatusOr<StoreLease> TakeLease()
      ABSL_LOCKS_EXCLUDED(reader_mutex_, writer_mutex_, lease_mutex_);
  std::string LostLease() ABSL_LOCKS_EXCLUDED(lease_mutex_);

  // The rows of a query, each read by `read`.
  template <typename Row, typename Read>
  absl::StatusOr<std::vector<Row>> ReadAll(std::string_view sql, const Read& read)
      ABSL_LOCKS_EXCLUDED(reader_mutex_) {
    absl::MutexLock guard(&reader_mutex_);
    std::vector<Row> rows;
    SEQPOINT_RETURN_IF_ERROR(reader_.RunTwice([&](pqxx::connection& connection) {
      rows.clear();
      pqxx::nontransaction transaction(connection);
      for (const pqxx::row& from : transaction.exec(std::string(sql))) {
        read(from, rows.emplace_back());
      }
      return absl::OkStatus();
    }));
    return rows;
  }
  // The first one, of a query that has one at most.
  template <typename Row, typename Read>
  absl::StatusOr<std::optional<Row>> ReadFirst(std::string_view sql, const Read& read) {
    SEQPOINT_ASSIGN_OR_RETURN(auto rows, ReadAll<Row>(sql, read));
    return rows.empty() ? std::nullopt : std::optional<Row>(std::move(rows.front()));
  }

  // Ids of a sequence, of which each call of the server gives many.
  struct Ids {
    const char* const sequence;
    const int64_t at_once;
    int64_t next = 0;
    int64_t end = 0;
  };
  absl::Status Reserve(Ids& ids) ABSL_EXCLUSIVE_LOCKS_REQUIRED(ids_mutex_);
  int64_t NewId(Ids& ids) ABSL_LOCKS_EXCLUDED(ids_mutex_);

  absl::Mutex writer_mutex_;  // locked before lease_mutex_
  Postgres writer_;
  // Not undone by a write that fails: its commit may be in the database all the same.
  std::set<int64_t> damaged_jobs_ ABSL_GUARDED_BY(writer_mutex_);
  absl::Mutex reader_mutex_;
  Postgres reader_;
  absl::Mutex ids_mutex_;
  Ids job_ids_ = {"seqpoint.job_ids", 1'000};
  Ids process_ids_ = {"seqpoint.process_ids", 1'000'000};
  const std::string no_damage_;

 private:
  absl::Status OnConnect(pqxx::connection& connection);  // of the writer
  // An old primary that was paused takes connections until it is told that it is none any more.
  // A hub that read its jobs there would lead with what was true then, and write that.
  absl::Status CheckReader(pqxx::connection& connection) ABSL_LOCKS_EXCLUDED(lease_mutex_);
  absl::Status CheckLease(pqxx::work& transaction) ABSL_LOCKS_EXCLUDED(lease_mutex_);
  // Renews the lease where it is ours. Otherwise asks the server for an answer.
  absl::Status RenewLease() ABSL_LOCKS_EXCLUDED(lease_mutex_);
  void KeepLease() ABSL_LOCKS_EXCLUDED(lease_mutex_);
  void BreakWithoutAnswer() ABSL_LOCKS_EXCLUDED(lease_mutex_);
  absl::Status Lost(pqxx::transaction_base& transaction) ABSL_LOCKS_EXCLUDED(lease_mutex_);

  const std::string holder_;
  const absl::Duration lease_;
  bool tables_made_ = false;
  absl::Mutex lease_mutex_;
  ChangeSignal lease_changed_;
  int64_t fence_ ABSL_GUARDED_BY(lease_mutex_) = 0;       // 0: the lease was never ours
  std::string lost_ ABSL_GUARDED_BY(lease_mutex_);        // why it is another's now
  int64_t renewed_ns_ ABSL_GUARDED_BY(lease_mutex_) = 0;  // of the monotonic clock
  // How long an answer is waited for. Doubled after each time without one: a server that is slow
  // gets its work done, and sessions that wait for a standby do not pile up.
  absl::Duration patience_ ABSL_GUARDED_BY(lease_mutex_);
  // The keeper's latest answer, of the monotonic clock.
  int64_t answered_ns_ ABSL_GUARDED_BY(lease_mutex_) = Clock::System().MonotonicNs();
  bool ending_ ABSL_GUARDED_BY(lease_mutex_) = false;
  bool given_up_ ABSL_GUARDED_BY(lease_mutex_) = false;  // the last call to the server is over
  Postgres renewals_;  // of the keeper: a long write or read does not delay it
  std::thread keeper_;
  std::thread watch_;  // runs BreakWithoutAnswer
};

// The rows of a batch for each table. `damaged`: adds the jobs whose rows were set aside.
absl::Status PutRows(const WriteBatch& batch, pqxx::work& transaction, std::set<int64_t>* damaged);
// Bytes of all rows, without indexes and rows that were replaced.
inline constexpr const char* kUsedBytes =
    "SELECT coalesce(sum(bytes), 0)::bigint FROM ("
    "SELECT sum(octet_length(bytes) + 64) AS bytes FROM seqpoint.iteration_block UNION ALL "
    "SELECT sum(octet_length(bytes) + 64) FROM seqpoint.damaged_block UNION ALL "
    "SELECT sum(octet_length(zstd_bytes) + 64) FROM seqpoint.trace_segment UNION ALL "
    "SELECT sum(octet_length(value_bytes) + 64) FROM seqpoint.measurement UNION ALL "
    "SELECT sum(octet_length(bytes) + 64) FROM seqpoint.state UNION ALL "
    "SELECT sum(octet_length(bytes) + 64) FROM seqpoint.outbox UNION ALL "
    "SELECT sum(octet_length(text) + 64) FROM seqpoint.name UNION ALL "
    "SELECT sum(octet_length(text) + 128) FROM seqpoint.process) AS tables";

}  // namespace seqpoint

#endif  // DAEMON_STORE_POSTGRES_STORE_IMPL_H_
