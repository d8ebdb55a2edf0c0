#include "injection/clock.h"

#include "injection/abi/records.h"

namespace seqpoint::inject {
namespace {

constexpr uint64_t kRealWithinNs = 1'000'000;
constexpr uint64_t kPairWithinNs = 1'000;
constexpr int kPairAttempts = 5;

}  // namespace

void Clock::Init(const Cupti* cupti, injection::RingWriter* ring) {
  cupti_ = cupti;
  ring_ = ring;
  Check();
}

void Clock::Check() {
  abi::TimePairEvent pair = {};
  bool tight = false;
  bool real = true;
  for (int i = 0; i < kPairAttempts && !tight; ++i) {
    const uint64_t before = RealNs();
    pair.cupti_ns = before;
    if (cupti_ != nullptr && cupti_->version != 0) cupti_->GetTimestamp(&pair.cupti_ns);
    pair.monotonic_ns = MonotonicNs();
    pair.real_ns = RealNs();
    tight = pair.real_ns >= before && pair.real_ns - before <= kPairWithinNs;
    real = pair.cupti_ns + kRealWithinNs >= before && pair.cupti_ns <= pair.real_ns + kRealWithinNs;
  }
  foreign_.store(!real, std::memory_order_relaxed);
  ring_->SetClockKind(real ? abi::ClockKind::kReal : abi::ClockKind::kForeign);
  if (tight) ring_->WriteEvent(abi::EventType::kTimePair, &pair, sizeof(pair));
}

}  // namespace seqpoint::inject
