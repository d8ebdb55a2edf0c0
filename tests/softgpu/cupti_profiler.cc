// Range Profiler and Profiler Host API of the software libcupti.
//
// Counters come from the model's cumulative totals: a range is the difference between its push and
// its pop, in submission order, with the context drained at both. Configuration and counter data
// images are this library's own formats; a caller may copy them as bytes.

#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/softgpu/cupti_state.h"
#include "tests/softgpu/metrics.h"

namespace {

using namespace seqpoint::softgpu;

constexpr uint64_t kConfigMagic = 0x31474643'55504753;        // "SGPUCFG1"
constexpr uint64_t kCounterDataMagic = 0x31544144'55504753;   // "SGPUDAT1"
constexpr uint64_t kAvailabilityMagic = 0x314c5641'55504753;  // "SGPUAVL1"
constexpr size_t kNameBytes = 128;
constexpr size_t kAvailabilityBytes = 64;
constexpr size_t kMaxMetrics = 4096;

struct Name {
  char text[kNameBytes];
};

struct ConfigHeader {
  uint64_t magic;
  Name chip;
  uint64_t metrics;  // followed by as many names
};

struct CounterDataHeader {
  uint64_t magic;
  Name chip;
  uint64_t metrics;
  uint64_t passes;
  uint64_t max_ranges;
  uint64_t ranges;
  // Followed by names of metrics, RangeEntry x max_ranges, PassData x max_ranges x passes.
};

struct RangeEntry {
  Name name;
  uint64_t passes_done;  // a bit per pass
};

bool SetName(std::string_view text, Name* name) {
  if (text.size() >= kNameBytes) return false;
  memset(name, 0, sizeof(*name));
  memcpy(name->text, text.data(), text.size());
  return true;
}

// A view of a counter data image; null pointers when the bytes are none.
struct CounterData {
  CounterDataHeader* header = nullptr;
  Name* metrics = nullptr;
  RangeEntry* ranges = nullptr;
  PassData* data = nullptr;

  static size_t Bytes(uint64_t metrics, uint64_t passes, uint64_t max_ranges) {
    return sizeof(CounterDataHeader) + metrics * sizeof(Name) +
           max_ranges * (sizeof(RangeEntry) + passes * sizeof(PassData));
  }

  // False: the bytes are no (complete) image.
  bool Open(const uint8_t* image, size_t bytes) {
    if (image == nullptr || bytes < sizeof(CounterDataHeader)) return false;
    auto* h = reinterpret_cast<CounterDataHeader*>(const_cast<uint8_t*>(image));
    if (h->magic != kCounterDataMagic || bytes < Bytes(h->metrics, h->passes, h->max_ranges)) {
      return false;
    }
    header = h;
    metrics = reinterpret_cast<Name*>(header + 1);
    ranges = reinterpret_cast<RangeEntry*>(metrics + header->metrics);
    data = reinterpret_cast<PassData*>(ranges + header->max_ranges);
    return true;
  }

  PassData& At(uint64_t range, uint64_t pass) { return data[range * header->passes + pass]; }

  std::vector<std::string> MetricNames() const {
    std::vector<std::string> names;
    for (uint64_t i = 0; i < header->metrics; ++i) names.push_back(metrics[i].text);
    return names;
  }
};

bool ReadConfig(const uint8_t* image, size_t bytes, std::string* chip,
                std::vector<std::string>* metrics) {
  if (image == nullptr || bytes < sizeof(ConfigHeader)) return false;
  ConfigHeader header;
  memcpy(&header, image, sizeof(header));
  if (header.magic != kConfigMagic || header.metrics > kMaxMetrics ||
      bytes < sizeof(header) + header.metrics * sizeof(Name)) {
    return false;
  }
  *chip = header.chip.text;
  for (uint64_t i = 0; i < header.metrics; ++i) {
    Name name;
    memcpy(&name, image + sizeof(header) + i * sizeof(Name), sizeof(name));
    metrics->push_back(name.text);
  }
  return true;
}

struct HostObject {
  std::string chip;
  std::vector<std::string> metrics;
  bool broken = false;  // an unknown metric was added
  // What Get* calls returned; the caller reads it until the object goes.
  std::vector<std::unique_ptr<std::vector<std::string>>> strings;
  std::vector<std::unique_ptr<std::vector<const char*>>> lists;

  const char** Keep(std::vector<std::string> values) {
    strings.push_back(std::make_unique<std::vector<std::string>>(std::move(values)));
    auto list = std::make_unique<std::vector<const char*>>();
    for (const std::string& value : *strings.back()) list->push_back(value.c_str());
    lists.push_back(std::move(list));
    return lists.back()->data();
  }
};

HostObject* Host(CUpti_Profiler_Host_Object* object) {
  return reinterpret_cast<HostObject*>(object);
}

// One measured range of one pass, waiting to be decoded.
struct Collected {
  std::string name;
  uint32_t pass;
  size_t ordinal;  // number of the range within its pass
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
  std::string chip;
  std::vector<std::string> metrics;
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
  size_t dropped = 0;
  std::vector<OpenRange> open;
  std::vector<KernelSample> samples;
  std::vector<Collected> collected;

  uint32_t pass() const { return round % schedule.passes; }
  uint32_t level() const { return min_level + round / schedule.passes; }
};

std::mutex g_mutex;  // guards everything below and every RangeProfiler
int g_initialized = 0;
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
  profiler->collected.push_back(
      {std::move(name), pass, profiler->ranges_in_pass++, {counters, duration_ns, seed}});
}

}  // namespace

extern "C" {

CUptiResult CUPTIAPI cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Initialize_Params_STRUCT_SIZE);
  CuptiState* state = GetState();
  if (state == nullptr || state->failed) return CUPTI_ERROR_UNKNOWN;
  std::lock_guard lock(g_mutex);
  ++g_initialized;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerDeInitialize(CUpti_Profiler_DeInitialize_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_DeInitialize_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  if (g_initialized == 0) return CUPTI_ERROR_NOT_INITIALIZED;
  --g_initialized;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerDeviceSupported(CUpti_Profiler_DeviceSupported_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE);
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  const bool yes = params->api == CUPTI_PROFILER_RANGE_PROFILING &&
                   state->config->compute_major * 10 + state->config->compute_minor >= 75;
  params->architecture =
      yes ? CUPTI_PROFILER_CONFIGURATION_SUPPORTED : CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED;
  params->isSupported = params->architecture;
  params->sli = params->vGpu = params->confidentialCompute = params->cmp = params->wsl =
      CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Device_GetChipName_Params_STRUCT_SIZE);
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (params->deviceIndex >= state->config->gpu_count) return CUPTI_ERROR_INVALID_DEVICE;
  params->pChipName = state->config->chip.c_str();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerGetCounterAvailability(CUpti_Profiler_GetCounterAvailability_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE);
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (state->config->cupti_no_privileges) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  if (params->pCounterAvailabilityImage == nullptr) {
    params->counterAvailabilityImageSize = kAvailabilityBytes;
    return CUPTI_SUCCESS;
  }
  if (params->counterAvailabilityImageSize < kAvailabilityBytes) {
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }
  memset(params->pCounterAvailabilityImage, 0, kAvailabilityBytes);
  memcpy(params->pCounterAvailabilityImage, &kAvailabilityMagic, sizeof(kAvailabilityMagic));
  return CUPTI_SUCCESS;
}

// --- Target side ---------------------------------------------------------------------------------

CUptiResult CUPTIAPI cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  if (g_initialized == 0) {
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
  auto* profiler = new RangeProfiler;
  profiler->context = context;
  g_profilers.insert(profiler);
  params->pRangeProfilerObject = reinterpret_cast<CUpti_RangeProfiler_Object*>(profiler);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  GetState()->hooks->sample_kernels(profiler->context, nullptr, 1);
  g_profilers.erase(profiler);
  delete profiler;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerSetConfig(CUpti_RangeProfiler_SetConfig_Params* params) {
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
  std::vector<std::string> metrics;
  CounterData image;
  if (!ReadConfig(params->pConfig, params->configSize, &chip, &metrics) ||
      !image.Open(params->pCounterDataImage, params->counterDataImageSize) ||
      image.MetricNames() != metrics || params->range <= CUPTI_Range_INVALID ||
      params->range >= CUPTI_Range_COUNT || params->replayMode <= CUPTI_Replay_INVALID ||
      params->replayMode >= CUPTI_Replay_COUNT || params->maxRangesPerPass == 0 ||
      params->numNestingLevels == 0 || params->minNestingLevel == 0) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  profiler->configured = true;
  profiler->schedule = PlanPasses(chip, metrics);
  profiler->chip = chip;
  profiler->metrics = std::move(metrics);
  profiler->image = params->pCounterDataImage;
  profiler->image_bytes = params->counterDataImageSize;
  profiler->range = params->range;
  profiler->replay = params->replayMode;
  profiler->max_ranges_per_pass = params->maxRangesPerPass;
  profiler->levels = params->numNestingLevels;
  profiler->min_level = params->minNestingLevel;
  profiler->round = 0;
  if (params->replayMode == CUPTI_ApplicationReplay) {
    profiler->round = static_cast<uint32_t>(params->passIndex) % profiler->schedule.passes;
  }
  profiler->collected.clear();
  profiler->dropped = 0;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_Start_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  CuptiState* state = GetState();
  if (state->config->cupti_no_privileges) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  if (state->config->cupti_hardware_busy) return CUPTI_ERROR_HARDWARE_BUSY;
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
    Collect(profiler, profiler->pass(), std::move(range.name), counters,
            static_cast<double>(end_ns - range.begin_ns));
  }
  state->hooks->overhead_ns(state->config->cupti_range_ns);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerDecodeData(CUpti_RangeProfiler_DecodeData_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!profiler->configured) return CUPTI_ERROR_INVALID_OPERATION;
  CounterData image;
  if (!image.Open(profiler->image, profiler->image_bytes)) return CUPTI_ERROR_INVALID_PARAMETER;
  size_t dropped = profiler->dropped;
  for (const Collected& range : profiler->collected) {
    // The first pass names the ranges; a later pass must bring the same names in the same order.
    if (range.pass == 0) {
      if (image.header->ranges == image.header->max_ranges) {
        ++dropped;
        continue;
      }
      RangeEntry& entry = image.ranges[image.header->ranges];
      SetName(range.name, &entry.name);
      entry.passes_done = 1;
      image.At(image.header->ranges++, 0) = range.data;
      continue;
    }
    if (range.ordinal >= image.header->ranges ||
        range.name != image.ranges[range.ordinal].name.text) {
      ++dropped;
      continue;
    }
    image.ranges[range.ordinal].passes_done |= 1ull << range.pass;
    image.At(range.ordinal, range.pass) = range.data;
  }
  profiler->collected.clear();
  profiler->dropped = 0;
  params->numOfRangeDropped = dropped;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr || params->pMetricNames == nullptr || params->numMetrics == 0 ||
      params->maxNumOfRanges == 0 || params->maxNumRangeTreeNodes < params->maxNumOfRanges) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  const std::string& chip = GetState()->config->chip;
  profiler->metrics.assign(params->pMetricNames, params->pMetricNames + params->numMetrics);
  for (const std::string& name : profiler->metrics) {
    if (FindMetric(chip, name) == nullptr) return CUPTI_ERROR_INVALID_METRIC_NAME;
  }
  params->counterDataSize = CounterData::Bytes(
      params->numMetrics, PlanPasses(chip, profiler->metrics).passes, params->maxNumOfRanges);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerCounterDataImageInitialize(
    CUpti_RangeProfiler_CounterDataImage_Initialize_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE);
  std::lock_guard lock(g_mutex);
  RangeProfiler* profiler = Find(params->pRangeProfilerObject);
  if (profiler == nullptr || params->pCounterData == nullptr || profiler->metrics.empty()) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  // The metrics are those of the last GetCounterDataSize (or SetConfig); the ranges fill the rest.
  const std::string& chip = GetState()->config->chip;
  CounterDataHeader header{};
  header.magic = kCounterDataMagic;
  SetName(chip, &header.chip);
  header.metrics = profiler->metrics.size();
  header.passes = PlanPasses(chip, profiler->metrics).passes;
  const size_t base = CounterData::Bytes(header.metrics, header.passes, 0);
  const size_t per_range = CounterData::Bytes(header.metrics, header.passes, 1) - base;
  if (params->counterDataSize < base + per_range) {
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }
  header.max_ranges = (params->counterDataSize - base) / per_range;
  memset(params->pCounterData, 0, params->counterDataSize);
  memcpy(params->pCounterData, &header, sizeof(header));
  CounterData image;
  image.Open(params->pCounterData, params->counterDataSize);
  for (size_t i = 0; i < profiler->metrics.size(); ++i) {
    if (!SetName(profiler->metrics[i], &image.metrics[i])) return CUPTI_ERROR_INVALID_PARAMETER;
  }
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiRangeProfilerGetCounterDataInfo(CUpti_RangeProfiler_GetCounterDataInfo_Params* params) {
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
  params->rangeName = image.ranges[params->rangeIndex].name.text;
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
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE);
  if (params->pChipName == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (params->profilerType != CUPTI_PROFILER_TYPE_RANGE_PROFILER) return CUPTI_ERROR_NOT_SUPPORTED;
  if (!KnownChip(params->pChipName)) return CUPTI_ERROR_INVALID_CHIP_NAME;
  auto* host = new HostObject;
  host->chip = params->pChipName;
  params->pHostObject = reinterpret_cast<CUpti_Profiler_Host_Object*>(host);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params* params) {
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
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE);
  HostObject* host = Host(params->pHostObject);
  if (host == nullptr || params->ppMetricNames == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  std::vector<std::string> metrics = host->metrics;
  for (size_t i = 0; i < params->numMetrics; ++i) {
    if (params->ppMetricNames[i] == nullptr ||
        FindMetric(host->chip, params->ppMetricNames[i]) == nullptr) {
      host->broken = true;
      return CUPTI_ERROR_INVALID_PARAMETER;
    }
    // Naming a metric again changes nothing.
    if (std::find(metrics.begin(), metrics.end(), params->ppMetricNames[i]) == metrics.end()) {
      metrics.push_back(params->ppMetricNames[i]);
    }
  }
  bool device_level = false;
  bool context_level = false;
  for (const std::string& name : metrics) {
    (FindMetric(host->chip, name)->device_level ? device_level : context_level) = true;
  }
  if (device_level && context_level) return CUPTI_ERROR_NOT_SUPPORTED;
  if (metrics.size() > kMaxMetrics) return CUPTI_ERROR_OUT_OF_MEMORY;
  host->metrics = std::move(metrics);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostGetConfigImageSize(CUpti_Profiler_Host_GetConfigImageSize_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE);
  HostObject* host = Host(params->pHostObject);
  if (host == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (host->broken || host->metrics.empty()) return CUPTI_ERROR_UNKNOWN;
  params->configImageSize = sizeof(ConfigHeader) + host->metrics.size() * sizeof(Name);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE);
  HostObject* host = Host(params->pHostObject);
  if (host == nullptr || params->pConfigImage == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (host->broken || host->metrics.empty()) return CUPTI_ERROR_UNKNOWN;
  if (params->configImageSize < sizeof(ConfigHeader) + host->metrics.size() * sizeof(Name)) {
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }
  ConfigHeader header{};
  header.magic = kConfigMagic;
  SetName(host->chip, &header.chip);
  header.metrics = host->metrics.size();
  memcpy(params->pConfigImage, &header, sizeof(header));
  for (size_t i = 0; i < host->metrics.size(); ++i) {
    Name name;
    if (!SetName(host->metrics[i], &name)) return CUPTI_ERROR_INVALID_PARAMETER;
    memcpy(params->pConfigImage + sizeof(header) + i * sizeof(name), &name, sizeof(name));
  }
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params* params) {
  SWGPU_CHECK_PARAMS(params, CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE);
  std::string chip;
  std::vector<std::string> metrics;
  if (!ReadConfig(params->pConfigImage, params->configImageSize, &chip, &metrics)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  params->numOfPasses = PlanPasses(chip, metrics).passes;
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
  params->pRangeName = image.ranges[params->rangeIndex].name.text;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params* params) {
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
  const std::vector<std::string> names = image.MetricNames();
  const Schedule schedule = PlanPasses(image.header->chip.text, names);
  const uint64_t done = image.ranges[params->rangeIndex].passes_done;
  for (size_t i = 0; i < params->numMetrics; ++i) {
    auto it = std::find(names.begin(), names.end(), params->ppMetricNames[i]);
    if (it == names.end()) return CUPTI_ERROR_INVALID_METRIC_NAME;
    uint64_t needed = schedule.pass_bits[static_cast<size_t>(it - names.begin())];
    const bool any_pass = std::string_view(*it).substr(0, 18) == "gpu__time_duration";
    if (any_pass) needed &= done;
    if (needed == 0 || (needed & done) != needed) {
      params->pMetricValues[i] = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    // A metric of several passes mixes what each of them saw.
    double sum = 0;
    int passes = 0;
    for (uint64_t pass = 0; pass < image.header->passes; ++pass) {
      if (((needed >> pass) & 1) == 0) continue;
      sum += Evaluate(*state->config, *it, image.At(params->rangeIndex, pass));
      ++passes;
    }
    params->pMetricValues[i] = sum / passes;
  }
  return CUPTI_SUCCESS;
}

}  // extern "C"
