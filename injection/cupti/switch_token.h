// The right to switch what CUPTI does for us. One thread at a time has it, and keeps it across
// calls of CUDA and CUPTI, which no lock may be held across: a thread that waits for the GPU must
// not keep others from launching the work that the GPU waits for.
//
//   const Switching switching(&token);
//   if (!switching) return false;  // another thread switches; try again
//
// The thread that meets an event takes it under the lock, with Take, and gives it back when it has
// done what the event asks for.
//
// Threading: any thread. `lock` guards the state; functions that say so want it held.
#ifndef SEQPOINT_INJECTION_CUPTI_SWITCH_TOKEN_H_
#define SEQPOINT_INJECTION_CUPTI_SWITCH_TOKEN_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/base/system.h"

namespace seqpoint::inject {

class SwitchToken {
 public:
  SwitchToken(SpinLock* lock, Features* features) : lock_(lock), features_(features) {}

  SpinLock* lock() const { return lock_; }
  // These four with the lock held. Take: nobody has it.
  bool taken() const { return taken_; }
  void Take() { taken_ = true; }
  // For good: nobody gets it any more.
  bool stopped() const { return stopped_; }
  void Stop() { stopped_ = true; }

  // False: another thread has it, or all has stopped.
  bool TryTake();
  void GiveBack();
  bool Stopped();
  // A stream capture begins: whoever switches may wait for the GPU or have CUPTI allocate, which
  // would break it. That thread may wait for what this one launches next, or hang in CUPTI: it is
  // waited for a quarter of a second, once. Nanoseconds that the caller was held.
  uint64_t AwaitForCapture();
  // That was not enough several times: nothing is measured any more.
  bool holds_captures() const {
    return captures_held_.load(std::memory_order_relaxed) >= kMostCapturesHeld;
  }

 private:
  static constexpr uint32_t kMostCapturesHeld = 3;

  SpinLock* const lock_;
  Features* const features_;
  bool taken_ = false;
  bool stopped_ = false;
  bool too_long_ = false;                   // a capture gave up waiting
  std::atomic<uint32_t> captures_held_{0};  // that waited in vain
};

// Has the token for a scope, or not.
class Switching {
 public:
  explicit Switching(SwitchToken* token) : token_(token->TryTake() ? token : nullptr) {}
  ~Switching() {
    if (token_ != nullptr) token_->GiveBack();
  }
  Switching(const Switching&) = delete;
  Switching& operator=(const Switching&) = delete;
  explicit operator bool() const { return token_ != nullptr; }

 private:
  SwitchToken* const token_;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_SWITCH_TOKEN_H_
