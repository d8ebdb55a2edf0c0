// SqliteStore: a Store in one SQLite file. Layout, versions and recovery: docs/formats/store.md.
// Each kind of row has a file that writes and reads it.
//
// Durable means: survives kill -9. Power loss may cost the last second.
//
// Threading: as Store; reads and writes never wait for each other. Writes hold writer_mutex_,
// queries reader_mutex_. Ownership: owns the file and holds a lock on it: a second Open fails, also
// by another path.
#ifndef DAEMON_STORE_SQLITE_STORE_H_
#define DAEMON_STORE_SQLITE_STORE_H_

#include <zstd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/status_macros.h"
#include "daemon/store/disk_reserve.h"
#include "daemon/store/file_lock.h"
#include "daemon/store/sqlite.h"
#include "daemon/store/store.h"

namespace seqpoint {

class SqliteStore final : public Store {
 public:
  // Makes the file and its directory (mode 0700) when there is none.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path,
                                                     const StoreOptions& options);
  ~SqliteStore() override;

  absl::StatusOr<StoreLease> TakeLease() override { return StoreLease{.ours = true}; }
  std::string LostLease() override { return ""; }  // it goes with the file's lock
  int64_t NewJobId() override;
  int64_t NewProcessId() override;
  absl::Status Write(const WriteBatch& batch) override;
  // A write reads no rows of iterations here.
  std::set<int64_t> TakeDamagedJobs() override { return {}; }
  absl::StatusOr<std::string> DescribeDamage(int64_t job_id) override { return ""; }
  absl::Status BeginJob(int64_t job_id) override;
  absl::StatusOr<std::vector<JobRow>> ListJobs() override;
  absl::StatusOr<std::vector<ProcessRow>> ListProcesses(int64_t job_id) override;
  absl::StatusOr<std::vector<StateRow>> LoadStates(int64_t job_id) override;
  absl::StatusOr<std::optional<StateRow>> LoadPart(int64_t job_id, std::string_view part) override;
  absl::StatusOr<std::map<int32_t, int64_t>> CountIterations(int64_t job_id) override;
  absl::StatusOr<std::optional<std::string>> LoadCursor(std::string_view ring_id) override;
  absl::StatusOr<std::optional<ProcessRow>> FindProcess(std::string_view ring_id) override;
  absl::StatusOr<std::vector<NameRow>> ReadNames(int64_t process_id) override;
  absl::StatusOr<std::vector<ConfigRow>> ReadConfigs(int64_t job_id) override;
  absl::StatusOr<std::vector<MeasurementRow>> ReadMeasurements(int64_t job_id) override;
  absl::StatusOr<std::vector<IterationRow>> ReadIterations(int64_t job_id, int32_t rank,
                                                           int64_t first_number, int limit,
                                                           bool measured_only) override;
  absl::StatusOr<std::vector<std::pair<int32_t, int64_t>>> ListTraces(int64_t job_id) override;
  absl::StatusOr<std::vector<TraceSegmentRow>> ReadTrace(int64_t job_id, int32_t rank,
                                                         int64_t number) override;
  absl::StatusOr<std::string> NodeId() override;
  absl::StatusOr<int64_t> LastOutboxSequence() override;
  absl::StatusOr<std::vector<OutboxRow>> ReadOutbox(int64_t after, int64_t through,
                                                    int limit) override;
  absl::StatusOr<PruneResult> Prune(const PruneOptions& options) override;
  absl::Status RemoveJob(int64_t job_id) override;
  absl::StatusOr<int64_t> Bytes() override;
  const std::string& path() const override;
  const std::string& damage() const override;

 private:
  class Impl;
  explicit SqliteStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class SqliteStore::Impl {
 public:
  Impl(FileLock lock, std::unique_ptr<Database> writer, std::unique_ptr<Database> reader);
  ~Impl();

  // Compiles the statements and finds the next ids.
  absl::Status Prepare();

  // Runs `body` in a transaction on the writing connection.
  template <typename Body>
  absl::Status Transact(Body body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_) {
    SEQPOINT_RETURN_IF_ERROR(begin_.RunWith());
    absl::Status status = body();
    if (status.ok()) status = commit_.RunWith();
    if (!status.ok()) writer_->Rollback();
    return status;
  }

  // The rows of a query, each read by `read`. `values` are bound in order.
  template <typename Row, typename Read, typename... Values>
  absl::StatusOr<std::vector<Row>> ReadAll(std::string_view sql, const Read& read,
                                           const Values&... values) {
    absl::MutexLock guard(&reader_mutex_);
    SEQPOINT_ASSIGN_OR_RETURN(Statement statement, reader_->Prepare(sql));
    (statement.Bind(values), ...);
    std::vector<Row> rows;
    while (statement.Next()) read(statement, rows.emplace_back());
    if (!statement.status().ok()) return statement.status();
    return rows;
  }
  // The first one, of a query that has one at most.
  template <typename Row, typename Read, typename... Values>
  absl::StatusOr<std::optional<Row>> ReadFirst(std::string_view sql, const Read& read,
                                               const Values&... values) {
    SEQPOINT_ASSIGN_OR_RETURN(auto rows, ReadAll<Row>(sql, read, values...));
    return rows.empty() ? std::nullopt : std::optional<Row>(std::move(rows.front()));
  }

  // Takes what is missing of the reserve. ResourceExhausted: it is in use, and the batch has
  // traces.
  void UseReserve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::Status RenewReserve(const WriteBatch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::Status PutJobRows(const WriteBatch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::Status PutIterationRows(const WriteBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::Status PutTraceRows(const WriteBatch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::Status PutOutboxRows(const WriteBatch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);

  absl::Status DoomJob(int64_t job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  // Deletes rows of doomed jobs, then jobs by age, then trace records and jobs by size, as far as
  // one call may.
  absl::Status PruneRows(const PruneOptions& options, PruneResult* result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  // Deletes at most `rows_left` rows of a doomed job; counts them off.
  absl::Status RemoveDoomed(int64_t job_id, int64_t* rows_left)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::StatusOr<int64_t> UsedBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);

  const FileLock lock_;
  absl::Mutex writer_mutex_;
  const std::unique_ptr<Database> writer_;
  DiskReserve reserve_ ABSL_GUARDED_BY(writer_mutex_);
  absl::Mutex reader_mutex_;
  const std::unique_ptr<Database> reader_;

  std::string damage_;
  Statement begin_, commit_, free_name_, put_job_, spare_job_, put_process_, put_state_,
      delete_state_, put_cursor_, delete_cursor_, put_name_, put_iteration_, put_config_,
      put_measurement_, put_trace_segment_, put_outbox_, set_last_sequence_, set_node_id_,
      delete_outbox_;
  ZSTD_CCtx* const zstd_;
  std::string compressed_;
  std::atomic<int64_t> next_job_id_{1};
  std::atomic<int64_t> next_process_id_{1};
};

}  // namespace seqpoint

#endif  // DAEMON_STORE_SQLITE_STORE_H_
