#include "injection/ring/connection.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace seqpoint::injection {
namespace {

Status Fail(int error, const char* path, const char* what) {
  Status status;
  status.error = error;
  snprintf(status.message, sizeof status.message, "daemon at %s: %s", path, what);
  return status;
}

// 0: not open.
uint64_t InodeOf(int fd) {
  struct stat file;
  return fd >= 0 && fstat(fd, &file) == 0 ? file.st_ino : 0;
}

bool IsSet(const char* text) { return text != nullptr && text[0] != 0; }

}  // namespace

Status InjectSocketPath(char* path, size_t path_bytes) {
  const char* folder = getenv("SEQPOINT_DIR");
  const char* subfolder = "";
  if (!IsSet(folder)) {
    folder = getenv("XDG_RUNTIME_DIR");
    subfolder = "/seqpoint";
  }
  if (!IsSet(folder)) folder = "/run";
  const int n = snprintf(path, path_bytes, "%s%s/inject.sock", folder, subfolder);
  if (n < 0 || static_cast<size_t>(n) >= path_bytes ||
      static_cast<size_t>(n) >= sizeof(sockaddr_un::sun_path)) {
    return Fail(ENAMETOOLONG, path, "longer than a socket address; set SEQPOINT_DIR");
  }
  return Status{};
}

Status Connection::Connect(const char* path, const RingWriter& ring, const char* text,
                           size_t text_bytes, int timeout_ms) {
  Close();
  if (!ring.active()) return Fail(EINVAL, path, "there is no ring to hand over");
  if (!ring.HasFile()) {
    return Fail(EBADF, path,
                "the program closed our file descriptors: a daemon that has the ring reads on, "
                "another one cannot take it");
  }
  if (text_bytes > abi::kMaxHelloText) return Fail(EMSGSIZE, path, "the hello text is too long");
  Status status = Exchange(path, ring, text, text_bytes, timeout_ms);
  if (status.ok()) {
    ++handed_over_;
  } else {
    Close();
  }
  return status;
}

Status Connection::Exchange(const char* path, const RingWriter& ring, const char* text,
                            size_t text_bytes, int timeout_ms) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (strlen(path) >= sizeof address.sun_path) {
    return Fail(ENAMETOOLONG, path, "longer than a socket address");
  }
  strcpy(address.sun_path, path);
  fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return Fail(errno, path, strerror(errno));
  inode_ = InodeOf(fd_);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    // Its backlog is full: it does not answer.
    if (errno == EAGAIN) return Fail(ETIMEDOUT, path, "takes no connection; is it stopped?");
    if (errno == EPROTOTYPE) {
      return Fail(errno, path, "another kind of socket; is this another program's?");
    }
    return Fail(errno, path, strerror(errno));
  }

  abi::Hello hello = ring.MakeHello();
  hello.reconnect = handed_over_;
  hello.text_bytes = static_cast<uint32_t>(text_bytes);
  iovec parts[2] = {{&hello, sizeof hello}, {const_cast<char*>(text), text_bytes}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int ring_fd = ring.fd();
  memcpy(CMSG_DATA(header), &ring_fd, sizeof ring_fd);
  if (sendmsg(fd_, &message, MSG_NOSIGNAL) < 0) return Fail(errno, path, strerror(errno));

  pollfd poll_fd = {fd_, POLLIN, 0};
  const int ready = poll(&poll_fd, 1, timeout_ms);
  if (ready < 0) return Fail(errno, path, strerror(errno));
  if (ready == 0) return Fail(ETIMEDOUT, path, "no answer to the hello");
  struct {
    abi::Welcome welcome;
    char message[192];
  } answer = {};
  const ssize_t got = recv(fd_, &answer, sizeof answer - 1, 0);
  if (got < 0) return Fail(errno, path, strerror(errno));
  if (got == 0) return Fail(ECONNRESET, path, "closed the connection without an answer");
  if (static_cast<size_t>(got) < sizeof answer.welcome ||
      answer.welcome.magic != abi::kHelloMagic) {
    return Fail(EPROTO, path, "the answer is not a welcome; is this another program's socket?");
  }
  if (answer.welcome.status != 0) {
    return Fail(static_cast<int>(answer.welcome.status), path, answer.message);
  }
  if (answer.welcome.abi_version != abi::kAbiVersion) {
    char what[96];
    snprintf(what, sizeof what, "speaks ring version %u, this library %u; install equal versions",
             answer.welcome.abi_version, abi::kAbiVersion);
    return Fail(EPROTO, path, what);
  }
  return Status{};
}

bool Connection::Alive() {
  if (!OwnsSocket()) return false;
  pollfd poll_fd = {fd_, POLLIN | POLLRDHUP, 0};
  // The daemon says nothing after Welcome: whatever is readable is the end.
  return poll(&poll_fd, 1, 0) == 0;
}

bool Connection::OwnsSocket() const { return fd_ >= 0 && InodeOf(fd_) == inode_; }

void Connection::Close() {
  if (OwnsSocket()) close(fd_);
  fd_ = -1;
}

}  // namespace seqpoint::injection
