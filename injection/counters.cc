#include "injection/counters.h"

#include <string.h>
#include <time.h>

#include "injection/guest.h"

namespace seqpoint::inject {
namespace {

constexpr char kRangeName[] = "iteration";
// After so many failed measurements in a row, counters rest until the configurations change.
constexpr uint32_t kMaxFailures = 3;

// What a person can do about a result, or null.
const char* WayOut(uint32_t result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0, or run with "
             "CAP_SYS_ADMIN (containers: --cap-add=SYS_ADMIN)";
    case CUPTI_ERROR_HARDWARE_BUSY:
      return "another tool uses the GPU's counters; stop it (DCGM: `dcgmi profile --pause`, or "
             "Nsight)";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "the vGPU's profiling plugin parameter must be enabled by the host's administrator";
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      return "GPU counters do not exist under confidential computing";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
      return "use a MIG instance with an exclusive compute instance, or the whole GPU";
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
      return "GPU counters do not exist under WSL";
    case CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED:
      return "the program itself uses CUPTI's old profiler; stop that use";
    case CUPTI_ERROR_NOT_INITIALIZED:
      return "libnvperf_host.so was not found beside libcupti";
    default:
      return nullptr;
  }
}

// Makes a context current on this thread for a scope. A boundary may be met by a thread that has
// another one or none (an NVTX range, a mark, one of several GPUs).
class CurrentContext {
 public:
  // `known`: what is current, where CUPTI said so: in its callbacks the driver is better not asked.
  CurrentContext(const CudaDriver* driver, CUcontext context, CUcontext known = nullptr)
      : driver_(driver) {
    if (context == known) return;
    if (driver->CtxGetCurrent == nullptr || driver->CtxSetCurrent == nullptr) return;
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

}  // namespace

bool Counters::Init(const Cupti* cupti, const CudaDriver* driver, Pool* pool,
                    injection::RingWriter* ring, Features* features) {
  cupti_ = cupti;
  driver_ = driver;
  ring_ = ring;
  features_ = features;
  configs_ = pool->TakeArray<Config>(abi::kMaxConfigs);
  availability_ = pool->TakeArray<uint8_t>(kAvailabilityBytes);
  counter_image_ = pool->TakeArray<uint8_t>(kCounterImageBytes);
  if (configs_ == nullptr || availability_ == nullptr || counter_image_ == nullptr) return false;
  for (uint32_t i = 0; i < abi::kMaxConfigs; ++i) {
    configs_[i].image = pool->TakeArray<uint8_t>(kConfigImageBytes);
    if (configs_[i].image == nullptr) return false;
  }
  gone_.store(false, std::memory_order_relaxed);
  return true;
}

bool Counters::Begin(State to) {
  if (gone_.load(std::memory_order_relaxed)) return false;
  State idle = State::kIdle;
  return state_.compare_exchange_strong(idle, to, std::memory_order_acq_rel);
}

Counters::Config* Counters::Find(uint16_t config_id) {
  for (uint32_t i = 0; i < abi::kMaxConfigs; ++i) {
    if (configs_[i].ready_id.load(std::memory_order_acquire) == config_id) return &configs_[i];
  }
  return nullptr;
}

bool Counters::Ready(uint16_t config_id) const {
  if (state_.load(std::memory_order_relaxed) != State::kIdle ||
      gone_.load(std::memory_order_relaxed) || unavailable_.load(std::memory_order_relaxed)) {
    return false;
  }
  return config_id > abi::kConfigTrace && const_cast<Counters*>(this)->Find(config_id) != nullptr;
}

uint32_t Counters::Fail(const char* what, uint32_t result) {
  const char* way_out = WayOut(result);
  features_->Report(abi::Feature::kCounters, abi::FeatureState::kFailed, result,
                    "%s gave %u (%s)%s%s", what, result, cupti_->ResultName(result),
                    way_out != nullptr ? ": " : "; no counters are collected",
                    way_out != nullptr ? way_out : "");
  return result;
}

// --- Application's thread -----------------------------------------------------------------------

uint32_t Counters::Open(CUcontext context, CUcontext known, uint16_t config_id) {
  if (!Begin(State::kOpen)) return abi::kCountersAborted;  // the configurations just changed
  InsideScope inside;
  const CurrentContext current(driver_, context, known);
  active_ = Find(config_id);
  uint32_t result = CUPTI_ERROR_INVALID_PARAMETER;
  if (active_ != nullptr && context != nullptr) result = EnableFor(context);
  if (result == CUPTI_SUCCESS) result = StartRange(active_);
  if (result == CUPTI_SUCCESS) return 0;
  CountFailure(result);
  Disable();
  active_ = nullptr;
  state_.store(State::kIdle, std::memory_order_release);
  return result;
}

uint32_t Counters::EnableFor(CUcontext context) {
  if (object_ != nullptr && context_ == context) return CUPTI_SUCCESS;
  Disable();
  CUpti_RangeProfiler_Enable_Params enable = {};
  enable.structSize = CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE;
  enable.ctx = context;
  const uint32_t result = cupti_->RangeProfilerEnable(&enable);
  if (result != CUPTI_SUCCESS) return Fail("cuptiRangeProfilerEnable", result);
  object_ = enable.pRangeProfilerObject;
  context_ = context;
  return CUPTI_SUCCESS;
}

uint32_t Counters::StartRange(Config* config) {
  // The profiler remembers the metrics of the last question for a size; the image is made for them.
  CUpti_RangeProfiler_GetCounterDataSize_Params size = {};
  size.structSize = CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE;
  size.pRangeProfilerObject = object_;
  size.pMetricNames = config->names;
  size.numMetrics = config->count;
  size.maxNumOfRanges = 1;
  size.maxNumRangeTreeNodes = 1;
  uint32_t result = cupti_->RangeProfilerGetCounterDataSize(&size);
  if (result != CUPTI_SUCCESS) return Fail("cuptiRangeProfilerGetCounterDataSize", result);
  if (size.counterDataSize > kCounterImageBytes) {
    features_->Report(abi::Feature::kCounters, abi::FeatureState::kFailed, 0,
                      "configuration %u needs a counter data image of %zu bytes, more than %zu; "
                      "split its metrics",
                      config->wanted.config_id, size.counterDataSize, kCounterImageBytes);
    return CUPTI_ERROR_OUT_OF_MEMORY;
  }
  config->counter_bytes = size.counterDataSize;
  CUpti_RangeProfiler_CounterDataImage_Initialize_Params image = {};
  image.structSize = CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE;
  image.pRangeProfilerObject = object_;
  image.counterDataSize = config->counter_bytes;
  image.pCounterData = counter_image_;
  result = cupti_->RangeProfilerCounterDataImageInitialize(&image);
  if (result != CUPTI_SUCCESS) return Fail("cuptiRangeProfilerCounterDataImageInitialize", result);

  CUpti_RangeProfiler_SetConfig_Params set = {};
  set.structSize = CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE;
  set.pRangeProfilerObject = object_;
  set.configSize = config->image_bytes;
  set.pConfig = config->image;
  set.counterDataImageSize = config->counter_bytes;
  set.pCounterDataImage = counter_image_;
  set.range = CUPTI_UserRange;
  set.replayMode = CUPTI_UserReplay;
  set.maxRangesPerPass = 1;
  set.numNestingLevels = 1;
  set.minNestingLevel = 1;
  set.passIndex = 0;
  set.targetNestingLevel = 1;
  result = cupti_->RangeProfilerSetConfig(&set);
  if (result != CUPTI_SUCCESS) return Fail("cuptiRangeProfilerSetConfig", result);

  CUpti_RangeProfiler_Start_Params start = {};
  start.structSize = CUpti_RangeProfiler_Start_Params_STRUCT_SIZE;
  start.pRangeProfilerObject = object_;
  result = cupti_->RangeProfilerStart(&start);
  if (result != CUPTI_SUCCESS) return Fail("cuptiRangeProfilerStart", result);

  CUpti_RangeProfiler_PushRange_Params push = {};
  push.structSize = CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE;
  push.pRangeProfilerObject = object_;
  push.pRangeName = kRangeName;
  result = cupti_->RangeProfilerPushRange(&push);
  if (result != CUPTI_SUCCESS) return Fail("cuptiRangeProfilerPushRange", result);
  return CUPTI_SUCCESS;
}

uint32_t Counters::Close(CUcontext known) {
  if (gone_.load(std::memory_order_relaxed)) return abi::kCountersAborted;
  InsideScope inside;
  const CurrentContext current(driver_, context_, known);
  CUpti_RangeProfiler_PopRange_Params pop = {};
  pop.structSize = CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE;
  pop.pRangeProfilerObject = object_;
  const uint32_t popped = cupti_->RangeProfilerPopRange(&pop);
  CUpti_RangeProfiler_Stop_Params stop = {};
  stop.structSize = CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE;
  stop.pRangeProfilerObject = object_;
  const uint32_t stopped = cupti_->RangeProfilerStop(&stop);
  uint32_t result = 0;
  if (popped != CUPTI_SUCCESS) {
    result = Fail("cuptiRangeProfilerPopRange", popped);
  } else if (stopped != CUPTI_SUCCESS) {
    result = Fail("cuptiRangeProfilerStop", stopped);
  }
  if (result != 0) {
    Disable();  // the next range begins with a profiler that is not half open
    CountFailure(result);
  }
  state_.store(State::kClosed, std::memory_order_release);
  return result;
}

void Counters::CountFailure(uint32_t result) {
  if (++failures_ >= kMaxFailures || result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES) {
    unavailable_.store(true, std::memory_order_relaxed);
  }
}

void Counters::Decode(const Measured& measured) {
  measured_ = measured;
  state_.store(State::kDecoding, std::memory_order_release);
  g_guest->helper.Wake();
}

void Counters::Discard() {
  active_ = nullptr;
  state_.store(State::kIdle, std::memory_order_release);
}

bool Counters::Rest() {
  if (gone_.load(std::memory_order_relaxed)) return true;
  if (!Begin(State::kPreparing)) return false;
  InsideScope inside;
  const CurrentContext current(driver_, context_);
  Disable();
  state_.store(State::kIdle, std::memory_order_release);
  return true;
}

void Counters::Disable() {
  if (object_ == nullptr) return;
  CUpti_RangeProfiler_Disable_Params disable = {};
  disable.structSize = CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE;
  disable.pRangeProfilerObject = object_;
  cupti_->RangeProfilerDisable(&disable);
  object_ = nullptr;
  context_ = nullptr;
}

void Counters::ForgetContext(CUcontext context) {
  constexpr int kAttempts = 100;
  for (int i = 0; i < kAttempts; ++i) {
    if (gone_.load(std::memory_order_relaxed)) return;
    if (Begin(State::kPreparing)) {
      InsideScope inside;
      if (context_ == context) Disable();
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
    if (!gone_.load(std::memory_order_relaxed)) DecodeNow();
    state_.store(State::kIdle, std::memory_order_release);
  }
  if (any_context == nullptr) return;
  abi::MetricConfig wanted[abi::kMaxConfigs];
  const uint32_t generation = g_guest->stream.CopyConfigs(wanted);
  if (generation == configs_generation_ || !Begin(State::kPreparing)) return;
  configs_generation_ = generation;
  InsideScope inside;
  PrepareConfigs(any_context, wanted);
  state_.store(State::kIdle, std::memory_order_release);
}

void Counters::DecodeNow() {
  InsideScope inside;
  const CurrentContext current(driver_, context_);
  double values[kMaxMetrics] = {};
  uint32_t status = abi::kCountersOk;
  CUpti_RangeProfiler_DecodeData_Params decode = {};
  decode.structSize = CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE;
  decode.pRangeProfilerObject = object_;
  uint32_t result = cupti_->RangeProfilerDecodeData(&decode);
  if (result != CUPTI_SUCCESS) {
    status = Fail("cuptiRangeProfilerDecodeData", result);
  } else if (decode.numOfRangeDropped != 0) {
    status = RangeLost();
  }
  if (status == abi::kCountersOk) {
    CUpti_RangeProfiler_GetCounterDataInfo_Params info = {};
    info.structSize = CUpti_RangeProfiler_GetCounterDataInfo_Params_STRUCT_SIZE;
    info.pCounterDataImage = counter_image_;
    info.counterDataImageSize = active_->counter_bytes;
    result = cupti_->RangeProfilerGetCounterDataInfo(&info);
    if (result != CUPTI_SUCCESS) {
      status = Fail("cuptiRangeProfilerGetCounterDataInfo", result);
    } else if (info.numTotalRanges != 1) {
      status = RangeLost();
    }
  }
  if (status == abi::kCountersOk) {
    CUpti_Profiler_Host_EvaluateToGpuValues_Params evaluate = {};
    evaluate.structSize = CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE;
    evaluate.pHostObject = active_->host;
    evaluate.pCounterDataImage = counter_image_;
    evaluate.counterDataImageSize = active_->counter_bytes;
    evaluate.rangeIndex = 0;
    evaluate.ppMetricNames = active_->names;
    evaluate.numMetrics = active_->count;
    evaluate.pMetricValues = values;
    result = cupti_->ProfilerHostEvaluateToGpuValues(&evaluate);
    if (result != CUPTI_SUCCESS) status = Fail("cuptiProfilerHostEvaluateToGpuValues", result);
  }
  abi::CountersEvent event = {};
  event.iteration = measured_.iteration;
  event.length[0] = measured_.length[0];
  event.length[1] = measured_.length[1];
  event.config_id = measured_.config_id;
  event.count = status == abi::kCountersOk ? static_cast<uint16_t>(active_->count) : 0;
  event.status = status;
  event.stopped_ns = measured_.stopped_ns;
  ring_->WriteEvent(abi::EventType::kCounters, &event, sizeof(event), values,
                    event.count * sizeof(double));
  if (status == abi::kCountersOk) {
    failures_ = 0;
  } else {
    CountFailure(status);
  }
  active_ = nullptr;
}

uint32_t Counters::RangeLost() {
  features_->Report(abi::Feature::kCounters, abi::FeatureState::kFailed, 0,
                    "CUPTI lost the range of a measured iteration; its counters are missing");
  return abi::kCountersRangeDropped;
}

void Counters::PrepareConfigs(CUcontext context, const abi::MetricConfig wanted[abi::kMaxConfigs]) {
  failures_ = 0;
  unavailable_.store(false, std::memory_order_relaxed);
  const uint32_t target = target_ready_ ? 0 : PrepareTarget(context);
  for (uint32_t i = 0; i < abi::kMaxConfigs; ++i) {
    Config* config = &configs_[i];
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
  if (!cupti_->CanProfileRanges()) {
    features_->Report(abi::Feature::kCounters, abi::FeatureState::kIgnored, 0,
                      "this CUPTI (version %u) has no range profiler; install CUDA 12.6 or later "
                      "for counters",
                      cupti_->version);
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  const CurrentContext current(driver_, context);
  if (!initialized_) {
    CUpti_Profiler_Initialize_Params initialize = {};
    initialize.structSize = CUpti_Profiler_Initialize_Params_STRUCT_SIZE;
    const uint32_t result = cupti_->ProfilerInitialize(&initialize);
    if (result != CUPTI_SUCCESS) return Fail("cuptiProfilerInitialize", result);
    initialized_ = true;
  }
  uint32_t device = 0;
  uint32_t result = cupti_->GetDeviceId(context, &device);
  if (result != CUPTI_SUCCESS) return Fail("cuptiGetDeviceId", result);

  CUpti_Profiler_DeviceSupported_Params supported = {};
  supported.structSize = CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE;
  supported.cuDevice = static_cast<CUdevice>(device);
  supported.api = CUPTI_PROFILER_RANGE_PROFILING;
  result = cupti_->ProfilerDeviceSupported(&supported);
  if (result != CUPTI_SUCCESS) return Fail("cuptiProfilerDeviceSupported", result);
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
                      "the GPU does not support range profiling: %s; kernels and times are "
                      "recorded without counters",
                      why);
    return CUPTI_ERROR_NOT_SUPPORTED;
  }

  CUpti_Device_GetChipName_Params chip = {};
  chip.structSize = CUpti_Device_GetChipName_Params_STRUCT_SIZE;
  chip.deviceIndex = device;
  result = cupti_->DeviceGetChipName(&chip);
  if (result != CUPTI_SUCCESS || chip.pChipName == nullptr) {
    return Fail("cuptiDeviceGetChipName", result);
  }
  strncpy(chip_, chip.pChipName, sizeof(chip_) - 1);
  g_guest->ReportDevice(device, chip_);

  CUpti_Profiler_GetCounterAvailability_Params available = {};
  available.structSize = CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE;
  available.ctx = context;
  result = cupti_->ProfilerGetCounterAvailability(&available);
  if (result != CUPTI_SUCCESS) return Fail("cuptiProfilerGetCounterAvailability", result);
  if (available.counterAvailabilityImageSize <= kAvailabilityBytes) {
    available.pCounterAvailabilityImage = availability_;
    result = cupti_->ProfilerGetCounterAvailability(&available);
    if (result != CUPTI_SUCCESS) return Fail("cuptiProfilerGetCounterAvailability", result);
    has_availability_ = true;
  }
  target_ready_ = true;
  features_->Report(abi::Feature::kCounters, abi::FeatureState::kReady, 0,
                    "counters of %s can be collected", chip_);
  return CUPTI_SUCCESS;
}

void Counters::PrepareConfig(Config* config) {
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

uint32_t Counters::BuildConfig(Config* config, uint32_t* passes, Text<256>* sentence) {
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

  CUpti_Profiler_Host_Initialize_Params initialize = {};
  initialize.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
  initialize.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  initialize.pChipName = chip_;
  initialize.pCounterAvailabilityImage = has_availability_ ? availability_ : nullptr;
  uint32_t result = cupti_->ProfilerHostInitialize(&initialize);
  if (result != CUPTI_SUCCESS) {
    const char* way_out = WayOut(result);
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

// ConfigAddMetrics takes all or none; one by one shows which metric it was.
void Counters::FindRefusedMetric(const Config& config, Text<256>* sentence) {
  CUpti_Profiler_Host_Initialize_Params initialize = {};
  initialize.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
  initialize.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  initialize.pChipName = chip_;
  initialize.pCounterAvailabilityImage = has_availability_ ? availability_ : nullptr;
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

void Counters::DropHost(Config* config) {
  if (config->host == nullptr) return;
  CUpti_Profiler_Host_Deinitialize_Params end = {};
  end.structSize = CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE;
  end.pHostObject = config->host;
  cupti_->ProfilerHostDeinitialize(&end);
  config->host = nullptr;
}

}  // namespace seqpoint::inject
