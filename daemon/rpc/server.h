// Server: the Profiler service (proto/seqpoint/v1/profiler.proto) on a unix socket and, only with
// TLS, on TCP; with gRPC's health and reflection services.
//
//   auto server = rpc::Server::Start({.socket_path = "/run/seqpoint/api.sock"}, &backend);
//
// It checks requests, fills in defaults, keeps the limits and watches for clients that went away;
// everything else is the Backend's.
//
// Threading: Start and Stop from one thread; calls run on gRPC's threads.
// Ownership: the backend must outlive the server. The destructor stops it.
#ifndef DAEMON_RPC_SERVER_H_
#define DAEMON_RPC_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/rpc/access.h"
#include "daemon/service/backend.h"
#include "daemon/service/daemon_parts.h"

namespace seqpoint::rpc {

class Relay;

struct ServerOptions {
  std::string socket_path;  // empty: none
  // Who may connect to it besides root and this user; empty: whom its mode lets in (0660).
  std::set<uid_t> allowed_users;

  // "host:port" (port 0: any free one); empty: none. Needs the certificate, the key, and the CA of
  // clients or their tokens.
  std::string tcp_address;
  std::string tls_certificate_file;  // PEM, the chain
  std::string tls_key_file;          // PEM
  // PEM. Clients must show a certificate of this CA; with tokens they need not.
  std::string tls_client_ca_file;
  AccessOptions access;  // over TCP; who reaches the socket may do everything

  std::optional<service::HubParts> hub;  // it is served to nodes, too; the parts stay

  size_t max_connections = 512;
  int max_watchers = 64;
  int max_page_size = 10'000;
  int64_t max_request_bytes = 16 << 20;
  int64_t max_reply_bytes = 64 << 20;
  // A peer that does not take a message for so long is cut off: it holds a thread or memory. No
  // client of ours waits longer for an answer.
  absl::Duration write_patience = absl::Seconds(60);
  // A connection is asked for a sign of life so often, and ends without one.
  absl::Duration ping_interval = absl::Seconds(10), pong_patience = absl::Seconds(5);
};

class Server {
 public:
  // Errors: AlreadyExists when another daemon answers on the socket, InvalidArgument for options
  // that cannot be, PermissionDenied and Unavailable when an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       service::Backend* backend);
  // On the same addresses, of a hub that does not lead. Errors: the same.
  static absl::StatusOr<std::unique_ptr<Server>> StartRelay(const ServerOptions& options,
                                                            Relay* relay);
  virtual ~Server() = default;

  // Ends watchers with UNAVAILABLE, lets other calls finish for `grace`, then cuts them off.
  virtual void Stop(absl::Duration grace) = 0;

  virtual int tcp_port() const = 0;  // 0: not open

  // Since the last one was answered: nothing while one is, infinite before the first. Watching is
  // none.
  virtual absl::Duration since_last_question() const = 0;
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_SERVER_H_
