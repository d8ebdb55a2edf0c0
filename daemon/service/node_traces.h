// NodeTraces: brings the traced iterations of a job from its nodes into the store of this hub,
// when somebody asks a question that needs them (docs/formats/ingest.md, "Traces").
//
//   a client's thread:  std::string missing = traces.Fetch(job_id, cancelled);   // then ask
//   a node's stream:    traces.OnPart(part);   traces.OnDisconnect(node_id);
//
// One job is fetched at a time. An iteration that is in the store is not fetched again.
//
// Threading: thread-safe; Fetch waits for the nodes. Memory: at most one answer of a node,
// kMostAnswerBytes. Ownership: keeps pointers to the store, the registry and the reports.
#ifndef DAEMON_SERVICE_NODE_TRACES_H_
#define DAEMON_SERVICE_NODE_TRACES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/change_signal.h"
#include "daemon/service/committer.h"
#include "daemon/service/job_registry.h"
#include "daemon/service/node_reports.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/ingest.pb.h"

namespace seqpoint::service {

class NodeTraces {
 public:
  NodeTraces(Store* store, JobRegistry* registry, Committer* committer, NodeReports* nodes)
      : store_(*store), registry_(*registry), committer_(*committer), nodes_(*nodes) {}

  // Says which traces are missing, and why; empty: none. `cancelled`: nobody waits any more.
  std::string Fetch(int64_t job_id, absl::FunctionRef<bool()> cancelled)
      ABSL_LOCKS_EXCLUDED(fetching_, mutex_, registry_.mutex());

  void OnPart(const std::string& node_id, v1::TracePart part) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDisconnect(const std::string& node_id) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A process of a job whose traces are on a node.
  struct Source {
    int64_t job_id = 0;
    int64_t process_id = 0;
    int32_t rank = 0;
    std::string host;
    std::string node_id;
    v1::TraceRequest request;
    std::string not_yet;  // why it cannot be asked now; empty: it can
  };
  absl::StatusOr<std::vector<Source>> SourcesOf(int64_t job_id)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());
  absl::Status FetchFrom(const Source& source, absl::FunctionRef<bool()> cancelled)
      ABSL_LOCKS_EXCLUDED(mutex_, registry_.mutex());
  absl::StatusOr<v1::TracePart> AwaitPart(const Source& source, absl::FunctionRef<bool()> cancelled)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Add(const Source& source, const v1::TracePart& part, WriteBatch& batch)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());

  Store& store_;
  JobRegistry& registry_;
  Committer& committer_;
  NodeReports& nodes_;

  absl::Mutex fetching_;
  absl::Mutex mutex_;
  ChangeSignal changed_;
  // The request under way.
  int64_t request_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string asked_ ABSL_GUARDED_BY(mutex_);  // node id; empty: it is not connected any more
  std::deque<v1::TracePart> parts_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // that came
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_NODE_TRACES_H_
