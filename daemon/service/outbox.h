// Outbox: what the jobs of this node report, on its way to a hub. It is in the store until the hub
// has it (docs/formats/ingest.md, "Outbox").
//
//   ingest thread:  outbox.Collect(job.TakeReports()); ... outbox.AddRows(now_ns, batch);   // with
//   the cursors
//                   if (store.Write(batch).ok()) outbox.OnStored();
//   another thread: outbox.AwaitBatches(after, timeout); outbox.Read(after, limit);
//                   outbox.Acknowledge(sequence);
//
// The newest batch grows with each transaction, and is read by nobody, until it is 250 ms old or
// kMostBatchBytes long.
//
// Threading: Collect, AddRows and OnStored belong to the ingest thread; the others are thread-safe.
// Ownership: keeps a pointer to the store.
#ifndef DAEMON_SERVICE_OUTBOX_H_
#define DAEMON_SERVICE_OUTBOX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "daemon/base/change_signal.h"
#include "daemon/jobs/report.h"
#include "daemon/jobs/report_codec.h"
#include "daemon/service/hub_plans.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::service {

class Outbox {
 public:
  static constexpr size_t kMostBatchBytes = 256 << 10;
  static constexpr int64_t kOldestBatchNs = 250'000'000;

  // Errors: as the store's.
  static absl::StatusOr<std::unique_ptr<Outbox>> Open(Store* store);

  void Collect(const std::vector<jobs::Report>& reports);
  void AddRows(int64_t monotonic_ns, WriteBatch& batch);
  void OnStored();
  // Nothing comes after: the newest batch is whole. The ingest thread has ended.
  void Finish() ABSL_LOCKS_EXCLUDED(mutex_);

  struct Identity {
    std::string node_id;
    std::string former_node_id;  // before RenewNodeId, of this run of the daemon; empty: none
  };
  Identity identity() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The hub has other batches under this node's id: it gets a new one with the next commit, under
  // which the batches that are here are sent. False: one is on its way.
  bool RenewNodeId() ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t last_sequence() const ABSL_LOCKS_EXCLUDED(mutex_);
  // False: no batch behind `after` within `timeout`.
  bool AwaitBatches(int64_t after, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // The whole batches that are here. Errors: as the store's.
  struct Batches {
    int64_t first = 0;  // last + 1: none is
    int64_t last = 0;
  };
  absl::StatusOr<Batches> ListWhole() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whole batches behind `after`, by number. Errors: as the store's.
  absl::StatusOr<std::vector<OutboxRow>> Read(int64_t after, int limit) ABSL_LOCKS_EXCLUDED(mutex_);
  // False: the hub had not all that is stored within `timeout`, or it is not connected.
  bool AwaitHub(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // The hub has the batches up to this one.
  void Acknowledge(int64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);
  // For people: whether the hub is there. Without its batches.
  void SetHub(v1::HubConnection hub) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    hub_ = std::move(hub);
    changed_.NotifyAll();
  }
  v1::HubConnection DescribeHub() const ABSL_LOCKS_EXCLUDED(mutex_);
  HubPlans& plans() { return plans_; }  // what comes back

 private:
  Outbox(Store* store, std::string node_id, int64_t last_sequence, int64_t acknowledged)
      : store_(*store),
        sequence_(last_sequence + 1),
        removed_(acknowledged),
        identity_{.node_id = std::move(node_id)},
        whole_(last_sequence),
        stored_(last_sequence),
        acknowledged_(acknowledged) {}

  void EndBatch();  // the newest one is whole

  Store& store_;
  // These belong to the ingest thread.
  jobs::ReportWriter writer_;
  int64_t sequence_;             // of the batch in writer_
  int64_t begun_ns_ = 0;         // its first report came
  int64_t removed_;              // the batches up to this one were removed from the store
  bool grew_ = false;            // since it was given to the store
  std::vector<OutboxRow> rows_;  // for the next transaction
  int64_t whole_next_ = 0;       // whole_, once the batch on its way is stored; 0: as it is
  int64_t stored_next_ = 0;      // stored_, likewise
  std::string node_id_next_;     // of identity_, likewise

  HubPlans plans_;
  mutable absl::Mutex mutex_;
  ChangeSignal changed_;
  Identity identity_ ABSL_GUARDED_BY(mutex_);
  std::string new_node_id_ ABSL_GUARDED_BY(mutex_);  // once it is stored; empty: as it is
  int64_t whole_ ABSL_GUARDED_BY(mutex_);            // the batches up to this one do not grow
  int64_t stored_ ABSL_GUARDED_BY(mutex_);           // the newest one, which may still grow
  int64_t acknowledged_ ABSL_GUARDED_BY(mutex_);
  v1::HubConnection hub_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_OUTBOX_H_
