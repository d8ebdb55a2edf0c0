// cuGetProcAddress: the newest variant of a function that the caller's CUDA version knows.

#include <cstring>
#include <string_view>

#include "tests/softgpu/driver.h"

using namespace seqpoint::softgpu;

extern "C" CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                                cuuint64_t flags,
                                                CUdriverProcAddressQueryResult* status);

#define PTSZ(name) extern "C" CUresult CUDAAPI name##_ptsz
PTSZ(cuMemcpyHtoDAsync_v2)(CUdeviceptr, const void*, size_t, CUstream);
PTSZ(cuMemcpyDtoHAsync_v2)(void*, CUdeviceptr, size_t, CUstream);
PTSZ(cuMemcpyDtoDAsync_v2)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
PTSZ(cuMemcpyAsync)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
PTSZ(cuMemsetD8Async)(CUdeviceptr, unsigned char, size_t, CUstream);
PTSZ(cuMemsetD32Async)(CUdeviceptr, unsigned int, size_t, CUstream);
PTSZ(cuLaunchKernel)
(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
 unsigned int, CUstream, void**, void**);
PTSZ(cuLaunchKernelEx)(const CUlaunchConfig*, CUfunction, void**, void**);
PTSZ(cuLaunchCooperativeKernel)
(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
 unsigned int, CUstream, void**);
PTSZ(cuStreamSynchronize)(CUstream);
PTSZ(cuStreamWaitEvent)(CUstream, CUevent, unsigned int);
PTSZ(cuEventRecord)(CUevent, CUstream);
PTSZ(cuGraphLaunch)(CUgraphExec, CUstream);
#undef PTSZ

namespace {

struct Entry {
  std::string_view name;
  int version;  // first CUDA version of this variant
  void* function;
  void* per_thread;  // variant for per-thread default streams, or null
};

#define ENTRY(name, version) \
  { #name, version, reinterpret_cast < void*>(&name), nullptr }
#define ENTRY_V(name, suffix, version) \
  { #name, version, reinterpret_cast < void*>(&name##suffix), nullptr }
#define ENTRY_PTSZ(name, version) \
  { #name, version, reinterpret_cast < void*>(&name), reinterpret_cast < void*>(&name##_ptsz) }

const Entry entries[] = {
    ENTRY(cuInit, 2000),
    ENTRY(cuDriverGetVersion, 2020),
    ENTRY(cuGetErrorName, 6000),
    ENTRY(cuGetErrorString, 6000),
    ENTRY(cuGetExportTable, 3000),
    ENTRY_V(cuGetProcAddress, _v2, 12000),
    ENTRY(cuDeviceGet, 2000),
    ENTRY(cuDeviceGetCount, 2000),
    ENTRY(cuDeviceGetName, 2000),
    ENTRY(cuDeviceGetUuid, 9020),
    ENTRY_V(cuDeviceGetUuid, _v2, 11040),
    ENTRY_V(cuDeviceTotalMem, _v2, 3020),
    ENTRY(cuDeviceGetAttribute, 2000),
    ENTRY(cuDeviceGetPCIBusId, 4010),
    ENTRY(cuDevicePrimaryCtxRetain, 7000),
    ENTRY_V(cuDevicePrimaryCtxRelease, _v2, 11000),
    ENTRY_V(cuDevicePrimaryCtxReset, _v2, 11000),
    ENTRY_V(cuDevicePrimaryCtxSetFlags, _v2, 11000),
    ENTRY(cuDevicePrimaryCtxGetState, 7000),
    ENTRY_V(cuCtxCreate, _v2, 3020),
    ENTRY_V(cuCtxCreate, _v4, 12050),
    ENTRY_V(cuCtxDestroy, _v2, 4000),
    ENTRY(cuCtxSetCurrent, 4000),
    ENTRY(cuCtxGetCurrent, 4000),
    ENTRY_V(cuCtxPushCurrent, _v2, 4000),
    ENTRY_V(cuCtxPopCurrent, _v2, 4000),
    ENTRY(cuCtxGetDevice, 2000),
    ENTRY(cuCtxGetId, 12000),
    ENTRY(cuCtxSynchronize, 2000),
    ENTRY(cuCtxGetStreamPriorityRange, 5050),
    ENTRY(cuModuleLoad, 2000),
    ENTRY(cuModuleLoadData, 2000),
    ENTRY(cuModuleLoadDataEx, 2010),
    ENTRY(cuModuleUnload, 2000),
    ENTRY(cuModuleGetFunction, 2000),
    ENTRY_V(cuModuleGetGlobal, _v2, 3020),
    ENTRY(cuLibraryLoadData, 12000),
    ENTRY(cuLibraryUnload, 12000),
    ENTRY(cuLibraryGetModule, 12000),
    ENTRY(cuLibraryGetKernel, 12000),
    ENTRY(cuLibraryGetGlobal, 12000),
    ENTRY(cuKernelGetFunction, 12000),
    ENTRY(cuKernelGetName, 12030),
    ENTRY(cuFuncGetName, 12030),
    ENTRY(cuFuncGetAttribute, 2020),
    ENTRY(cuFuncSetAttribute, 9000),
    ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050),
    ENTRY_V(cuMemAlloc, _v2, 3020),
    ENTRY(cuMemAllocManaged, 6000),
    ENTRY_V(cuMemFree, _v2, 3020),
    ENTRY(cuMemAllocAsync, 11020),
    ENTRY(cuMemFreeAsync, 11020),
    ENTRY_V(cuMemAllocHost, _v2, 3020),
    ENTRY(cuMemHostAlloc, 2020),
    ENTRY(cuMemFreeHost, 2000),
    ENTRY_V(cuMemHostRegister, _v2, 6050),
    ENTRY(cuMemHostUnregister, 4000),
    ENTRY_V(cuMemGetInfo, _v2, 3020),
    ENTRY(cuPointerGetAttribute, 4000),
    ENTRY_V(cuMemcpyHtoD, _v2, 3020),
    ENTRY_V(cuMemcpyDtoH, _v2, 3020),
    ENTRY_V(cuMemcpyDtoD, _v2, 3020),
    {"cuMemcpyHtoDAsync", 3020, reinterpret_cast<void*>(&cuMemcpyHtoDAsync_v2),
     reinterpret_cast<void*>(&cuMemcpyHtoDAsync_v2_ptsz)},
    {"cuMemcpyDtoHAsync", 3020, reinterpret_cast<void*>(&cuMemcpyDtoHAsync_v2),
     reinterpret_cast<void*>(&cuMemcpyDtoHAsync_v2_ptsz)},
    {"cuMemcpyDtoDAsync", 3020, reinterpret_cast<void*>(&cuMemcpyDtoDAsync_v2),
     reinterpret_cast<void*>(&cuMemcpyDtoDAsync_v2_ptsz)},
    ENTRY(cuMemcpy, 4000),
    ENTRY_PTSZ(cuMemcpyAsync, 4000),
    ENTRY_V(cuMemsetD8, _v2, 3020),
    ENTRY_V(cuMemsetD32, _v2, 3020),
    ENTRY_PTSZ(cuMemsetD8Async, 3020),
    ENTRY_PTSZ(cuMemsetD32Async, 3020),
    ENTRY_PTSZ(cuLaunchKernel, 4000),
    ENTRY_PTSZ(cuLaunchKernelEx, 11060),
    ENTRY_PTSZ(cuLaunchCooperativeKernel, 9000),
    ENTRY(cuLaunchHostFunc, 10000),
    ENTRY(cuStreamCreate, 2000),
    ENTRY(cuStreamCreateWithPriority, 5050),
    ENTRY_V(cuStreamDestroy, _v2, 4000),
    ENTRY_PTSZ(cuStreamSynchronize, 2000),
    ENTRY(cuStreamQuery, 2000),
    ENTRY_PTSZ(cuStreamWaitEvent, 3020),
    ENTRY(cuStreamIsCapturing, 10000),
    ENTRY(cuStreamGetId, 12000),
    ENTRY(cuStreamGetPriority, 5050),
    ENTRY_V(cuStreamBeginCapture, _v2, 10010),
    ENTRY(cuStreamEndCapture, 10000),
    ENTRY(cuThreadExchangeStreamCaptureMode, 10010),
    ENTRY(cuEventCreate, 2000),
    ENTRY_V(cuEventDestroy, _v2, 4000),
    ENTRY_PTSZ(cuEventRecord, 2000),
    ENTRY(cuEventRecordWithFlags, 11010),
    ENTRY(cuEventSynchronize, 2000),
    ENTRY(cuEventQuery, 2000),
    ENTRY(cuEventElapsedTime, 2000),
    ENTRY_V(cuEventElapsedTime, _v2, 12080),
    ENTRY(cuGraphCreate, 10000),
    ENTRY(cuGraphDestroy, 10000),
    ENTRY(cuGraphInstantiateWithFlags, 11040),
    ENTRY(cuGraphExecDestroy, 10000),
    ENTRY_PTSZ(cuGraphLaunch, 10000),
};

}  // namespace

extern "C" CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                                cuuint64_t flags,
                                                CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Entry* best = nullptr;
  bool known = false;
  for (const Entry& entry : entries) {
    if (entry.name != symbol) continue;
    known = true;
    if (entry.version <= version && (best == nullptr || entry.version > best->version)) {
      best = &entry;
    }
  }
  *function = nullptr;
  if (best != nullptr) {
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    *function = per_thread && best->per_thread != nullptr ? best->per_thread : best->function;
  }
  if (status != nullptr) {
    *status = best != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : known         ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return best != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
