// HubChannel: how a daemon reaches a hub: a node its hub, or a hub the one that leads.
//
// Threading: one thread at a time. Ownership: owns the files; a channel is shared with its calls.
#ifndef DAEMON_RPC_HUB_CHANNEL_H_
#define DAEMON_RPC_HUB_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/rpc/tls_files.h"

namespace seqpoint::rpc {

class HubChannel {
 public:
  // `address` is "host:port", which needs all three files, or "unix:PATH", which needs none. The
  // authorities are the hub's. InvalidArgument: a file is missing or cannot be read.
  static absl::StatusOr<std::unique_ptr<HubChannel>> Open(const std::string& address,
                                                          const TlsPem& files);

  const std::string& address() const { return address_; }
  // A new one where the files have changed. It connects when it is used.
  std::shared_ptr<grpc::Channel> Get();
  // Why no connection is made, found by another attempt: a sentence with the way out. Empty: one
  // is. It waits for some seconds where nobody answers.
  std::string WhyNotConnected() const;

 private:
  HubChannel(std::string address, std::unique_ptr<TlsFiles> files);

  const std::string address_;
  const std::unique_ptr<TlsFiles> files_;  // null: a unix socket
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_HUB_CHANNEL_H_
