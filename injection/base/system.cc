#include "injection/base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "injection/ring/writer.h"

namespace seqpoint::inject {

uint64_t RealNs() { return injection::NowNs(CLOCK_REALTIME); }
uint64_t MonotonicNs() { return injection::NowNs(CLOCK_MONOTONIC); }

void SleepNs(long ns) {
  const timespec pause = {0, ns};
  nanosleep(&pause, nullptr);
}

__thread ThreadState t_state;

uint32_t AskThreadId() {
  t_state.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  return t_state.tid;
}

bool SpinLock::TryLock(uint64_t timeout_ns) {
  constexpr int kSpins = 200;
  constexpr int kYields = 50;
  // errno belongs to the application: a callback must leave it as it was.
  const int saved_errno = errno;
  uint64_t waited_ns = 0;
  bool taken = false;
  for (int i = 0; !taken && waited_ns < timeout_ns; ++i) {
    if (word_.load(std::memory_order_relaxed) == 0) {
      taken = word_.exchange(1, std::memory_order_acquire) == 0;
    } else if (i < kSpins) {
      __builtin_ia32_pause();
    } else if (i < kSpins + kYields) {
      sched_yield();
    } else {  // its holder was preempted by us, whose priority is higher
      SleepNs(50'000);
      waited_ns += 50'000;
    }
  }
  errno = saved_errno;
  return taken;
}

void WakeWord::Wake() {
  const int saved_errno = errno;
  word_.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  errno = saved_errno;
}

uint32_t WakeWord::Wait(uint32_t seen, uint64_t timeout_ns) {
  const timespec timeout = {static_cast<time_t>(timeout_ns / 1'000'000'000u),
                            static_cast<long>(timeout_ns % 1'000'000'000u)};
  if (word_.load(std::memory_order_acquire) == seen) {
    syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
  }
  return word_.load(std::memory_order_acquire);
}

size_t FormatAt(char* bytes, size_t length, size_t capacity, const char* format,
                va_list arguments) {
  const int wanted = vsnprintf(bytes + length, capacity - length, format, arguments);
  if (wanted < 0) return length;
  const size_t end = length + static_cast<size_t>(wanted);
  return end < capacity ? end : capacity - 1;
}

void Log(const char* format, ...) {
  const char* target = getenv("SEQPOINT_LOG");
  if (target == nullptr || target[0] == '\0') return;
  const int saved_errno = errno;
  char line[1024];
  const int prefix = snprintf(line, sizeof(line), "seqpoint[%d]: ", static_cast<int>(getpid()));
  va_list arguments;
  va_start(arguments, format);
  size_t length = FormatAt(line, static_cast<size_t>(prefix), sizeof(line) - 1, format, arguments);
  va_end(arguments);
  line[length++] = '\n';
  int fd = STDERR_FILENO;
  if (strcmp(target, "stderr") != 0) {
    fd = open(target, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  }
  if (fd >= 0) {
    const ssize_t written = write(fd, line, length);
    static_cast<void>(written);  // a log line that cannot be written is given up
    if (fd != STDERR_FILENO) close(fd);
  }
  errno = saved_errno;
}

}  // namespace seqpoint::inject
