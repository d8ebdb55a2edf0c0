// The state that the parts of this folder share: the rule's matcher, the level, the open iteration.
// Threading: `lock` guards all but the atomics. It is held for well under a microsecond, and never
// across a call of CUDA or CUPTI.
#ifndef SEQPOINT_INJECTION_ITERATIONS_STATE_H_
#define SEQPOINT_INJECTION_ITERATIONS_STATE_H_

#include <stdint.h>

#include <atomic>

#include "injection/abi/control.h"
#include "injection/abi/matcher.h"
#include "injection/base/system.h"

namespace seqpoint::inject {

// Draws numbers of 16 bits.
class Lots {
 public:
  void Seed(uint64_t seed) { last_ = static_cast<uint32_t>(seed * 0x9E3779B97F4A7C15u >> 32); }
  uint32_t Draw() {
    last_ = last_ * 1664525 + 1013904223;
    return last_ >> 16;
  }

 private:
  uint32_t last_ = 0;
};

struct IterationState {
  // Every call reads these, so they stand together.
  std::atomic<uint32_t> watched{0};  // bit per abi::Op that is of interest now
  std::atomic<bool> learning{false};
  std::atomic<bool> matching{false};  // there is a rule
  SpinLock lock;
  abi::Level level = abi::Level::kOff;
  bool distorted = false;    // something was switched in the open iteration
  bool after_hole = false;   // the next call is the first after nothing was watched
  uint64_t calls = 0;        // watched ones, so far
  uint64_t held_ns = 0;      // how long we held the application since the last boundary
  uint64_t boundary_ns = 0;  // API time of the last boundary; 0: none came
  uint64_t boundary_monotonic_ns = 0;
  uint64_t iteration_ns = 0;  // between the last two; 0: not known
  Lots lots;
  abi::Matcher matcher;

  // One relaxed load: the price of a call that nobody wants.
  bool Watches(abi::Op op) const {
    return (watched.load(std::memory_order_relaxed) >> static_cast<uint32_t>(op) & 1) != 0;
  }
  bool is_learning() const { return learning.load(std::memory_order_relaxed); }
  bool has_rule() const { return matcher.rule().generation != 0; }
};

// The thread that met an event does this after it released the lock, with the SwitchToken.
struct DeferredActions {
  bool close;     // the measurement that MeasurementWindow::closing() holds
  bool open;      // the measurement that was taken
  bool apply;     // what the daemon wants
  bool boundary;  // the iteration begins with this very call
  bool any() const { return close || open || apply; }
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_STATE_H_
