#include "injection/cupti/call_watch.h"

#include "injection/base/system.h"

namespace seqpoint::inject {
namespace {

// The longest of these calls, a flush of full buffers or the start of a counter session, takes some
// milliseconds.
constexpr uint64_t kPatienceWithoutGpuNs = 2'000'000'000;
// The GPU works its queue off in less: a queue holds a thousand launches.
constexpr uint64_t kPatienceWithGpuNs = 30'000'000'000;

}  // namespace

CallWatch::Scope::Scope(CallWatch* watch, const char* function, bool waits) : watch_(watch) {
  for (int i = 0; i < kSlots && slot_ < 0; ++i) {
    const char* free = nullptr;
    if (watch_->slots_[i].function.compare_exchange_strong(free, function)) slot_ = i;
  }
  if (slot_ < 0) return;
  Slot& slot = watch_->slots_[slot_];
  slot.waits.store(waits, std::memory_order_relaxed);
  slot.by_helper.store(Thread()->helper, std::memory_order_relaxed);
  slot.since_ns.store(MonotonicNs(), std::memory_order_release);
}

CallWatch::Scope::~Scope() {
  if (slot_ < 0) return;
  Slot& slot = watch_->slots_[slot_];
  if (slot.reported.exchange(false)) {
    watch_->features_->Report(abi::Feature::kCupti, abi::FeatureState::kReady, 0,
                              "%s returned after %.1f s", slot.function.load(),
                              static_cast<double>(MonotonicNs() - slot.since_ns.load()) * 1e-9);
  }
  slot.since_ns.store(0, std::memory_order_relaxed);
  slot.function.store(nullptr, std::memory_order_release);
}

void CallWatch::Look() {
  for (Slot& slot : slots_) {
    const uint64_t since_ns = slot.since_ns.load(std::memory_order_acquire);
    if (since_ns == 0) continue;
    const uint64_t patience_ns =
        slot.waits.load(std::memory_order_relaxed) ? kPatienceWithGpuNs : kPatienceWithoutGpuNs;
    if (MonotonicNs() - since_ns < patience_ns) continue;
    const char* function = slot.function.load();
    if (function == nullptr || slot.reported.exchange(true)) continue;
    features_->Report(
        abi::Feature::kCupti, abi::FeatureState::kFailed, 0,
        "%s of CUPTI version %u has not returned for %.0f s; %s. If it never does, run "
        "the program with SEQPOINT_DISABLE=1, or with a later CUPTI",
        function, cupti_->version, static_cast<double>(MonotonicNs() - since_ns) * 1e-9,
        slot.by_helper.load(std::memory_order_relaxed)
            ? "training goes on, and nothing is recorded meanwhile"
            : "the thread that trains waits for it");
  }
}

}  // namespace seqpoint::inject
