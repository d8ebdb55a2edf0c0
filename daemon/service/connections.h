// Connections: the rings of the processes that are connected, each with the job it belongs to.
//
// Threading: one thread, the ingest thread; count() from any thread. Functions that call jobs need
// the registry's lock.
// Ownership: the ring readers and control blocks; shares the jobs. Keeps pointers to the store, the
// registry and the clock.
#ifndef DAEMON_SERVICE_CONNECTIONS_H_
#define DAEMON_SERVICE_CONNECTIONS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/ingest/inject_server.h"
#include "daemon/service/committer.h"
#include "daemon/service/hub_plans.h"
#include "daemon/service/job_registry.h"
#include "daemon/store/store.h"

namespace seqpoint::service {

class Connections : public ingest::InjectServer::Handler {
 public:
  Connections(Store* store, JobRegistry* registry, const Clock* clock);
  ~Connections() override;

  size_t count() const { return count_.load(std::memory_order_relaxed); }

  // InjectServer::Handler. A process that the store knows goes on at its stored cursor; another one
  // joins the job of its name and run id, or begins it.
  absl::Status OnProcess(ingest::AcceptedProcess process) override
      ABSL_LOCKS_EXCLUDED(registry_.mutex());
  void OnGone(uint64_t id) override;
  // Ends of processes are about to be looked for.
  void BeforeWatch();

  struct Progress {
    bool any = false;   // something came
    bool more = false;  // more is there
  };
  // Reads every ring once, at most so many records of each, and advances the jobs.
  Progress Poll(uint64_t most_records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  void Heartbeat();
  // Live processes that did not come back after our restart and do not run any more end.
  void EndVanished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());

  // What a hub plans for the processes, and whether it is still heard of.
  void FollowHub(HubPlans& plans) ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  // Takes what the processes should see next. True when a rule or a level is among it: the store
  // must have it first. A process that follows a rule which a killed daemon forgot would number its
  // iterations in a way that nobody knows.
  bool StageControls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  void PublishControls();

  std::vector<RingCursor> Cursors() const;
  // The store has them: releases the ring space before them, and drops the rings that ended.
  void Release(const std::vector<RingCursor>& stored) ABSL_LOCKS_EXCLUDED(registry_.mutex());

 private:
  struct Connection;

  absl::StatusOr<SharedJob> JobOf(const ingest::AcceptedProcess& process)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  absl::Status Resume(const ProcessRow& known, const ingest::AcceptedProcess& process,
                      Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  absl::Status Join(const ingest::AcceptedProcess& process, Connection& connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  void End(Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());

  Store& store_;
  JobRegistry& registry_;
  const Clock& clock_;
  const int64_t start_ns_;  // of the monotonic clock
  std::vector<std::unique_ptr<Connection>> connections_;
  bool follows_hub_ = false;
  std::atomic<size_t> count_ = 0;
  // Monotonic times, before the last look for ends and before the one before.
  int64_t watched_ns_ = 0, watched_before_ns_ = 0;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_CONNECTIONS_H_
