#include "daemon/rpc/relay.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/line_limit.h"
#include "daemon/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace seqpoint::rpc {
namespace {

// Says that a call was passed on: two hubs that take one another for the leader pass it no further.
constexpr const char* kRelayed = "seqpoint-relayed";

// One call: what its caller says is written to the leader, what the leader says to the caller, a
// message at a time in each direction. It deletes itself when both sides are over.
class RelayedCall final : public grpc::ServerGenericBidiReactor {
 public:
  // `channel` is one of `line`.
  RelayedCall(const grpc::GenericCallbackServerContext& caller, std::shared_ptr<Relay::Line> line,
              const std::shared_ptr<grpc::Channel>& channel)
      : line_(std::move(line)), stub_(channel), leader_(this) {
    to_leader_.AddMetadata(kRelayed, "1");
    to_leader_.set_deadline(caller.deadline());
    stub_.PrepareBidiStreamingCall(&to_leader_, caller.method(), {}, &leader_);
    leader_.AddHold();  // the caller's side starts operations on it
    leader_.StartRead(&answer_);
    leader_.StartCall();
    StartRead(&request_);
  }

  // The caller's side.
  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (leader_over_) return;
    if (ok) {
      leader_.StartWrite(&request_);
    } else {
      leader_.StartWritesDone();
    }
  }
  // A caller that went away has cancelled: the next read from the leader says so.
  void OnWriteDone(bool) override { leader_.StartRead(&answer_); }
  void OnCancel() override { to_leader_.TryCancel(); }
  void OnDone() override { delete this; }

 private:
  ~RelayedCall() override { --line_->calls; }

  class LeaderSide final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit LeaderSide(RelayedCall* call) : call_(*call) {}
    void OnReadDone(bool ok) override {
      if (ok) return call_.StartWrite(&call_.answer_);
      {
        absl::MutexLock lock(&call_.mutex_);
        call_.leader_over_ = true;
      }
      RemoveHold();
    }
    void OnWriteDone(bool ok) override {
      if (ok) call_.StartRead(&call_.request_);
    }
    void OnDone(const grpc::Status& status) override {
      call_.Finish(IsOfLeader(status) ? status : NotReached(status.error_message()));
    }

   private:
    // Not of gRPC, which says in its own words that a connection failed.
    bool IsOfLeader(const grpc::Status& status) const {
      return status.error_code() != grpc::StatusCode::UNAVAILABLE ||
             absl::StrContains(call_.to_leader_.debug_error_string(), "received from peer");
    }
    grpc::Status NotReached(const std::string& why) const {
      static LineLimit& limit = *new LineLimit;
      const std::string& leader = call_.line_->channel->address();
      if (const auto left_out = limit.Admit()) {
        spdlog::warn("hub {}, which leads, cannot be reached: {}{}", leader, why,
                     LeftOut(*left_out));
      }
      return {grpc::StatusCode::UNAVAILABLE,
              absl::StrCat("hub ", leader,
                           ", which leads, cannot be reached; another takes over "
                           "within seconds when it is gone: ask again")};
    }

    RelayedCall& call_;
  };

  const std::shared_ptr<Relay::Line> line_;
  grpc::GenericStub stub_;
  grpc::ClientContext to_leader_;
  grpc::ByteBuffer request_, answer_;
  absl::Mutex mutex_;
  bool leader_over_ ABSL_GUARDED_BY(mutex_) = false;  // no operation on it may start
  LeaderSide leader_;
};

// A call that nobody can answer.
class RefusedCall final : public grpc::ServerGenericBidiReactor {
 public:
  explicit RefusedCall(const std::string& why) {
    Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, why));
  }
  void OnDone() override { delete this; }
};

}  // namespace

absl::Status Relay::SetLeader(const std::string& address) {
  absl::MutexLock lock(&mutex_);
  const std::string leader = address == options_.own_address ? "" : address;
  if (leader == leader_) return absl::OkStatus();
  leader_ = leader;
  lines_.clear();  // calls under way keep theirs
  if (leader.empty()) return absl::OkStatus();
  spdlog::info("hub {} leads; calls are passed to it", leader);
  return HubChannel::Open(leader, options_.files).status();
}

absl::StatusOr<std::shared_ptr<Relay::Line>> Relay::TakeLine() {
  for (const auto& line : lines_) {
    if (line->calls >= Line::kMostCalls) continue;
    ++line->calls;
    return line;
  }
  auto line = std::make_shared<Line>();
  SEQPOINT_ASSIGN_OR_RETURN(line->channel, HubChannel::Open(leader_, options_.files));
  line->calls = 1;
  lines_.push_back(line);
  return line;
}

grpc::ServerGenericBidiReactor* Relay::CreateReactor(grpc::GenericCallbackServerContext* context) {
  absl::MutexLock lock(&mutex_);
  const auto& metadata = context->client_metadata();
  if (leader_.empty() || metadata.find(kRelayed) != metadata.end()) {
    return new RefusedCall("no hub leads now; one takes over within seconds, ask again then");
  }
  auto line = TakeLine();
  if (!line.ok()) return new RefusedCall(std::string(line.status().message()));
  const auto channel = (*line)->channel->Get();
  return new RelayedCall(*context, *std::move(line), channel);
}

}  // namespace seqpoint::rpc
