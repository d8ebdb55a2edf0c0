// Which events NCCL creates: the activation masks of the process, as the level and the plan of
// kernel channels want them, together with the bits of a plugin of the user's.
//
// NCCL has one mask, and each copy of NCCL in the process has its own. NCCL reads it when the
// program calls an operation, so that a change at a boundary holds for the operations of the new
// iteration.
//
// Threading: any thread. Ownership: the masks are NCCL's. One object in the process, outside the
// guest, because a plugin of the user's needs its bits where there is no guest.
#ifndef SEQPOINT_INJECTION_NCCL_ACTIVATION_MASKS_H_
#define SEQPOINT_INJECTION_NCCL_ACTIVATION_MASKS_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/system.h"

namespace seqpoint::inject {

class ActivationMasks {
 public:
  // Kernel channels have the GPU's times from this version of the interface on.
  static constexpr int kTimedVersion = 4;

  // A communicator of the copy of NCCL that owns this mask begins, or ends. `version`: of the
  // interface that the copy uses.
  void Add(int* mask, int version);
  void Remove(int* mask);

  // Operations are wanted; kernel channels are wanted in iterations whose number modulo `period` is
  // `phase` (period 0: never).
  void SetWish(bool operations, uint32_t period, uint32_t phase);
  // The iteration with this number begins.
  void OnBoundary(uint64_t iteration);
  // The bits of the user's plugin.
  void SetOthers(int bits);
  // In a forked child nothing is recorded.
  void ForgetInChild();

  bool operations_on() const { return operations_.load(std::memory_order_relaxed); }
  uint64_t iteration() const { return iteration_.load(std::memory_order_relaxed); }
  bool channels_on() const { return channels_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kMasks = 8;  // copies of NCCL in a process
  struct Mask {
    int* mask;
    int version;
    uint32_t users;  // communicators; 0: free
  };

  void Decide();
  void WriteAll();

  SpinLock lock_;
  Mask masks_[kMasks] = {};
  uint32_t period_ = 0;
  uint32_t phase_ = 0;
  int others_ = 0;
  std::atomic<bool> operations_{false};
  std::atomic<bool> channels_{false};
  std::atomic<uint64_t> iteration_{0};
};

extern ActivationMasks g_activation_masks;

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_ACTIVATION_MASKS_H_
