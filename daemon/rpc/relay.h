// Relay: a hub that does not lead passes every call, as it comes, to the hub that does: questions
// of clients, and the streams of nodes. It understands none of them, and so changes none: the
// answer, the acknowledgement and the error are the leader's. A leader that cannot be reached is
// one sentence, Unavailable, and the log has gRPC's reason. Access is checked here, as the leader
// sees this hub's certificate in place of the caller's.
//
//   Relay relay(options);
//   auto server = Server::StartRelay(server_options, &relay);
//   relay.SetLeader("hub-1.example:7443");
//
// Threading: thread-safe; a call takes no thread while it waits. Memory: of each call at most one
// message in each direction; a slow receiver slows the sender. Ownership: outlives its server.
#ifndef DAEMON_RPC_RELAY_H_
#define DAEMON_RPC_RELAY_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/rpc/hub_channel.h"

namespace seqpoint::rpc {

struct RelayOptions {
  std::string own_address;  // never passed to
  TlsPem files;             // who this hub is to the leader
};

class Relay final : public grpc::CallbackGenericService {
 public:
  explicit Relay(const RelayOptions& options) : options_(options) {}

  // Calls that come from now on go to it. Empty, or this hub's own: nobody leads. Errors: as
  // HubChannel::Open.
  absl::Status SetLeader(const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  // A connection to the leader, which has a limit of calls (ServerOptions).
  struct Line {
    static constexpr int kMostCalls = 100;
    std::unique_ptr<HubChannel> channel;
    std::atomic<int> calls = 0;
  };

 private:
  // One with room for a call, which is counted. Errors: as HubChannel::Open.
  absl::StatusOr<std::shared_ptr<Line>> TakeLine() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RelayOptions options_;
  absl::Mutex mutex_;
  std::string leader_ ABSL_GUARDED_BY(mutex_);  // empty: nobody leads
  std::vector<std::shared_ptr<Line>> lines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_RELAY_H_
