// Finds CUPTI and the CUDA driver in the process and resolves what we call. Nothing is linked: a
// process that has no CUPTI still runs, and a second copy of CUPTI is never loaded.
//
// Order: a libcupti that the process has already (of the major version of its CUDA runtime first,
// then by the other sonames, then any by walking the mapped objects), then $SEQPOINT_CUPTI_LIB, the
// folder of the mapped CUDA runtime, the bare soname (LD_LIBRARY_PATH, linker cache), and the
// toolkit's folders; CUDA 13 before 12 where no runtime tells (statically linked, driver only). An
// absolute path to another file with the same soname would be a second copy with state of its own,
// hence the order.
//
// Threading: LoadCupti is called by one thread at a time; afterwards all is read only.
#ifndef SEQPOINT_INJECTION_CUPTI_LOADER_H_
#define SEQPOINT_INJECTION_CUPTI_LOADER_H_

#include <cupti.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <stdint.h>

#include "injection/base/features.h"
#include "injection/cupti/release.h"

namespace seqpoint::inject {

// clang-format off
// Functions without which the library stays passive.
#define SEQPOINT_CUPTI_REQUIRED(X) \
  X(GetVersion) \
  X(GetTimestamp) \
  X(GetResultString) \
  X(Subscribe) \
  X(Unsubscribe) \
  X(EnableCallback) \
  X(ActivityEnable) \
  X(ActivityDisable) \
  X(ActivityRegisterCallbacks) \
  X(ActivityGetNextRecord) \
  X(ActivityGetNumDroppedRecords) \
  X(ActivityFlushAll)
// Functions whose absence takes one detail away.
#define SEQPOINT_CUPTI_OPTIONAL(X) \
  X(Subscribe_v2) \
  X(SetThreadIdType) \
  X(ActivityEnableDriverApi) \
  X(ActivityRegisterTimestampCallback)
// Functions without which no counters are collected.
#define SEQPOINT_CUPTI_COUNTERS(X) \
  X(GetDeviceId) \
  X(ProfilerInitialize) \
  X(ProfilerDeviceSupported) \
  X(DeviceGetChipName) \
  X(ProfilerHostInitialize) \
  X(ProfilerHostDeinitialize) \
  X(ProfilerHostConfigAddMetrics) \
  X(ProfilerHostGetConfigImageSize) \
  X(ProfilerHostGetConfigImage) \
  X(ProfilerHostGetNumOfPasses) \
  X(ProfilerHostEvaluateToGpuValues)
// ... by the range profiler, or by PM sampling.
#define SEQPOINT_CUPTI_RANGES(X) \
  X(ProfilerGetCounterAvailability) \
  X(RangeProfilerEnable) \
  X(RangeProfilerDisable) \
  X(RangeProfilerSetConfig) \
  X(RangeProfilerStart) \
  X(RangeProfilerStop) \
  X(RangeProfilerPushRange) \
  X(RangeProfilerPopRange) \
  X(RangeProfilerDecodeData) \
  X(RangeProfilerGetCounterDataSize) \
  X(RangeProfilerCounterDataImageInitialize) \
  X(RangeProfilerGetCounterDataInfo)
#define SEQPOINT_CUPTI_SAMPLING(X) \
  X(PmSamplingGetCounterAvailability) \
  X(PmSamplingEnable) \
  X(PmSamplingDisable) \
  X(PmSamplingSetConfig) \
  X(PmSamplingStart) \
  X(PmSamplingStop) \
  X(PmSamplingDecodeData) \
  X(PmSamplingGetCounterDataSize) \
  X(PmSamplingCounterDataImageInitialize) \
  X(PmSamplingGetCounterDataInfo) \
  X(PmSamplingCounterDataGetSampleInfo)
// The few functions of the driver that we call ourselves.
#define SEQPOINT_DRIVER(X) \
  X(CtxSynchronize, cuCtxSynchronize) \
  X(CtxGetCurrent, cuCtxGetCurrent) \
  X(CtxSetCurrent, cuCtxSetCurrent) \
  X(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode) \
  X(StreamIsCapturing, cuStreamIsCapturing) \
  X(DriverGetVersion, cuDriverGetVersion) \
  X(DeviceGetName, cuDeviceGetName) \
  X(DeviceGetAttribute, cuDeviceGetAttribute) \
  X(DeviceTotalMem, cuDeviceTotalMem_v2)
// clang-format on

struct Cupti {
#define SEQPOINT_MEMBER(name) decltype(&::cupti##name) name;
  SEQPOINT_CUPTI_REQUIRED(SEQPOINT_MEMBER)
  SEQPOINT_CUPTI_OPTIONAL(SEQPOINT_MEMBER)
  SEQPOINT_CUPTI_COUNTERS(SEQPOINT_MEMBER)
  SEQPOINT_CUPTI_RANGES(SEQPOINT_MEMBER)
  SEQPOINT_CUPTI_SAMPLING(SEQPOINT_MEMBER)
#undef SEQPOINT_MEMBER
  uint32_t version;  // as cuptiGetVersion says: 19..28 for 12.x, xxyyzz from 13.0; 0: not loaded
  bool was_mapped;   // the process had it before we looked for it

  bool Has(CuptiTrait trait) const { return (CuptiTraits(version) & trait) != 0; }
  // "CUPTI_ERROR_...": never null.
  const char* ResultName(uint32_t result) const;
  bool CanProfileRanges() const;
  bool CanSample() const;
};

// Stands for a function that the driver lacks, or the process' driver that was not found.
template <typename... Arguments>
CUresult CUDAAPI LackingFunction(Arguments...) {
  return CUDA_ERROR_NOT_FOUND;
}
struct CudaDriver {
#define SEQPOINT_MEMBER(name, function) decltype(&::function) name = LackingFunction;
  SEQPOINT_DRIVER(SEQPOINT_MEMBER)
#undef SEQPOINT_MEMBER
};

// Reports what was found, and what cannot be used. True: CUPTI is there, and from CUDA 12.0 or
// later.
bool LoadCupti(Cupti* cupti, CudaDriver* driver, Features* features);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_LOADER_H_
