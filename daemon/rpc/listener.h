// Listener: takes the connections of a gRPC server, which it hands over once they have said
// something.
//
//   Listener listener(/*max_connections=*/512);
//   listener.ListenUnix("/run/seqpoint/api.sock", acceptor.get());
//   listener.Start();
//
// gRPC's own listener ends for good when accept() finds no descriptor free, and takes connections
// without a limit. This one
//   - has at most kMostSilent connections that have said nothing; one more ends the oldest of the
//     peer that has most of them
//   - hands over at most a given number; others wait for a place until kPatience has passed. Peers
//     on TCP have three quarters of the places; one address has a quarter, and so has one process
//     of this machine
//   - lets users in who are on its list, where it has one, besides root and its own user
//   - looks away for a moment when descriptors are used up, and goes on.
//
// Threading: Listen* before Start; Start and Stop from one thread; connections are taken on a
// thread of its own. Ownership: owns the sockets and the connections until they are handed over; an
// acceptor outlives it.
#ifndef DAEMON_RPC_LISTENER_H_
#define DAEMON_RPC_LISTENER_H_

#include <grpcpp/server_builder.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/line_limit.h"

namespace seqpoint::rpc {

class Listener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  static constexpr size_t kMostSilent = 64;

  // `users`: who may connect to a unix socket; empty: whom its mode lets in.
  Listener(size_t max_connections, std::set<uid_t> users)
      : max_connections_(max_connections), users_(std::move(users)) {}
  ~Listener() { Stop(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // A unix socket of mode 0660, or 0666 where users are listed, in place of one that nobody listens
  // on. AlreadyExists when another
  // daemon does, InvalidArgument for a path that cannot be, PermissionDenied.
  absl::Status ListenUnix(const std::string& path, Acceptor* acceptor);
  // "host:port"; returns the port, which is another one for 0. InvalidArgument, Unavailable.
  absl::StatusOr<int> ListenTcp(const std::string& address, Acceptor* acceptor);

  void Start();
  void Stop();  // idempotent; what was handed over lives on

 private:
  struct Socket {
    int fd;
    Acceptor* acceptor;
    std::string path;  // of a unix socket
  };
  struct Peer {
    bool on_tcp = false;
    // Its address, or its process where that can be seen; else empty.
    std::string name;
  };
  struct Waiting {
    int fd;
    Acceptor* acceptor;
    Peer peer;
    int64_t deadline_ns;
  };
  // gRPC closes it without a word: it is over when its number means another file, or none.
  struct HandedOver {
    int fd;
    ino_t inode;
    Peer peer;
  };

  void Run();
  void Accept(const Socket& socket, int64_t now_ns);
  void HandOver(const Waiting& waiting);
  void EndOneSilent();
  bool MayConnect(const ucred& peer);
  bool HasPlace(const Peer& peer);
  bool IsFull(const Peer& peer) const;

  const size_t max_connections_;
  const std::set<uid_t> users_;
  LineLimit refusals_;
  std::vector<Socket> sockets_;
  std::deque<Waiting> waiting_;  // the oldest first
  std::vector<HandedOver> open_;
  int64_t accept_again_ns_ = 0;
  int wake_fd_ = -1;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_LISTENER_H_
