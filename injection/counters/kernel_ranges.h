// Counters of single kernels: which launch each of CUPTI's automatic ranges is, and the sums per
// kernel name. Under automatic ranges every kernel of the context is a range of its own, in the
// order of the launches; nothing but the order says which kernel a range was. The launches of
// the measured iteration are listed, and the measurement is given up wherever the list and the
// ranges might disagree: two threads launched at the same time, a graph was launched (its kernels
// are ranges without a launch), or the numbers differ.
//
// Threading: Begin and End by the thread that has the SwitchToken, OnCall and OnLaunched from any
// thread, the rest on the helper thread between End and the next Begin.
#ifndef SEQPOINT_INJECTION_COUNTERS_KERNEL_RANGES_H_
#define SEQPOINT_INJECTION_COUNTERS_KERNEL_RANGES_H_

#include <cuda.h>
#include <stdint.h>

#include <atomic>
#include <span>

#include "injection/abi/control.h"
#include "injection/abi/records.h"
#include "injection/base/system.h"

namespace seqpoint::inject {

class KernelRanges {
 public:
  // More ranges in a pass were seen to be refused by CUPTI.
  static constexpr uint32_t kMaxRanges = 2000;

  // The counters of one kernel in the iteration, summed over its launches.
  struct Kernel {
    uint32_t name_id;  // 0: no name
    uint32_t launches;
    double value[abi::kMaxKernelMetrics];
  };

  void Begin(CUcontext context);
  // Stops listing. Why the ranges cannot be told apart, for a person; null: they can.
  const char* End();
  bool saw_graph() const { return saw_graph_; }

  bool listing() const { return listing_.load(std::memory_order_relaxed); }
  // A kernel or a graph is about to be launched; other operations are none of ours.
  void OnCall(CUcontext context, abi::Op op, uint32_t name_id);
  // The launch that this thread announced last returned.
  void OnLaunched();

  uint32_t launches() const { return launches_; }
  void ClearSums() { kernel_count_ = 0; }
  // Adds the values of the `range`-th range, below min(launches(), kMaxRanges).
  void Add(uint32_t range, const double* values, uint32_t count);
  std::span<const Kernel> kernels() const { return {kernels_, kernel_count_}; }

 private:
  std::atomic<bool> listing_{false};
  SpinLock lock_;
  // Guarded by lock_ while listing.
  CUcontext context_ = nullptr;
  uint32_t window_ = 0;     // number of the measurement, from 1
  uint32_t in_flight_ = 0;  // launches that have not returned
  uint32_t launches_ = 0;
  bool overlapped_ = false;
  bool saw_graph_ = false;
  uint32_t name_ids_[kMaxRanges];  // of the first launches

  Kernel kernels_[kMaxRanges];
  uint32_t kernel_count_ = 0;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_KERNEL_RANGES_H_
