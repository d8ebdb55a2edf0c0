#include "injection/cupti/captures.h"

namespace seqpoint::inject {
namespace {

// Most captures that began unseen are over then; one that compiles kernels takes longer.
constexpr uint64_t kBlindNs = 1'000'000'000;

}  // namespace

void Captures::OnEnd() {
  uint32_t count = this->count();
  while (count > 0 && !count_.compare_exchange_weak(count, count - 1)) {
  }
  if (held_up_.load(std::memory_order_relaxed)) helper_->Wake();
}

bool Captures::MayBeUnderWay() const {
  if (count() != 0) return true;
  if (unseen_.load() && captured_.load(std::memory_order_relaxed)) return true;
  const uint64_t blind_until_ns = blind_until_ns_.load(std::memory_order_relaxed);
  return blind_until_ns != 0 && MonotonicNs() < blind_until_ns;
}

void Captures::OnHole() {
  blind_until_ns_.store(MonotonicNs() + kBlindNs, std::memory_order_relaxed);
  count_.store(0, std::memory_order_relaxed);
}

bool Captures::BeginUnsafe() {
  unsafe_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool may = !MayBeUnderWay();
  held_up_.store(!may, std::memory_order_relaxed);
  if (!may) EndUnsafe();
  return may;
}

uint64_t Captures::AwaitUnsafe(uint64_t patience_ns) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!unsafe_.load(std::memory_order_acquire)) return 0;
  const uint64_t begin_ns = clock_->NowNs();
  const uint64_t deadline_ns = MonotonicNs() + patience_ns;
  while (unsafe_.load(std::memory_order_acquire) && MonotonicNs() < deadline_ns) {
    SleepNs(100'000);
  }
  return clock_->NowNs() - begin_ns;
}

}  // namespace seqpoint::inject
