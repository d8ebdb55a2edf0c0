// The layouts and numbers that tools rely on, against the toolkit's own headers and names.

#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <cstddef>

#include "tests/softgpu/test_support.h"

namespace seqpoint::softgpu {
namespace {

#define SIZE_IS(type, bytes) static_assert(sizeof(type) == (bytes))
#define OFFSET_IS(type, field, bytes) static_assert(offsetof(type, field) == (bytes))

SIZE_IS(CUpti_ActivityKernel10, 216);
SIZE_IS(CUpti_ActivityKernel9, 208);
SIZE_IS(CUpti_ActivityMemcpy6, 96);
SIZE_IS(CUpti_ActivityMemcpy5, 88);
SIZE_IS(CUpti_ActivityMemcpyPtoP4, 96);
SIZE_IS(CUpti_ActivityMemset4, 88);
SIZE_IS(CUpti_ActivitySynchronization2, 56);
SIZE_IS(CUpti_ActivitySynchronization, 40);
SIZE_IS(CUpti_ActivityAPI, 40);
SIZE_IS(CUpti_ActivityContext3, 32);
SIZE_IS(CUpti_ActivityDevice5, 184);
SIZE_IS(CUpti_ActivityStream, 24);
SIZE_IS(CUpti_ActivityCudaEvent2, 56);
SIZE_IS(CUpti_ActivityGraphTrace2, 56);
SIZE_IS(CUpti_ActivityExternalCorrelation, 24);
SIZE_IS(CUpti_CallbackData, 72);

OFFSET_IS(CUpti_ActivityKernel10, registersPerThread, 6);
OFFSET_IS(CUpti_ActivityKernel10, start, 16);
OFFSET_IS(CUpti_ActivityKernel10, end, 24);
OFFSET_IS(CUpti_ActivityKernel10, deviceId, 40);
OFFSET_IS(CUpti_ActivityKernel10, contextId, 44);
OFFSET_IS(CUpti_ActivityKernel10, streamId, 48);
OFFSET_IS(CUpti_ActivityKernel10, gridX, 52);
OFFSET_IS(CUpti_ActivityKernel10, blockX, 64);
OFFSET_IS(CUpti_ActivityKernel10, dynamicSharedMemory, 80);
OFFSET_IS(CUpti_ActivityKernel10, correlationId, 92);
OFFSET_IS(CUpti_ActivityKernel10, gridId, 96);
OFFSET_IS(CUpti_ActivityKernel10, name, 104);
OFFSET_IS(CUpti_ActivityKernel10, graphNodeId, 144);
OFFSET_IS(CUpti_ActivityKernel10, graphId, 156);
OFFSET_IS(CUpti_ActivityMemcpy6, copyKind, 4);
OFFSET_IS(CUpti_ActivityMemcpy6, bytes, 8);
OFFSET_IS(CUpti_ActivityMemcpy6, start, 16);
OFFSET_IS(CUpti_ActivityMemcpy6, streamId, 40);
OFFSET_IS(CUpti_ActivityMemcpy6, correlationId, 44);
OFFSET_IS(CUpti_ActivityMemcpy6, copyCount, 88);
OFFSET_IS(CUpti_ActivityMemset4, start, 16);
OFFSET_IS(CUpti_ActivityMemset4, correlationId, 44);
OFFSET_IS(CUpti_ActivityAPI, cbid, 4);
OFFSET_IS(CUpti_ActivityAPI, start, 8);
OFFSET_IS(CUpti_ActivityAPI, threadId, 28);
OFFSET_IS(CUpti_ActivityAPI, correlationId, 32);
OFFSET_IS(CUpti_ActivitySynchronization2, correlationId, 24);
OFFSET_IS(CUpti_ActivitySynchronization2, streamId, 32);
OFFSET_IS(CUpti_ActivityGraphTrace2, correlationId, 4);
OFFSET_IS(CUpti_ActivityGraphTrace2, start, 8);
OFFSET_IS(CUpti_ActivityGraphTrace2, graphId, 28);
OFFSET_IS(CUpti_ActivityExternalCorrelation, externalId, 8);
OFFSET_IS(CUpti_ActivityExternalCorrelation, correlationId, 16);
OFFSET_IS(CUpti_CallbackData, symbolName, 32);
OFFSET_IS(CUpti_CallbackData, correlationData, 56);
OFFSET_IS(CUpti_CallbackData, correlationId, 64);

static_assert(CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE == 90);
static_assert(CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE == 41);
static_assert(CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE == 32);
static_assert(CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE == 64);
static_assert(CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE == 72);
static_assert(CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE == 52);

TEST(Abi, CallbackIdsHaveTheNamesOfTheToolkit) {
  static constexpr struct {
    CUpti_CallbackDomain domain;
    uint32_t cbid;
    const char* name;
  } kNames[] = {
      {CUPTI_CB_DOMAIN_RUNTIME_API, 211, "cudaLaunchKernel_v7000"},
      {CUPTI_CB_DOMAIN_RUNTIME_API, 430, "cudaLaunchKernelExC_v11060"},
      {CUPTI_CB_DOMAIN_RUNTIME_API, 505, "__cudaLaunchKernel_v13000"},
      {CUPTI_CB_DOMAIN_RUNTIME_API, 311, "cudaGraphLaunch_v10000"},
      {CUPTI_CB_DOMAIN_RUNTIME_API, 41, "cudaMemcpyAsync_v3020"},
      {CUPTI_CB_DOMAIN_RUNTIME_API, 165, "cudaDeviceSynchronize_v3020"},
      {CUPTI_CB_DOMAIN_RUNTIME_API, 131, "cudaStreamSynchronize_v3020"},
      {CUPTI_CB_DOMAIN_DRIVER_API, 307, "cuLaunchKernel"},
      {CUPTI_CB_DOMAIN_DRIVER_API, 442, "cuLaunchKernel_ptsz"},
      {CUPTI_CB_DOMAIN_DRIVER_API, 652, "cuLaunchKernelEx"},
      {CUPTI_CB_DOMAIN_DRIVER_API, 514, "cuGraphLaunch"},
      {CUPTI_CB_DOMAIN_DRIVER_API, 277, "cuMemcpyHtoDAsync_v2"},
      {CUPTI_CB_DOMAIN_DRIVER_API, 216, "cuMemsetD8Async"},
      {CUPTI_CB_DOMAIN_DRIVER_API, 17, "cuCtxSynchronize"},
      {CUPTI_CB_DOMAIN_DRIVER_API, 126, "cuStreamSynchronize"},
  };
  for (const auto& expected : kNames) {
    const char* name = nullptr;
    ASSERT_EQ(cuptiGetCallbackName(expected.domain, expected.cbid, &name), CUPTI_SUCCESS);
    EXPECT_STREQ(name, expected.name);
  }
  const char* name = nullptr;
  EXPECT_EQ(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE, &name),
            CUPTI_ERROR_INVALID_PARAMETER);
}

TEST(Abi, GetProcAddressGivesTheNewestVariantTheCallerKnows) {
  InProcess("", [] {
    void* function = nullptr;
    CUdriverProcAddressQueryResult status;
    CU_OK(cuGetProcAddress("cuCtxCreate", &function, 13000, 0, &status));
    EXPECT_EQ(function, reinterpret_cast<void*>(&cuCtxCreate_v4));
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
    CU_OK(cuGetProcAddress("cuCtxCreate", &function, 11000, 0, &status));
    EXPECT_NE(function, reinterpret_cast<void*>(&cuCtxCreate_v4));
    EXPECT_EQ(cuGetProcAddress("cuLaunchKernelEx", &function, 11000, 0, &status),
              CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_EQ(cuGetProcAddress("cuNoSuchThing", &function, 13000, 0, &status),
              CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_NE(cuGetProcAddress("", &function, 13000, 0, &status), CUDA_SUCCESS);
    void* per_thread = nullptr;
    CU_OK(cuGetProcAddress("cuLaunchKernel", &function, 13000, 0, nullptr));
    CU_OK(cuGetProcAddress("cuLaunchKernel", &per_thread, 13000,
                           CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
    EXPECT_NE(function, per_thread);
  });
}

}  // namespace
}  // namespace seqpoint::softgpu
