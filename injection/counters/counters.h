// Hardware counters of one iteration, one pass per configuration, by one of two backends
// (counter_backend.h): the range profiler or PM sampling.
//
// The application's thread opens and closes the measurement (Open, Close); everything that may take
// long (host configurations, decoding, evaluation) happens on the helper thread (Service):
//
//   idle ──Open──▶ open ──Close──▶ closed ──Decode──▶ decoding ──Service──▶ idle
//     │                              └──Discard──▶ idle
//     └──Service──▶ preparing ──▶ idle
//
// Only idle can be left by both sides, by compare-and-swap; while it is not idle, no measurement
// begins. A configuration of kernels works the same, but its values are those of each kernel
// (KernelRanges). A configuration that needs more than one pass is refused. Without a successful
// cuptiProfilerInitialize no range profiler function is ever called (it would crash).
//
// Threading: Ready from any thread; Open, Close, Decode, Discard from the one acting thread (CUPTI
// wants the range's context current there, and it is made so); Service and Rest from the helper
// thread.
#ifndef SEQPOINT_INJECTION_COUNTERS_COUNTERS_H_
#define SEQPOINT_INJECTION_COUNTERS_COUNTERS_H_

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "injection/abi/control.h"
#include "injection/base/features.h"
#include "injection/base/pool.h"
#include "injection/counters/backend.h"
#include "injection/counters/kernel_ranges.h"
#include "injection/counters/pm_sampler.h"
#include "injection/counters/range_profiler.h"
#include "injection/cupti/loader.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

// A measured iteration whose values are still to be decoded.
struct Measured {
  uint64_t iteration;
  int64_t length[2];
  uint16_t config_id;
  uint64_t stopped_ns;
};

class Counters {
 public:
  static constexpr size_t kConfigImageBytes = 128 << 10;
  static constexpr size_t kAvailabilityBytes = 256 << 10;

  bool Init(const Cupti* cupti, const CudaDriver* driver, Pool* pool, injection::RingWriter* ring,
            Features* features);

  // Can a measurement begin now?
  bool Ready(uint16_t config_id) const;
  // Or later, when nothing else is under way?
  bool CanBeHad(uint16_t config_id) const;
  // Are the values of this configuration those of single kernels?
  bool OfKernels(uint16_t config_id) const;
  // 0, or the CUptiResult or CountersStatus that stopped it (reported); then nothing is open.
  // `known`: the calling thread's current context where CUPTI told it, else null.
  // `usual_ns`: how long the last iteration took; 0: not known.
  uint32_t Open(CUcontext context, CUcontext known, uint16_t config_id, uint64_t usual_ns);
  uint32_t Close(CUcontext known);
  void Decode(const Measured& measured);
  void Discard();
  // Gives the range profiler of a context back before the context goes; waits for a decode that is
  // under way, at most a second.
  void ForgetContext(CUcontext context);

  // Gives the hardware back until the next Open. False: not now, a range is open or being
  // decoded, or a stream is being captured.
  bool Rest();

  // CUPTI is ours anew, and another tool may have ended it meanwhile: what it knew of us is gone,
  // and asking for counters begins again. A measurement under way is aborted. For the helper
  // thread, or while nothing is under way.
  void Renew();

  // A stream capture begins (CallStream counts it already): returns when nothing that would break
  // it is under way on the helper thread, or after a second. How long the caller was held, in ns.
  uint64_t AwaitUnsafe();
  // A stream capture ended.
  void OnCaptureEnd();

  // CUPTI is gone: nothing is called any more.
  void GiveUp() { gone_.store(true, std::memory_order_relaxed); }

  // What tells an iteration's time on the GPU; only PM sampling wants to know.
  PmSampler& pm() { return pm_; }
  // Launches are told to it while it lists them.
  KernelRanges& kernels() { return kernels_; }
  // Of the open measurement: its ranges cannot be told apart. After several, none is tried.
  uint32_t KernelsNotTold(const char* why);
  bool samples() const { return samples_.load(std::memory_order_relaxed); }

  // Helper thread: builds wanted configurations, decodes.
  void Service(CUcontext any_context);
  bool busy() const { return state_.load(std::memory_order_relaxed) != State::kIdle; }

 private:
  enum class State : uint32_t { kIdle, kPreparing, kOpen, kClosed, kDecoding };
  bool Begin(State to);
  bool BeginUnsafe();
  void EndUnsafe();
  void PrepareConfigs(uint32_t target, const abi::MetricConfig wanted[abi::kMaxConfigs]);
  uint32_t PrepareTarget(CUcontext context);
  void PrepareConfig(CounterConfig* config);
  static const char* WhyNoKernels();
  uint32_t BuildConfig(CounterConfig* config, uint32_t* passes, Text<256>* sentence);
  uint8_t* AvailabilityFor(const CounterConfig& config) const;
  void FindRefusedMetric(const CounterConfig& config, Text<256>* sentence);
  void DropHost(CounterConfig* config);
  uint32_t Open(CUcontext context, uint64_t usual_ns);
  bool DecodeNow(bool last);
  uint32_t DecodeKernels(double* sums);
  void UseBackend(abi::CounterBackend wanted);
  void CountFailure(uint32_t result);
  CounterConfig* Find(uint16_t config_id);

  const Cupti* cupti_ = nullptr;
  const CudaDriver* driver_ = nullptr;
  injection::RingWriter* ring_ = nullptr;
  Features* features_ = nullptr;
  std::atomic<State> state_{State::kIdle};
  std::atomic<bool> unavailable_{false};    // until the configurations change
  std::atomic<uint64_t> busy_until_ns_{0};  // somebody else had the hardware; 0: nobody
  uint64_t busy_rest_ns_ = 0;
  std::atomic<bool> gone_{true};      // no CUPTI: before Init, or for ever
  std::atomic<bool> unsafe_{false};   // between BeginUnsafe and EndUnsafe
  std::atomic<bool> held_up_{false};  // BeginUnsafe was refused, and the helper thread waits
  bool initialized_ = false;          // cuptiProfilerInitialize succeeded
  std::atomic<bool> target_ready_{false};
  uint32_t configs_generation_ = 0;
  uint32_t failures_ = 0;  // measurements that failed one after the other
  char chip_[32] = {};
  uint8_t* availability_ = nullptr;
  bool has_availability_ = false;
  uint8_t* counter_image_ = nullptr;
  CounterConfig* configs_ = nullptr;
  RangeProfiler range_;
  PmSampler pm_;
  CounterBackend* backend_ = &range_;
  std::atomic<bool> samples_{false};  // backend_ is pm_
  KernelRanges kernels_;
  std::atomic<bool> kernels_unavailable_{false};  // until the configurations change
  uint32_t kernel_failures_ = 0;                  // one after the other
  CounterConfig* active_ = nullptr;               // of the open measurement
  Measured measured_ = {};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_COUNTERS_H_
