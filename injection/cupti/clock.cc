#include "injection/cupti/clock.h"

namespace seqpoint::inject {
namespace {

constexpr uint64_t kRealWithinNs = 1'000'000;
constexpr uint64_t kPairWithinNs = 1'000;
constexpr int kPairAttempts = 5;
// Clocks that are disciplined drift against each other by 500 us a second at most (adjtimex(2),
// MAXFREQ); what is more, or faster, makes a time wrong that others are compared with.
constexpr uint64_t kStepNs = 1'000'000;
constexpr uint64_t kSlewShare = 2000;
// No clock that counts from the system's epoch is off by a day; a software GPU's virtual time, at
// 20 times the speed of the real one, is after an hour of it.
constexpr uint64_t kAnotherEpochNs = 24ull * 3600 * 1'000'000'000;

uint64_t Difference(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

}  // namespace

Clock::Reading Clock::Read() const {
  Reading reading = {};
  uint64_t cupti_ns = 0, real_ns = 0;
  for (int i = 0; i < kPairAttempts; ++i) {
    const uint64_t before = RealNs();
    cupti_ns = before;
    if (cupti_->version != 0) cupti_->GetTimestamp(&cupti_ns);
    real_ns = RealNs();
    reading.real = cupti_ns + kRealWithinNs >= before && cupti_ns <= real_ns + kRealWithinNs;
    if (real_ns >= before && real_ns - before <= kPairWithinNs) break;
  }
  const uint64_t raw_ns = injection::NowNs(CLOCK_MONOTONIC_RAW);
  reading.far = Difference(cupti_ns, real_ns) >= kAnotherEpochNs;
  reading.raw = Difference(cupti_ns, raw_ns) < kRealWithinNs;
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

void Clock::Check() { changed_.store(Read().real == foreign(), std::memory_order_relaxed); }

bool Clock::TakeStep(uint64_t call, abi::ClockStepEvent* step) {
  uint64_t before = 0, real_ns = 0;
  bool close = false;
  for (int i = 0; i < kPairAttempts && !close; ++i) {
    before = MonotonicNs();
    real_ns = RealNs();
    close = MonotonicNs() - before <= kPairWithinNs;
  }
  if (!close) return false;
  const uint64_t offset_ns = real_ns - before;
  const auto by_ns = static_cast<int64_t>(offset_ns - step_offset_ns_);
  const uint64_t slack_ns = kStepNs + (before - step_monotonic_ns_) / kSlewShare;
  const bool set = step_monotonic_ns_ != 0 && !foreign() &&
                   static_cast<uint64_t>(by_ns < 0 ? -by_ns : by_ns) > slack_ns;
  *step = {real_ns, before, by_ns, step_call_, call};
  step_monotonic_ns_ = before;
  step_offset_ns_ = offset_ns;
  step_call_ = call;
  return set;
}

}  // namespace seqpoint::inject
