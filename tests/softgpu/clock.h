// The clock of the software GPU, one for all threads.
//
// Real: CLOCK_REALTIME; waits sleep, costs of calls are whatever the calls really cost.
// Virtual: starts at CLOCK_REALTIME and moves only when told: Spend() adds the cost of CPU work,
// WaitUntil() jumps. Its speed against the real clock is capped, so that a daemon beside the
// program can follow. Thread-safe; values never decrease in virtual mode.
#ifndef SEQPOINT_TESTS_SOFTGPU_CLOCK_H_
#define SEQPOINT_TESTS_SOFTGPU_CLOCK_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace seqpoint::softgpu {

// A time, and what it would be if no communication kernel of this process had waited for another
// rank: each would have started when this rank arrived. Both follow the same rules with the same
// durations, so their difference is what the waiting has cost so far.
struct Instant {
  uint64_t ns = 0;
  uint64_t alone_ns = 0;
};

inline Instant Later(Instant a, Instant b) {
  return {std::max(a.ns, b.ns), std::max(a.alone_ns, b.alone_ns)};
}
inline Instant operator+(Instant a, uint64_t ns) { return {a.ns + ns, a.alone_ns + ns}; }

class Clock {
 public:
  // `speed_cap`: virtual seconds per real second, 0 for none.
  Clock(bool is_virtual, double speed_cap);

  uint64_t NowNs() const {
    return virtual_ ? now_ns_.load(std::memory_order_relaxed) : MonotonicNs();
  }
  Instant Now() const {
    const uint64_t now = NowNs();
    return {now, now - lag_ns_.load(std::memory_order_relaxed)};
  }
  bool is_virtual() const { return virtual_; }
  uint64_t start_ns() const { return start_ns_.load(std::memory_order_relaxed); }

  // CPU work that the model imagines: costs time on the virtual clock only.
  void Spend(uint64_t ns) {
    if (!virtual_) return;
    uint64_t now = now_ns_.fetch_add(ns, std::memory_order_relaxed) + ns;
    if (now >= throttle_at_ns_.load(std::memory_order_relaxed)) Throttle();
  }

  // CPU work that the caller asks for: the real clock spins.
  void Work(uint64_t ns);

  // In real mode `alone_ns` does not count.
  void WaitUntil(Instant time);
  void WaitUntil(uint64_t time_ns) {
    WaitUntil({time_ns, time_ns - lag_ns_.load(std::memory_order_relaxed)});
  }

  // Virtual: goes on at `time_ns`, if that is later, as if it had started later by the difference.
  void StartLater(uint64_t time_ns);

 private:
  // The time in real mode: the system's clock at the start, plus the monotonic time since then. A
  // step of the system's clock does not step the GPU's.
  uint64_t MonotonicNs() const;
  void Throttle();

  const bool virtual_;
  const double speed_cap_;
  std::atomic<uint64_t> start_ns_;
  std::atomic<uint64_t> now_ns_;
  std::atomic<uint64_t> lag_ns_{0};  // of the time without waiting for other ranks
  std::atomic<uint64_t> throttle_at_ns_;
  std::mutex mutex_;
  uint64_t anchor_virtual_ns_;  // guarded by mutex_
  uint64_t anchor_real_ns_;     // guarded by mutex_
};

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_CLOCK_H_
