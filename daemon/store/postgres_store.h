// PostgresStore: a Store in a PostgreSQL database. Layout, transactions and recovery:
// docs/formats/postgresql.md.
//
// Threading: as Store; writes use one connection, queries another. A thread renews the lease.
// Ownership: owns the connections and the thread.
#ifndef DAEMON_STORE_POSTGRES_STORE_H_
#define DAEMON_STORE_POSTGRES_STORE_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/store/store.h"

namespace seqpoint {

class PostgresStore final : public Store {
 public:
  // Makes the tables when there are none.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& address,
                                                     const StoreOptions& options);
  ~PostgresStore() override;

  absl::StatusOr<StoreLease> TakeLease() override;
  std::string LostLease() override;
  int64_t NewJobId() override;
  int64_t NewProcessId() override;
  absl::Status Write(const WriteBatch& batch) override;
  std::set<int64_t> TakeDamagedJobs() override;
  absl::StatusOr<std::string> DescribeDamage(int64_t job_id) override;
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
  explicit PostgresStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace seqpoint

#endif  // DAEMON_STORE_POSTGRES_STORE_H_
