#include "injection/counters/configs.h"

#include <string.h>

#include "injection/base/identity.h"
#include "injection/counters/cupti_params.h"
#include "injection/counters/metric_scope.h"
#include "injection/cupti/current_context.h"

namespace seqpoint::inject {

// The other backend's configurations are of no use, and both need the same hardware.
void CounterConfigs::UseBackend(CounterBackend* backend) {
  if (backend == backend_) return;
  backend_ = backend;
  target_ready_ = has_availability_ = false;
  for (CounterConfig& config : configs_) {
    config.ready_id.store(0, std::memory_order_release);
    DropHost(&config.host);
    config.wanted = {};
  }
}

void CounterConfigs::Forget() {
  initialized_ = false;
  target_ready_.store(false, std::memory_order_relaxed);
}

CounterConfig* CounterConfigs::Find(uint16_t config_id) {
  for (CounterConfig& config : configs_) {
    if (config.ready_id.load(std::memory_order_acquire) == config_id) return &config;
  }
  return nullptr;
}

// In automatic ranges the context is synchronised behind each launch, which "can lead to problems
// like hang state, if there are dependencies between two kernel launches" (CUPTI user guide 2.9.1).
// Kernels that communicate wait for those of other GPUs.
const char* CounterConfigs::WhyNoKernels() const {
  if (WorldSize() > 1) return "the job has several ranks, whose kernels wait for each other";
  if (parts_.names->saw_communication()) {
    return "the program uses NCCL or NVSHMEM, whose kernels wait for each other";
  }
  return nullptr;
}

void CounterConfigs::Prepare(uint32_t target, const abi::MetricConfig wanted[abi::kMaxConfigs]) {
  for (uint32_t i = 0; i < abi::kMaxConfigs; ++i) {
    CounterConfig* config = &configs_[i];
    if (memcmp(&config->wanted, &wanted[i], sizeof(wanted[i])) == 0 &&
        config->ready_id.load(std::memory_order_relaxed) == wanted[i].config_id) {
      continue;
    }
    config->ready_id.store(0, std::memory_order_release);
    DropHost(&config->host);
    config->wanted = wanted[i];
    if (wanted[i].config_id <= abi::kConfigTrace) continue;
    Message message;
    uint32_t passes = 0, result = target;
    if (target_ready_) {
      result = BuildConfig(config, &passes, &message);
    } else {
      message.Append("no counters can be collected (%s); the feature \"counters\" says why",
                     cupti_->ResultName(target));
    }
    if (result == CUPTI_SUCCESS) {
      config->ready_id.store(wanted[i].config_id, std::memory_order_release);
    } else {
      DropHost(&config->host);
    }
    const abi::ConfigEvent event = {wanted[i].config_id, static_cast<uint16_t>(passes), result,
                                    static_cast<uint32_t>(message.size()), 0};
    parts_.ring->WriteEvent(abi::EventType::kConfig, &event, sizeof(event), message.c_str(),
                            message.size());
  }
}

uint32_t CounterConfigs::PrepareTarget(CUcontext context) {
  if (target_ready_) return CUPTI_SUCCESS;
  const CallWatch::Scope watch(parts_.call_watch, "the preparation of CUPTI's counters", true);
  if (!backend_->Exists()) {
    parts_.features->Report(
        abi::Feature::kCounters, abi::FeatureState::kIgnored, 0,
        "this CUPTI (version %u) has no %s; install CUDA 12.6 or later for counters",
        cupti_->version, backend_->words());
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  const CurrentContext current(parts_.driver, context);
  if (!initialized_) {
    SEQPOINT_PARAMS(Profiler_Initialize, initialize);
    SEQPOINT_CALL_OR_RETURN(ProfilerInitialize, &initialize);
    initialized_ = true;
  }
  uint32_t device = 0;
  SEQPOINT_CALL_OR_RETURN(GetDeviceId, context, &device);

  SEQPOINT_PARAMS(Profiler_DeviceSupported, supported);
  supported.cuDevice = static_cast<CUdevice>(device);
  supported.api = backend_->api();
  SEQPOINT_CALL_OR_RETURN(ProfilerDeviceSupported, &supported);
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
    parts_.features->Report(
        abi::Feature::kCounters, abi::FeatureState::kIgnored, 0,
        "the GPU does not support %s: %s; kernels and times are recorded without "
        "counters",
        backend_->words(), why);
    return CUPTI_ERROR_NOT_SUPPORTED;
  }

  SEQPOINT_PARAMS(Device_GetChipName, chip);
  chip.deviceIndex = device;
  SEQPOINT_CALL_OR_RETURN(DeviceGetChipName, &chip);
  if (chip.pChipName != nullptr) strncpy(chip_, chip.pChipName, sizeof(chip_) - 1);
  parts_.contexts->ReportDevice(device, chip_);

  size_t bytes = 0;
  uint32_t result = backend_->Probe(context, device, nullptr, &bytes);
  if (result != CUPTI_SUCCESS) return result;
  if (bytes <= kAvailabilityBytes) {
    result = backend_->Probe(context, device, availability_, &bytes);
    if (result != CUPTI_SUCCESS) return result;
    has_availability_ = true;
  }
  target_ready_ = true;
  parts_.features->Report(abi::Feature::kCounters, abi::FeatureState::kReady, 0,
                          "counters of %s can be collected by %s", chip_, backend_->words());
  return CUPTI_SUCCESS;
}

uint32_t CounterConfigs::BuildConfig(CounterConfig* config, uint32_t* passes, Message* message) {
  const abi::MetricConfig& wanted = config->wanted;
  const uint32_t bytes =
      wanted.text_bytes < sizeof(wanted.names) ? wanted.text_bytes : sizeof(wanted.names);
  memcpy(config->text, wanted.names, bytes);
  config->text[bytes] = '\0';
  config->count = 0;
  char* rest = config->text;
  for (char* name = nullptr;
       config->count < kMaxMetrics && (name = strtok_r(rest, "\n", &rest)) != nullptr;) {
    config->names[config->count++] = name;
  }
  if (config->count == 0) {
    message->Append("configuration %u names no metric", wanted.config_id);
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (wanted.metric_count != config->count) {
    message->Append("configuration %u announces %u metrics and names %u; at most %u can be read",
                    wanted.config_id, wanted.metric_count, config->count, kMaxMetrics);
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  config->kernels = wanted.ranges == static_cast<uint8_t>(abi::Ranges::kKernels);
  if (config->kernels && (!backend_->measures_ranges() || config->count > abi::kMaxKernelMetrics)) {
    message->Append(
        "single kernels are measured by the range profiler only, with at most %u "
        "metrics in configuration %u",
        abi::kMaxKernelMetrics, wanted.config_id);
    return CUPTI_ERROR_INVALID_PARAMETER;
  }

  if (const char* why = WhyNoKernels(); config->kernels && why != nullptr) {
    message->Append(
        "%s: measured one after the other, they would hang; without --roofline the "
        "job is measured as usual",
        why);
    parts_.features->Report(abi::Feature::kRoofline, abi::FeatureState::kIgnored, 0,
                            "counters of single kernels: %s", message->c_str());
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  bool of_context = false;
  config->of_device = false;
  for (uint32_t i = 0; i < config->count; ++i) {
    const MetricScope scope = ScopeOf(config->names[i]);
    of_context = of_context || scope == MetricScope::kContext;
    config->of_device = config->of_device || scope == MetricScope::kDevice;
  }
  if (backend_->measures_ranges() && of_context && config->of_device) {
    message->Append(
        "metrics of the whole device (NVLink, C2C, PCIe) and of the context cannot share "
        "configuration %u; split it",
        wanted.config_id);
    return CUPTI_ERROR_NOT_SUPPORTED;
  }

  uint32_t result = MakeHost(*config, &config->host);
  if (result != CUPTI_SUCCESS) {
    message->Append("cuptiProfilerHostInitialize for %s gave %u (%s)%s", chip_, result,
                    cupti_->ResultName(result), CounterWayOut(result));
    return result;
  }
  result = AddMetrics(config->host, config->names, config->count);
  if (result != CUPTI_SUCCESS) {
    message->Append("%s refuses the metrics with %u (%s)", chip_, result,
                    cupti_->ResultName(result));
    FindRefusedMetric(*config, message);
    return result;
  }

  SEQPOINT_PARAMS(Profiler_Host_GetConfigImageSize, size);
  size.pHostObject = config->host;
  result = cupti_->ProfilerHostGetConfigImageSize(&size);
  if (result == CUPTI_SUCCESS && size.configImageSize > kConfigImageBytes) {
    message->Append("the configuration image of %zu bytes is larger than %zu: use fewer metrics",
                    size.configImageSize, kConfigImageBytes);
    return CUPTI_ERROR_OUT_OF_MEMORY;
  }
  config->image_bytes = size.configImageSize;
  SEQPOINT_PARAMS(Profiler_Host_GetConfigImage, image);
  image.pHostObject = config->host;
  image.configImageSize = config->image_bytes;
  image.pConfigImage = config->image;
  if (result == CUPTI_SUCCESS) result = cupti_->ProfilerHostGetConfigImage(&image);
  SEQPOINT_PARAMS(Profiler_Host_GetNumOfPasses, count);
  count.configImageSize = config->image_bytes;
  count.pConfigImage = config->image;
  if (result == CUPTI_SUCCESS) result = cupti_->ProfilerHostGetNumOfPasses(&count);
  if (result != CUPTI_SUCCESS) {
    message->Append("building the configuration for %s gave %u (%s)", chip_, result,
                    cupti_->ResultName(result));
    return result;
  }
  *passes = static_cast<uint32_t>(count.numOfPasses);
  if (count.numOfPasses != 1) {
    message->Append("the metrics need %zu passes on %s, and one iteration gives one; split them",
                    count.numOfPasses, chip_);
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  return CUPTI_SUCCESS;
}

uint32_t CounterConfigs::MakeHost(const CounterConfig& config, CUpti_Profiler_Host_Object** host) {
  SEQPOINT_PARAMS(Profiler_Host_Initialize, initialize);
  initialize.profilerType = backend_->type();
  initialize.pChipName = chip_;
  // An object that was made with an image refuses metrics that are not in it. Null: it knows the
  // chip's metrics alone, and what this GPU lacks is found when it is collected.
  const bool in_image = !config.of_device || backend_->ImageHasDevice();
  initialize.pCounterAvailabilityImage = has_availability_ && in_image ? availability_ : nullptr;
  const uint32_t result = cupti_->ProfilerHostInitialize(&initialize);
  *host = result == CUPTI_SUCCESS ? initialize.pHostObject : nullptr;
  return result;
}

uint32_t CounterConfigs::AddMetrics(CUpti_Profiler_Host_Object* host, const char** names,
                                    size_t count) {
  SEQPOINT_PARAMS(Profiler_Host_ConfigAddMetrics, add);
  add.pHostObject = host;
  add.ppMetricNames = names;
  add.numMetrics = count;
  return cupti_->ProfilerHostConfigAddMetrics(&add);
}

// ConfigAddMetrics takes all or none; one by one shows which metric it was.
void CounterConfigs::FindRefusedMetric(const CounterConfig& config, Message* message) {
  CUpti_Profiler_Host_Object* host = nullptr;
  if (MakeHost(config, &host) != CUPTI_SUCCESS) return;
  for (uint32_t i = 0; i < config.count; ++i) {
    const char* name = config.names[i];
    if (AddMetrics(host, &name, 1) == CUPTI_SUCCESS) continue;
    message->Append(": \"%s\" is the first", name);
    break;
  }
  DropHost(&host);
}

void CounterConfigs::DropHost(CUpti_Profiler_Host_Object** host) {
  if (*host == nullptr) return;
  SEQPOINT_PARAMS(Profiler_Host_Deinitialize, end);
  end.pHostObject = *host;
  cupti_->ProfilerHostDeinitialize(&end);
  *host = nullptr;
}

}  // namespace seqpoint::inject
