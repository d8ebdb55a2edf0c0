#include "daemon/rpc/ingest_service.h"

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "daemon/service/node_reports.h"
#include "daemon/service/node_traces.h"
#include "spdlog/spdlog.h"

namespace seqpoint::rpc {
namespace {

constexpr size_t kShortId = 8;  // digits, as `seqpoint nodes` shows it

grpc::Status EndOf(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// One node's. It deletes itself when gRPC is done with it.
class NodeStream final : public grpc::ServerBidiReactor<v1::NodeMessage, v1::HubMessage>,
                         public service::NodeReports::Listener {
 public:
  explicit NodeStream(const service::HubParts& hub) : hub_(hub) { StartRead(&in_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Close(absl::OkStatus());  // the node went away
    const absl::Status status = Take();
    if (!status.ok()) {
      spdlog::warn("{}", std::string(status.message()));
      return Close(status);
    }
    in_.Clear();
    StartRead(&in_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (closing_) return Finish(EndOf(*closing_));
    if (ok) WriteNext();
  }

  void OnStored(int64_t sequence) override {
    absl::MutexLock lock(&mutex_);
    next_.set_acknowledged(sequence);
    if (!writing_ && !closing_) WriteNext();
  }

  void OnPlan(v1::Plan plan) override {
    absl::MutexLock lock(&mutex_);
    const int64_t process = plan.process();
    plans_[process] = std::move(plan);
    if (!writing_ && !closing_) WriteNext();
  }

  void OnTraceRequest(v1::TraceRequest request) override {
    absl::MutexLock lock(&mutex_);
    requests_.push_back(std::move(request));
    if (!writing_ && !closing_) WriteNext();
  }

  void OnDone() override { delete this; }

 private:
  // Of the message that came.
  absl::Status Take() {
    if (in_.has_batch()) {
      if (node_id_.empty()) return absl::InvalidArgumentError("a batch came before a hello");
      return hub_.nodes->Offer(node_id_, std::move(*in_.mutable_batch()));
    }
    if (in_.has_trace() && !node_id_.empty()) {
      hub_.traces->OnPart(node_id_, std::move(*in_.mutable_trace()));
      return absl::OkStatus();
    }
    if (!in_.has_hello() || !node_id_.empty()) {
      return absl::InvalidArgumentError(
          "a message that is no batch, and no first hello; install the same version of seqpointd "
          "on node and hub");
    }
    auto reply = hub_.nodes->Connect(in_.hello(), this);
    if (!reply.ok()) return reply.status();
    node_id_ = in_.hello().node_id();
    name_ = absl::StrCat(in_.hello().host(), " (",
                         absl::BytesToHexString(node_id_).substr(0, kShortId), ")");
    spdlog::info("node {} is connected; batch {} is next", name_, reply->next_sequence());
    absl::MutexLock lock(&mutex_);
    // What was stored meanwhile is acknowledged behind it.
    *hello_.mutable_hello() = *std::move(reply);
    said_hello_ = true;
    writing_ = true;
    StartWrite(&hello_);
    return absl::OkStatus();
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!said_hello_) return;
    if (next_.has_acknowledged()) {
      out_ = std::exchange(next_, {});
    } else if (!requests_.empty()) {
      *out_.mutable_trace_request() = std::move(requests_.front());
      requests_.pop_front();
    } else if (!plans_.empty()) {
      *out_.mutable_plan() = std::move(plans_.begin()->second);
      plans_.erase(plans_.begin());
    } else {
      return;
    }
    writing_ = true;
    StartWrite(&out_);
  }

  // Once.
  void Close(const absl::Status& status) {
    if (!node_id_.empty()) {
      hub_.nodes->Disconnect(node_id_, this);
      hub_.traces->OnDisconnect(node_id_);
      spdlog::info("node {} is gone", name_);
    }
    absl::MutexLock lock(&mutex_);
    closing_ = status;
    if (!writing_) Finish(EndOf(status));
  }

  const service::HubParts hub_;
  // Of the reading side.
  v1::NodeMessage in_;
  std::string node_id_, name_;  // the name: host and short id, for the log

  absl::Mutex mutex_;  // locked after NodeReports'
  bool said_hello_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mutex_);
  v1::HubMessage hello_, out_, next_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::TraceRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, v1::Plan> plans_ ABSL_GUARDED_BY(mutex_);  // the latest, by process
};

}  // namespace

grpc::ServerBidiReactor<v1::NodeMessage, v1::HubMessage>* IngestService::Connect(
    grpc::CallbackServerContext*) {
  return new NodeStream(hub_);
}

}  // namespace seqpoint::rpc
