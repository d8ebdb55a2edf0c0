// HttpServer: answers GET of a few small pages, to probes and scrapers.
//
//   auto server = HttpServer::Start("localhost:9464", [](std::string_view path) { ... });
//
// It has at most kMostConnections at a time, of which the oldest gives way to a new one; a request
// has at most kMostHeadBytes; a connection lives for at most kPatience from its first byte to its
// last, and has one request. Nothing else of HTTP is known: no TLS, no bodies, no keep-alive.
//
// Threading: a thread of its own, which calls the handler. Ownership: owns the socket and its
// connections. The destructor ends them.
#ifndef DAEMON_OPERATE_HTTP_SERVER_H_
#define DAEMON_OPERATE_HTTP_SERVER_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace seqpoint::operate {

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  static constexpr size_t kMostConnections = 16;
  static constexpr size_t kMostHeadBytes = 8 << 10;
  static constexpr absl::Duration kPatience = absl::Seconds(5);
  // Answers for a path without its query; 404: there is no such page.
  using Handler = std::function<HttpReply(std::string_view path)>;

  // InvalidArgument: `address` is not host:port. Unavailable: it cannot be bound. Port 0: any.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  struct Connection {
    int fd = -1;
    absl::Duration deadline;  // of the monotonic clock
    std::string in, out;      // while `out` is empty, it reads
  };

  HttpServer(int listen_fd, int wake_fd, int port, Handler handler);
  void Run();
  void Accept();
  // False: it is over.
  bool Advance(Connection& connection);

  const int listen_fd_;
  const int wake_fd_;
  const int port_;
  const Handler handler_;
  std::deque<Connection> connections_;  // the oldest first
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace seqpoint::operate

#endif  // DAEMON_OPERATE_HTTP_SERVER_H_
