// InjectServer: inject.sock, where profiled processes hand over their rings
// (docs/formats/shared-ring.md, "Handing over").
//
//   process                         daemon
//   connect, Hello + memfd  ─────▶  peer's user, versions, seals, header: checked
//                           ◀─────  Welcome (status 0, or an errno value and a sentence)
//   (open for as long as both live)
//
// The owner drives everything from one loop: RunOnce() serves the socket and reports processes that
// came and went; between calls it polls the rings. A process is gone when its pidfd says so, or,
// where it has none (another pid namespace), when its connection ends. Otherwise the end of a
// connection means that the process will connect again: same ring, same reader.
//
// Threading: one thread. Ownership: owns the socket, its lock file and all connections; the handler
// is the caller's and outlives the server.
#ifndef SEQPOINT_DAEMON_INGEST_INJECT_SERVER_H_
#define SEQPOINT_DAEMON_INGEST_INJECT_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/ingest/ring_reader.h"
#include "injection/abi/hello.h"

namespace seqpoint::ingest {

struct AcceptedProcess {
  uint64_t id = 0;  // of this server's life, from 1
  pid_t pid = 0;    // in the daemon's pid namespace; 0: in none it can see
  uid_t uid = 0;
  uint32_t reconnect = 0;  // how often the ring was handed over before
  std::string text;        // the "key=value\n" lines, valid UTF-8
  std::unique_ptr<RingReader> reader;
};

class InjectServer {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    // Not OK: the process is refused, and gets the message.
    virtual absl::Status OnProcess(AcceptedProcess process) = 0;
    // Nothing writes into the ring of this process any more.
    virtual void OnGone(uint64_t id) = 0;
  };

  struct Options {
    size_t max_processes = 1024;    // each takes two descriptors; 0: none is read
    int hello_timeout_ms = 2000;    // for a peer that connects and says nothing
    std::set<uid_t> allowed_users;  // besides our own and root
    RingReaderOptions reader;
  };

  // Makes `directory` (one level, mode 0700) and inject.sock in it (0600), replacing a socket that
  // nobody listens on. Processes of our own user and of root are taken. Where other users are
  // allowed, everybody may enter the directory (0711) and connect (0666), and hears why not.
  // AlreadyExists: another daemon serves it.
  static absl::StatusOr<std::unique_ptr<InjectServer>> Listen(const std::string& directory,
                                                              const Options& options,
                                                              Handler* handler);
  ~InjectServer();
  InjectServer(const InjectServer&) = delete;
  InjectServer& operator=(const InjectServer&) = delete;

  // Serves the pending events, after waiting for one at most `timeout_ms` (0: not at all).
  void RunOnce(int timeout_ms);

  const std::string& path() const { return path_; }

 private:
  struct Peer {
    int fd = -1;     // -1: the connection ended, the process did not
    int pidfd = -1;  // -1: cannot be watched
    pid_t pid = 0;
    uid_t uid = 0;
    std::string ring_id;  // empty: no hello yet
    dev_t device = 0;     // of the memfd, with inode: is it the same memory?
    ino_t inode = 0;
    uint64_t hello_deadline_ns = 0;
  };

  InjectServer(const Options& options, Handler* handler) : options_(options), handler_(handler) {}
  absl::Status Start(const std::string& directory);
  void Accept(uint64_t now_ns);
  void ListenerEvents(uint32_t events);
  void OnReadable(uint64_t id);
  absl::Status Greet(uint64_t id, std::string_view message, int ring_fd);
  void Remove(uint64_t id);
  void CloseConnection(uint64_t id);
  void Watch(int fd, uint64_t key);

  const Options options_;
  Handler* const handler_;
  std::string path_;
  int lock_fd_ = -1;
  int listen_fd_ = -1;
  int epoll_fd_ = -1;
  bool bound_ = false;
  uint64_t listen_again_ns_ = 0;  // while out of descriptors; 0: listening
  uint64_t next_id_ = 1;
  std::map<uint64_t, Peer> peers_;
};

}  // namespace seqpoint::ingest

#endif  // SEQPOINT_DAEMON_INGEST_INJECT_SERVER_H_
