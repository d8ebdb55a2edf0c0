// Hardware counters of one iteration, one pass per configuration, by one of two backends
// (backend.h): the range profiler or PM sampling.
//
// The application's thread opens and closes the measurement (Open, Close); everything that may take
// long (host configurations, decoding, evaluation) happens on the helper thread (DecodeClosed,
// Prepare):
//
//   idle ──Open──▶ open ──Close──▶ closed ──Decode──▶ decoding ──DecodeClosed──▶ idle
//     │                              └──Discard──▶ idle
//     └──Prepare──▶ preparing ──▶ idle
//
// Only idle can be left by both sides, by compare-and-swap; while it is not idle, no measurement
// begins. A configuration of kernels works the same, but its values are those of each kernel
// (KernelRanges).
//
// Threading: Ready, CanBeHad and OfKernels from any thread; Open, Close, Decode and Discard from
// the thread that has the SwitchToken (CUPTI wants the range's context current there, and it is
// made so); DecodeClosed, Prepare and Rest from the helper thread; Renew from either, while nothing
// is under way.
#ifndef SEQPOINT_INJECTION_COUNTERS_COUNTERS_H_
#define SEQPOINT_INJECTION_COUNTERS_COUNTERS_H_

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "injection/abi/control.h"
#include "injection/base/features.h"
#include "injection/base/names.h"
#include "injection/counters/availability.h"
#include "injection/counters/backend.h"
#include "injection/counters/configs.h"
#include "injection/counters/kernel_ranges.h"
#include "injection/counters/pm_sampler.h"
#include "injection/counters/range_profiler.h"
#include "injection/counters/wanted_configs.h"
#include "injection/cupti/activity_decoder.h"
#include "injection/cupti/call_watch.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/contexts.h"
#include "injection/cupti/loader.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class Counters final : public CallRecordListener {
 public:
  explicit Counters(const CounterParts& parts) : parts_(parts) {}

  // CUPTI is there: until now there are no counters.
  void Start() { gone_.store(false, std::memory_order_relaxed); }

  // Can a measurement begin now?
  bool Ready(uint16_t config_id);
  // Or later, when nothing else is under way?
  bool CanBeHad(uint16_t config_id);
  // Are the values of this configuration those of single kernels?
  bool OfKernels(uint16_t config_id);
  // 0, or the CUptiResult or CountersStatus that stopped it (reported); then nothing is open.
  // `known`: the calling thread's current context where CUPTI told it, else null.
  // `usual_ns`: how long the last iteration took; 0: not known.
  uint32_t Open(CUcontext context, CUcontext known, uint16_t config_id, uint64_t usual_ns);
  uint32_t Close(CUcontext known);
  // Decodes the closed measurement on the helper thread. `measured`: its event without the values.
  void Decode(const abi::CountersEvent& measured);
  void Discard();
  // Gives the range profiler of a context back before the context goes; waits for a decode that is
  // under way, at most a second.
  void ForgetContext(CUcontext context);

  // Gives the hardware back until the next Open. False: not now, a range is open or being
  // decoded, or a stream is being captured.
  bool Rest();

  // Another tool may have ended CUPTI: what it knew of us is gone, and asking for counters begins
  // again. A measurement under way is aborted.
  void Renew();

  // CUPTI is gone: nothing is called any more.
  void GiveUp() { gone_.store(true, std::memory_order_relaxed); }

  // PM sampling, which must be told where an iteration begins and ends on the GPU.
  PmSampler& pm() { return pm_; }
  bool samples() const { return samples_.load(std::memory_order_relaxed); }
  void OnCallRecord(uint32_t correlation_id, uint64_t start_ns) override {
    if (samples()) pm_.OnRecord(correlation_id, start_ns);
  }
  // It wants to see launches while it lists them.
  KernelRanges& kernels() { return kernels_; }
  // The ranges of the open measurement cannot be told apart. After several, none is tried.
  uint32_t RefuseKernels(const char* why);

  // False: a measurement is still to be decoded. `last`: the process ends.
  bool DecodeClosed(bool last);
  // Builds configurations, if others are wanted than before. `may_ask`: CUPTI and its callbacks are
  // ours. While another tool has it, calls of ours would be in its trace; and without callbacks
  // stream captures are not seen.
  void Prepare(CUcontext context, const WantedConfigs& wanted, bool may_ask);

 private:
  enum class State : uint32_t { kIdle, kPreparing, kOpen, kClosed, kDecoding };
  bool Begin(State to);
  bool DecodeNow(bool last);
  uint32_t DecodeKernels(double* sums);

  const CounterParts parts_;
  alignas(64) uint8_t counter_image_[kCounterImageBytes];  // of the backend that measures
  RangeProfiler range_{parts_.cupti, parts_.features, counter_image_};
  PmSampler pm_{parts_.cupti, parts_.features, counter_image_};
  CounterBackend* backend_ = &range_;
  std::atomic<bool> samples_{false};  // backend_ is pm_
  KernelRanges kernels_;
  CounterConfigs configs_{parts_, &range_};
  CounterAvailability availability_;
  std::atomic<State> state_{State::kIdle};
  std::atomic<bool> gone_{true};      // no CUPTI: before Start, or for ever
  uint32_t generation_ = 0;           // of the configurations that are built
  CounterConfig* active_ = nullptr;   // of the open measurement
  abi::CountersEvent measured_ = {};  // that is to be decoded
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_COUNTERS_H_
