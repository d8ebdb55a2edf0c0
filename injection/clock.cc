#include "injection/clock.h"

#include <time.h>

namespace seqpoint::inject {
namespace {

constexpr uint64_t kRealWithinNs = 1'000'000;
constexpr uint64_t kPairWithinNs = 1'000;
constexpr int kPairAttempts = 5;
// No clock that counts from the system's epoch is off by a day; a software GPU's virtual time, at
// 20 times the speed of the real one, is after an hour of it.
constexpr uint64_t kAnotherEpochNs = 24ull * 3600 * 1'000'000'000;

uint64_t Difference(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

}  // namespace

void Clock::Init(const Cupti* cupti, injection::RingWriter* ring) {
  cupti_ = cupti;
  ring_ = ring;
  Decide();
}

Clock::Reading Clock::Read() const {
  Reading reading = {};
  abi::TimePairEvent& pair = reading.pair;
  for (int i = 0; i < kPairAttempts && !reading.tight; ++i) {
    const uint64_t before = RealNs();
    pair.cupti_ns = before;
    if (cupti_ != nullptr && cupti_->version != 0) cupti_->GetTimestamp(&pair.cupti_ns);
    pair.monotonic_ns = MonotonicNs();
    pair.real_ns = RealNs();
    reading.tight = pair.real_ns >= before && pair.real_ns - before <= kPairWithinNs;
    reading.real =
        pair.cupti_ns + kRealWithinNs >= before && pair.cupti_ns <= pair.real_ns + kRealWithinNs;
  }
  timespec raw;
  clock_gettime(CLOCK_MONOTONIC_RAW, &raw);
  const uint64_t raw_ns =
      static_cast<uint64_t>(raw.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(raw.tv_nsec);
  reading.far = Difference(pair.cupti_ns, pair.real_ns) >= kAnotherEpochNs;
  reading.raw = Difference(pair.cupti_ns, raw_ns) < kRealWithinNs;
  return reading;
}

void Clock::Decide() {
  const Reading now = Read();
  raw_ = raw_ || now.raw;
  // One from another epoch may count anything; its records are left out.
  const bool foreign = !now.real && (!now.far || (raw_ && now.raw));
  foreign_.store(foreign, std::memory_order_relaxed);
  ring_->SetClockKind(foreign ? abi::ClockKind::kForeign : abi::ClockKind::kReal);
  Check();
}

bool Clock::Claim() {
  const Reading now = Read();
  if (!now.far || (raw_ && now.raw)) return false;
  if (cupti_->ActivityRegisterTimestampCallback == nullptr) return false;
  if (cupti_->ActivityRegisterTimestampCallback(RealNs) != CUPTI_SUCCESS) return false;
  Decide();
  return true;
}

void Clock::Check() {
  const Reading now = Read();
  const bool same = now.real != foreign();
  changed_.store(!same, std::memory_order_relaxed);
  if (now.tight && same) {
    ring_->WriteEvent(abi::EventType::kTimePair, &now.pair, sizeof(now.pair));
  }
}

}  // namespace seqpoint::inject
