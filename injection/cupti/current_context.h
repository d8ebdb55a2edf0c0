// State of the calling thread in the driver, for a scope: its current context, and what stream
// captures of other threads forbid it.
// Threading: any thread; the scope is one thread's.
#ifndef SEQPOINT_INJECTION_CUPTI_CURRENT_CONTEXT_H_
#define SEQPOINT_INJECTION_CUPTI_CURRENT_CONTEXT_H_

#include "injection/cupti/loader.h"

namespace seqpoint::inject {

// Makes a context current on this thread for a scope. A boundary may be met by a thread that has
// another one or none (an NVTX range, a mark, one of several GPUs).
class CurrentContext {
 public:
  // `known`: what is current, where CUPTI said so: in its callbacks the driver is better not asked.
  CurrentContext(const CudaDriver* driver, CUcontext context, CUcontext known = nullptr)
      : driver_(driver) {
    if (context == known) return;
    if (driver->CtxGetCurrent(&before_) != CUDA_SUCCESS || before_ == context) return;
    changed_ = driver->CtxSetCurrent(context) == CUDA_SUCCESS;
  }
  ~CurrentContext() {
    if (changed_) driver_->CtxSetCurrent(before_);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const CudaDriver* driver_;
  CUcontext before_ = nullptr;
  bool changed_ = false;
};

// While a stream is captured, what CUPTI allocates on this thread would break a capture of another
// one in global mode, unless the thread is relaxed (cuThreadExchangeStreamCaptureMode).
class RelaxedCaptures {
 public:
  // `captures`: there may be one; else the driver is not asked.
  RelaxedCaptures(const CudaDriver* driver, bool captures)
      : exchange_(captures ? driver->ThreadExchangeStreamCaptureMode : nullptr) {
    if (exchange_ != nullptr && exchange_(&mode_) != CUDA_SUCCESS) exchange_ = nullptr;
  }
  ~RelaxedCaptures() {
    if (exchange_ != nullptr) exchange_(&mode_);
  }
  RelaxedCaptures(const RelaxedCaptures&) = delete;
  RelaxedCaptures& operator=(const RelaxedCaptures&) = delete;

 private:
  decltype(CudaDriver::ThreadExchangeStreamCaptureMode) exchange_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_CURRENT_CONTEXT_H_
