#include "daemon/rpc/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/clock.h"
#include "daemon/base/listen_addresses.h"
#include "spdlog/spdlog.h"

namespace seqpoint::rpc {
namespace {

constexpr int kBacklog = 512;
constexpr int kAcceptsAtOnce = 16;  // then those that have said something are handed over
constexpr int64_t kPatienceNs = 5'000'000'000;  // for first bytes, and for a place
constexpr int64_t kPauseNs = 100'000'000;       // while descriptors are used up
constexpr int kPauseMs = 100;

// Removes a socket at `path` that nobody listens on.
absl::Status FreeSocketPath(const std::string& path, const sockaddr_un& address) {
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) return absl::OkStatus();
  if (!S_ISSOCK(file.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " exists and is not a socket; remove it or set SEQPOINT_DIR"));
  }
  // A backlog that is full (EAGAIN) has an owner, too.
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool served =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN;
  close(fd);
  if (served) {
    return absl::AlreadyExistsError(
        absl::StrCat("another daemon answers on ", path,
                     "; use that one, stop it, or set SEQPOINT_DIR to another directory"));
  }
  if (unlink(path.c_str()) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot remove the stale socket ", path, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  char port[NI_MAXSERV] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, nullptr, 0, port, sizeof port,
              NI_NUMERICSERV);
  int number = 0;
  return absl::SimpleAtoi(port, &number) ? number : 0;
}

// The peers who share one: an IPv4 address, or the network of an IPv6 one, of which a host has as
// many as it likes.
std::string PeerOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    return {reinterpret_cast<const char*>(&v4), sizeof v4};
  }
  if (address.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  const char* const bytes = reinterpret_cast<const char*>(&v6);
  constexpr size_t kV4Begin = 12, kV4Bytes = 4, kNetworkBytes = 8;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return {bytes + kV4Begin, kV4Bytes};
  return {bytes, kNetworkBytes};
}

// The process that connected. Where it cannot be seen, for example in another container, its pid is
// 0; nobody's user id is -1.
ucred ProcessAt(int fd) {
  ucred process = {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t size = sizeof process;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &size);
  return process;
}

}  // namespace

absl::Status Listener::ListenUnix(const std::string& path, Acceptor* acceptor) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path ", path, " has ", path.size(), " bytes, the system allows ",
                     sizeof(address.sun_path) - 1, "; set SEQPOINT_DIR to a shorter directory"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  if (absl::Status status = FreeSocketPath(path, address); !status.ok()) return status;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::PermissionDeniedError(
        absl::StrCat("cannot listen on ", path, ": ", strerror(error),
                     "; its directory must exist and be writable (or set SEQPOINT_DIR)"));
  }
  sockets_.push_back({fd, acceptor, path});
  // Before listen(): nobody gets in under another mode.
  const mode_t mode = users_.empty() ? 0660 : 0666;
  if (chmod(path.c_str(), mode) != 0 || listen(fd, kBacklog) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot listen on ", path, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Listener::ListenTcp(const std::string& address, Acceptor* acceptor) {
  const std::optional<ListenAddresses> addresses = ListenAddresses::Find(address);
  if (!addresses) {
    return absl::InvalidArgumentError(
        absl::StrCat("TCP address ", address, " is not host:port, as in localhost:4711"));
  }
  uint32_t port = addresses->port;
  std::string why = addresses->why;
  // All addresses of a name are used, at one port.
  bool bound = false;
  const int on = 1;
  for (const addrinfo* to = addresses->list.get(); to != nullptr; to = to->ai_next) {
    const int fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // a restart finds it free
    if (to->ai_family == AF_INET6 && to->ai_next != nullptr) {
      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    const in_port_t wanted = htons(static_cast<uint16_t>(port));
    if (to->ai_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(to->ai_addr)->sin6_port = wanted;
    } else if (to->ai_family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(to->ai_addr)->sin_port = wanted;
    }
    if (bind(fd, to->ai_addr, to->ai_addrlen) == 0 && listen(fd, kBacklog) == 0) {
      bound = true;
      port = static_cast<uint32_t>(PortOf(fd));
      sockets_.push_back({fd, acceptor, ""});
      continue;
    }
    const int error = errno;
    why = strerror(error);
    close(fd);
    if (error == EADDRINUSE) break;
  }
  if (!bound) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": ", why,
                     "; the address must be this machine's and its port free"));
  }
  return static_cast<int>(port);
}

void Listener::Start() {
  wake_fd_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  stop_ = true;
  if (thread_.joinable()) {
    eventfd_write(wake_fd_, 1);
    thread_.join();
    close(wake_fd_);
  }
  for (const Socket& socket : std::exchange(sockets_, {})) {
    if (!socket.path.empty()) unlink(socket.path.c_str());
    close(socket.fd);
  }
  for (const Waiting& waiting : std::exchange(waiting_, {})) close(waiting.fd);
}

void Listener::Run() {
  std::vector<pollfd> polled;
  while (!stop_) {
    int64_t now_ns = Clock::System().MonotonicNs();
    const bool accepting = now_ns >= accept_again_ns_;
    polled.assign(1, {.fd = wake_fd_, .events = POLLIN});
    for (const Waiting& waiting : waiting_) {
      polled.push_back(
          {.fd = waiting.fd, .events = static_cast<int16_t>(HasPlace(waiting.peer) ? POLLIN : 0)});
    }
    for (const Socket& socket : sockets_) {
      polled.push_back({.fd = socket.fd, .events = static_cast<int16_t>(accepting ? POLLIN : 0)});
    }
    poll(polled.data(), polled.size(), accepting && waiting_.empty() ? -1 : kPauseMs);

    now_ns = Clock::System().MonotonicNs();
    std::deque<Waiting> left;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      const Waiting& waiting = waiting_[i];
      const int events = polled[1 + i].revents;
      char byte;
      if ((events & (POLLHUP | POLLERR)) != 0 || now_ns >= waiting.deadline_ns) {
        close(waiting.fd);
      } else if ((events & POLLIN) == 0 || !HasPlace(waiting.peer)) {
        left.push_back(waiting);
      } else if (recv(waiting.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1) {
        close(waiting.fd);
      } else {
        HandOver(waiting);
      }
    }
    const size_t first_socket = 1 + waiting_.size();
    waiting_ = std::move(left);
    for (size_t i = 0; i < sockets_.size(); ++i) {
      if ((polled[first_socket + i].revents & POLLIN) != 0) Accept(sockets_[i], now_ns);
    }
  }
}

void Listener::Accept(const Socket& socket, int64_t now_ns) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    sockaddr_storage address = {};
    socklen_t size = sizeof address;
    const int fd = accept4(socket.fd, reinterpret_cast<sockaddr*>(&address), &size,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // The socket stays readable: asked on, it would take a whole core.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_again_ns_ = now_ns + kPauseNs;
      }
      return;
    }
    Peer peer = {.on_tcp = socket.path.empty(), .name = PeerOf(address)};
    if (!peer.on_tcp) {
      const ucred process = ProcessAt(fd);
      if (!MayConnect(process)) {
        close(fd);
        continue;
      }
      if (process.pid > 0) peer.name = absl::StrCat(process.pid);
    }
    waiting_.push_back({fd, socket.acceptor, std::move(peer), now_ns + kPatienceNs});
    if (waiting_.size() > kMostSilent) EndOneSilent();
  }
}

void Listener::EndOneSilent() {
  std::map<std::string, int> counts;
  for (const Waiting& waiting : waiting_) ++counts[waiting.peer.name];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto oldest = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
    return waiting.peer.name == most->first;
  });
  close(oldest->fd);
  waiting_.erase(oldest);
}

bool Listener::MayConnect(const ucred& peer) {
  if (users_.empty() || peer.uid == 0 || peer.uid == geteuid() || users_.contains(peer.uid)) {
    return true;
  }
  if (const auto left_out = refusals_.Admit()) {
    spdlog::warn("refused: user {} on api.sock; --allow-users lists who may connect{}", peer.uid,
                 LeftOut(*left_out));
  }
  return false;
}

void Listener::HandOver(const Waiting& waiting) {
  struct stat file = {};
  fstat(waiting.fd, &file);
  open_.push_back({waiting.fd, file.st_ino, waiting.peer});
  Acceptor::NewConnectionParameters connection;
  connection.fd = waiting.fd;
  waiting.acceptor->HandleNewConnection(&connection);
}

bool Listener::HasPlace(const Peer& peer) {
  if (!IsFull(peer)) return true;
  std::erase_if(open_, [](const HandedOver& connection) {
    struct stat file;
    return fstat(connection.fd, &file) != 0 || file.st_ino != connection.inode;
  });
  return !IsFull(peer);
}

bool Listener::IsFull(const Peer& peer) const {
  if (open_.size() >= max_connections_) return true;
  size_t on_tcp = 0, of_peer = 0;
  for (const HandedOver& connection : open_) {
    on_tcp += connection.peer.on_tcp ? 1 : 0;
    of_peer += connection.peer.name == peer.name ? 1 : 0;
  }
  const size_t quarter = max_connections_ / 4;
  if (peer.on_tcp && on_tcp >= max_connections_ - quarter) return true;
  return !peer.name.empty() && of_peer >= std::max<size_t>(quarter, 1);
}

}  // namespace seqpoint::rpc
