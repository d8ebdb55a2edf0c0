#include "injection/counters/counters.h"

#include <string.h>
#include <time.h>

#include "injection/counters/metric_scope.h"
#include "injection/cupti/current_context.h"
#include "injection/process/guest.h"
#include "injection/process/identity.h"

namespace seqpoint::inject {
namespace {

// How long a call of the program waits for what the helper thread does with CUPTI. A decode waits
// for the work that is queued on the GPU, which is rarely more than an iteration. Going on earlier
// would break the caller's capture, or pull its context from under the decode.
constexpr int kPatienceMs = 1000;

// The performance monitors of a GPU have one owner in all processes. After a refusal they are asked
// for again in so long, then in twice that: another job's measurements take seconds, another tool's
// hours, and each question stops an iteration.
constexpr uint64_t kBusyRestNs = 250'000'000;
constexpr uint64_t kLongestBusyRestNs = 64'000'000'000;

// After so many failed measurements in a row, counters rest until the configurations change.
constexpr uint32_t kMaxFailures = 3;

}  // namespace

bool Counters::Init(const Cupti* cupti, const CudaDriver* driver, Pool* pool,
                    injection::RingWriter* ring, Features* features) {
  cupti_ = cupti;
  driver_ = driver;
  ring_ = ring;
  features_ = features;
  configs_ = pool->TakeArray<CounterConfig>(abi::kMaxConfigs);
  availability_ = pool->TakeArray<uint8_t>(kAvailabilityBytes);
  counter_image_ = pool->TakeArray<uint8_t>(kCounterImageBytes);
  if (configs_ == nullptr || availability_ == nullptr || counter_image_ == nullptr) return false;
  for (uint32_t i = 0; i < abi::kMaxConfigs; ++i) {
    configs_[i].image = pool->TakeArray<uint8_t>(kConfigImageBytes);
    if (configs_[i].image == nullptr) return false;
  }
  if (!kernels_.Init(pool)) return false;
  range_.Init(cupti, features, counter_image_);
  pm_.Init(cupti, features, counter_image_);
  gone_.store(false, std::memory_order_relaxed);
  return true;
}

bool Counters::Begin(State to) {
  if (gone_.load(std::memory_order_relaxed)) return false;
  State idle = State::kIdle;
  return state_.compare_exchange_strong(idle, to, std::memory_order_acq_rel);
}

CounterConfig* Counters::Find(uint16_t config_id) {
  for (uint32_t i = 0; i < abi::kMaxConfigs; ++i) {
    if (configs_[i].ready_id.load(std::memory_order_acquire) == config_id) return &configs_[i];
  }
  return nullptr;
}

bool Counters::Ready(uint16_t config_id) const {
  if (state_.load(std::memory_order_relaxed) != State::kIdle) return false;
  const uint64_t busy_until_ns = busy_until_ns_.load(std::memory_order_relaxed);
  if (busy_until_ns != 0 && MonotonicNs() < busy_until_ns) return false;
  return CanBeHad(config_id);
}

bool Counters::CanBeHad(uint16_t config_id) const {
  if (gone_.load(std::memory_order_relaxed) || unavailable_.load(std::memory_order_relaxed) ||
      config_id <= abi::kConfigTrace || !target_ready_.load(std::memory_order_relaxed)) {
    return false;
  }
  const CounterConfig* config = const_cast<Counters*>(this)->Find(config_id);
  return config != nullptr &&
         !(config->kernels &&
           (kernels_unavailable_.load(std::memory_order_relaxed) || WhyNoKernels() != nullptr));
}

// In automatic ranges the context is synchronised behind each launch, which "can lead to problems
// like hang state, if there are dependencies between two kernel launches" (CUPTI user guide 2.9.1).
// Kernels that communicate wait for those of other GPUs. Null: nothing tells of such kernels.
const char* Counters::WhyNoKernels() {
  if (WorldSize() > 1) return "the job has several ranks, whose kernels wait for each other";
  if (g_guest->names.saw_communication()) {
    return "the program uses NCCL or NVSHMEM, whose kernels wait for each other";
  }
  return nullptr;
}

bool Counters::OfKernels(uint16_t config_id) const {
  if (config_id <= abi::kConfigTrace) return false;
  const CounterConfig* config = const_cast<Counters*>(this)->Find(config_id);
  return config != nullptr && config->kernels;
}

// --- Application's thread -----------------------------------------------------------------------

uint32_t Counters::Open(CUcontext context, CUcontext known, uint16_t config_id, uint64_t usual_ns) {
  if (!Begin(State::kOpen)) return abi::kCountersAborted;  // the configurations just changed
  InsideScope inside;
  const CurrentContext current(driver_, context, known);
  active_ = Find(config_id);
  uint32_t result = CUPTI_ERROR_INVALID_PARAMETER;
  const CallWatch::Scope watch(&g_guest->call_watch, "the start of CUPTI's counters", true);
  if (active_ != nullptr && context != nullptr) result = Open(context, usual_ns);
  if (result == CUPTI_SUCCESS) {
    busy_rest_ns_ = 0;
    busy_until_ns_.store(0, std::memory_order_relaxed);
    if (active_->kernels) kernels_.Begin(context);
    return 0;
  }
  CountFailure(result);
  active_ = nullptr;
  state_.store(State::kIdle, std::memory_order_release);
  return result;
}

uint32_t Counters::Open(CUcontext context, uint64_t usual_ns) {
  // Of several contexts each has a profiler of its own; one is enabled at a time.
  if (backend_->context() != nullptr && backend_->context() != context) backend_->Disable();
  return backend_->Open(context, active_, usual_ns);
}

uint32_t Counters::Close(CUcontext known) {
  const char* not_told = kernels_.listing() ? kernels_.End() : nullptr;
  if (gone_.load(std::memory_order_relaxed)) return abi::kCountersAborted;
  InsideScope inside;
  const CurrentContext current(driver_, backend_->context(), known);
  const CallWatch::Scope watch(&g_guest->call_watch, "the end of CUPTI's counters", true);
  uint32_t result = backend_->Close();
  if (result != 0) CountFailure(result);
  if (result == 0 && not_told != nullptr) result = KernelsNotTold(not_told);
  state_.store(State::kClosed, std::memory_order_release);
  return result;
}

void Counters::CountFailure(uint32_t result) {
  if (result == CUPTI_ERROR_HARDWARE_BUSY) {
    busy_rest_ns_ = busy_rest_ns_ == 0 ? kBusyRestNs : 2 * busy_rest_ns_;
    if (busy_rest_ns_ > kLongestBusyRestNs) busy_rest_ns_ = kLongestBusyRestNs;
    busy_until_ns_.store(MonotonicNs() + busy_rest_ns_, std::memory_order_relaxed);
    return;
  }
  if (++failures_ >= kMaxFailures || result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES) {
    unavailable_.store(true, std::memory_order_relaxed);
  }
}

// A graph will be launched again, and other troubles may come once.
uint32_t Counters::KernelsNotTold(const char* why) {
  const bool for_good = kernels_.saw_graph() || ++kernel_failures_ >= kMaxFailures;
  if (for_good) kernels_unavailable_.store(true, std::memory_order_relaxed);
  features_->Report(abi::Feature::kRoofline, abi::FeatureState::kFailed, 0,
                    "counters of single kernels: %s%s", why,
                    for_good ? "; none are collected in this process" : "");
  return abi::kCountersNotTold;
}

void Counters::Decode(const Measured& measured) {
  measured_ = measured;
  state_.store(State::kDecoding, std::memory_order_release);
  g_guest->helper.Wake();
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
  const bool may = !enabled || BeginUnsafe();
  if (enabled && may) {
    InsideScope inside;
    const CurrentContext current(driver_, backend_->context());
    backend_->Disable();
    EndUnsafe();
  }
  state_.store(State::kIdle, std::memory_order_release);
  return may;
}

void Counters::Renew() {
  if (gone_.load(std::memory_order_relaxed)) return;
  range_.Forget();
  pm_.Forget();
  initialized_ = false;
  target_ready_.store(false, std::memory_order_relaxed);
  configs_generation_ = 0;
  if (state_.load(std::memory_order_acquire) == State::kDecoding) {
    const abi::CountersEvent event = {
        measured_.iteration,   {measured_.length[0], measured_.length[1]},
        measured_.config_id,   0,
        abi::kCountersAborted, measured_.stopped_ns};
    ring_->WriteEvent(abi::EventType::kCounters, &event, sizeof(event));
  }
  if (kernels_.listing()) kernels_.End();
  active_ = nullptr;
  state_.store(State::kIdle, std::memory_order_release);
}

// The work that follows may synchronise the context, as cuptiRangeProfilerDecodeData does (CUPTI
// user guide 2.9.2), or allocate on the GPU. During a stream capture the first is forbidden to
// every thread, in global mode the second, too, and either makes the capture worthless (CUDA
// programming guide, "Prohibited and Unhandled Operations"). So one of both sides sees the other:
// here the flag is set before the captures are read, and a capture is counted before the flag is
// read. False: not now.
bool Counters::BeginUnsafe() {
  unsafe_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool may = !g_guest->stream.may_capture();
  held_up_.store(!may, std::memory_order_relaxed);
  if (!may) EndUnsafe();
  return may;
}

void Counters::EndUnsafe() { unsafe_.store(false, std::memory_order_release); }

uint64_t Counters::AwaitUnsafe() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!unsafe_.load(std::memory_order_acquire)) return 0;
  const uint64_t begin_ns = g_guest->clock.NowNs();
  const uint64_t deadline_ns = MonotonicNs() + kPatienceMs * 1'000'000ull;
  while (unsafe_.load(std::memory_order_acquire) && MonotonicNs() < deadline_ns) {
    const timespec pause = {0, 100'000};
    nanosleep(&pause, nullptr);
  }
  return g_guest->clock.NowNs() - begin_ns;
}

void Counters::OnCaptureEnd() {
  if (held_up_.load(std::memory_order_relaxed)) g_guest->helper.Wake();
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
    const timespec pause = {0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  // The decode is stuck; using its context afterwards would be worse than no more counters.
  GiveUp();
  features_->Report(abi::Feature::kCounters, abi::FeatureState::kFailed, 0,
                    "a context was destroyed while its counters were being decoded; no more are "
                    "collected in this process");
}

// --- Helper thread ------------------------------------------------------------------------------

void Counters::Service(CUcontext any_context) {
  if (state_.load(std::memory_order_acquire) == State::kDecoding) {
    if (!gone_.load(std::memory_order_relaxed)) {
      if (!BeginUnsafe()) return;
      const bool decoded = DecodeNow(any_context == nullptr);
      EndUnsafe();
      if (!decoded) return;
    }
    state_.store(State::kIdle, std::memory_order_release);
  }
  if (any_context == nullptr) return;
  // Whoever else wants the GPU's performance monitors cannot have them meanwhile.
  if (!g_guest->stream.WantsCounters()) Rest();
  abi::MetricConfig wanted[abi::kMaxConfigs];
  abi::CounterBackend backend;
  const uint32_t generation = g_guest->stream.CopyConfigs(wanted, &backend);
  if (generation == configs_generation_ || !Begin(State::kPreparing)) return;
  InsideScope inside;
  // While another tool has CUPTI, calls of ours would be in its trace; and without callbacks stream
  // captures are not seen.
  if (g_guest->stream.hold() == CallStream::Hold::kAll && BeginUnsafe()) {
    // CUPTI may still read images of configurations, which change now.
    backend_->Disable();
    UseBackend(backend);
    const uint32_t target = target_ready_ ? 0 : PrepareTarget(any_context);
    EndUnsafe();
    configs_generation_ = generation;
    PrepareConfigs(target, wanted);
  }
  state_.store(State::kIdle, std::memory_order_release);
}

// False: the values are not there yet.
bool Counters::DecodeNow(bool last) {
  InsideScope inside;
  const CurrentContext current(driver_, backend_->context());
  const CallWatch::Scope watch(&g_guest->call_watch, "the decoding of CUPTI's counters", true);
  double values[kMaxMetrics] = {};
  uint32_t status = abi::kCountersOk;
  if (active_->kernels) {
    status = DecodeKernels(values);
  } else {
    if (last) backend_->Expire();
    if (!backend_->Decode(active_, values, &status)) return false;
  }
  abi::CountersEvent event = {};
  event.iteration = measured_.iteration;
  event.length[0] = measured_.length[0];
  event.length[1] = measured_.length[1];
  event.config_id = measured_.config_id;
  event.count = status == abi::kCountersOk ? static_cast<uint16_t>(active_->count) : 0;
  event.status = status;
  event.stopped_ns = measured_.stopped_ns;
  abi::SampledEvent sampled = {};
  if (status == abi::kCountersOk && backend_->Sampled(&sampled)) {
    sampled.iteration = event.iteration;
    ring_->WriteEvent(abi::EventType::kSampled, &sampled, sizeof(sampled));
  }
  ring_->WriteEvent(abi::EventType::kCounters, &event, sizeof(event), values,
                    event.count * sizeof(double));
  if (status == abi::kCountersOk) {
    failures_ = 0;
  } else if (status != abi::kCountersNotTold) {
    CountFailure(status);
  }
  active_ = nullptr;
  return true;
}

// Sends what each kernel did; `sums`: what all did together.
uint32_t Counters::DecodeKernels(double* sums) {
  uint32_t missing = 0;
  const uint32_t status = range_.DecodeKernels(active_, &kernels_, &missing);
  if (status == abi::kCountersNotTold && ++kernel_failures_ >= kMaxFailures) {
    kernels_unavailable_.store(true, std::memory_order_relaxed);
  }
  if (status != 0) return status;
  if (kernel_failures_ != 0) {
    features_->Report(abi::Feature::kRoofline, abi::FeatureState::kReady, 0,
                      "counters of single kernels are collected again");
  }
  kernel_failures_ = 0;
  abi::KernelCountersEvent event = {};
  event.iteration = measured_.iteration;
  event.length[0] = measured_.length[0];
  event.length[1] = measured_.length[1];
  event.config_id = measured_.config_id;
  event.count = static_cast<uint16_t>(active_->count);
  event.kernels = kernels_.kernel_count();
  event.missing = missing;
  for (uint32_t i = 0; i < kernels_.kernel_count(); ++i) {
    const KernelRanges::Kernel& kernel = kernels_.kernels()[i];
    event.name_id = kernel.name_id;
    event.launches = kernel.launches;
    ring_->WriteEvent(abi::EventType::kKernelCounters, &event, sizeof(event), kernel.value,
                      event.count * sizeof(double));
    for (uint32_t value = 0; value < event.count; ++value) sums[value] += kernel.value[value];
  }
  return status;
}

// The other one's configurations are of no use, and both need the same hardware.
void Counters::UseBackend(abi::CounterBackend wanted) {
  CounterBackend* backend = &range_;
  if (wanted == abi::CounterBackend::kPm) backend = &pm_;
  if (backend == backend_) return;
  backend_ = backend;
  samples_.store(backend == &pm_, std::memory_order_relaxed);
  target_ready_ = has_availability_ = false;
  for (uint32_t i = 0; i < abi::kMaxConfigs; ++i) {
    configs_[i].ready_id.store(0, std::memory_order_release);
    DropHost(&configs_[i]);
    configs_[i].wanted = {};
  }
}

// `target`: what PrepareTarget said.
void Counters::PrepareConfigs(uint32_t target, const abi::MetricConfig wanted[abi::kMaxConfigs]) {
  failures_ = kernel_failures_ = 0;
  unavailable_.store(false, std::memory_order_relaxed);
  kernels_unavailable_.store(false, std::memory_order_relaxed);
  for (uint32_t i = 0; i < abi::kMaxConfigs; ++i) {
    CounterConfig* config = &configs_[i];
    if (memcmp(&config->wanted, &wanted[i], sizeof(wanted[i])) == 0 &&
        config->ready_id.load(std::memory_order_relaxed) == wanted[i].config_id) {
      continue;
    }
    config->ready_id.store(0, std::memory_order_release);
    DropHost(config);
    config->wanted = wanted[i];
    if (wanted[i].config_id <= abi::kConfigTrace) continue;
    if (target_ready_) {
      PrepareConfig(config);
    } else {
      Text<128> sentence;
      sentence.Append("no counters can be collected (%s); the feature \"counters\" says why",
                      cupti_->ResultName(target));
      const abi::ConfigEvent event = {wanted[i].config_id, 0, target,
                                      static_cast<uint32_t>(sentence.size()), 0};
      ring_->WriteEvent(abi::EventType::kConfig, &event, sizeof(event), sentence.c_str(),
                        sentence.size());
    }
  }
}

// Asks once whether this process may collect counters at all. 0: yes.
uint32_t Counters::PrepareTarget(CUcontext context) {
  const CallWatch::Scope watch(&g_guest->call_watch, "the preparation of CUPTI's counters", true);
  if (!backend_->Exists()) {
    features_->Report(abi::Feature::kCounters, abi::FeatureState::kIgnored, 0,
                      "this CUPTI (version %u) has no %s; install CUDA 12.6 or later for counters",
                      cupti_->version, backend_->words());
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  const CurrentContext current(driver_, context);
  if (!initialized_) {
    CUpti_Profiler_Initialize_Params initialize = {};
    initialize.structSize = CUpti_Profiler_Initialize_Params_STRUCT_SIZE;
    const uint32_t result = cupti_->ProfilerInitialize(&initialize);
    if (result != CUPTI_SUCCESS) return backend_->Fail("cuptiProfilerInitialize", result);
    initialized_ = true;
  }
  uint32_t device = 0;
  uint32_t result = cupti_->GetDeviceId(context, &device);
  if (result != CUPTI_SUCCESS) return backend_->Fail("cuptiGetDeviceId", result);

  CUpti_Profiler_DeviceSupported_Params supported = {};
  supported.structSize = CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE;
  supported.cuDevice = static_cast<CUdevice>(device);
  supported.api = backend_->api();
  result = cupti_->ProfilerDeviceSupported(&supported);
  if (result != CUPTI_SUCCESS) return backend_->Fail("cuptiProfilerDeviceSupported", result);
  if (supported.isSupported != CUPTI_PROFILER_CONFIGURATION_SUPPORTED) {
    const auto no = [](CUpti_Profiler_Support_Level level) {
      return level == CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED ||
             level == CUPTI_PROFILER_CONFIGURATION_DISABLED;
    };
    const char* why = no(supported.architecture)          ? "its architecture is too old"
                      : no(supported.vGpu)                ? "it is a vGPU without profiling"
                      : no(supported.confidentialCompute) ? "confidential computing is on"
                      : no(supported.cmp)                 ? "it is a mining card"
                      : no(supported.wsl)                 ? "this is WSL"
                      : no(supported.sli)                 ? "it is in SLI mode"
                                                          : "CUPTI does not say why";
    features_->Report(abi::Feature::kCounters, abi::FeatureState::kIgnored, 0,
                      "the GPU does not support %s: %s; kernels and times are recorded without "
                      "counters",
                      backend_->words(), why);
    return CUPTI_ERROR_NOT_SUPPORTED;
  }

  CUpti_Device_GetChipName_Params chip = {};
  chip.structSize = CUpti_Device_GetChipName_Params_STRUCT_SIZE;
  chip.deviceIndex = device;
  result = cupti_->DeviceGetChipName(&chip);
  if (result != CUPTI_SUCCESS || chip.pChipName == nullptr) {
    return backend_->Fail("cuptiDeviceGetChipName", result);
  }
  strncpy(chip_, chip.pChipName, sizeof(chip_) - 1);
  g_guest->ReportDevice(device, chip_);

  size_t bytes = 0;
  result = backend_->Probe(context, device, nullptr, &bytes);
  if (result != CUPTI_SUCCESS) return result;
  if (bytes <= kAvailabilityBytes) {
    result = backend_->Probe(context, device, availability_, &bytes);
    if (result != CUPTI_SUCCESS) return result;
    has_availability_ = true;
  }
  target_ready_ = true;
  features_->Report(abi::Feature::kCounters, abi::FeatureState::kReady, 0,
                    "counters of %s can be collected by %s", chip_, backend_->words());
  return CUPTI_SUCCESS;
}

void Counters::PrepareConfig(CounterConfig* config) {
  Text<256> sentence;
  uint32_t passes = 0;
  const uint32_t result = BuildConfig(config, &passes, &sentence);
  if (result == CUPTI_SUCCESS) {
    config->ready_id.store(config->wanted.config_id, std::memory_order_release);
  } else {
    DropHost(config);
  }
  const abi::ConfigEvent event = {config->wanted.config_id, static_cast<uint16_t>(passes), result,
                                  static_cast<uint32_t>(sentence.size()), 0};
  ring_->WriteEvent(abi::EventType::kConfig, &event, sizeof(event), sentence.c_str(),
                    sentence.size());
}

uint32_t Counters::BuildConfig(CounterConfig* config, uint32_t* passes, Text<256>* sentence) {
  const abi::MetricConfig& wanted = config->wanted;
  const uint32_t bytes =
      wanted.text_bytes < sizeof(wanted.names) ? wanted.text_bytes : sizeof(wanted.names);
  memcpy(config->text, wanted.names, bytes);
  config->text[bytes] = '\0';
  config->count = 0;
  for (char* at = config->text; *at != '\0' && config->count < kMaxMetrics;) {
    char* end = strchr(at, '\n');
    if (end != nullptr) *end = '\0';
    if (*at != '\0') config->names[config->count++] = at;
    if (end == nullptr) break;
    at = end + 1;
  }
  if (config->count == 0) {
    sentence->Append("configuration %u names no metric", wanted.config_id);
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (wanted.metric_count != config->count) {
    sentence->Append("configuration %u announces %u metrics and names %u; at most %u can be read",
                     wanted.config_id, wanted.metric_count, config->count, kMaxMetrics);
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  config->kernels = wanted.ranges == static_cast<uint8_t>(abi::Ranges::kKernels);
  if (config->kernels && (backend_ != &range_ || config->count > abi::kMaxKernelMetrics)) {
    sentence->Append(
        "single kernels are measured by the range profiler only, with at most %u "
        "metrics in configuration %u",
        abi::kMaxKernelMetrics, wanted.config_id);
    return CUPTI_ERROR_INVALID_PARAMETER;
  }

  if (const char* why = WhyNoKernels(); config->kernels && why != nullptr) {
    sentence->Append(
        "%s: measured one after the other, they would hang; without --roofline the "
        "job is measured as usual",
        why);
    features_->Report(abi::Feature::kRoofline, abi::FeatureState::kIgnored, 0,
                      "counters of single kernels: %s", sentence->c_str());
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  bool of_context = false;
  config->of_device = false;
  for (uint32_t i = 0; i < config->count; ++i) {
    const MetricScope scope = ScopeOf(config->names[i]);
    of_context = of_context || scope == MetricScope::kContext;
    config->of_device = config->of_device || scope == MetricScope::kDevice;
  }
  if (backend_ == &range_ && of_context && config->of_device) {
    sentence->Append(
        "metrics of the whole device (NVLink, C2C, PCIe) and of the context cannot share "
        "configuration %u; split it",
        wanted.config_id);
    return CUPTI_ERROR_NOT_SUPPORTED;
  }

  CUpti_Profiler_Host_Initialize_Params initialize = {};
  initialize.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
  initialize.profilerType = backend_->type();
  initialize.pChipName = chip_;
  initialize.pCounterAvailabilityImage = AvailabilityFor(*config);
  uint32_t result = cupti_->ProfilerHostInitialize(&initialize);
  if (result != CUPTI_SUCCESS) {
    const char* way_out = CounterWayOut(result);
    sentence->Append("cuptiProfilerHostInitialize for %s gave %u (%s)%s%s", chip_, result,
                     cupti_->ResultName(result), way_out != nullptr ? ": " : "",
                     way_out != nullptr ? way_out : "");
    return result;
  }
  config->host = initialize.pHostObject;

  CUpti_Profiler_Host_ConfigAddMetrics_Params add = {};
  add.structSize = CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE;
  add.pHostObject = config->host;
  add.ppMetricNames = config->names;
  add.numMetrics = config->count;
  result = cupti_->ProfilerHostConfigAddMetrics(&add);
  if (result != CUPTI_SUCCESS) {
    sentence->Append("%s refuses the metrics with %u (%s)", chip_, result,
                     cupti_->ResultName(result));
    FindRefusedMetric(*config, sentence);
    return result;
  }

  CUpti_Profiler_Host_GetConfigImageSize_Params size = {};
  size.structSize = CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE;
  size.pHostObject = config->host;
  result = cupti_->ProfilerHostGetConfigImageSize(&size);
  if (result == CUPTI_SUCCESS && size.configImageSize > kConfigImageBytes) {
    sentence->Append("the configuration image of %zu bytes is larger than %zu: use fewer metrics",
                     size.configImageSize, kConfigImageBytes);
    return CUPTI_ERROR_OUT_OF_MEMORY;
  }
  config->image_bytes = size.configImageSize;
  CUpti_Profiler_Host_GetConfigImage_Params image = {};
  image.structSize = CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE;
  image.pHostObject = config->host;
  image.configImageSize = config->image_bytes;
  image.pConfigImage = config->image;
  if (result == CUPTI_SUCCESS) result = cupti_->ProfilerHostGetConfigImage(&image);
  CUpti_Profiler_Host_GetNumOfPasses_Params count = {};
  count.structSize = CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE;
  count.configImageSize = config->image_bytes;
  count.pConfigImage = config->image;
  if (result == CUPTI_SUCCESS) result = cupti_->ProfilerHostGetNumOfPasses(&count);
  if (result != CUPTI_SUCCESS) {
    sentence->Append("building the configuration for %s gave %u (%s)", chip_, result,
                     cupti_->ResultName(result));
    return result;
  }
  *passes = static_cast<uint32_t>(count.numOfPasses);
  if (count.numOfPasses != 1) {
    sentence->Append("the metrics need %zu passes on %s, and one iteration gives one; split them",
                     count.numOfPasses, chip_);
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  return CUPTI_SUCCESS;
}

// A host object that was made with an image refuses metrics that are not in it. Null: it knows the
// chip's metrics alone, and what this GPU lacks is found when it is collected.
uint8_t* Counters::AvailabilityFor(const CounterConfig& config) const {
  const bool in_image = !config.of_device || backend_->ImageHasDevice();
  return has_availability_ && in_image ? availability_ : nullptr;
}

// ConfigAddMetrics takes all or none; one by one shows which metric it was.
void Counters::FindRefusedMetric(const CounterConfig& config, Text<256>* sentence) {
  CUpti_Profiler_Host_Initialize_Params initialize = {};
  initialize.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
  initialize.profilerType = backend_->type();
  initialize.pChipName = chip_;
  initialize.pCounterAvailabilityImage = AvailabilityFor(config);
  if (cupti_->ProfilerHostInitialize(&initialize) != CUPTI_SUCCESS) return;
  for (uint32_t i = 0; i < config.count; ++i) {
    const char* name = config.names[i];
    CUpti_Profiler_Host_ConfigAddMetrics_Params add = {};
    add.structSize = CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE;
    add.pHostObject = initialize.pHostObject;
    add.ppMetricNames = &name;
    add.numMetrics = 1;
    if (cupti_->ProfilerHostConfigAddMetrics(&add) == CUPTI_SUCCESS) continue;
    sentence->Append(": \"%s\" is the first", name);
    break;
  }
  CUpti_Profiler_Host_Deinitialize_Params end = {};
  end.structSize = CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE;
  end.pHostObject = initialize.pHostObject;
  cupti_->ProfilerHostDeinitialize(&end);
}

void Counters::DropHost(CounterConfig* config) {
  if (config->host == nullptr) return;
  CUpti_Profiler_Host_Deinitialize_Params end = {};
  end.structSize = CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE;
  end.pHostObject = config->host;
  cupti_->ProfilerHostDeinitialize(&end);
  config->host = nullptr;
}

}  // namespace seqpoint::inject
