// Counters by CUPTI's range profiler: a user range with user replay around the iteration, one pass.
// Exact, of the process' own context; the GPU is waited for at both ends. For counters of kernels,
// automatic ranges instead: each kernel of the context is one, and they run one after the other.
// Threading: as CounterBackend; the context is made current by the caller.
#ifndef SEQPOINT_INJECTION_COUNTERS_RANGE_PROFILER_H_
#define SEQPOINT_INJECTION_COUNTERS_RANGE_PROFILER_H_

#include <atomic>

#include "injection/counters/backend.h"
#include "injection/counters/kernel_ranges.h"

namespace seqpoint::inject {

class RangeProfiler final : public CounterBackend {
 public:
  using CounterBackend::CounterBackend;

  CUpti_ProfilerType type() const override { return CUPTI_PROFILER_TYPE_RANGE_PROFILER; }
  const char* words() const override { return "range profiling"; }
  bool Exists() const override { return cupti_->CanProfileRanges(); }
  CUpti_Profiler_API api() const override { return CUPTI_PROFILER_RANGE_PROFILING; }
  uint32_t Probe(CUcontext context, uint32_t device, uint8_t* image, size_t* bytes) override;
  bool ImageHasDevice() const override;
  uint32_t Open(CUcontext context, CounterConfig* config, uint64_t usual_ns) override;
  uint32_t Close() override;
  bool Decode(CounterConfig* config, double* values, uint32_t* status) override;
  void Disable() override;
  void Forget() override { object_ = nullptr, context_ = nullptr; }

  // Helper thread, instead of Decode: of a configuration of kernels. Adds each launch's values to
  // the sums in `kernels`; `missing`: launches that found no room.
  uint32_t DecodeKernels(CounterConfig* config, KernelRanges* kernels, uint32_t* missing);

 private:
  uint32_t StartRange(CounterConfig* config);
  uint32_t FitImage(CounterConfig* config);
  uint32_t ReadRanges(CounterConfig* config, size_t* ranges, size_t* dropped);

  CUpti_RangeProfiler_Object* object_ = nullptr;  // null: none enabled
  bool pushed_ = false;                           // the open range is one of ours
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_RANGE_PROFILER_H_
