// Daemon: starts and stops the parts of the daemon of one node.
//
//   rings -> Connections -> jobs (JobRegistry) -> Committer -> store      on the IngestLoop's
//   thread requests -> Backend -> snapshot of a job -> queries -> reply  on gRPC's threads
//
// Threading: Start() and Stop() from one thread; idle() and backend() from any.
// Ownership: owns the store, the jobs, the sockets and the ingest thread.
#ifndef DAEMON_SERVICE_DAEMON_H_
#define DAEMON_SERVICE_DAEMON_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "daemon/jobs/job.h"
#include "daemon/service/committer.h"
#include "daemon/service/connections.h"
#include "daemon/service/ingest_loop.h"
#include "daemon/service/job_registry.h"
#include "daemon/service/node_reports.h"
#include "daemon/service/node_traces.h"
#include "daemon/service/outbox.h"
#include "daemon/service/profiler_backend.h"
#include "daemon/service/retention.h"
#include "daemon/service/trace_answers.h"
#include "daemon/store/store.h"

namespace seqpoint::service {

struct DaemonOptions {
  std::string store_path;
  StoreOptions store;
  jobs::JobOptions job;
  RetentionOptions retention;
  IngestOptions ingest;
  bool has_hub = false;      // what the jobs report is kept for it
  bool takes_nodes = false;  // this is a hub
  std::string peer_address;  // where other hubs with its store reach it; empty: none do
  const Clock* clock = &Clock::System();  // outlives the daemon
};

class Daemon {
 public:
  // Opens the store and inject.sock, and recovers every job. `store`: open already, with its lease;
  // null: it is opened. Errors as Store::Open and InjectServer::Listen say.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(DaemonOptions options,
                                                       std::unique_ptr<Store> store = nullptr);
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Commits what is there and ends the ingest thread. Idempotent.
  void Stop() { loop_.Stop(); }
  // A private daemon has had no process for long enough. It does not know of requests.
  bool idle() const { return loop_.idle(); }

  // The ingest thread's; a large one means that it is stuck. Takes no lock.
  absl::Duration since_last_turn() const { return loop_.since_last_turn(); }
  struct StoreState {
    absl::Duration since_last_commit;
    std::string error;  // why it cannot be written now; empty when it can
  };
  StoreState store_state() const;
  // False: a thread held the lock of the jobs for so long, for example in a store that hangs. What
  // needs the lock would wait, too.
  bool AwaitJobs(absl::Duration patience) const;
  int64_t start_ns() const { return start_ns_; }  // of the wall clock
  // As Store::LostLease. What is in memory is too old then: end this daemon.
  std::string LostLease() const { return store_->LostLease(); }
  void SetRetention(const RetentionOptions& options) { retention_.SetOptions(options); }

  Backend& backend() { return *backend_; }
  Outbox* outbox() { return outbox_.get(); }     // null without a hub
  NodeReports* nodes() { return nodes_.get(); }  // null where this is no hub
  std::optional<HubParts> hub() const;           // nothing where it is none
  const TraceAnswers& trace_answers() const { return trace_answers_; }
  const JobRegistry& jobs() const { return registry_; }

 private:
  Daemon(DaemonOptions options, std::unique_ptr<Store> store, std::unique_ptr<Outbox> outbox);
  v1::GetDaemonReply Describe() const;

  const DaemonOptions options_;
  const int64_t start_ns_;  // of the wall clock
  const std::unique_ptr<Store> store_;
  const std::unique_ptr<Outbox> outbox_;
  JobRegistry registry_;
  const std::unique_ptr<NodeReports> nodes_;
  Committer committer_;
  const std::unique_ptr<NodeTraces> node_traces_;  // null where this is no hub
  Retention retention_;
  Connections connections_;
  const DaemonParts parts_;
  const TraceAnswers trace_answers_;
  IngestLoop loop_;
  const std::unique_ptr<Backend> backend_;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_DAEMON_H_
