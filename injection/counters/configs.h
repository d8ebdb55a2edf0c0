// The metric configurations that the daemon wants, built for the GPU of this process: one config
// image each, of one pass. One that needs more passes is refused. Without a successful
// cuptiProfilerInitialize no range profiler function is ever called (it would crash).
// Threading: Find, target_ready and WhyNoKernels from any thread; the rest on the helper thread,
// while no measurement is open. Ownership: host objects are CUPTI's, dropped with their
// configuration.
#ifndef SEQPOINT_INJECTION_COUNTERS_CONFIGS_H_
#define SEQPOINT_INJECTION_COUNTERS_CONFIGS_H_

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "injection/abi/control.h"
#include "injection/base/features.h"
#include "injection/base/names.h"
#include "injection/counters/backend.h"
#include "injection/cupti/call_watch.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/contexts.h"
#include "injection/cupti/loader.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

// The parts that counters use, and that outlive them.
struct CounterParts {
  const Cupti* cupti;
  const CudaDriver* driver;
  const Names* names;
  Contexts* contexts;
  Captures* captures;
  CallWatch* call_watch;
  WakeWord* helper;
  injection::RingWriter* ring;
  Features* features;
};

class CounterConfigs {
 public:
  CounterConfigs(const CounterParts& parts, CounterBackend* backend)
      : parts_(parts), backend_(backend) {}

  // Null: there is none that is ready.
  CounterConfig* Find(uint16_t config_id);
  bool target_ready() const { return target_ready_.load(std::memory_order_relaxed); }
  // Why single kernels cannot be measured in this process; null: nothing speaks against it.
  const char* WhyNoKernels() const;

  // `backend` collects from now on.
  void UseBackend(CounterBackend* backend);
  // CUPTI may have been ended: what it knew of us is gone.
  void Forget();
  // Asks once whether this process may collect counters at all, and tells the daemon the chip. 0:
  // yes. May allocate on the GPU.
  uint32_t PrepareTarget(CUcontext context);
  // Builds what changed, and reports each. `target`: the answer of PrepareTarget.
  void Prepare(uint32_t target, const abi::MetricConfig wanted[abi::kMaxConfigs]);

 private:
  static constexpr size_t kAvailabilityBytes = 256 << 10;
  using Message = Text<256>;

  uint32_t Fail(const char* function, uint32_t result) const {
    return ReportCounterFailure(*cupti_, parts_.features, function, result);
  }
  uint32_t BuildConfig(CounterConfig* config, uint32_t* passes, Message* message);
  uint32_t MakeHost(const CounterConfig& config, CUpti_Profiler_Host_Object** host);
  uint32_t AddMetrics(CUpti_Profiler_Host_Object* host, const char** names, size_t count);
  void FindRefusedMetric(const CounterConfig& config, Message* message);
  void DropHost(CUpti_Profiler_Host_Object** host);

  const CounterParts parts_;
  const Cupti* const cupti_ = parts_.cupti;
  CounterBackend* backend_;
  CounterConfig configs_[abi::kMaxConfigs];
  bool initialized_ = false;  // cuptiProfilerInitialize succeeded
  std::atomic<bool> target_ready_{false};
  char chip_[32] = {};
  alignas(64) uint8_t availability_[kAvailabilityBytes];
  bool has_availability_ = false;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_CONFIGS_H_
