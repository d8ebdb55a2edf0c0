#include "daemon/ingest/inject_server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/base/status_macros.h"
#include "proto/utf8.h"

namespace seqpoint::ingest {
namespace {

constexpr uint64_t kListener = 0;  // epoll key; a peer's is its id * 2, its pidfd's one more
constexpr int kBacklog = 128;
constexpr size_t kMostSilent =
    64;  // connections beyond max_processes, to hear why they are refused
constexpr uint64_t kPauseNs = 1'000'000'000;

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

absl::Status SystemError(absl::string_view what, absl::string_view path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
}

void CloseFd(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

// The text goes into protobuf strings later: each byte that is no printable UTF-8 becomes '?'.
std::string CleanText(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const char c = text.front();
    const size_t size = CharacterBytes(text);
    const bool control = size == 1 && c != '\n' && c != '\t' && (c < ' ' || c == 0x7f);
    clean += size == 0 || control ? "?" : text.substr(0, size);
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return clean;
}

uint32_t ErrnoFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return EINVAL;
    case absl::StatusCode::kPermissionDenied:
      return EACCES;
    case absl::StatusCode::kAlreadyExists:
      return EEXIST;
    case absl::StatusCode::kFailedPrecondition:
      return EPROTO;
    default:
      return EAGAIN;
  }
}

// A peer that does not take its answer hears nothing; that is its own loss.
void SendWelcome(int fd, const absl::Status& status) {
  const std::string message(status.message().substr(0, 1024));
  abi::Welcome welcome = {};
  welcome.magic = abi::kHelloMagic;
  welcome.abi_version = abi::kAbiVersion;
  welcome.status = status.ok() ? 0 : ErrnoFor(status);
  welcome.text_bytes = static_cast<uint32_t>(message.size());
  iovec parts[2] = {{&welcome, sizeof welcome},
                    {const_cast<char*>(message.data()), message.size()}};
  msghdr packet = {};
  packet.msg_iov = parts;
  packet.msg_iovlen = 2;
  (void)sendmsg(fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Receives one message and at most one descriptor; closes any others. Returns the message's bytes
// (more than `buffer` holds: it was cut), 0 at the end, -1 with errno.
ssize_t Receive(int fd, std::string& buffer, int& ring_fd) {
  constexpr int kMostDescriptors = 4;
  iovec part = {buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0) return got;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received;
      memcpy(&received, CMSG_DATA(header) + i * sizeof received, sizeof received);
      if (ring_fd < 0) {
        ring_fd = received;
      } else {
        close(received);
      }
    }
  }
  return got;
}

}  // namespace

absl::StatusOr<std::unique_ptr<InjectServer>> InjectServer::Listen(const std::string& directory,
                                                                   const Options& options,
                                                                   Handler* handler) {
  std::unique_ptr<InjectServer> server(new InjectServer(options, handler));
  SEQPOINT_RETURN_IF_ERROR(server->Start(directory));
  return server;
}

absl::Status InjectServer::Start(const std::string& directory) {
  path_ = directory + "/inject.sock";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path ", path_, " has ", path_.size(), " bytes, a socket address ",
                     sizeof address.sun_path - 1, "; choose a shorter SEQPOINT_DIR"));
  }
  memcpy(address.sun_path, path_.data(), path_.size());
  if (mkdir(directory.c_str(), 0700) == 0) {
    if (chmod(directory.c_str(), 0700) != 0) {
      return SystemError("chmod", directory);
    }
  } else if (errno != EEXIST) {
    return SystemError("cannot make directory", directory);
  }
  const bool for_others = !options_.allowed_users.empty();
  if (struct stat folder = {}; for_others && stat(directory.c_str(), &folder) == 0 &&
                               chmod(directory.c_str(), (folder.st_mode & 0777) | 0011) != 0) {
    return SystemError("other users may not enter; chmod", directory);
  }

  // The lock, not the socket, says whether another daemon lives: it ends with its process.
  const std::string lock_path = path_ + ".lock";
  lock_fd_ = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_fd_ < 0) return SystemError("cannot open", lock_path);
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("another seqpointd serves ", path_,
                                                 "; stop it or choose another SEQPOINT_DIR"));
  }
  struct stat old = {};
  if (lstat(path_.c_str(), &old) == 0) {
    if (!S_ISSOCK(old.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, " is there and is not a socket; move it away"));
    }
    const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool served =
        connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ||
        errno != ECONNREFUSED;
    close(probe);
    if (served) {
      return absl::AlreadyExistsError(
          absl::StrCat("another program listens on ", path_, "; choose another SEQPOINT_DIR"));
    }
    if (unlink(path_.c_str()) != 0) return SystemError("cannot remove the old", path_);
  }

  listen_fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (listen_fd_ < 0 || epoll_fd_ < 0) return SystemError("cannot make a socket for", path_);
  if (bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return SystemError("cannot bind", path_);
  }
  bound_ = true;
  // Before listen(): nobody gets in under the wrong mode.
  if (chmod(path_.c_str(), for_others ? 0666 : 0600) != 0) {
    return SystemError("chmod", path_);
  }
  if (listen(listen_fd_, kBacklog) != 0) return SystemError("cannot listen on", path_);
  Watch(listen_fd_, kListener);
  return absl::OkStatus();
}

InjectServer::~InjectServer() {
  // A process that notices the end connects again at once: it has to reach the next daemon, not
  // this one.
  if (bound_) unlink(path_.c_str());
  CloseFd(listen_fd_);
  while (!peers_.empty()) Remove(peers_.begin()->first);
  CloseFd(epoll_fd_);
  CloseFd(lock_fd_);
}

void InjectServer::Watch(int fd, uint64_t key) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = key;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
}

void InjectServer::ListenerEvents(uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = kListener;
  epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, listen_fd_, &event);
}

void InjectServer::RunOnce(int timeout_ms) {
  const bool someone_silent = std::any_of(
      peers_.begin(), peers_.end(), [](const auto& entry) { return entry.second.ring_id.empty(); });
  if (someone_silent || listen_again_ns_ != 0) timeout_ms = std::min(timeout_ms, 100);

  epoll_event events[64];
  const int count = epoll_wait(epoll_fd_, events, 64, timeout_ms);
  const uint64_t now_ns = NowNs();
  if (listen_again_ns_ != 0 && now_ns >= listen_again_ns_) {
    listen_again_ns_ = 0;
    ListenerEvents(EPOLLIN);
  }
  for (int i = 0; i < count; ++i) {
    const uint64_t key = events[i].data.u64;
    if (key == kListener) {
      Accept(now_ns);
    } else if (const uint64_t id = key / 2; !peers_.contains(id)) {
      continue;  // went with an earlier event
    } else if (key % 2 == 0) {
      OnReadable(id);
    } else {
      Remove(id);
      handler_->OnGone(id);
    }
  }
  if (!someone_silent) return;
  std::vector<uint64_t> silent;
  for (const auto& [id, peer] : peers_) {
    if (peer.ring_id.empty() && now_ns >= peer.hello_deadline_ns) silent.push_back(id);
  }
  for (uint64_t id : silent) Remove(id);
}

void InjectServer::Accept(uint64_t now_ns) {
  for (int i = 0; i < kBacklog; ++i) {
    int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The connection stays readable; look away, or this loop takes a whole core.
        listen_again_ns_ = now_ns + kPauseNs;
        ListenerEvents(0);
      }
      return;
    }
    if (peers_.size() >= options_.max_processes + kMostSilent) {
      CloseFd(fd);
      continue;
    }
    ucred peer_user = {};
    socklen_t length = sizeof peer_user;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer_user, &length);
    const uint64_t id = next_id_++;
    Peer& peer = peers_[id];
    peer.fd = fd;
    peer.pid = peer_user.pid;
    peer.uid = peer_user.uid;
    peer.hello_deadline_ns = now_ns + static_cast<uint64_t>(options_.hello_timeout_ms) * 1'000'000;
    Watch(fd, id * 2);
  }
}

void InjectServer::OnReadable(uint64_t id) {
  Peer& peer = peers_.at(id);
  std::string buffer(sizeof(abi::Hello) + abi::kMaxHelloText, '\0');
  int ring_fd = -1;
  const ssize_t got = Receive(peer.fd, buffer, ring_fd);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (!peer.ring_id.empty()) {  // nothing is said after the hello
    CloseFd(ring_fd);
    CloseConnection(id);
    return;
  }
  if (got <= 0) {
    CloseFd(ring_fd);
    Remove(id);
    return;
  }
  absl::Status status;
  if (static_cast<size_t>(got) > buffer.size()) {
    status = absl::InvalidArgumentError(
        absl::StrCat("the hello has ", got, " bytes; at most ", buffer.size(), " are read"));
  } else {
    status = Greet(id, std::string_view(buffer).substr(0, static_cast<size_t>(got)), ring_fd);
  }
  CloseFd(ring_fd);
  // Greet may have moved the connection to the peer that had this ring before.
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  SendWelcome(found->second.fd, status);
  if (!status.ok()) Remove(id);
}

// Checks a hello and lets its sender in. (Not earlier: a connection that is closed with its hello
// unread reports an error to its sender, not our sentence.)
absl::Status InjectServer::Greet(uint64_t id, std::string_view message, int ring_fd) {
  Peer& peer = peers_.at(id);
  if (peer.uid != geteuid() && peer.uid != 0 && !options_.allowed_users.contains(peer.uid)) {
    return absl::PermissionDeniedError(
        absl::StrCat("it serves user ", geteuid(),
                     options_.allowed_users.empty() ? "" : " and those of --allow-users",
                     ", this process runs as ", peer.uid));
  }
  abi::Hello hello = {};
  // Every version begins with magic and version.
  if (message.size() < offsetof(abi::Hello, pid)) {
    return absl::InvalidArgumentError(absl::StrCat(message.size(), " bytes are not a hello"));
  }
  memcpy(&hello, message.data(), std::min(message.size(), sizeof hello));
  if (hello.magic != abi::kHelloMagic) {
    return absl::InvalidArgumentError("the message does not begin like a hello");
  }
  if (hello.abi_version != abi::kAbiVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the library speaks ring version ", hello.abi_version, ", this daemon ",
                     abi::kAbiVersion, "; install equal versions"));
  }
  if (message.size() < sizeof hello || message.size() - sizeof hello != hello.text_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a hello of ", message.size(), " bytes says it has ", hello.text_bytes, " bytes of text"));
  }
  if (ring_fd < 0) return absl::InvalidArgumentError("the hello carries no memfd");

  SEQPOINT_ASSIGN_OR_RETURN(std::unique_ptr<RingReader> reader,
                            RingReader::Open(ring_fd, options_.reader));
  const std::string ring_id = reader->ring_id();
  if (memcmp(ring_id.data(), hello.ring_id, sizeof hello.ring_id) != 0) {
    return absl::InvalidArgumentError("the hello names another ring than the memfd holds");
  }
  struct stat file = {};
  fstat(ring_fd, &file);

  const auto same = std::find_if(peers_.begin(), peers_.end(), [&](const auto& entry) {
    return entry.second.ring_id == ring_id;
  });
  if (same != peers_.end()) {
    Peer& before = same->second;
    if (before.pid != peer.pid || before.device != file.st_dev || before.inode != file.st_ino) {
      return absl::AlreadyExistsError(
          absl::StrCat("process ", before.pid, " has handed over a ring of this id already"));
    }
    // The daemon lived on and reads this ring already: only the connection is new.
    CloseFd(before.fd);
    before.fd = std::exchange(peer.fd, -1);
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, before.fd, nullptr);
    Watch(before.fd, same->first * 2);
    SendWelcome(before.fd, absl::OkStatus());
    Remove(id);
    return absl::OkStatus();
  }

  if (options_.max_processes == 0) {
    return absl::FailedPreconditionError(
        "it is a hub that shares its store with others, and reads no programs; start another "
        "seqpointd on this machine, with --hub, and a SEQPOINT_DIR of its own");
  }
  if (peers_.size() > options_.max_processes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it already watches ", options_.max_processes,
                     " processes, as many as it may; raise its limit of descriptors (ulimit -n), "
                     "or use a second daemon (SEQPOINT_DIR)"));
  }

  AcceptedProcess process;
  process.id = id;
  process.pid = peer.pid;
  process.uid = peer.uid;
  process.reconnect = hello.reconnect;
  process.text = CleanText(message.substr(sizeof hello));
  process.reader = std::move(reader);
  SEQPOINT_RETURN_IF_ERROR(handler_->OnProcess(std::move(process)));

  peer.ring_id = ring_id;
  peer.device = file.st_dev;
  peer.inode = file.st_ino;
  // Fails for a process that is dead already, and for one in another pid namespace.
  if (peer.pid > 0) peer.pidfd = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
  if (peer.pidfd >= 0) Watch(peer.pidfd, id * 2 + 1);
  return absl::OkStatus();
}

// The connection ended; without a pidfd, so did the process, as far as can be known.
void InjectServer::CloseConnection(uint64_t id) {
  Peer& peer = peers_.at(id);
  CloseFd(peer.fd);
  if (peer.pidfd >= 0) return;
  Remove(id);
  handler_->OnGone(id);
}

void InjectServer::Remove(uint64_t id) {
  const auto found = peers_.find(id);
  CloseFd(found->second.fd);
  CloseFd(found->second.pidfd);
  peers_.erase(found);
}

}  // namespace seqpoint::ingest
