// The process' CUDA contexts that are known, and which GPUs they are on.
// Threading: any thread, but ReportNewDevices: the helper thread.
#ifndef SEQPOINT_INJECTION_CUPTI_CONTEXTS_H_
#define SEQPOINT_INJECTION_CUPTI_CONTEXTS_H_

#include <cuda.h>
#include <stdint.h>

#include "injection/base/system.h"
#include "injection/cupti/loader.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class Contexts {
 public:
  Contexts(const Cupti* cupti, const CudaDriver* driver, injection::RingWriter* ring)
      : cupti_(cupti), driver_(driver), ring_(ring) {}

  void Add(CUcontext context);
  void Remove(CUcontext context);
  // CUPTI was not ours for a while: which contexts are left is not known. They are added again as
  // they are met.
  void Forget();
  bool any() const { return __atomic_load_n(&count_, __ATOMIC_RELAXED) != 0; }
  // Null: there is none.
  CUcontext Any();
  // The one that is known; null: there is none, or there are several.
  CUcontext Only();
  // `context`, else the calling thread's current one, else any.
  CUcontext Of(CUcontext context);

  // Tells the daemon which GPU `device` is; `chip` may be null.
  void ReportDevice(uint32_t device, const char* chip);
  // The same, once for each device that has a context.
  void ReportNewDevices();
  bool has_new() const { return __atomic_load_n(&seen_, __ATOMIC_RELAXED) != reported_; }

 private:
  static constexpr int kMaxContexts = 64;

  const Cupti* const cupti_;
  const CudaDriver* const driver_;
  injection::RingWriter* const ring_;
  SpinLock lock_;
  CUcontext contexts_[kMaxContexts] = {};
  int count_ = 0;
  int seen_ = 0;                   // contexts that ever were
  int reported_ = 0;               // helper thread: value of seen_ at the last look
  uint64_t reported_devices_ = 0;  // helper thread: bit per device
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_CONTEXTS_H_
