#include "daemon/operate/notify.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace seqpoint::operate {

Notifier::Notifier() {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@') || path[1] == '\0') return;
  if (strlen(path) >= sizeof(sockaddr_un::sun_path)) return;
  path_ = path;
  fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const char* const usec = std::getenv("WATCHDOG_USEC");
  const char* const pid = std::getenv("WATCHDOG_PID");  // not set: for whoever reads it
  int64_t number = 0;
  if (pid != nullptr && (!absl::SimpleAtoi(pid, &number) || number != getpid())) return;
  if (usec != nullptr && absl::SimpleAtoi(usec, &number) && number > 0) {
    watchdog_ = absl::Microseconds(number);
  }
}

Notifier::~Notifier() {
  if (fd_ >= 0) close(fd_);
}

void Notifier::Send(std::string_view message) const {
  if (fd_ < 0) return;
  sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, path_.data(), path_.size());
  if (path_[0] == '@') address.sun_path[0] = '\0';  // an abstract socket
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  (void)sendto(fd_, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace seqpoint::operate
