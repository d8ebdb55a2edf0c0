#include "injection/nccl/activation_masks.h"

#include "injection/nccl/profiler_abi.h"

namespace seqpoint::inject {

constinit ActivationMasks g_activation_masks;

void ActivationMasks::Add(int* mask, int version) {
  if (mask == nullptr) return;
  LockGuard guard(&lock_);
  Mask* place = nullptr;
  for (Mask& m : masks_) {
    if (m.users != 0 && m.mask == mask) {
      ++m.users;
      WriteAll();
      return;
    }
    if (m.users == 0 && place == nullptr) place = &m;
  }
  if (place != nullptr) *place = {mask, version, 1};
  WriteAll();
}

void ActivationMasks::Remove(int* mask) {
  LockGuard guard(&lock_);
  for (Mask& m : masks_) {
    if (m.users != 0 && m.mask == mask) --m.users;
  }
}

void ActivationMasks::SetWish(bool operations, uint32_t period, uint32_t phase) {
  LockGuard guard(&lock_);
  operations_.store(operations, std::memory_order_relaxed);
  __atomic_store_n(&period_, period, __ATOMIC_RELAXED);
  phase_ = phase;
  Decide();
  WriteAll();
}

void ActivationMasks::OnBoundary(uint64_t iteration) {
  iteration_.store(iteration, std::memory_order_relaxed);
  if (__atomic_load_n(&period_, __ATOMIC_RELAXED) == 0) return;
  LockGuard guard(&lock_);
  const bool before = channels_on();
  Decide();
  if (channels_on() != before) WriteAll();
}

void ActivationMasks::SetOthers(int bits) {
  LockGuard guard(&lock_);
  others_ = bits;
  WriteAll();
}

void ActivationMasks::ForgetInChild() {
  lock_.Unlock();  // its holder is not in this process
  SetWish(false, 0, 0);
}

// Holds the lock.
void ActivationMasks::Decide() {
  channels_.store(operations_on() && period_ != 0 && iteration() % period_ == phase_,
                  std::memory_order_relaxed);
}

// Holds the lock.
void ActivationMasks::WriteAll() {
  for (const Mask& m : masks_) {
    if (m.users == 0) continue;
    int bits = others_;
    if (operations_on()) bits |= nccl::kCollective | nccl::kPointToPoint;
    if (channels_on() && m.version >= kTimedVersion) bits |= nccl::kKernelChannel;
    __atomic_store_n(m.mask, bits, __ATOMIC_RELAXED);
  }
}

}  // namespace seqpoint::inject
