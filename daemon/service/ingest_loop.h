// IngestLoop: one thread drives inject.sock, every ring and every job.
//
//   poll rings -> advance jobs -> stage control blocks -> commit, at most 100 ms apart
//                                                      -> publish control blocks
//
// Threading: Start() and Stop() from one thread; idle() and since_last_turn() from any. Everything
// else runs on the loop's own thread. Ownership: owns the socket and the thread. Keeps references
// to the parts of the daemon and a pointer to the connections.
#ifndef DAEMON_SERVICE_INGEST_LOOP_H_
#define DAEMON_SERVICE_INGEST_LOOP_H_

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "daemon/ingest/inject_server.h"
#include "daemon/service/connections.h"
#include "daemon/service/daemon_parts.h"
#include "daemon/service/hub_plans.h"
#include "daemon/service/node_reports.h"

namespace seqpoint::service {

struct IngestOptions {
  std::string directory;  // of inject.sock
  size_t max_processes = 1024;
  std::set<uid_t> allowed_users;  // whose processes are taken, besides ours and root's
  absl::Duration prune_interval = absl::Minutes(1);
  // A private daemon ends this long after its last process. Zero: never.
  absl::Duration end_when_idle = absl::ZeroDuration();
  // For locks that a killed daemon still holds.
  absl::Duration lock_patience = absl::ZeroDuration();
};

class IngestLoop {
 public:
  // `plans`: of a node that has a hub; else null.
  IngestLoop(const IngestOptions& options, const DaemonParts& parts, Connections* connections,
             HubPlans* plans)
      : options_(options), parts_(parts), connections_(*connections), plans_(plans) {}
  ~IngestLoop();

  // Errors: as InjectServer::Listen.
  absl::Status Start();
  // Commits what is there and ends the thread. Idempotent.
  void Stop();

  // A private daemon has had no process for long enough.
  bool idle() const { return idle_.load(std::memory_order_relaxed); }
  // The loop turns a hundred times a second; one that is stuck does not. Takes no lock.
  absl::Duration since_last_turn() const {
    return Now() - absl::Nanoseconds(last_turn_ns_.load(std::memory_order_relaxed));
  }

 private:
  bool is_private() const { return options_.end_when_idle > absl::ZeroDuration(); }
  absl::Duration Now() const { return absl::Nanoseconds(parts_.clock.MonotonicNs()); }
  void Run();
  // Reads the rings and stages control blocks, which a rule or a level in them may need in the
  // store first.
  Connections::Progress Read(bool stopping, bool* commit_first);
  void Commit();
  void Prune();

  const IngestOptions options_;
  const DaemonParts parts_;
  Connections& connections_;
  HubPlans* const plans_;
  std::unique_ptr<ingest::InjectServer> server_;
  bool nodes_behind_ = false;  // batches wait for the next turn
  absl::Duration last_heartbeat_ = -absl::InfiniteDuration();
  absl::Duration last_busy_;

  std::atomic<bool> stop_ = false;
  std::atomic<bool> idle_ = false;
  std::atomic<int64_t> last_turn_ns_ = 0;  // of the monotonic clock
  std::thread thread_;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_INGEST_LOOP_H_
