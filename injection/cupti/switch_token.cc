#include "injection/cupti/switch_token.h"

namespace seqpoint::inject {

bool SwitchToken::TryTake() {
  LockGuard guard(lock_);
  if (stopped_ || taken_) return false;
  taken_ = true;
  return true;
}

void SwitchToken::GiveBack() {
  LockGuard guard(lock_);
  taken_ = false;
}

bool SwitchToken::Stopped() {
  LockGuard guard(lock_);
  return stopped_;
}

uint64_t SwitchToken::AwaitForCapture() {
  constexpr uint64_t kPatienceNs = 250'000'000;
  const uint64_t begin_ns = MonotonicNs();
  uint64_t held_ns = 0;
  for (; held_ns < kPatienceNs; held_ns = MonotonicNs() - begin_ns) {
    {
      LockGuard guard(lock_);
      const bool free = !taken_ || stopped_;
      if (free) too_long_ = false;
      if (free || too_long_) return held_ns;
    }
    SleepNs(50'000);
  }
  LockGuard guard(lock_);
  too_long_ = true;
  if (++captures_held_ == kMostCapturesHeld) {
    features_->Report(
        abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
        "stream captures of the program waited for the profiler, which waited for the GPU: no "
        "iteration is traced or counted in this process any more; iterations are timed as before");
  }
  return held_ns;
}

}  // namespace seqpoint::inject
