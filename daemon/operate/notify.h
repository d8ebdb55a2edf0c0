// Tells systemd how the daemon is: sd_notify(3), without its library, which brings four others for
// one datagram.
//
//   Notifier notifier;                       // of $NOTIFY_SOCKET; without it, it does nothing
//   notifier.Send("READY=1\nSTATUS=3 processes");
//   if (notifier.watchdog() > absl::ZeroDuration()) ...   // Send("WATCHDOG=1") twice as often
//
// Threading: one thread. Ownership: a socket. A message that systemd does not take is lost.
#ifndef DAEMON_OPERATE_NOTIFY_H_
#define DAEMON_OPERATE_NOTIFY_H_

#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace seqpoint::operate {

class Notifier {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
  Notifier();
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  bool on() const { return fd_ >= 0; }
  void Send(std::string_view message) const;
  // systemd kills the service after so long without WATCHDOG=1; zero: it does not.
  absl::Duration watchdog() const { return watchdog_; }

 private:
  std::string path_;
  int fd_ = -1;
  absl::Duration watchdog_;
};

}  // namespace seqpoint::operate

#endif  // DAEMON_OPERATE_NOTIFY_H_
