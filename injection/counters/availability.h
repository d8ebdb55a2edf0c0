// Whether counters are worth another attempt after failures.
// Threading: plain questions from any thread; the rest by one thread at a time.
#ifndef SEQPOINT_INJECTION_COUNTERS_AVAILABILITY_H_
#define SEQPOINT_INJECTION_COUNTERS_AVAILABILITY_H_

#include <cupti_result.h>
#include <stdint.h>

#include <atomic>

#include "injection/base/system.h"

namespace seqpoint::inject {

class CounterAvailability {
 public:
  // Not given up until the configurations change.
  bool available() const { return !unavailable_.load(std::memory_order_relaxed); }
  // The same of counters of single kernels.
  bool kernels_available() const { return !kernels_unavailable_.load(std::memory_order_relaxed); }
  // Somebody else had the hardware, a moment ago.
  bool busy() const {
    const uint64_t busy_until_ns = busy_until_ns_.load(std::memory_order_relaxed);
    return busy_until_ns != 0 && MonotonicNs() < busy_until_ns;
  }

  // The configurations change: all is tried again.
  void Reset() {
    failures_ = kernel_failures_ = 0;
    unavailable_.store(false, std::memory_order_relaxed);
    kernels_unavailable_.store(false, std::memory_order_relaxed);
  }
  // A measurement began: the hardware is ours.
  void OnOpened() {
    busy_rest_ns_ = 0;
    busy_until_ns_.store(0, std::memory_order_relaxed);
  }
  void OnSuccess() { failures_ = 0; }
  void OnFailure(uint32_t result) {
    if (result == CUPTI_ERROR_HARDWARE_BUSY) {
      busy_rest_ns_ = busy_rest_ns_ == 0 ? kBusyRestNs : 2 * busy_rest_ns_;
      if (busy_rest_ns_ > kLongestBusyRestNs) busy_rest_ns_ = kLongestBusyRestNs;
      busy_until_ns_.store(MonotonicNs() + busy_rest_ns_, std::memory_order_relaxed);
    } else if (++failures_ >= kMaxFailures || result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES) {
      unavailable_.store(true, std::memory_order_relaxed);
    }
  }
  // True: kernels had failed before.
  bool OnKernelsSuccess() {
    const bool failed = kernel_failures_ != 0;
    kernel_failures_ = 0;
    return failed;
  }
  // `certain`: the next attempt would fail, too. True: kernels are given up.
  bool OnKernelsFailure(bool certain) {
    const bool give_up = certain || ++kernel_failures_ >= kMaxFailures;
    if (give_up) kernels_unavailable_.store(true, std::memory_order_relaxed);
    return give_up;
  }

 private:
  // The performance monitors of a GPU have one owner in all processes. After a refusal they are
  // asked for again in so long, then in twice that: another job's measurements take seconds,
  // another tool's hours, and each question stops an iteration.
  static constexpr uint64_t kBusyRestNs = 250'000'000;
  static constexpr uint64_t kLongestBusyRestNs = 64'000'000'000;
  // After so many failed measurements in a row, counters rest until the configurations change.
  static constexpr uint32_t kMaxFailures = 3;

  std::atomic<bool> unavailable_{false};
  std::atomic<bool> kernels_unavailable_{false};
  std::atomic<uint64_t> busy_until_ns_{0};  // monotonic; 0: nobody had the hardware
  uint64_t busy_rest_ns_ = 0;
  uint32_t failures_ = 0;         // measurements that failed one after the other
  uint32_t kernel_failures_ = 0;  // likewise, of kernels
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_AVAILABILITY_H_
