// Clock: the time of day, and a monotonic time.
//
// Intervals (commits, heartbeats, waits, retention) are measured by MonotonicNs: the wall clock may
// be set back or forward at any moment. WallNs is for times that people read, and for times that
// are compared over restarts of the machine.
//
// Threading: thread-safe.
#ifndef DAEMON_BASE_CLOCK_H_
#define DAEMON_BASE_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace seqpoint {

class Clock {
 public:
  virtual ~Clock() = default;
  // Since 1970.
  virtual int64_t WallNs() const { return Read(CLOCK_REALTIME); }
  // Since the machine was started. The library's heartbeats use the same clock.
  virtual int64_t MonotonicNs() const { return Read(CLOCK_MONOTONIC); }

  // The machine's.
  static const Clock& System() {
    static const Clock clock;
    return clock;
  }

 private:
  static int64_t Read(clockid_t id) {
    timespec now;
    clock_gettime(id, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
};

}  // namespace seqpoint

#endif  // DAEMON_BASE_CLOCK_H_
