#include "injection/counters/backend.h"

#include "injection/counters/cupti_params.h"

namespace seqpoint::inject {

const char* CounterWayOut(uint32_t result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return ": load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0, or run with "
             "CAP_SYS_ADMIN (containers: --cap-add=SYS_ADMIN)";
    case CUPTI_ERROR_HARDWARE_BUSY:
      return ": another tool or another profiled job uses the GPU's counters; they are asked for "
             "again, or stop it (DCGM: `dcgmi profile --pause`, or Nsight)";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return ": the vGPU's profiling plugin parameter must be enabled by the host's administrator";
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      return ": GPU counters do not exist under confidential computing";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
      return ": use a MIG instance with an exclusive compute instance, or the whole GPU";
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
      return ": GPU counters do not exist under WSL";
    case CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED:
      return ": the program itself uses CUPTI's old profiler; stop that use";
    case CUPTI_ERROR_NOT_INITIALIZED:
      return ": libnvperf_host.so was not found in the folder of libcupti";
    default:
      return "";
  }
}

uint32_t CounterBackend::Evaluate(const CounterConfig& config, size_t index, double* values) {
  SEQPOINT_PARAMS(Profiler_Host_EvaluateToGpuValues, evaluate);
  evaluate.pHostObject = config.host;
  evaluate.pCounterDataImage = counter_image_;
  evaluate.counterDataImageSize = config.counter_bytes;
  evaluate.rangeIndex = index;
  evaluate.ppMetricNames = const_cast<const char**>(config.names);
  evaluate.numMetrics = config.count;
  evaluate.pMetricValues = values;
  SEQPOINT_CALL_OR_RETURN(ProfilerHostEvaluateToGpuValues, &evaluate);
  return CUPTI_SUCCESS;
}

uint32_t CounterBackend::CheckNumbers(const CounterConfig& config, const double* values) {
  for (uint32_t i = 0; i < config.count; ++i) {
    if (__builtin_isfinite(values[i])) continue;
    features_->Report(
        abi::Feature::kCounters, abi::FeatureState::kFailed, 0,
        "CUPTI has no number for %s of a measured iteration; its counters are missing",
        config.names[i]);
    return abi::kCountersRangeDropped;
  }
  return 0;
}

uint32_t ReportCounterFailure(const Cupti& cupti, Features* features, const char* function,
                              uint32_t result) {
  const char* way_out = CounterWayOut(result);
  features->Report(abi::Feature::kCounters, abi::FeatureState::kFailed, result, "%s gave %u (%s)%s",
                   function, result, cupti.ResultName(result),
                   way_out[0] != '\0' ? way_out : "; no counters are collected");
  return result;
}

}  // namespace seqpoint::inject
