#include "daemon/operate/http_server.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/base/clock.h"
#include "daemon/base/listen_addresses.h"

namespace seqpoint::operate {
namespace {

// After an accept() that found no descriptor free: the socket stays readable.
constexpr absl::Duration kAcceptAgain = absl::Milliseconds(100);

absl::Duration MonotonicNow() { return absl::Nanoseconds(Clock::System().MonotonicNs()); }

// An address of a name is enough: "localhost" is served where a prober looks first.
absl::StatusOr<int> Bind(const std::string& address) {
  std::optional<ListenAddresses> addresses = ListenAddresses::Find(address);
  if (!addresses) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-listen ", address, " is not host:port, as in localhost:9464"));
  }
  std::string why = addresses->why;
  int bound = -1;
  for (const addrinfo* to = addresses->list.get(); to != nullptr && bound < 0; to = to->ai_next) {
    const int fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // a restart finds it free
    if (bind(fd, to->ai_addr, to->ai_addrlen) == 0 &&
        listen(fd, static_cast<int>(HttpServer::kMostConnections)) == 0) {
      bound = fd;
      continue;
    }
    why = strerror(errno);
    close(fd);
  }
  if (bound >= 0) return bound;
  return absl::UnavailableError(
      absl::StrCat("cannot listen for --metrics-listen on ", address, ": ", why,
                   "; the address must be this machine's and its port free"));
}

int PortOfSocket(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  // The port is at the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

const char* PhraseOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

std::string BytesOf(const HttpReply& reply, bool with_body) {
  return absl::StrCat("HTTP/1.1 ", reply.status, " ", PhraseOf(reply.status),
                      "\r\nContent-Type: ", reply.type, "\r\nContent-Length: ", reply.body.size(),
                      "\r\nConnection: close\r\n\r\n", with_body ? reply.body : "");
}

// The whole head of a request.
std::string AnswerTo(std::string_view head, const HttpServer::Handler& handler) {
  const std::string_view line = head.substr(0, head.find_first_of("\r\n"));
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last == first || line.substr(last + 1, 5) != "HTTP/") {
    return BytesOf({.status = 400, .body = "this is no request of HTTP/1.1\n"}, true);
  }
  const std::string_view method = line.substr(0, first);
  if (method != "GET" && method != "HEAD") {
    return BytesOf({.status = 405, .body = "only GET and HEAD are answered\n"}, true);
  }
  std::string_view path = line.substr(first + 1, last - first - 1);
  path = path.substr(0, path.find('?'));
  return BytesOf(handler(path), method == "GET");
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              Handler handler) {
  const auto fd = Bind(address);
  if (!fd.ok()) return fd.status();
  const int wake_fd = eventfd(0, EFD_CLOEXEC);
  if (wake_fd < 0) {
    const int error = errno;
    close(*fd);
    return absl::UnavailableError(absl::StrCat("--metrics-listen: eventfd: ", strerror(error),
                                               "; raise the limit of open files"));
  }
  return std::unique_ptr<HttpServer>(
      new HttpServer(*fd, wake_fd, PortOfSocket(*fd), std::move(handler)));
}

HttpServer::HttpServer(int listen_fd, int wake_fd, int port, Handler handler)
    : listen_fd_(listen_fd), wake_fd_(wake_fd), port_(port), handler_(std::move(handler)) {
  thread_ = std::thread([this] { Run(); });
}

HttpServer::~HttpServer() {
  stop_ = true;
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
  thread_.join();
  for (const Connection& connection : connections_) close(connection.fd);
  close(listen_fd_);
  close(wake_fd_);
}

void HttpServer::Accept() {
  for (size_t i = 0; i < kMostConnections; ++i) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno != EAGAIN) absl::SleepFor(kAcceptAgain);
      return;
    }
    if (connections_.size() >= kMostConnections) {
      close(connections_.front().fd);
      connections_.pop_front();
    }
    connections_.push_back({.fd = fd, .deadline = MonotonicNow() + kPatience});
  }
}

bool HttpServer::Advance(Connection& connection) {
  while (connection.out.empty()) {
    char bytes[1024];
    const ssize_t count = recv(connection.fd, bytes, sizeof bytes, 0);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    connection.in.append(bytes, static_cast<size_t>(count));
    if (connection.in.find("\r\n\r\n") != std::string::npos ||
        connection.in.find("\n\n") != std::string::npos) {
      connection.out = AnswerTo(connection.in, handler_);
    } else if (connection.in.size() > kMostHeadBytes) {
      connection.out = BytesOf({.status = 431, .body = "the head of the request is too long\n"},
                               /*with_body=*/true);
    }
  }
  while (!connection.out.empty()) {
    const ssize_t count =
        send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    connection.out.erase(0, static_cast<size_t>(count));
  }
  shutdown(connection.fd, SHUT_WR);
  return false;
}

void HttpServer::Run() {
  while (!stop_) {
    std::vector<pollfd> polled = {{.fd = wake_fd_, .events = POLLIN},
                                  {.fd = listen_fd_, .events = POLLIN}};
    absl::Duration deadline = absl::InfiniteDuration();
    for (const Connection& connection : connections_) {
      const short events = connection.out.empty() ? POLLIN : POLLOUT;
      polled.push_back({.fd = connection.fd, .events = events});
      deadline = std::min(deadline, connection.deadline);
    }
    const absl::Duration left = std::max(deadline - MonotonicNow(), absl::ZeroDuration());
    const int wait_ms = left == absl::InfiniteDuration()
                            ? -1
                            : static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
    if (poll(polled.data(), polled.size(), wait_ms) < 0) continue;
    const absl::Duration now = MonotonicNow();
    size_t at = 2;
    std::deque<Connection> kept;
    for (Connection& connection : connections_) {
      const bool ready = polled[at++].revents != 0;
      if (now < connection.deadline && (!ready || Advance(connection))) {
        kept.push_back(std::move(connection));
      } else {
        close(connection.fd);
      }
    }
    connections_ = std::move(kept);
    if (polled[1].revents != 0) Accept();
  }
}

}  // namespace seqpoint::operate
