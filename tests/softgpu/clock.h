// The clock of the software GPU, one for all threads.
//
// Real: CLOCK_REALTIME; waits sleep, costs of calls are whatever the calls really cost.
// Virtual: starts at CLOCK_REALTIME and moves only when told: Spend() adds the cost of CPU work,
// WaitUntil() jumps. Its speed against the real clock is capped, so that a daemon beside the
// program can follow. Thread-safe; values never decrease in virtual mode.
#ifndef SEQPOINT_TESTS_SOFTGPU_CLOCK_H_
#define SEQPOINT_TESTS_SOFTGPU_CLOCK_H_

#include <atomic>
#include <cstdint>
#include <mutex>

namespace seqpoint::softgpu {

class Clock {
 public:
  // `speed_cap`: virtual seconds per real second, 0 for none.
  Clock(bool is_virtual, double speed_cap);

  uint64_t NowNs() const {
    return virtual_ ? now_ns_.load(std::memory_order_relaxed) : MonotonicNs();
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

  void WaitUntil(uint64_t time_ns);

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
  std::atomic<uint64_t> throttle_at_ns_;
  std::mutex mutex_;
  uint64_t anchor_virtual_ns_;  // guarded by mutex_
  uint64_t anchor_real_ns_;     // guarded by mutex_
};

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_CLOCK_H_
