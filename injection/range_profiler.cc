#include "injection/range_profiler.h"

namespace seqpoint::inject {
namespace {

constexpr char kRangeName[] = "iteration";

}  // namespace

uint32_t RangeProfiler::Probe(CUcontext context, uint32_t, uint8_t* image, size_t* bytes) {
  CUpti_Profiler_GetCounterAvailability_Params available = {};
  available.structSize = CUpti_Profiler_GetCounterAvailability_Params_STRUCT_SIZE;
  available.ctx = context;
  available.counterAvailabilityImageSize = *bytes;
  available.pCounterAvailabilityImage = image;
  const uint32_t result = cupti_->ProfilerGetCounterAvailability(&available);
  if (result != CUPTI_SUCCESS) return Fail("cuptiProfilerGetCounterAvailability", result);
  *bytes = available.counterAvailabilityImageSize;
  return CUPTI_SUCCESS;
}

uint32_t RangeProfiler::Open(CUcontext context, CounterConfig* config, uint64_t) {
  uint32_t result = EnableFor(context);
  if (result == CUPTI_SUCCESS) result = StartRange(config);
  if (result != CUPTI_SUCCESS) Disable();
  return result;
}

uint32_t RangeProfiler::EnableFor(CUcontext context) {
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

uint32_t RangeProfiler::StartRange(CounterConfig* config) {
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

uint32_t RangeProfiler::Close() {
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
  if (result != 0) Disable();  // the next range begins with a profiler that is not half open
  return result;
}

void RangeProfiler::Disable() {
  if (object_ == nullptr) return;
  CUpti_RangeProfiler_Disable_Params disable = {};
  disable.structSize = CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE;
  disable.pRangeProfilerObject = object_;
  cupti_->RangeProfilerDisable(&disable);
  object_ = nullptr;
  context_ = nullptr;
}

bool RangeProfiler::Decode(CounterConfig* config, double* values, uint32_t* status) {
  *status = DecodeRange(config, values);
  return true;
}

uint32_t RangeProfiler::DecodeRange(CounterConfig* config, double* values) {
  CUpti_RangeProfiler_DecodeData_Params decode = {};
  decode.structSize = CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE;
  decode.pRangeProfilerObject = object_;
  uint32_t result = cupti_->RangeProfilerDecodeData(&decode);
  if (result != CUPTI_SUCCESS) return Fail("cuptiRangeProfilerDecodeData", result);
  if (decode.numOfRangeDropped != 0) return RangeLost();

  CUpti_RangeProfiler_GetCounterDataInfo_Params info = {};
  info.structSize = CUpti_RangeProfiler_GetCounterDataInfo_Params_STRUCT_SIZE;
  info.pCounterDataImage = counter_image_;
  info.counterDataImageSize = config->counter_bytes;
  result = cupti_->RangeProfilerGetCounterDataInfo(&info);
  if (result != CUPTI_SUCCESS) return Fail("cuptiRangeProfilerGetCounterDataInfo", result);
  if (info.numTotalRanges != 1) return RangeLost();

  CUpti_Profiler_Host_EvaluateToGpuValues_Params evaluate = {};
  evaluate.structSize = CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE;
  evaluate.pHostObject = config->host;
  evaluate.pCounterDataImage = counter_image_;
  evaluate.counterDataImageSize = config->counter_bytes;
  evaluate.rangeIndex = 0;
  evaluate.ppMetricNames = config->names;
  evaluate.numMetrics = config->count;
  evaluate.pMetricValues = values;
  result = cupti_->ProfilerHostEvaluateToGpuValues(&evaluate);
  return result == CUPTI_SUCCESS ? 0 : Fail("cuptiProfilerHostEvaluateToGpuValues", result);
}

uint32_t RangeProfiler::RangeLost() {
  features_->Report(abi::Feature::kCounters, abi::FeatureState::kFailed, 0,
                    "CUPTI lost the range of a measured iteration; its counters are missing");
  return abi::kCountersRangeDropped;
}

}  // namespace seqpoint::inject
