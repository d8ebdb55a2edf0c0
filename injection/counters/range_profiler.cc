#include "injection/counters/range_profiler.h"

#include <stddef.h>

#include "injection/counters/cupti_params.h"

namespace seqpoint::inject {
namespace {

// From this version on, availability images have the metrics of the whole device when asked.
constexpr uint32_t kDeviceLevelFlagVersion = 130100;
// CUpti_Profiler_GetCounterAvailability_Params as of CUDA 13.1 (its API reference). Earlier ones
// lack the last member.
struct AvailabilityParamsOf13Point1 {
  size_t structSize;
  void* pPriv;
  CUcontext ctx;
  size_t counterAvailabilityImageSize;
  uint8_t* pCounterAvailabilityImage;
  bool bAllowDeviceLevelCounters;
};

}  // namespace

uint32_t RangeProfiler::Probe(CUcontext context, uint32_t, uint8_t* image, size_t* bytes) {
  AvailabilityParamsOf13Point1 available = {};
  available.structSize = cupti_->version < kDeviceLevelFlagVersion
                             ? CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE
                             : offsetof(AvailabilityParamsOf13Point1, bAllowDeviceLevelCounters) +
                                   sizeof(available.bAllowDeviceLevelCounters);
  available.ctx = context;
  available.counterAvailabilityImageSize = *bytes;
  available.pCounterAvailabilityImage = image;
  available.bAllowDeviceLevelCounters = true;
  SEQPOINT_CALL_OR_RETURN(
      ProfilerGetCounterAvailability,
      reinterpret_cast<CUpti_Profiler_GetCounterAvailability_Params*>(&available));
  *bytes = available.counterAvailabilityImageSize;
  return CUPTI_SUCCESS;
}

bool RangeProfiler::ImageHasDevice() const { return cupti_->version >= kDeviceLevelFlagVersion; }

uint32_t RangeProfiler::Open(CUcontext context, CounterConfig* config, uint64_t) {
  if (object_ == nullptr) {
    SEQPOINT_PARAMS(RangeProfiler_Enable, enable);
    enable.ctx = context;
    SEQPOINT_CALL_OR_RETURN(RangeProfilerEnable, &enable);
    object_ = enable.pRangeProfilerObject;
    context_ = context;
  }
  const uint32_t result = StartRange(config);
  if (result != CUPTI_SUCCESS) Disable();
  return result;
}

// As many ranges as find room, of kernels; else one.
uint32_t RangeProfiler::FitImage(CounterConfig* config) {
  for (size_t ranges = config->kernels ? KernelRanges::kMaxRanges : 1; ranges > 0; ranges /= 2) {
    // The profiler remembers the metrics of the last question for a size; the image is made for
    // them.
    SEQPOINT_OBJECT_PARAMS(RangeProfiler, GetCounterDataSize, size);
    size.pMetricNames = config->names;
    size.numMetrics = config->count;
    size.maxNumOfRanges = ranges;
    size.maxNumRangeTreeNodes = static_cast<uint32_t>(ranges);
    SEQPOINT_CALL_OR_RETURN(RangeProfilerGetCounterDataSize, &size);
    config->counter_bytes = size.counterDataSize;
    if (size.counterDataSize > kCounterImageBytes) continue;
    config->max_ranges = static_cast<uint32_t>(ranges);
    return CUPTI_SUCCESS;
  }
  features_->Report(abi::Feature::kCounters, abi::FeatureState::kFailed, 0,
                    "configuration %u needs a counter data image of %zu bytes, more than %zu; "
                    "split its metrics",
                    config->wanted.config_id, config->counter_bytes, kCounterImageBytes);
  return CUPTI_ERROR_OUT_OF_MEMORY;
}

uint32_t RangeProfiler::StartRange(CounterConfig* config) {
  uint32_t result = FitImage(config);
  if (result != CUPTI_SUCCESS) return result;
  SEQPOINT_OBJECT_PARAMS(RangeProfiler, CounterDataImage_Initialize, image);
  image.counterDataSize = config->counter_bytes;
  image.pCounterData = counter_image_;
  SEQPOINT_CALL_OR_RETURN(RangeProfilerCounterDataImageInitialize, &image);

  SEQPOINT_OBJECT_PARAMS(RangeProfiler, SetConfig, set);
  set.configSize = config->image_bytes;
  set.pConfig = config->image;
  set.counterDataImageSize = config->counter_bytes;
  set.pCounterDataImage = counter_image_;
  set.range = config->kernels ? CUPTI_AutoRange : CUPTI_UserRange;
  set.replayMode = CUPTI_UserReplay;
  set.maxRangesPerPass = config->max_ranges;
  set.numNestingLevels = 1;
  set.minNestingLevel = 1;
  set.passIndex = 0;
  set.targetNestingLevel = 1;
  SEQPOINT_CALL_OR_RETURN(RangeProfilerSetConfig, &set);

  SEQPOINT_OBJECT_PARAMS(RangeProfiler, Start, start);
  SEQPOINT_CALL_OR_RETURN(RangeProfilerStart, &start);
  pushed_ = !config->kernels;
  if (!pushed_) return CUPTI_SUCCESS;

  SEQPOINT_OBJECT_PARAMS(RangeProfiler, PushRange, push);
  push.pRangeName = "iteration";
  SEQPOINT_CALL_OR_RETURN(RangeProfilerPushRange, &push);
  return CUPTI_SUCCESS;
}

uint32_t RangeProfiler::Close() {
  SEQPOINT_OBJECT_PARAMS(RangeProfiler, PopRange, pop);
  const uint32_t popped = pushed_ ? cupti_->RangeProfilerPopRange(&pop) : CUPTI_SUCCESS;
  SEQPOINT_OBJECT_PARAMS(RangeProfiler, Stop, stop);
  const uint32_t stopped = cupti_->RangeProfilerStop(&stop);
  if (popped == CUPTI_SUCCESS && stopped == CUPTI_SUCCESS) return 0;
  Disable();  // the next range begins with a profiler that is not half open
  return popped != CUPTI_SUCCESS ? Fail("cuptiRangeProfilerPopRange", popped)
                                 : Fail("cuptiRangeProfilerStop", stopped);
}

void RangeProfiler::Disable() {
  if (object_ == nullptr) return;
  SEQPOINT_OBJECT_PARAMS(RangeProfiler, Disable, disable);
  cupti_->RangeProfilerDisable(&disable);
  Forget();
}

bool RangeProfiler::Decode(CounterConfig* config, double* values, uint32_t* status) {
  size_t ranges = 0, dropped = 0;
  *status = ReadRanges(config, &ranges, &dropped);
  if (*status == 0 && (dropped != 0 || ranges != 1)) {
    features_->Report(abi::Feature::kCounters, abi::FeatureState::kFailed, 0,
                      "CUPTI lost the range of a measured iteration; its counters are missing");
    *status = abi::kCountersRangeDropped;
  }
  if (*status == 0) *status = Evaluate(*config, 0, values);
  if (*status == 0) *status = CheckNumbers(*config, values);
  return true;
}

uint32_t RangeProfiler::ReadRanges(CounterConfig* config, size_t* ranges, size_t* dropped) {
  SEQPOINT_OBJECT_PARAMS(RangeProfiler, DecodeData, decode);
  SEQPOINT_CALL_OR_RETURN(RangeProfilerDecodeData, &decode);
  *dropped = decode.numOfRangeDropped;

  SEQPOINT_PARAMS(RangeProfiler_GetCounterDataInfo, info);
  info.pCounterDataImage = counter_image_;
  info.counterDataImageSize = config->counter_bytes;
  SEQPOINT_CALL_OR_RETURN(RangeProfilerGetCounterDataInfo, &info);
  *ranges = info.numTotalRanges;
  return 0;
}

uint32_t RangeProfiler::DecodeKernels(CounterConfig* config, KernelRanges* kernels,
                                      uint32_t* missing) {
  expired_.store(false, std::memory_order_relaxed);
  size_t ranges = 0, dropped = 0;
  uint32_t result = ReadRanges(config, &ranges, &dropped);
  if (result != 0) return result;
  // CUPTI tells ranges by their number alone.
  if (ranges + dropped != kernels->launches() || ranges > config->max_ranges) {
    features_->Report(abi::Feature::kRoofline, abi::FeatureState::kFailed, 0,
                      "a measured iteration launched %u kernels and CUPTI measured %zu: which "
                      "values are whose is not certain, and they are not used",
                      kernels->launches(), ranges + dropped);
    return abi::kCountersAmbiguous;
  }
  if (dropped != 0) {
    features_->Report(abi::Feature::kRoofline, abi::FeatureState::kReady, 0,
                      "only the first %zu kernels of an iteration are measured: for the others "
                      "there is no room",
                      ranges);
  }
  *missing = static_cast<uint32_t>(dropped);
  kernels->ClearSums();
  double values[kMaxMetrics] = {};
  for (size_t range = 0; range < ranges; ++range) {
    // The context is going, and waits for this.
    if (expired_.load(std::memory_order_relaxed)) return abi::kCountersAborted;
    result = Evaluate(*config, range, values);
    if (result == 0) result = CheckNumbers(*config, values);
    if (result != 0) return result;
    kernels->Add(static_cast<uint32_t>(range), values, config->count);
  }
  return 0;
}

}  // namespace seqpoint::inject
