#include "tests/gpu/probes/range_profiler.h"

#include <dlfcn.h>

#include <cmath>
#include <utility>

#include "tests/gpu/probes/probe.h"

namespace seqpoint::probe {

std::string ChipName() {
  // Without it CUPTI 13.0 reads a null pointer.
  auto initialize = PARAMS(CUpti_Profiler_Initialize_Params);
  CUPTI(cuptiProfilerInitialize(&initialize));
  auto params = PARAMS(CUpti_Device_GetChipName_Params);
  CUPTI(cuptiDeviceGetChipName(&params));
  return params.pChipName;
}

namespace {

// CUPTI opens its host library by its bare name, which is found in a toolkit's folder on
// LD_LIBRARY_PATH and not in a Python package's.
void LoadHostLibrary() {
  Dl_info cupti;
  if (dladdr(reinterpret_cast<void*>(cuptiGetVersion), &cupti) == 0) return;
  const std::string path = cupti.dli_fname;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return;
  for (const char* name : {"/libnvperf_host.so", "/libnvperf_target.so"}) {
    dlopen((path.substr(0, slash) + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  }
}

CUptiResult AskAvailability(std::vector<uint8_t>* image) {
  LoadHostLibrary();
  auto init = PARAMS(CUpti_Profiler_Initialize_Params);
  CUptiResult result = cuptiProfilerInitialize(&init);
  if (result != CUPTI_SUCCESS) return result;
  auto params = PARAMS(CUpti_Profiler_GetCounterAvailability_Params);
  result = cuptiProfilerGetCounterAvailability(&params);
  if (result != CUPTI_SUCCESS) return result;
  image->resize(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image->data();
  return cuptiProfilerGetCounterAvailability(&params);
}

}  // namespace

CUptiResult CounterAvailability(std::vector<uint8_t>* image) {
  static std::vector<uint8_t> answer;
  static const CUptiResult result = AskAvailability(&answer);
  *image = answer;
  return result;
}

MetricConfig::MetricConfig(std::vector<std::string> metrics, CUpti_ProfilerType type,
                           std::vector<uint8_t> available)
    : metrics_(std::move(metrics)) {
  if (available.empty()) {
    CheckCupti(CounterAvailability(&available), "cuptiProfilerGetCounterAvailability");
  }
  std::string call;
  const CUptiResult result = Build(type, available.data(), &call);
  CheckCupti(result, (call + " (" + metrics_.front() + ", ...)").c_str());
}

MetricConfig::MetricConfig(std::vector<std::string> metrics, bool with_image, CUptiResult* result,
                           std::string* call)
    : metrics_(std::move(metrics)) {
  std::vector<uint8_t> available;
  *call = "cuptiProfilerGetCounterAvailability";
  *result = CounterAvailability(&available);
  if (*result != CUPTI_SUCCESS) return;
  *result =
      Build(CUPTI_PROFILER_TYPE_RANGE_PROFILER, with_image ? available.data() : nullptr, call);
}

CUptiResult MetricConfig::Build(CUpti_ProfilerType type, const uint8_t* available,
                                std::string* call) {
  for (const std::string& metric : metrics_) names_.push_back(metric.c_str());
  const std::string chip = ChipName();
  auto host = PARAMS(CUpti_Profiler_Host_Initialize_Params);
  host.profilerType = type;
  host.pChipName = chip.c_str();
  host.pCounterAvailabilityImage = available;
  *call = "cuptiProfilerHostInitialize";
  CUptiResult result = cuptiProfilerHostInitialize(&host);
  if (result != CUPTI_SUCCESS) return result;
  host_ = host.pHostObject;
  auto add = PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
  add.pHostObject = host_;
  add.ppMetricNames = names_.data();
  add.numMetrics = names_.size();
  *call = "cuptiProfilerHostConfigAddMetrics";
  result = cuptiProfilerHostConfigAddMetrics(&add);
  if (result != CUPTI_SUCCESS) return result;
  auto size = PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
  size.pHostObject = host_;
  *call = "cuptiProfilerHostGetConfigImageSize";
  result = cuptiProfilerHostGetConfigImageSize(&size);
  if (result != CUPTI_SUCCESS) return result;
  image_.resize(size.configImageSize);
  auto image = PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
  image.pHostObject = host_;
  image.configImageSize = image_.size();
  image.pConfigImage = image_.data();
  *call = "cuptiProfilerHostGetConfigImage";
  result = cuptiProfilerHostGetConfigImage(&image);
  if (result != CUPTI_SUCCESS) return result;
  auto passes = PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params);
  passes.configImageSize = image_.size();
  passes.pConfigImage = image_.data();
  *call = "cuptiProfilerHostGetNumOfPasses";
  result = cuptiProfilerHostGetNumOfPasses(&passes);
  passes_ = passes.numOfPasses;
  return result;
}

MetricConfig::~MetricConfig() {
  if (host_ == nullptr) return;
  auto params = PARAMS(CUpti_Profiler_Host_Deinitialize_Params);
  params.pHostObject = host_;
  cuptiProfilerHostDeinitialize(&params);
}

std::vector<double> MetricConfig::Values(const std::vector<uint8_t>& counter_data,
                                         size_t index) const {
  std::vector<double> values(names_.size(), NAN);
  auto params = PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
  params.pHostObject = host_;
  params.pCounterDataImage = counter_data.data();
  params.counterDataImageSize = counter_data.size();
  params.rangeIndex = index;
  params.ppMetricNames = names_.data();
  params.numMetrics = names_.size();
  params.pMetricValues = values.data();
  CUPTI(cuptiProfilerHostEvaluateToGpuValues(&params));
  return values;
}

RangeProfiler::RangeProfiler() {
  std::vector<uint8_t> available;
  CheckCupti(CounterAvailability(&available), "cuptiProfilerGetCounterAvailability");
  CheckCupti(Enable(), "cuptiRangeProfilerEnable");
}

RangeProfiler::~RangeProfiler() {
  if (object_ != nullptr) Disable();
}

CUptiResult RangeProfiler::Enable() {
  auto params = PARAMS(CUpti_RangeProfiler_Enable_Params);
  const CUptiResult result = cuptiRangeProfilerEnable(&params);
  object_ = params.pRangeProfilerObject;
  return result;
}

CUptiResult RangeProfiler::Disable() {
  auto params = PARAMS(CUpti_RangeProfiler_Disable_Params);
  params.pRangeProfilerObject = object_;
  object_ = nullptr;
  return cuptiRangeProfilerDisable(&params);
}

CUptiResult RangeProfiler::Configure(MetricConfig* config, CUpti_ProfilerRange range,
                                     CUpti_ProfilerReplayMode replay, size_t max_ranges) {
  config_ = config;
  auto size = PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params);
  size.pRangeProfilerObject = object_;
  size.pMetricNames = config->names();
  size.numMetrics = config->count();
  size.maxNumOfRanges = max_ranges;
  size.maxNumRangeTreeNodes = static_cast<uint32_t>(max_ranges);
  CUptiResult result = cuptiRangeProfilerGetCounterDataSize(&size);
  if (result != CUPTI_SUCCESS) return result;
  data_.assign(size.counterDataSize, 0);
  auto init = PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
  init.pRangeProfilerObject = object_;
  init.counterDataSize = data_.size();
  init.pCounterData = data_.data();
  result = cuptiRangeProfilerCounterDataImageInitialize(&init);
  if (result != CUPTI_SUCCESS) return result;
  auto set = PARAMS(CUpti_RangeProfiler_SetConfig_Params);
  set.pRangeProfilerObject = object_;
  set.configSize = config->image().size();
  set.pConfig = config->image().data();
  set.counterDataImageSize = data_.size();
  set.pCounterDataImage = data_.data();
  set.range = range;
  set.replayMode = replay;
  set.maxRangesPerPass = max_ranges;
  set.numNestingLevels = 1;
  set.minNestingLevel = 1;
  set.targetNestingLevel = 1;
  return cuptiRangeProfilerSetConfig(&set);
}

CUptiResult RangeProfiler::Start() {
  auto params = PARAMS(CUpti_RangeProfiler_Start_Params);
  params.pRangeProfilerObject = object_;
  return cuptiRangeProfilerStart(&params);
}

CUptiResult RangeProfiler::Push(const char* name) {
  auto params = PARAMS(CUpti_RangeProfiler_PushRange_Params);
  params.pRangeProfilerObject = object_;
  params.pRangeName = name;
  return cuptiRangeProfilerPushRange(&params);
}

CUptiResult RangeProfiler::Pop() {
  auto params = PARAMS(CUpti_RangeProfiler_PopRange_Params);
  params.pRangeProfilerObject = object_;
  return cuptiRangeProfilerPopRange(&params);
}

CUptiResult RangeProfiler::Stop(size_t* pass, bool* complete) {
  auto params = PARAMS(CUpti_RangeProfiler_Stop_Params);
  params.pRangeProfilerObject = object_;
  const CUptiResult result = cuptiRangeProfilerStop(&params);
  if (pass != nullptr) *pass = params.passIndex;
  if (complete != nullptr) *complete = params.isAllPassSubmitted != 0;
  return result;
}

CUptiResult RangeProfiler::Decode(size_t* dropped) {
  auto params = PARAMS(CUpti_RangeProfiler_DecodeData_Params);
  params.pRangeProfilerObject = object_;
  const CUptiResult result = cuptiRangeProfilerDecodeData(&params);
  if (dropped != nullptr) *dropped = params.numOfRangeDropped;
  return result;
}

size_t RangeProfiler::Ranges() const {
  auto params = PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params);
  params.pCounterDataImage = data_.data();
  params.counterDataImageSize = data_.size();
  CUPTI(cuptiRangeProfilerGetCounterDataInfo(&params));
  return params.numTotalRanges;
}

}  // namespace seqpoint::probe
