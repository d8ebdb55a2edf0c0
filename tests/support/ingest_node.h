// IngestNode: a node as a hub sees it, written after docs/formats/ingest.md and without the code of
// a real node: it keeps its batches until they are acknowledged, holds to the hub's window, and
// connects again when the stream breaks.
//
//   IngestNode node({.address = "unix:/tmp/hub/run/api.sock", .host = "node0"});
//   node.Add(writer.Serialize());                   // one batch
//   node.AwaitAcknowledged(node.last(), absl::Seconds(30));
//
// Threading: thread-safe; two threads of its own. Ownership: its connection. Memory: batches that
// the hub has not acknowledged.
#ifndef TESTS_SUPPORT_INGEST_NODE_H_
#define TESTS_SUPPORT_INGEST_NODE_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "seqpoint/v1/ingest.grpc.pb.h"

namespace seqpoint {

struct IngestNodeOptions {
  std::string address;                                    // of the hub, in the words of gRPC
  std::string host;                                       // the node's id is made of it
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // null: none, for a unix socket
  // Between connections, doubled each time, up to the longest.
  absl::Duration first_pause = absl::Seconds(1), longest_pause = absl::Seconds(60);
};

class IngestNode {
 public:
  explicit IngestNode(IngestNodeOptions options);
  ~IngestNode();
  IngestNode(const IngestNode&) = delete;
  IngestNode& operator=(const IngestNode&) = delete;

  // A serialised ReportBatch.
  void Add(const std::string& reports);
  void AddFrame(std::string frame) ABSL_LOCKS_EXCLUDED(mutex_);  // of one
  int64_t last() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t acknowledged() const ABSL_LOCKS_EXCLUDED(mutex_);
  // False: not within `timeout`.
  bool AwaitAcknowledged(int64_t sequence, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // At most so many batches wait. False: not within `timeout`.
  bool AwaitWaiting(int64_t most, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  int64_t frame_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);  // of all batches, once each
  int connections() const ABSL_LOCKS_EXCLUDED(mutex_);      // that the hub has taken
  int64_t plans() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Why the last stream broke. Empty: none did.
  std::string error() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Stream = grpc::ClientReaderWriter<v1::NodeMessage, v1::HubMessage>;
  void Run();
  void Connect();
  void Begin(const v1::HubHello& hello) ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(Stream& stream);
  void Read(Stream& stream);
  void Acknowledge(int64_t sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const std::string& BatchOf(int64_t sequence) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return batches_[static_cast<size_t>(sequence - acknowledged_ - 1)];
  }

  const IngestNodeOptions options_;
  const std::string id_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Ingest::Stub> stub_;

  mutable absl::Mutex mutex_;
  std::deque<std::string> batches_ ABSL_GUARDED_BY(mutex_);  // that are not acknowledged
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;              // on this connection
  bool refused_for_now_ ABSL_GUARDED_BY(mutex_) = false;  // the hub answers, and takes nothing now
  int64_t on_the_way_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes that are sent and not acknowledged
  int64_t window_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t frame_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t plans_ ABSL_GUARDED_BY(mutex_) = 0;
  int connections_ ABSL_GUARDED_BY(mutex_) = 0;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;  // by the hub, since the last pause
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::string error_ ABSL_GUARDED_BY(mutex_);
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_INGEST_NODE_H_
