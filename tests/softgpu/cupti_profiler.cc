// Range Profiler and Profiler Host API of the software libcupti.
//
// Counters come from the model's cumulative totals: a range is the difference between its push and
// its pop, in submission order, with the context drained at both. Configuration and counter data
// images are this library's own formats; a caller may copy them as bytes.

#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/softgpu/cupti_images.h"
#include "tests/softgpu/cupti_state.h"
#include "tests/softgpu/metrics.h"

namespace {

using namespace seqpoint::softgpu;

// The parameters of cuptiProfilerGetCounterAvailability as of CUDA 13.1: its "API reference",
// CUpti_Profiler_GetCounterAvailability_Params.
struct AvailabilityParamsOf13Point1 {
  size_t structSize;
  void* pPriv;
  CUcontext ctx;
  size_t counterAvailabilityImageSize;
  uint8_t* pCounterAvailabilityImage;
  bool bAllowDeviceLevelCounters;
};
constexpr uint64_t kDeviceLevelFlagVersion = 130100;

struct HostObject {
  std::string chip;
  bool sampled = false;      // for PM sampling
  bool device_level = true;  // offers metrics of the whole device
  std::vector<MetricGroup> groups;
  bool broken = false;  // an unknown metric was added
  // Strings that Get* calls returned; the caller reads them until the object goes.
  std::vector<std::unique_ptr<std::vector<std::string>>> strings;
  std::vector<std::unique_ptr<std::vector<const char*>>> lists;

  const char** Keep(std::vector<std::string> values) {
    strings.push_back(std::make_unique<std::vector<std::string>>(std::move(values)));
    auto list = std::make_unique<std::vector<const char*>>();
    for (const std::string& value : *strings.back()) list->push_back(value.c_str());
    lists.push_back(std::move(list));
    return lists.back()->data();
  }

  size_t MetricCount() const {
    size_t count = 0;
    for (const MetricGroup& group : groups) count += group.size();
    return count;
  }

  bool Has(std::string_view metric) const {
    for (const MetricGroup& group : groups) {
      if (std::find(group.begin(), group.end(), metric) != group.end()) return true;
    }
    return false;
  }
};

HostObject* Host(CUpti_Profiler_Host_Object* object) {
  return reinterpret_cast<HostObject*>(object);
}

// One measured range of one pass, waiting to be decoded.
struct Collected {
  std::string name;
  uint32_t pass;
  uint32_t level;
  size_t ordinal;  // number of the range within its pass and level
  PassData data;
};

struct OpenRange {
  std::string name;
  Counters begin;
  uint64_t begin_ns;
};

struct RangeProfiler {
  CUcontext context = nullptr;
  bool configured = false;
  bool started = false;
  std::vector<std::string> image_metrics;  // of the last GetCounterDataSize
  std::vector<std::string> metrics;        // of the configuration
  Schedule schedule;
  uint8_t* image = nullptr;
  size_t image_bytes = 0;
  CUpti_ProfilerRange range = CUPTI_Range_INVALID;
  CUpti_ProfilerReplayMode replay = CUPTI_Replay_INVALID;
  size_t max_ranges_per_pass = 0;
  uint32_t levels = 1;
  uint32_t min_level = 1;
  uint32_t round = 0;  // passes of the first nesting level, then of the next
  size_t ranges_in_pass = 0;
  std::vector<size_t> first_range;  // in the image, of each nesting level
  size_t dropped = 0;
  std::vector<OpenRange> open;
  std::vector<KernelSample> samples;
  std::vector<Collected> collected;

  uint32_t pass() const { return round % schedule.passes; }
  uint32_t level() const { return min_level + round / schedule.passes; }
};

std::mutex g_mutex;  // guards everything below and every RangeProfiler
bool g_initialized = false;
std::set<RangeProfiler*> g_profilers;
uint64_t g_ranges = 0;

RangeProfiler* Find(CUpti_RangeProfiler_Object* object) {
  auto* profiler = reinterpret_cast<RangeProfiler*>(object);
  return g_profilers.count(profiler) > 0 ? profiler : nullptr;
}

void Collect(RangeProfiler* profiler, uint32_t pass, std::string name, const Counters& counters,
             double duration_ns) {
  if (profiler->ranges_in_pass >= profiler->max_ranges_per_pass) {
    ++profiler->dropped;
    return;
  }
  uint64_t seed = GetState()->config->seed * 0x9e3779b97f4a7c15 + ++g_ranges;
  profiler->collected.push_back({std::move(name),
                                 pass,
                                 profiler->level(),
                                 profiler->ranges_in_pass++,
                                 {counters, duration_ns, seed}});
}

}  // namespace

namespace seqpoint::softgpu {

namespace {
struct MonitorOwner {
  int file = -1;
  int users = 0;
};
std::mutex g_monitors_mutex;
std::map<int, MonitorOwner> g_monitors;  // by device
}  // namespace

bool OwnMonitors(int device) {
  const std::string& path = GetState()->config->cupti_monitor_owner_file;
  if (path.empty()) return true;
  std::lock_guard lock(g_monitors_mutex);
  MonitorOwner& owner = g_monitors[device];
  if (owner.users == 0) {
    owner.file =
        open((path + "." + std::to_string(device)).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (owner.file < 0 || flock(owner.file, LOCK_EX | LOCK_NB) != 0) {
      close(owner.file);
      return false;
    }
  }
  ++owner.users;
  return true;
}

void ReleaseMonitors(int device) {
  std::lock_guard lock(g_monitors_mutex);
  const auto owner = g_monitors.find(device);
  if (owner == g_monitors.end() || --owner->second.users > 0) return;
  close(owner->second.file);
  g_monitors.erase(owner);
}

bool ProfilerInitialized() {
  std::lock_guard lock(g_mutex);
  return g_initialized;
}

void ForgetProfilers() {
  std::lock_guard lock(g_mutex);
  g_initialized = 0;
  g_profilers.clear();  // the objects stay: their owners may still name them
}

bool RangeProfilerRuns() {
  std::lock_guard lock(g_mutex);
  return std::any_of(g_profilers.begin(), g_profilers.end(),
                     [](const RangeProfiler* profiler) { return profiler->started; });
}

bool RangeProfiled(CUcontext context) {
  std::lock_guard lock(g_mutex);
  return std::any_of(g_profilers.begin(), g_profilers.end(),
                     [context](const RangeProfiler* one) { return one->context == context; });
}

}  // namespace seqpoint::softgpu

extern "C" {

CUptiResult CUPTIAPI cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Initialize_Params_STRUCT_SIZE);
  CuptiState* state = GetState();
  if (state == nullptr || state->failed) return CUPTI_ERROR_UNKNOWN;
  std::lock_guard lock(g_mutex);
  g_initialized = true;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerDeInitialize(CUpti_Profiler_DeInitialize_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_DeInitialize_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  if (!g_initialized) {
    // Calls are not counted, and the real library crashes at one too many: pytorch/pytorch#188849.
    fprintf(stderr, "softgpu: cuptiProfilerDeInitialize without cuptiProfilerInitialize\n");
    abort();
  }
  g_initialized = false;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerDeviceSupported(CUpti_Profiler_DeviceSupported_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE);
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  const bool known =
      params->api == CUPTI_PROFILER_RANGE_PROFILING || params->api == CUPTI_PROFILER_PM_SAMPLING;
  const bool yes = known && state->config->compute_major * 10 + state->config->compute_minor >= 75;
  params->architecture =
      yes ? CUPTI_PROFILER_CONFIGURATION_SUPPORTED : CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED;
  params->isSupported = params->architecture;
  params->sli = params->vGpu = params->confidentialCompute = params->cmp = params->wsl =
      CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_Device_GetChipName_Params_STRUCT_SIZE);
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (params->deviceIndex >= state->config->gpu_count) return CUPTI_ERROR_INVALID_DEVICE;
  params->pChipName = state->config->chip.c_str();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerGetCounterAvailability(CUpti_Profiler_GetCounterAvailability_Params* params) {
  SWGPU_MAY_FAIL();
  CuptiState* state = GetState();
  if (params == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  // Metrics of the whole device are left out unless they are asked for, which 13.0 cannot: user
  // guide of 13.1, section 2.8.2, and release notes of 13.1.
  Availability availability{.device_level = 0};
  constexpr size_t kLongSize =
      offsetof(AvailabilityParamsOf13Point1, bAllowDeviceLevelCounters) + 1;
  if (params->structSize == kLongSize && state->config->cupti_version >= kDeviceLevelFlagVersion) {
    const auto* asked = reinterpret_cast<const AvailabilityParamsOf13Point1*>(params);
    availability.device_level = asked->bAllowDeviceLevelCounters ? 1 : 0;
  } else {
    SWGPU_CHECK_PARAMS(params, CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE);
  }
  if (state->config->cupti_no_privileges) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  // Its effect on the context meanwhile is not public: here, the worst.
  if (!state->hooks->synchronize_context(params->ctx)) return CUPTI_ERROR_UNKNOWN;
  return GiveAvailability(availability, &params->counterAvailabilityImageSize,
                          params->pCounterAvailabilityImage);
}

// --- Target side ---------------------------------------------------------------------------------

CUptiResult CUPTIAPI cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  if (!g_initialized) {
    // The real library crashes here; a caller that does not check must not get away with it.
    fprintf(stderr,
            "softgpu: cuptiRangeProfilerEnable without a successful cuptiProfilerInitialize\n");
    abort();
  }
  CuptiState* state = GetState();
  CUcontext context = params->ctx != nullptr ? params->ctx : state->hooks->current_context();
  if (context == nullptr) return CUPTI_ERROR_INVALID_CONTEXT;
  for (const RangeProfiler* other : g_profilers) {
    if (other->context == context) return CUPTI_ERROR_INVALID_OPERATION;
  }
  if (PcSampled(context)) return CUPTI_ERROR_HARDWARE_BUSY;
  if (!state->hooks->allocate()) return CUPTI_ERROR_UNKNOWN;
  if (!OwnMonitors(state->hooks->context_device(context))) return CUPTI_ERROR_HARDWARE_BUSY;
  auto* profiler = new RangeProfiler;
  profiler->context = context;
  g_profilers.insert(profiler);
  params->pRangeProfilerObject = reinterpret_cast<CUpti_RangeProfiler_Object*>(profiler);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  GetState()->hooks->sample_kernels(profiler->context, nullptr, 1);
  ReleaseMonitors(GetState()->hooks->context_device(profiler->context));
  g_profilers.erase(profiler);
  delete profiler;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerSetConfig(CUpti_RangeProfiler_SetConfig_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (profiler->started) return CUPTI_ERROR_INVALID_OPERATION;
  if (params->range == CUPTI_UserRange && params->replayMode == CUPTI_KernelReplay) {
    return CUPTI_ERROR_INVALID_OPERATION;
  }
  if (params->maxRangesPerPass > GetState()->config->cupti_range_limit) {
    return CUPTI_ERROR_INVALID_OPERATION;
  }
  std::string chip;
  std::vector<MetricGroup> groups;
  CounterData image;
  if (!ReadConfig(params->pConfig, params->configSize, /*sampled=*/false, &chip, &groups) ||
      !image.Open(params->pCounterDataImage, params->counterDataImageSize) ||
      params->range <= CUPTI_Range_INVALID || params->range >= CUPTI_Range_COUNT ||
      params->replayMode <= CUPTI_Replay_INVALID || params->replayMode >= CUPTI_Replay_COUNT ||
      params->maxRangesPerPass == 0 || params->numNestingLevels == 0 ||
      params->minNestingLevel == 0) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  std::vector<std::string> metrics;
  for (const MetricGroup& group : groups) {
    metrics.insert(metrics.end(), group.begin(), group.end());
  }
  for (const std::string& metric : metrics) {
    if (image.Find(metric) == image.header->metrics) return CUPTI_ERROR_INVALID_PARAMETER;
  }
  profiler->configured = true;
  profiler->schedule = PlanPasses(chip, groups);
  profiler->metrics = std::move(metrics);
  profiler->image = params->pCounterDataImage;
  profiler->image_bytes = params->counterDataImageSize;
  profiler->range = params->range;
  profiler->replay = params->replayMode;
  profiler->max_ranges_per_pass = params->maxRangesPerPass;
  profiler->levels = params->numNestingLevels;
  profiler->min_level = params->minNestingLevel;
  profiler->round = 0;
  profiler->first_range.assign(params->numNestingLevels, 0);
  if (params->replayMode == CUPTI_ApplicationReplay) {
    profiler->round = static_cast<uint32_t>(params->passIndex) % profiler->schedule.passes;
  }
  profiler->collected.clear();
  profiler->dropped = 0;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_Start_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  CuptiState* state = GetState();
  if (state->config->cupti_no_privileges) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  if (state->config->cupti_hardware_busy || PmSamplingRuns()) return CUPTI_ERROR_HARDWARE_BUSY;
  if (!profiler->configured || profiler->started) return CUPTI_ERROR_INVALID_OPERATION;
  if (state->hooks->current_context() != profiler->context) return CUPTI_ERROR_INVALID_CONTEXT;
  state->hooks->drain(profiler->context);
  state->hooks->overhead_ns(state->config->cupti_pass_ns);
  profiler->started = true;
  profiler->ranges_in_pass = 0;
  profiler->open.clear();
  if (profiler->range == CUPTI_AutoRange) {
    profiler->samples.clear();
    uint32_t replays = profiler->replay == CUPTI_KernelReplay ? profiler->schedule.passes : 1;
    state->hooks->sample_kernels(profiler->context, &profiler->samples, replays);
  }
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerStop(CUpti_RangeProfiler_Stop_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  CuptiState* state = GetState();
  if (!profiler->started || !profiler->open.empty()) return CUPTI_ERROR_INVALID_OPERATION;
  if (state->hooks->current_context() != profiler->context) return CUPTI_ERROR_INVALID_CONTEXT;
  state->hooks->drain(profiler->context);
  state->hooks->overhead_ns(state->config->cupti_pass_ns);
  profiler->started = false;
  const bool replayed = profiler->replay == CUPTI_KernelReplay;
  if (profiler->range == CUPTI_AutoRange) {
    state->hooks->sample_kernels(profiler->context, nullptr, 1);
    const uint32_t first = replayed ? 0 : profiler->pass();
    const uint32_t last = replayed ? profiler->schedule.passes - 1 : first;
    for (uint32_t pass = first; pass <= last; ++pass) {
      profiler->ranges_in_pass = 0;
      for (size_t i = 0; i < profiler->samples.size(); ++i) {
        const KernelSample& sample = profiler->samples[i];
        Collect(profiler, pass, std::to_string(i), sample.counters,
                static_cast<double>(sample.end_ns - sample.start_ns));
      }
    }
  }
  const uint32_t rounds = profiler->schedule.passes * profiler->levels;
  profiler->round = replayed ? 0 : (profiler->round + 1) % rounds;
  params->isAllPassSubmitted = profiler->round == 0;
  params->passIndex = profiler->pass();
  params->targetNestingLevel = profiler->level();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerPushRange(CUpti_RangeProfiler_PushRange_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr || params->pRangeName == nullptr ||
      strlen(params->pRangeName) >= kNameBytes) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (!profiler->started || profiler->range != CUPTI_UserRange) {
    return CUPTI_ERROR_INVALID_OPERATION;
  }
  CuptiState* state = GetState();
  if (state->hooks->current_context() != profiler->context) return CUPTI_ERROR_INVALID_CONTEXT;
  state->hooks->drain(profiler->context);
  state->hooks->overhead_ns(state->config->cupti_range_ns);
  std::string name = profiler->open.empty() ? "" : profiler->open.back().name + "/";
  profiler->open.push_back({name + params->pRangeName, state->hooks->counters(profiler->context),
                            state->hooks->now_ns()});
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerPopRange(CUpti_RangeProfiler_PopRange_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!profiler->started || profiler->open.empty()) return CUPTI_ERROR_INVALID_OPERATION;
  CuptiState* state = GetState();
  if (state->hooks->current_context() != profiler->context) return CUPTI_ERROR_INVALID_CONTEXT;
  state->hooks->drain(profiler->context);
  uint64_t end_ns = state->hooks->now_ns();
  OpenRange range = std::move(profiler->open.back());
  profiler->open.pop_back();
  // One nesting level is collected per round.
  if (profiler->open.size() + 1 == profiler->level()) {
    Counters counters = state->hooks->counters(profiler->context);
    counters.Add(range.begin, -1);
    // A user range is longer than what it holds: NVIDIA's developer forum, 353002.
    const uint64_t extra_ns = state->config->cupti_range_extra_ns;
    Collect(profiler, profiler->pass(), std::move(range.name), counters,
            static_cast<double>(end_ns - range.begin_ns + extra_ns));
  }
  state->hooks->overhead_ns(state->config->cupti_range_ns);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerDecodeData(CUpti_RangeProfiler_DecodeData_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!profiler->configured) return CUPTI_ERROR_INVALID_OPERATION;
  // "Adds a CUDA context synchronization before decoding": user guide 2.9.2.
  usleep(static_cast<useconds_t>(GetState()->config->cupti_decode_us));
  if (!GetState()->hooks->synchronize_context(profiler->context)) return CUPTI_ERROR_UNKNOWN;
  CounterData image;
  if (!image.Open(profiler->image, profiler->image_bytes)) return CUPTI_ERROR_INVALID_PARAMETER;
  size_t dropped = profiler->dropped;
  for (const Collected& range : profiler->collected) {
    // The first pass names the ranges; a later pass must bring the same names in the same order.
    size_t& first = profiler->first_range[range.level - profiler->min_level];
    size_t index = first + range.ordinal;
    if (range.pass == 0) {
      index = image.header->ranges;
      if (range.ordinal == 0) first = index;
      if (index == image.header->max_ranges || GetState()->config->cupti_drop_ranges) {
        ++dropped;
        continue;
      }
      SetName(range.name, &image.ranges[index]);
      ++image.header->ranges;
    } else if (index >= image.header->ranges || range.name != image.ranges[index].text) {
      ++dropped;
      continue;
    }
    for (size_t i = 0; i < profiler->metrics.size(); ++i) {
      const uint64_t bits = profiler->schedule.pass_bits[i];
      if (((bits >> range.pass) & 1) == 0) continue;
      MetricSlot& slot = image.At(index, image.Find(profiler->metrics[i]));
      slot.passes_needed = static_cast<uint64_t>(std::popcount(bits));
      slot.passes_seen += 1;
      const double share = 1 / static_cast<double>(slot.passes_needed);
      slot.data.counters.Add(range.data.counters, share);
      slot.data.duration_ns += range.data.duration_ns * share;
      slot.data.noise_seed = range.data.noise_seed;
    }
  }
  profiler->collected.clear();
  profiler->dropped = 0;
  params->numOfRangeDropped = dropped;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr || params->pMetricNames == nullptr || params->numMetrics == 0 ||
      params->maxNumOfRanges == 0 || params->maxNumRangeTreeNodes < params->maxNumOfRanges) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  const std::string& chip = GetState()->config->chip;
  profiler->image_metrics.assign(params->pMetricNames, params->pMetricNames + params->numMetrics);
  for (const std::string& name : profiler->image_metrics) {
    if (FindMetric(chip, name) == nullptr) return CUPTI_ERROR_INVALID_METRIC_NAME;
  }
  params->counterDataSize = CounterData::Bytes(params->numMetrics, params->maxNumOfRanges);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerCounterDataImageInitialize(
    CUpti_RangeProfiler_CounterDataImage_Initialize_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr || params->pCounterData == nullptr || profiler->image_metrics.empty()) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  // The metrics are those of the last GetCounterDataSize; as many ranges as fit the bytes.
  return InitializeCounterData(profiler->image_metrics, params->pCounterData,
                               params->counterDataSize);
}

CUptiResult CUPTIAPI
cuptiRangeProfilerGetCounterDataInfo(CUpti_RangeProfiler_GetCounterDataInfo_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_GetCounterDataInfo_Params_STRUCT_SIZE);
  CounterData image;
  if (!image.Open(params->pCounterDataImage, params->counterDataImageSize)) {
    return CUPTI_ERROR_NOT_INITIALIZED;  // what the real library says to garbage
  }
  params->numTotalRanges = image.header->ranges;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerCounterDataGetRangeInfo(
    CUpti_RangeProfiler_CounterData_GetRangeInfo_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params_STRUCT_SIZE);
  CounterData image;
  if (!image.Open(params->pCounterDataImage, params->counterDataImageSize)) {
    return CUPTI_ERROR_NOT_INITIALIZED;
  }
  if (params->rangeIndex >= image.header->ranges) return CUPTI_ERROR_INVALID_PARAMETER;
  params->rangeName = image.ranges[params->rangeIndex].text;
  return CUPTI_SUCCESS;
}

// --- Host side -----------------------------------------------------------------------------------

CUptiResult CUPTIAPI
cuptiProfilerHostGetSupportedChips(CUpti_Profiler_Host_GetSupportedChips_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetSupportedChips_Params_STRUCT_SIZE);
  params->numChips = Chips().size();
  params->ppChipNames = Chips().data();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerHostInitialize(CUpti_Profiler_Host_Initialize_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE);
  if (params->pChipName == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!KnownChip(params->pChipName)) return CUPTI_ERROR_INVALID_CHIP_NAME;
  const bool sampled = params->profilerType == CUPTI_PROFILER_TYPE_PM_SAMPLING;
  if (sampled && !HasPmSampling(params->pChipName)) return CUPTI_ERROR_NOT_SUPPORTED;
  Availability availability;
  if (params->pCounterAvailabilityImage != nullptr) {
    memcpy(&availability, params->pCounterAvailabilityImage, sizeof(availability));
    if (availability.magic != kAvailabilityMagic) return CUPTI_ERROR_INVALID_PARAMETER;
  }
  auto* host = new HostObject;
  host->chip = params->pChipName;
  host->sampled = sampled;
  host->device_level = availability.device_level != 0;
  params->pHostObject = reinterpret_cast<CUpti_Profiler_Host_Object*>(host);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE);
  delete Host(params->pHostObject);
  params->pHostObject = nullptr;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostGetBaseMetrics(CUpti_Profiler_Host_GetBaseMetrics_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetBaseMetrics_Params_STRUCT_SIZE);
  HostObject* host = Host(params->pHostObject);
  if (host == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  std::vector<std::string> names;
  for (const BaseMetric* base : BaseMetrics(host->chip)) {
    if (static_cast<int>(base->kind) == static_cast<int>(params->metricType)) {
      names.push_back(base->name);
    }
  }
  params->numMetrics = names.size();
  params->ppMetricNames = host->Keep(std::move(names));
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostGetSubMetrics(CUpti_Profiler_Host_GetSubMetrics_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetSubMetrics_Params_STRUCT_SIZE);
  HostObject* host = Host(params->pHostObject);
  if (host == nullptr || params->pMetricName == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  std::vector<std::string> names = Submetrics(static_cast<MetricKind>(params->metricType));
  params->numOfSubmetrics = names.size();
  params->ppSubMetrics = host->Keep(std::move(names));
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostGetMetricProperties(CUpti_Profiler_Host_GetMetricProperties_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetMetricProperties_Params_STRUCT_SIZE);
  HostObject* host = Host(params->pHostObject);
  if (host == nullptr || params->pMetricName == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const BaseMetric* found = nullptr;
  for (const BaseMetric* base : BaseMetrics(host->chip)) {
    if (std::string_view(base->name) == params->pMetricName) found = base;
  }
  if (found == nullptr) found = FindMetric(host->chip, params->pMetricName);
  if (found == nullptr) return CUPTI_ERROR_INVALID_METRIC_NAME;
  params->pDescription = found->name;
  params->pHwUnit = "software gpu";
  params->pDimUnit = found->unit;
  params->metricType = static_cast<CUpti_MetricType>(found->kind);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostConfigAddMetrics(CUpti_Profiler_Host_ConfigAddMetrics_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE);
  HostObject* host = Host(params->pHostObject);
  if (host == nullptr || params->ppMetricNames == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  MetricGroup added;
  for (size_t i = 0; i < params->numMetrics; ++i) {
    const char* name = params->ppMetricNames[i];
    const BaseMetric* base = name == nullptr ? nullptr : FindMetric(host->chip, name);
    // A metric that the image lacks is refused like one that the chip lacks. Which result the
    // real library gives is not public.
    if (base == nullptr || (host->sampled && PmPasses(*base) == 0) ||
        (base->device_level && !host->device_level)) {
      host->broken = true;
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    // Naming a metric again changes nothing.
    if (!host->Has(name) && std::find(added.begin(), added.end(), name) == added.end()) {
      added.push_back(name);
    }
  }
  bool device_level = false;
  bool context_level = false;
  auto look_at = [&](const MetricGroup& group) {
    for (const std::string& name : group) {
      const BaseMetric* base = FindMetric(host->chip, name);
      if (!CountedWithEither(*base)) (base->device_level ? device_level : context_level) = true;
    }
  };
  look_at(added);
  for (const MetricGroup& group : host->groups) look_at(group);
  if (device_level && context_level && !host->sampled) return CUPTI_ERROR_NOT_SUPPORTED;
  if (!added.empty()) host->groups.push_back(std::move(added));
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostGetConfigImageSize(CUpti_Profiler_Host_GetConfigImageSize_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE);
  HostObject* host = Host(params->pHostObject);
  if (host == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (host->broken || host->groups.empty()) return CUPTI_ERROR_UNKNOWN;
  params->configImageSize = sizeof(ConfigHeader) + host->MetricCount() * sizeof(ConfigMetric);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE);
  HostObject* host = Host(params->pHostObject);
  if (host == nullptr || params->pConfigImage == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (host->broken || host->groups.empty()) return CUPTI_ERROR_UNKNOWN;
  if (params->configImageSize < sizeof(ConfigHeader) + host->MetricCount() * sizeof(ConfigMetric)) {
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }
  ConfigHeader header{};
  header.magic = kConfigMagic;
  header.sampled = host->sampled ? 1 : 0;
  SetName(host->chip, &header.chip);
  header.metrics = host->MetricCount();
  memcpy(params->pConfigImage, &header, sizeof(header));
  uint8_t* next = params->pConfigImage + sizeof(header);
  for (size_t group = 0; group < host->groups.size(); ++group) {
    for (const std::string& name : host->groups[group]) {
      ConfigMetric metric{};
      SetName(name, &metric.name);
      metric.group = group;
      memcpy(next, &metric, sizeof(metric));
      next += sizeof(metric);
    }
  }
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE);
  std::string chip;
  std::vector<MetricGroup> groups;
  if (ReadConfig(params->pConfigImage, params->configImageSize, /*sampled=*/true, &chip, &groups)) {
    params->numOfPasses = PlanPmPasses(chip, groups);
    return CUPTI_SUCCESS;
  }
  groups.clear();
  if (!ReadConfig(params->pConfigImage, params->configImageSize, /*sampled=*/false, &chip,
                  &groups)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  params->numOfPasses = PlanPasses(chip, groups).passes;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerHostGetMaxNumHardwareMetricsPerPass(
    CUpti_Profiler_Host_GetMaxNumHardwareMetricsPerPass_Params* params) {
  SWGPU_CHECK_PARAMS(params,
                     CUpti_Profiler_Host_GetMaxNumHardwareMetricsPerPass_Params_STRUCT_SIZE);
  if (params->pChipName == nullptr || !KnownChip(params->pChipName)) {
    return CUPTI_ERROR_INVALID_CHIP_NAME;
  }
  constexpr size_t kRange = 88;
  constexpr size_t kPmSampling = 248;
  params->maxMetricsPerPass =
      params->profilerType == CUPTI_PROFILER_TYPE_RANGE_PROFILER ? kRange : kPmSampling;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostGetRangeName(CUpti_Profiler_Host_GetRangeName_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetRangeName_Params_STRUCT_SIZE);
  CounterData image;
  if (!image.Open(params->pCounterDataImage, params->counterDataImageSize) ||
      params->rangeIndex >= image.header->ranges) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  params->pRangeName = image.ranges[params->rangeIndex].text;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params* params) {
  SWGPU_MAY_FAIL();
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE);
  CounterData image;
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (params->pHostObject == nullptr || params->ppMetricNames == nullptr ||
      params->pMetricValues == nullptr ||
      !image.Open(params->pCounterDataImage, params->counterDataImageSize) ||
      params->rangeIndex >= image.header->ranges) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  for (size_t i = 0; i < params->numMetrics; ++i) {
    const uint64_t metric = image.Find(params->ppMetricNames[i]);
    if (metric == image.header->metrics) return CUPTI_ERROR_INVALID_METRIC_NAME;
    const MetricSlot& slot = image.At(params->rangeIndex, metric);
    const bool complete = slot.passes_needed > 0 && slot.passes_seen == slot.passes_needed;
    params->pMetricValues[i] = complete
                                   ? Evaluate(*state->config, params->ppMetricNames[i], slot.data)
                                   : std::numeric_limits<double>::quiet_NaN();
  }
  return CUPTI_SUCCESS;
}

}  // extern "C"
