// Collects the counters of one iteration: by CUPTI's range profiler or its PM sampling. Counters
// owns one of each and uses one at a time. It does what both have in common: configurations,
// states, events.
//
//   application's thread   Open (before the iteration's work), Close (after it), Discard
//   helper thread          Probe, Decode (until it returns true), Disable
//
// Counters never calls two of these at once but Expire, and Close or Discard only after an Open
// that succeeded. All report their own failures and return CUptiResult or CountersStatus; 0: good.
#ifndef SEQPOINT_INJECTION_COUNTERS_BACKEND_H_
#define SEQPOINT_INJECTION_COUNTERS_BACKEND_H_

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "injection/abi/control.h"
#include "injection/abi/records.h"
#include "injection/base/features.h"
#include "injection/cupti/loader.h"

namespace seqpoint::inject {

inline constexpr size_t kConfigImageBytes = 128 << 10;
inline constexpr size_t kCounterImageBytes = 2 << 20;
inline constexpr uint32_t kMaxMetrics = 64;

struct CounterConfig {
  std::atomic<uint16_t> ready_id{0};  // 0: not usable
  abi::MetricConfig wanted = {};      // as the control block has it
  char text[sizeof(abi::MetricConfig::names) + 1];
  const char* names[kMaxMetrics];
  uint32_t count;
  bool kernels;         // ranges are those of single kernels
  bool of_device;       // some metrics are the whole device's
  uint32_t max_ranges;  // that find room in the counter data image
  size_t image_bytes;
  size_t counter_bytes;  // of the counter data image
  CUpti_Profiler_Host_Object* host = nullptr;
  alignas(64) uint8_t image[kConfigImageBytes];
};

// Behind ": ", what a person can do about a result; else empty.
const char* CounterWayOut(uint32_t result);
// Reports what a function of CUPTI answered, with the way out. Returns `result`.
uint32_t ReportCounterFailure(const Cupti& cupti, Features* features, const char* function,
                              uint32_t result);

class CounterBackend {
 public:
  // `counter_image`: kCounterImageBytes, shared by the backends.
  CounterBackend(const Cupti* cupti, Features* features, uint8_t* counter_image)
      : cupti_(cupti), features_(features), counter_image_(counter_image) {}

  virtual CUpti_ProfilerType type() const = 0;
  bool measures_ranges() const { return type() == CUPTI_PROFILER_TYPE_RANGE_PROFILER; }
  virtual const char* words() const = 0;  // "range profiling"
  // Has CUPTI the functions?
  virtual bool Exists() const = 0;
  virtual CUpti_Profiler_API api() const = 0;
  // May this process collect? `image`: of what is available; null: only the bytes that it needs.
  virtual uint32_t Probe(CUcontext, uint32_t device, uint8_t* image, size_t* bytes) = 0;
  // Has Probe's image metrics of the whole device (metric_scope.h)?
  virtual bool ImageHasDevice() const { return true; }
  // `usual_ns`: how long an iteration took last; 0: not known. The context is the one whose
  // profiler is enabled, where one is.
  virtual uint32_t Open(CUcontext, CounterConfig* config, uint64_t usual_ns) = 0;
  virtual uint32_t Close() = 0;
  virtual void Discard() {}
  // False: not yet, ask again. `values`: one for each metric, where the status is good.
  virtual bool Decode(CounterConfig* config, double* values, uint32_t* status) = 0;
  // How much of its iteration a Decode saw that succeeded; false: all of it, by ranges.
  virtual bool Sampled(abi::SampledEvent* seen) const { return false; }
  // Makes a Decode that waits give up; any thread.
  void Expire() { expired_.store(true, std::memory_order_relaxed); }
  // Gives the hardware back.
  virtual void Disable() = 0;
  // CUPTI was ended: its objects are gone without a call of ours.
  virtual void Forget() = 0;

  // The context whose profiler is enabled; null: none.
  CUcontext context() const { return context_; }

 protected:
  ~CounterBackend() = default;
  uint32_t Fail(const char* function, uint32_t result) {
    return ReportCounterFailure(*cupti_, features_, function, result);
  }
  // Values of one range or sample in the counter data image.
  uint32_t Evaluate(const CounterConfig& config, size_t index, double* values);
  // CUPTI's values of what it did not collect are no numbers; reports the first one.
  uint32_t CheckNumbers(const CounterConfig& config, const double* values);

  const Cupti* const cupti_;
  Features* const features_;
  uint8_t* const counter_image_;
  CUcontext context_ = nullptr;
  std::atomic<bool> expired_{false};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_BACKEND_H_
