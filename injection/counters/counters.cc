#include "injection/counters/counters.h"

#include <string.h>

#include "injection/cupti/current_context.h"

namespace seqpoint::inject {
namespace {

// How long a context waits to be destroyed for what the helper thread does with CUPTI. A decode
// waits for the work that is queued on the GPU, which is rarely more than an iteration. Going on
// earlier would pull the context from under the decode.
constexpr int kPatienceMs = 1000;

}  // namespace

bool Counters::Begin(State to) {
  if (gone_.load(std::memory_order_relaxed)) return false;
  State idle = State::kIdle;
  return state_.compare_exchange_strong(idle, to, std::memory_order_acq_rel);
}

bool Counters::Ready(uint16_t config_id) {
  return state_.load(std::memory_order_relaxed) == State::kIdle && !availability_.busy() &&
         CanBeHad(config_id);
}

bool Counters::CanBeHad(uint16_t config_id) {
  if (gone_.load(std::memory_order_relaxed) || !availability_.available() ||
      config_id <= abi::kConfigTrace || !configs_.target_ready()) {
    return false;
  }
  const CounterConfig* config = configs_.Find(config_id);
  return config != nullptr && !(config->kernels && (!availability_.kernels_available() ||
                                                    configs_.WhyNoKernels() != nullptr));
}

bool Counters::OfKernels(uint16_t config_id) {
  if (config_id <= abi::kConfigTrace) return false;
  const CounterConfig* config = configs_.Find(config_id);
  return config != nullptr && config->kernels;
}

// --- Application's thread -----------------------------------------------------------------------

uint32_t Counters::Open(CUcontext context, CUcontext known, uint16_t config_id, uint64_t usual_ns) {
  if (!Begin(State::kOpen)) return abi::kCountersAborted;  // the configurations just changed
  InsideScope inside;
  const CurrentContext current(parts_.driver, context, known);
  active_ = configs_.Find(config_id);
  uint32_t result = CUPTI_ERROR_INVALID_PARAMETER;
  const CallWatch::Scope watch(parts_.call_watch, "the start of CUPTI's counters", true);
  if (active_ != nullptr && context != nullptr) {
    // Each context has a profiler of its own, and one of them is enabled at a time.
    if (backend_->context() != nullptr && backend_->context() != context) backend_->Disable();
    result = backend_->Open(context, active_, usual_ns);
  }
  if (result == CUPTI_SUCCESS) {
    availability_.OnOpened();
    if (active_->kernels) kernels_.Begin(context);
    return 0;
  }
  availability_.OnFailure(result);
  active_ = nullptr;
  state_.store(State::kIdle, std::memory_order_release);
  return result;
}

uint32_t Counters::Close(CUcontext known) {
  const char* mixed_up = kernels_.listing() ? kernels_.End() : nullptr;
  if (gone_.load(std::memory_order_relaxed)) return abi::kCountersAborted;
  InsideScope inside;
  const CurrentContext current(parts_.driver, backend_->context(), known);
  const CallWatch::Scope watch(parts_.call_watch, "the end of CUPTI's counters", true);
  uint32_t result = backend_->Close();
  if (result != 0) availability_.OnFailure(result);
  if (result == 0 && mixed_up != nullptr) result = RefuseKernels(mixed_up);
  state_.store(State::kClosed, std::memory_order_release);
  return result;
}

// A graph will be launched again, and other reasons may come once.
uint32_t Counters::RefuseKernels(const char* why) {
  const bool for_good = availability_.OnKernelsFailure(kernels_.saw_graph());
  parts_.features->Report(abi::Feature::kRoofline, abi::FeatureState::kFailed, 0,
                          "counters of single kernels: %s%s", why,
                          for_good ? "; none are collected in this process" : "");
  return abi::kCountersAmbiguous;
}

void Counters::Decode(const abi::CountersEvent& measured) {
  measured_ = measured;
  state_.store(State::kDecoding, std::memory_order_release);
  parts_.helper->Wake();
}

void Counters::Discard() {
  if (!gone_.load(std::memory_order_relaxed)) {
    InsideScope inside;
    backend_->Discard();
  }
  active_ = nullptr;
  state_.store(State::kIdle, std::memory_order_release);
}

bool Counters::Rest() {
  if (gone_.load(std::memory_order_relaxed)) return true;
  if (!Begin(State::kPreparing)) return false;
  const bool enabled = backend_->context() != nullptr;
  const bool may = !enabled || parts_.captures->BeginUnsafe();
  if (enabled && may) {
    InsideScope inside;
    const CurrentContext current(parts_.driver, backend_->context());
    backend_->Disable();
    parts_.captures->EndUnsafe();
  }
  state_.store(State::kIdle, std::memory_order_release);
  return may;
}

void Counters::Renew() {
  if (gone_.load(std::memory_order_relaxed)) return;
  range_.Forget();
  pm_.Forget();
  configs_.Forget();
  generation_ = 0;
  if (state_.load(std::memory_order_acquire) == State::kDecoding) {
    abi::CountersEvent event = measured_;
    event.status = abi::kCountersAborted;
    parts_.ring->WriteEvent(abi::EventType::kCounters, &event, sizeof(event));
  }
  if (kernels_.listing()) kernels_.End();
  active_ = nullptr;
  state_.store(State::kIdle, std::memory_order_release);
}

void Counters::ForgetContext(CUcontext context) {
  constexpr int kAttempts = kPatienceMs / 10;
  for (int i = 0; i < kAttempts; ++i) {
    if (gone_.load(std::memory_order_relaxed)) return;
    // Until then a flush may bring what the decode waits for.
    if (i == kAttempts / 4) backend_->Expire();
    if (Begin(State::kPreparing)) {
      InsideScope inside;
      if (backend_->context() == context) backend_->Disable();
      state_.store(State::kIdle, std::memory_order_release);
      return;
    }
    SleepNs(10'000'000);
  }
  // The decode is stuck; using its context afterwards would be worse than no more counters.
  GiveUp();
  parts_.features->Report(
      abi::Feature::kCounters, abi::FeatureState::kFailed, 0,
      "a context was destroyed while its counters were being decoded; no more are "
      "collected in this process");
}

// --- Helper thread ------------------------------------------------------------------------------

bool Counters::DecodeClosed(bool last) {
  if (state_.load(std::memory_order_acquire) != State::kDecoding) return true;
  if (!gone_.load(std::memory_order_relaxed)) {
    if (!parts_.captures->BeginUnsafe()) return false;
    const bool decoded = DecodeNow(last);
    parts_.captures->EndUnsafe();
    if (!decoded) return false;
  }
  state_.store(State::kIdle, std::memory_order_release);
  return true;
}

void Counters::Prepare(CUcontext context, const WantedConfigs& wanted, bool may_ask) {
  if (wanted.generation == generation_ || !Begin(State::kPreparing)) return;
  InsideScope inside;
  if (may_ask && parts_.captures->BeginUnsafe()) {
    // CUPTI may still read images of configurations, which change now.
    backend_->Disable();
    const bool samples = wanted.backend == abi::CounterBackend::kPm;
    samples_.store(samples, std::memory_order_relaxed);
    backend_ = samples ? static_cast<CounterBackend*>(&pm_) : &range_;
    configs_.UseBackend(backend_);
    const uint32_t target = configs_.PrepareTarget(context);
    parts_.captures->EndUnsafe();
    generation_ = wanted.generation;
    availability_.Reset();
    configs_.Prepare(target, wanted.configs);
  }
  state_.store(State::kIdle, std::memory_order_release);
}

// False: the values are not there yet.
bool Counters::DecodeNow(bool last) {
  InsideScope inside;
  const CurrentContext current(parts_.driver, backend_->context());
  const CallWatch::Scope watch(parts_.call_watch, "the decoding of CUPTI's counters", true);
  double values[kMaxMetrics] = {};
  uint32_t status = abi::kCountersOk;
  if (active_->kernels) {
    status = DecodeKernels(values);
  } else {
    if (last) backend_->Expire();
    if (!backend_->Decode(active_, values, &status)) return false;
  }
  abi::CountersEvent event = measured_;
  event.count = status == abi::kCountersOk ? static_cast<uint16_t>(active_->count) : 0;
  event.status = status;
  abi::SampledEvent sampled = {};
  if (status == abi::kCountersOk && backend_->Sampled(&sampled)) {
    sampled.iteration = event.iteration;
    parts_.ring->WriteEvent(abi::EventType::kSampled, &sampled, sizeof(sampled));
  }
  parts_.ring->WriteEvent(abi::EventType::kCounters, &event, sizeof(event), values,
                          event.count * sizeof(double));
  if (status == abi::kCountersOk) {
    availability_.OnSuccess();
  } else if (status != abi::kCountersAmbiguous) {
    availability_.OnFailure(status);
  }
  active_ = nullptr;
  return true;
}

// Sends what each kernel did; `sums`: what all did together.
uint32_t Counters::DecodeKernels(double* sums) {
  uint32_t missing = 0;
  const uint32_t status = range_.DecodeKernels(active_, &kernels_, &missing);
  if (status == abi::kCountersAmbiguous) availability_.OnKernelsFailure(false);
  if (status != 0) return status;
  if (availability_.OnKernelsSuccess()) {
    parts_.features->Report(abi::Feature::kRoofline, abi::FeatureState::kReady, 0,
                            "counters of single kernels are collected again");
  }
  abi::KernelCountersEvent event = {};
  event.iteration = measured_.iteration;
  event.length[0] = measured_.length[0];
  event.length[1] = measured_.length[1];
  event.config_id = measured_.config_id;
  event.count = static_cast<uint16_t>(active_->count);
  event.kernels = static_cast<uint32_t>(kernels_.kernels().size());
  event.missing = missing;
  for (const KernelRanges::Kernel& kernel : kernels_.kernels()) {
    event.name_id = kernel.name_id;
    event.launches = kernel.launches;
    parts_.ring->WriteEvent(abi::EventType::kKernelCounters, &event, sizeof(event), kernel.value,
                            event.count * sizeof(double));
    for (uint32_t value = 0; value < event.count; ++value) sums[value] += kernel.value[value];
  }
  return status;
}

}  // namespace seqpoint::inject
