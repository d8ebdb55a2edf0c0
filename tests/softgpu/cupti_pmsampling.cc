// PM sampling of the software libcupti: counters of a whole device in equal slices of time.
//
// While sampling runs, the model collects every kernel of the device, whatever its context; its
// counters are spread evenly over its time. A sample is one slice. Samples wait in the "hardware
// buffer" until they are decoded into a counter data image, whose ranges they are.

#include <cupti_pmsampling.h>
#include <cupti_profiler_target.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/softgpu/cupti_images.h"
#include "tests/softgpu/cupti_state.h"

namespace {

using namespace seqpoint::softgpu;

// Size of one sample in the hardware buffer.
constexpr size_t kSampleBytes = 64;
constexpr size_t kSampleBytesPerMetric = 32;

struct PmSampler {
  int device = 0;
  bool configured = false;
  bool started = false;
  bool keeps_latest = false;
  uint64_t lost_from = UINT64_MAX;         // the buffer was full: samples from this one on are lost
  std::vector<std::string> image_metrics;  // of the last GetCounterDataSize
  std::vector<std::string> metrics;        // of the configuration
  const uint8_t* config = nullptr;         // the caller's image, which must stay as it is
  std::vector<uint8_t> config_copy;
  size_t max_samples = 0;  // in the hardware buffer
  uint64_t interval_ns = 0;
  uint64_t start_ns = 0, stop_ns = 0;
  uint64_t next = 0;  // index of the next sample to be decoded, since the start
  std::vector<KernelSample> kernels;
};

// The library keeps the pointer to the configuration image and reads it later: one that was changed
// meanwhile hangs or crashes it (pytorch/kineto#1532). Here every later call fails.
bool ImageIsTheSame(const PmSampler& sampler) {
  return memcmp(sampler.config, sampler.config_copy.data(), sampler.config_copy.size()) == 0;
}

std::mutex g_pm_mutex;  // guards everything below and every PmSampler
std::set<PmSampler*> g_samplers;
uint64_t g_samples = 0;

PmSampler* Find(CUpti_PmSampling_Object* object) {
  auto* sampler = reinterpret_cast<PmSampler*>(object);
  return g_samplers.count(sampler) > 0 ? sampler : nullptr;
}

// Times of a sample, in the place of a range's name.
struct Times {
  uint64_t start_ns, end_ns;
};
void SetTimes(const Times& times, Name* name) { memcpy(name->text, &times, sizeof(times)); }
Times TimesOf(const Name& name) {
  Times times;
  memcpy(&times, name.text, sizeof(times));
  return times;
}

// `kernels` are sorted by their start, and none lasts longer than `longest_ns`.
Counters During(const std::vector<KernelSample>& kernels, uint64_t longest_ns, const Times& times) {
  Counters sum;
  auto kernel = std::partition_point(
      kernels.begin(), kernels.end(),
      [&](const KernelSample& other) { return other.start_ns < times.end_ns; });
  while (kernel != kernels.begin() && (--kernel)->start_ns + longest_ns > times.start_ns) {
    const uint64_t begin = std::max(kernel->start_ns, times.start_ns);
    const uint64_t end = std::min(kernel->end_ns, times.end_ns);
    if (begin >= end) continue;
    sum.Add(kernel->counters, static_cast<double>(end - begin) /
                                  static_cast<double>(kernel->end_ns - kernel->start_ns));
  }
  return sum;
}

}  // namespace

namespace seqpoint::softgpu {

bool PmSamplingRuns() {
  std::lock_guard lock(g_pm_mutex);
  return std::any_of(g_samplers.begin(), g_samplers.end(),
                     [](const PmSampler* sampler) { return sampler->started; });
}

}  // namespace seqpoint::softgpu

extern "C" {

CUptiResult CUPTIAPI
cuptiPmSamplingGetCounterAvailability(CUpti_PmSampling_GetCounterAvailability_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_GetCounterAvailability_Params_STRUCT_SIZE);
  CuptiState* state = GetState();
  if (state == nullptr || !ProfilerInitialized()) return CUPTI_ERROR_UNKNOWN;
  if (state->config->cupti_no_privileges) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  if (params->deviceIndex >= state->config->gpu_count) return CUPTI_ERROR_INVALID_DEVICE;
  return GiveAvailability({}, &params->counterAvailabilityImageSize,
                          params->pCounterAvailabilityImage);
}

CUptiResult CUPTIAPI cuptiPmSamplingEnable(CUpti_PmSampling_Enable_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_Enable_Params_STRUCT_SIZE);
  CuptiState* state = GetState();
  if (state == nullptr || !ProfilerInitialized()) return CUPTI_ERROR_UNKNOWN;
  if (state->config->cupti_no_privileges) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  if (params->deviceIndex >= state->config->gpu_count) return CUPTI_ERROR_INVALID_DEVICE;
  if (!HasPmSampling(state->config->chip)) return CUPTI_ERROR_NOT_SUPPORTED;
  std::lock_guard lock(g_pm_mutex);
  for (const PmSampler* other : g_samplers) {
    if (other->device == static_cast<int>(params->deviceIndex)) {
      return CUPTI_ERROR_INVALID_OPERATION;
    }
  }
  if (!state->hooks->allocate()) return CUPTI_ERROR_UNKNOWN;
  if (!OwnMonitors(static_cast<int>(params->deviceIndex))) return CUPTI_ERROR_HARDWARE_BUSY;
  auto* sampler = new PmSampler;
  sampler->device = static_cast<int>(params->deviceIndex);
  g_samplers.insert(sampler);
  // The clocks are locked while it is enabled: pytorch/pytorch#188849.
  state->hooks->slow_device(sampler->device, state->config->cupti_pm_slowdown);
  params->pPmSamplingObject = reinterpret_cast<CUpti_PmSampling_Object*>(sampler);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiPmSamplingDisable(CUpti_PmSampling_Disable_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_Disable_Params_STRUCT_SIZE);
  std::lock_guard lock(g_pm_mutex);
  PmSampler* sampler = Find(params->pPmSamplingObject);
  if (sampler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  GetState()->hooks->watch_device(sampler->device, false);
  GetState()->hooks->slow_device(sampler->device, 1);
  ReleaseMonitors(sampler->device);
  g_samplers.erase(sampler);
  delete sampler;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiPmSamplingSetConfig(CUpti_PmSampling_SetConfig_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_SetConfig_Params_STRUCT_SIZE);
  std::lock_guard lock(g_pm_mutex);
  PmSampler* sampler = Find(params->pPmSamplingObject);
  if (sampler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (sampler->started) return CUPTI_ERROR_INVALID_OPERATION;
  std::string chip;
  std::vector<MetricGroup> groups;
  if (!ReadConfig(params->pConfig, params->configSize, /*sampled=*/true, &chip, &groups) ||
      params->samplingInterval == 0 || params->hardwareBufferSize == 0) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (PlanPmPasses(chip, groups) > 1) return CUPTI_ERROR_NOT_SUPPORTED;
  const bool turing = chip.substr(0, 2) == "TU";
  const bool by_time = params->triggerMode == CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
  sampler->keeps_latest =
      params->hwBufferAppendMode == CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_LATEST;
  if ((by_time && (turing || chip == "GA100")) || (sampler->keeps_latest && turing)) {
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  const Config& config = *GetState()->config;
  sampler->interval_ns = by_time
                             ? params->samplingInterval
                             : std::max<uint64_t>(1, params->samplingInterval * 1000 /
                                                         static_cast<uint64_t>(config.clock_mhz));
  sampler->metrics.clear();
  for (const MetricGroup& group : groups) {
    sampler->metrics.insert(sampler->metrics.end(), group.begin(), group.end());
  }
  sampler->max_samples =
      params->hardwareBufferSize / (kSampleBytes + kSampleBytesPerMetric * sampler->metrics.size());
  if (config.cupti_pm_buffer_samples > 0) sampler->max_samples = config.cupti_pm_buffer_samples;
  sampler->config = params->pConfig;
  sampler->config_copy.assign(params->pConfig, params->pConfig + params->configSize);
  sampler->configured = true;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiPmSamplingStart(CUpti_PmSampling_Start_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_Start_Params_STRUCT_SIZE);
  CuptiState* state = GetState();
  if (state->config->cupti_hardware_busy || RangeProfilerRuns()) return CUPTI_ERROR_HARDWARE_BUSY;
  std::lock_guard lock(g_pm_mutex);
  PmSampler* sampler = Find(params->pPmSamplingObject);
  if (sampler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!sampler->configured || sampler->started) return CUPTI_ERROR_INVALID_OPERATION;
  if (!ImageIsTheSame(*sampler)) return CUPTI_ERROR_UNKNOWN;
  sampler->started = true;
  sampler->lost_from = UINT64_MAX;
  sampler->next = 0;
  sampler->kernels.clear();
  state->hooks->watch_device(sampler->device, true);
  state->hooks->overhead_ns(state->config->cupti_pass_ns);
  sampler->start_ns = state->hooks->now_ns();
  sampler->stop_ns = 0;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiPmSamplingStop(CUpti_PmSampling_Stop_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_Stop_Params_STRUCT_SIZE);
  std::lock_guard lock(g_pm_mutex);
  PmSampler* sampler = Find(params->pPmSamplingObject);
  if (sampler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!sampler->started) return CUPTI_ERROR_INVALID_OPERATION;
  CuptiState* state = GetState();
  sampler->started = false;
  sampler->stop_ns = state->hooks->now_ns();
  for (KernelSample& kernel : state->hooks->take_kernels(sampler->device)) {
    sampler->kernels.push_back(std::move(kernel));
  }
  state->hooks->watch_device(sampler->device, false);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiPmSamplingDecodeData(CUpti_PmSampling_DecodeData_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_DecodeData_Params_STRUCT_SIZE);
  std::lock_guard lock(g_pm_mutex);
  PmSampler* sampler = Find(params->pPmSamplingObject);
  CounterData image;
  if (sampler == nullptr || !image.Open(params->pCounterDataImage, params->counterDataImageSize)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (sampler->start_ns == 0) return CUPTI_ERROR_INVALID_OPERATION;
  if (!ImageIsTheSame(*sampler)) return CUPTI_ERROR_UNKNOWN;
  CuptiState* state = GetState();
  if (sampler->started) {
    for (KernelSample& kernel : state->hooks->take_kernels(sampler->device)) {
      sampler->kernels.push_back(std::move(kernel));
    }
  }
  const uint64_t until_ns = sampler->started ? state->hooks->now_ns() : sampler->stop_ns;
  uint64_t taken =
      std::min((until_ns - sampler->start_ns) / sampler->interval_ns, sampler->lost_from);
  // Samples that do not fit the hardware buffer are lost: the newest, or the oldest.
  if (taken - sampler->next > sampler->max_samples) {
    if (sampler->keeps_latest) {
      sampler->next = taken - sampler->max_samples;
    } else {
      taken = sampler->lost_from = sampler->next + sampler->max_samples;
    }
  }
  params->decodeStopReason = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
  params->overflow = sampler->lost_from != UINT64_MAX ? 1 : 0;
  std::sort(sampler->kernels.begin(), sampler->kernels.end(),
            [](const KernelSample& a, const KernelSample& b) { return a.start_ns < b.start_ns; });
  uint64_t longest_ns = 0;
  for (const KernelSample& kernel : sampler->kernels) {
    longest_ns = std::max(longest_ns, kernel.end_ns - kernel.start_ns);
  }
  // Lost samples come in stretches: here the first of every hundred.
  const double lost_of_hundred = 100 * state->config->cupti_pm_lost_share;
  const uint64_t most = state->config->cupti_pm_samples_per_decode > 0
                            ? state->config->cupti_pm_samples_per_decode
                            : UINT64_MAX;
  for (; sampler->next < taken; ++sampler->next) {
    if (static_cast<double>(sampler->next % 100) < lost_of_hundred) continue;
    const uint64_t index = image.header->ranges;
    if (index == image.header->max_ranges) {
      params->decodeStopReason = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
      return CUPTI_SUCCESS;
    }
    // "Still contains plenty of completed samples", and more come: pytorch/kineto#1532.
    if (index == most) {
      params->decodeStopReason = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_OTHER;
      return CUPTI_SUCCESS;
    }
    Times times = {sampler->start_ns + sampler->next * sampler->interval_ns,
                   sampler->start_ns + (sampler->next + 1) * sampler->interval_ns};
    PassData data{During(sampler->kernels, longest_ns, times),
                  static_cast<double>(sampler->interval_ns),
                  state->config->seed * 0x9e3779b97f4a7c15 + ++g_samples};
    // "The first sample may occasionally contain outlier values": user guide 2.12.1. It is wider
    // besides, in the output that NVIDIA shows.
    if (sampler->next == 0 && state->config->cupti_pm_first_sample_factor > 1) {
      const double factor = state->config->cupti_pm_first_sample_factor;
      data.duration_ns *= factor;
      times.start_ns = times.end_ns - static_cast<uint64_t>(data.duration_ns);
      const Counters counted = data.counters;
      data.counters.Add(counted, factor * factor - 1);
    }
    SetTimes(times, &image.ranges[index]);
    for (const std::string& metric : sampler->metrics) {
      const uint64_t slot = image.Find(metric);
      if (slot == image.header->metrics) return CUPTI_ERROR_INVALID_PARAMETER;
      image.At(index, slot) = {data, 1, 1};
    }
    ++image.header->ranges;
  }
  std::erase_if(sampler->kernels, [&](const KernelSample& kernel) {
    return kernel.end_ns <= sampler->start_ns + sampler->next * sampler->interval_ns;
  });
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiPmSamplingGetCounterDataSize(CUpti_PmSampling_GetCounterDataSize_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_GetCounterDataSize_Params_STRUCT_SIZE);
  std::lock_guard lock(g_pm_mutex);
  PmSampler* sampler = Find(params->pPmSamplingObject);
  if (sampler == nullptr || params->pMetricNames == nullptr || params->numMetrics == 0 ||
      params->maxSamples == 0) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  sampler->image_metrics.assign(params->pMetricNames, params->pMetricNames + params->numMetrics);
  for (const std::string& name : sampler->image_metrics) {
    if (FindMetric(GetState()->config->chip, name) == nullptr) {
      return CUPTI_ERROR_INVALID_METRIC_NAME;
    }
  }
  params->counterDataSize = CounterData::Bytes(params->numMetrics, params->maxSamples);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiPmSamplingCounterDataImageInitialize(
    CUpti_PmSampling_CounterDataImage_Initialize_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_CounterDataImage_Initialize_Params_STRUCT_SIZE);
  std::lock_guard lock(g_pm_mutex);
  PmSampler* sampler = Find(params->pPmSamplingObject);
  if (sampler == nullptr || sampler->image_metrics.empty()) return CUPTI_ERROR_INVALID_PARAMETER;
  return InitializeCounterData(sampler->image_metrics, params->pCounterData,
                               params->counterDataSize);
}

CUptiResult CUPTIAPI
cuptiPmSamplingGetCounterDataInfo(CUpti_PmSampling_GetCounterDataInfo_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_GetCounterDataInfo_Params_STRUCT_SIZE);
  CounterData image;
  if (!image.Open(params->pCounterDataImage, params->counterDataImageSize)) {
    return CUPTI_ERROR_NOT_INITIALIZED;
  }
  params->numTotalSamples = image.header->max_ranges;
  params->numPopulatedSamples = params->numCompletedSamples = image.header->ranges;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiPmSamplingCounterDataGetSampleInfo(CUpti_PmSampling_CounterData_GetSampleInfo_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_PmSampling_CounterData_GetSampleInfo_Params_STRUCT_SIZE);
  CounterData image;
  if (!image.Open(params->pCounterDataImage, params->counterDataImageSize) ||
      params->sampleIndex >= image.header->ranges) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  const Times times = TimesOf(image.ranges[params->sampleIndex]);
  params->startTimestamp = times.start_ns;
  params->endTimestamp = times.end_ns;
  return CUPTI_SUCCESS;
}

}  // extern "C"
