#include "tests/softgpu/clock.h"

#include <time.h>

namespace seqpoint::softgpu {
namespace {

// How often (real time) the virtual clock compares itself with the real one, and how much unused
// real time it may make up for afterwards.
constexpr double kThrottlePeriodNs = 200'000;
constexpr double kMaxCreditNs = 2'000'000;
// A sleep returns up to about this much late; the rest of a real wait spins.
constexpr uint64_t kSleepSlackNs = 80'000;

uint64_t ReadNs(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

void SleepNs(uint64_t ns) {
  timespec t{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&t, nullptr);
}

// Virtual time is another clock than the system's from the first look on, not only once it has gone
// another way.
constexpr uint64_t kVirtualAheadNs = 1'000'000'000;

}  // namespace

Clock::Clock(bool is_virtual, double speed_cap)
    : virtual_(is_virtual),
      speed_cap_(speed_cap),
      start_ns_(ReadNs(CLOCK_REALTIME) + (is_virtual ? kVirtualAheadNs : 0)),
      now_ns_(start_ns()),
      throttle_at_ns_(speed_cap > 0 ? start_ns() : UINT64_MAX),
      anchor_virtual_ns_(start_ns()),
      anchor_real_ns_(ReadNs(CLOCK_MONOTONIC)) {}

uint64_t Clock::MonotonicNs() const {
  return start_ns() + ReadNs(CLOCK_MONOTONIC) - anchor_real_ns_;
}

void Clock::Work(uint64_t ns) {
  if (virtual_) {
    Spend(ns);
    return;
  }
  uint64_t end = ReadNs(CLOCK_MONOTONIC) + ns;
  while (ReadNs(CLOCK_MONOTONIC) < end) {
  }
}

void Clock::WaitUntil(Instant time) {
  const uint64_t time_ns = time.ns;
  if (virtual_) {
    uint64_t now = now_ns_.load(std::memory_order_relaxed);
    const uint64_t then = std::max(now, time_ns);
    const uint64_t alone = Later(Now(), time).alone_ns;
    lag_ns_.store(then > alone ? then - alone : 0, std::memory_order_relaxed);
    while (now < time_ns &&
           !now_ns_.compare_exchange_weak(now, time_ns, std::memory_order_relaxed)) {
    }
    if (time_ns >= throttle_at_ns_.load(std::memory_order_relaxed)) Throttle();
    return;
  }
  for (uint64_t now = MonotonicNs(); now < time_ns; now = MonotonicNs()) {
    if (time_ns - now > kSleepSlackNs) SleepNs(time_ns - now - kSleepSlackNs);
  }
}

void Clock::StartLater(uint64_t time_ns) {
  if (!virtual_) return;
  const uint64_t now = now_ns_.load(std::memory_order_relaxed);
  if (time_ns <= now) return;
  std::lock_guard lock(mutex_);
  now_ns_.fetch_add(time_ns - now, std::memory_order_relaxed);
  start_ns_.fetch_add(time_ns - now, std::memory_order_relaxed);
  anchor_virtual_ns_ += time_ns - now;  // the speed cap does not count the difference
}

void Clock::Throttle() {
  std::lock_guard lock(mutex_);
  for (;;) {
    uint64_t now = NowNs();
    double ahead_ns = static_cast<double>(now - anchor_virtual_ns_) / speed_cap_ -
                      static_cast<double>(ReadNs(CLOCK_MONOTONIC) - anchor_real_ns_);
    if (ahead_ns <= 0) {
      if (ahead_ns < -kMaxCreditNs) {
        anchor_virtual_ns_ = now;
        anchor_real_ns_ = ReadNs(CLOCK_MONOTONIC);
      }
      throttle_at_ns_.store(now + static_cast<uint64_t>(kThrottlePeriodNs * speed_cap_),
                            std::memory_order_relaxed);
      return;
    }
    SleepNs(static_cast<uint64_t>(ahead_ns) + 1);
  }
}

}  // namespace seqpoint::softgpu
