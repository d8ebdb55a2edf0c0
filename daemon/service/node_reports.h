// NodeReports: what nodes tell this hub. It makes jobs of their batches, and keeps how far each
// node was read with what was made of it (docs/formats/ingest.md).
//
//   any thread:     auto node = nodes.Connect(hello, &listener); nodes.Offer(*node, batch);
//   ingest thread:  nodes.Poll(); ... store.Write(rows and nodes.Cursors()); nodes.Release(stored);
//
// A frame that cannot be read, and a report that no daemon writes, are counted and skipped: what a
// node sends cannot stop the others, or come again for ever. Nodes, their processes and the jobs
// that they begin are bounded.
//
// Threading: Connect, Offer and Disconnect from any thread; the others belong to the ingest thread.
// Memory: of each node, batches of window_bytes() that are not in the store.
// Ownership: shares the jobs. Keeps pointers to the store, the registry and the clock; a listener
// must stay until its node was disconnected.
#ifndef DAEMON_SERVICE_NODE_REPORTS_H_
#define DAEMON_SERVICE_NODE_REPORTS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/clock.h"
#include "daemon/base/line_limit.h"
#include "daemon/jobs/report.h"
#include "daemon/service/job_registry.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/ingest.pb.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::service {

// The batches of a node that are in jobs.
struct NodeCursor {
  std::string node_id;
  int64_t sequence = 0;
  std::optional<uint32_t> checksum;  // CRC-32 of the last one's frame; nothing: not known

  void AddTo(WriteBatch& batch) const;
};

class NodeReports {
 public:
  // Of the batches that this daemon reads and writes.
  static constexpr int kFormat = 1;
  static constexpr size_t kMostBatchBytes = 4 << 20;  // uncompressed
  static constexpr int64_t kWindowBytes = 16 << 20;
  // The windows of 64 nodes whose batches all wait for the store. A hub that keeps up has few.
  static constexpr int64_t kMostWaitingBytes = 64 * kWindowBytes;
  // Connected ones, and those that were. Each has one entry of some hundred bytes.
  static constexpr size_t kMostNodes = 4096;
  // Jobs that a node begins in an hour: as many as it may have processes (kMostProcesses).
  static constexpr int kMostNewJobs = 1024;

  // A connected node's.
  class Listener {
   public:
    virtual ~Listener() = default;
    // The batches up to this one are in the store.
    virtual void OnStored(int64_t sequence) = 0;
    // What is wanted of a process now.
    virtual void OnPlan(v1::Plan plan) = 0;
    virtual void OnTraceRequest(v1::TraceRequest request) = 0;
  };

  NodeReports(Store* store, JobRegistry* registry, const Clock* clock);
  ~NodeReports();

  // FailedPrecondition: versions that do not fit. OutOfRange: the outbox is older than what the hub
  // has of it; the node must take another id. AlreadyExists: the node is connected.
  // InvalidArgument: no such hello. ResourceExhausted: there are kMostNodes.
  absl::StatusOr<v1::HubHello> Connect(const v1::NodeHello& hello, Listener* listener)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // OutOfRange: the newest batch that the hub has is another one in the node's outbox; the node
  // must take another id. DataLoss: a gap in the numbers. ResourceExhausted: more than the window,
  // or than all nodes may have on the way together.
  absl::Status Offer(const std::string& node_id, v1::Batch batch) ABSL_LOCKS_EXCLUDED(mutex_);
  void Disconnect(const std::string& node_id, Listener* listener) ABSL_LOCKS_EXCLUDED(mutex_);
  // False: the node is not connected.
  bool Ask(const std::string& node_id, const v1::TraceRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);

  using ProcessKey = std::pair<std::string, int64_t>;  // node id, the node's number
  // The process of a node that a row is of; nothing: it is one of this daemon's own.
  static std::optional<ProcessKey> ParseIdentity(const std::string& identity);

  // After the registry has recovered: finds the processes that nodes reported.
  void Recover() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  // Gives the batches that came to their jobs. True: some are left, as it took too long.
  bool Poll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  // Nobody else reports the end of a process whose machine is lost. What its node reports of it
  // after one of these is skipped. Ends processes of nodes that are away for a day, those of nodes
  // that are away where the rank goes on elsewhere, and those of nodes that took another id.
  void EndLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex()) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the job's processes of nodes that are away, and those that were not heard of for 10
  // minutes after batches of their node were lost.
  void EndAbsent(int64_t job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex())
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The nodes of a job's live processes that are away, for people; empty: none.
  std::string AbsentInWords(int64_t job_id) ABSL_SHARED_LOCKS_REQUIRED(registry_.mutex())
      ABSL_LOCKS_EXCLUDED(mutex_);
  v1::ListNodesReply List() ABSL_SHARED_LOCKS_REQUIRED(registry_.mutex());
  // Tells the nodes what changed in the plans for their processes.
  void SendPlans() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  std::vector<NodeCursor> Cursors() const { return read_; }
  void Release(const std::vector<NodeCursor>& stored) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A node of the present or the past.
  struct Node {
    std::string host, version;
    int64_t since_ns = 0;              // of the wall clock: it is connected, or is not any more
    int64_t changed_ns = 0;            // the same moment on the monotonic clock
    Listener* listener = nullptr;      // null: not connected
    bool is_new = false;               // connected since the last SendPlans
    int64_t next = 1;                  // number of the next batch
    std::optional<uint32_t> checksum;  // of the one before; nothing: not known
    std::string former_id;             // that its store had; empty: none is known
    int64_t waiting_bytes = 0;         // of batches that are not in the store
    std::map<int64_t, int64_t> sizes;  // bytes of those that are not in the store, by number
  };
  struct ReportedProcess {
    SharedJob job;
    int64_t process_id = 0;
    int64_t heard_ns = 0;  // of the monotonic clock: its last report
  };

  struct WaitingBatch {
    std::string node_id;
    v1::Batch batch;
    std::optional<uint32_t> checksum;
    int64_t lost = 0;  // it and those before it never come; 0: it is here
  };
  std::optional<WaitingBatch> TakeWaiting(bool* more) ABSL_LOCKS_EXCLUDED(mutex_);
  // Not connected for at least so long. When a node left before this hub started is not known.
  bool IsAbsent(const std::string& node_id, int64_t for_ns) ABSL_LOCKS_EXCLUDED(mutex_);

  // A later process has its rank.
  static bool IsReplaced(const ReportedProcess& process);
  // Ids that nodes had before they took new ones. Empty ids are among them.
  std::set<std::string> FormerIds() ABSL_LOCKS_EXCLUDED(mutex_);
  // An empty sentence: it goes on.
  void EndWhere(absl::FunctionRef<std::string(const ProcessKey&, const ReportedProcess&)> why_over)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex()) ABSL_LOCKS_EXCLUDED(mutex_);

  using Touched = std::set<std::pair<SharedJob, int64_t>>;  // processes of which something came
  // An error: the store cannot be read now, and nothing of the batch was taken.
  absl::Status Apply(const std::string& node_id, const v1::Batch& batch, Touched& touched)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  // Batches of the node never come, or cannot be read.
  void OnLost(const std::string& node_id, int64_t batches)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  using Processes = std::map<ProcessKey, ReportedProcess>;
  Processes::iterator Forget(Processes::iterator process)  // what comes after it
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  // Reads the jobs of a batch that are only in the store.
  absl::Status LoadJobs(const std::vector<jobs::Report>& reports)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  absl::Status MakeRoom(const std::string& node_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CountNewJob(const std::string& node_id);
  // Nobody reports its end any more; `why` is said of its node. What comes after it.
  Processes::iterator EndUnreported(Processes::iterator process, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  // AlreadyExists: the job has the process, from this node or from it under its former id.
  absl::Status CheckNotSentAgain(const std::string& node_id, const v1::ReportedProcess& report,
                                 const jobs::Job& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex()) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Start(const ProcessKey& key, const v1::ReportedProcess& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  void EndProgram(const v1::ReportedProgramEnd& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  void Skip(const std::string& node_id, const absl::Status& why);

  Store& store_;
  JobRegistry& registry_;
  const Clock& clock_;
  const int64_t start_ns_;  // of the monotonic clock

  absl::Mutex mutex_;  // locked after the registry's
  std::map<std::string, Node> nodes_ ABSL_GUARDED_BY(mutex_);
  std::deque<WaitingBatch> waiting_ ABSL_GUARDED_BY(mutex_);  // in the order in which they came
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;         // of all nodes

  Processes processes_ ABSL_GUARDED_BY(registry_.mutex());                 // live ones
  std::map<std::string, size_t> live_ ABSL_GUARDED_BY(registry_.mutex());  // of these, by node
  // These belong to the ingest thread.
  std::map<std::string, int> new_jobs_;  // of this hour, by node
  int64_t hour_ns_ = 0;                  // its begin, on the monotonic clock
  std::vector<NodeCursor> read_;         // since the last Release
  LineLimit skipped_;                    // reports and batches
  LineLimit unread_;                     // jobs that the store does not give now
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_NODE_REPORTS_H_
