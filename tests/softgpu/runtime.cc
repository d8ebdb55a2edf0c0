// The software libcudart: programs built by nvcc with -cudart shared. It does its work through the
// software libcuda's public functions, so that driver callbacks nest in runtime callbacks under one
// correlation id, as with the real libraries. Thread-safe.

#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <cupti_runtime_cbid.h>
#include <generated_cuda_runtime_api_meta.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/softgpu/config.h"
#include "tests/softgpu/hooks.h"

namespace seqpoint::softgpu {
namespace {

struct FatBinary {
  const void* image = nullptr;
  CUlibrary library = nullptr;  // guarded by Registry::mutex, loaded at first use
};

struct Registry {
  struct Function {
    FatBinary* binary;
    std::string name;
    CUkernel kernel = nullptr;
  };
  struct Variable {
    size_t bytes;
    void* memory = nullptr;
    void** managed = nullptr;
  };
  std::shared_mutex mutex;
  std::unordered_map<const void*, Function> functions;
  std::unordered_map<const void*, Variable> variables;
};

// Leaked: unregistration runs in exit handlers.
Registry& GetRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

// The launch configuration that <<<>>> leaves for the stub function that it calls. uint3, as dim3
// has a constructor and thread-local objects shall have none.
struct LaunchConfiguration {
  uint3 grid;
  uint3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// Configurations nest only when a launch's arguments launch, hence few.
constexpr int kMaxPending = 8;

#define SWGPU_THREAD_LOCAL thread_local constinit __attribute__((tls_model("initial-exec")))
SWGPU_THREAD_LOCAL cudaError_t t_last_error = cudaSuccess;
SWGPU_THREAD_LOCAL bool t_has_context = false;
SWGPU_THREAD_LOCAL int t_device = 0;
SWGPU_THREAD_LOCAL LaunchConfiguration t_pending[kMaxPending] = {};
SWGPU_THREAD_LOCAL int t_pending_count = 0;

cudaError_t Status(CUresult result) { return static_cast<cudaError_t>(result); }

cudaError_t Keep(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) [[unlikely]]
    t_last_error = error;
  return error;
}

// Initialises the driver and makes the device's primary context current, as the runtime does at
// its first use in a thread.
cudaError_t RequireContext() {
  if (t_has_context) [[likely]]
    return cudaSuccess;
  if (CUresult r = cuInit(0); r != CUDA_SUCCESS) return Status(r);
  CUcontext current = nullptr;
  cuCtxGetCurrent(&current);
  if (current == nullptr) {
    if (CUresult r = cuDevicePrimaryCtxRetain(&current, t_device); r != CUDA_SUCCESS) {
      return Status(r);
    }
    cuCtxSetCurrent(current);
  } else {
    cuCtxGetDevice(&t_device);
  }
  t_has_context = true;
  return cudaSuccess;
}

cudaError_t GetKernel(const void* host_function, CUkernel* kernel) {
  if (cudaError_t e = RequireContext(); e != cudaSuccess) return e;
  Registry& registry = GetRegistry();
  {
    std::shared_lock lock(registry.mutex);
    auto it = registry.functions.find(host_function);
    if (it == registry.functions.end()) return cudaErrorInvalidDeviceFunction;
    *kernel = it->second.kernel;
  }
  if (*kernel != nullptr) return cudaSuccess;
  std::unique_lock lock(registry.mutex);
  Registry::Function& function = registry.functions[host_function];
  if (function.binary->library == nullptr) {
    CUresult r = cuLibraryLoadData(&function.binary->library, function.binary->image, nullptr,
                                   nullptr, 0, nullptr, nullptr, 0);
    if (r != CUDA_SUCCESS) return Status(r);
  }
  CUresult r =
      cuLibraryGetKernel(&function.kernel, function.binary->library, function.name.c_str());
  *kernel = function.kernel;
  return Status(r);
}

const char* KernelName(CUkernel kernel) {
  const char* name = nullptr;
  if (kernel != nullptr) cuKernelGetName(&name, kernel);
  return name;
}

cudaError_t SymbolAddress(const void* symbol, void** address, size_t* bytes) {
  if (cudaError_t e = RequireContext(); e != cudaSuccess) return e;
  Registry& registry = GetRegistry();
  std::unique_lock lock(registry.mutex);
  auto it = registry.variables.find(symbol);
  if (it == registry.variables.end()) return cudaErrorInvalidSymbol;
  Registry::Variable& variable = it->second;
  if (variable.memory == nullptr) {
    CUdeviceptr memory = 0;
    CUresult r = variable.managed != nullptr
                     ? cuMemAllocManaged(&memory, variable.bytes, CU_MEM_ATTACH_GLOBAL)
                     : cuMemAlloc(&memory, variable.bytes);
    if (r != CUDA_SUCCESS) return Status(r);
    variable.memory = reinterpret_cast<void*>(memory);
    if (variable.managed != nullptr) *variable.managed = variable.memory;
  }
  *address = variable.memory;
  if (bytes != nullptr) *bytes = variable.bytes;
  return cudaSuccess;
}

cudaError_t LaunchKernel(CUkernel kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                         cudaStream_t stream) {
  return Status(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z,
                               block.x, block.y, block.z, static_cast<unsigned>(shared_bytes),
                               stream, args, nullptr));
}

cudaError_t Copy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind, bool async,
                 cudaStream_t stream) {
  auto to = reinterpret_cast<CUdeviceptr>(dst);
  auto from = reinterpret_cast<CUdeviceptr>(src);
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return Status(async ? cuMemcpyHtoDAsync(to, src, bytes, stream)
                          : cuMemcpyHtoD(to, src, bytes));
    case cudaMemcpyDeviceToHost:
      return Status(async ? cuMemcpyDtoHAsync(dst, from, bytes, stream)
                          : cuMemcpyDtoH(dst, from, bytes));
    case cudaMemcpyDeviceToDevice:
      return Status(async ? cuMemcpyDtoDAsync(to, from, bytes, stream)
                          : cuMemcpyDtoD(to, from, bytes));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return Status(async ? cuMemcpyAsync(to, from, bytes, stream) : cuMemcpy(to, from, bytes));
  }
  return cudaErrorInvalidMemcpyDirection;
}

Hooks& GetHooks() {
  static Hooks& hooks = *swgpu_get_hooks();
  return hooks;
}

// Runs one runtime function under its callback id; `init` says whether it needs a context.
template <typename Params, typename Body>
cudaError_t RunRuntimeApi(uint32_t cbid, const char* name, const Params& params, const char* symbol,
                          bool init, Body&& body) {
  if (init) {
    if (cudaError_t e = RequireContext(); e != cudaSuccess) [[unlikely]]
      return Keep(e);
  }
  Hooks& hooks = GetHooks();
  return RunApi(hooks, kRuntime, cbid, name, &params, symbol, [&]() -> cudaError_t {
    hooks.charge_ns(hooks.config->cpu_runtime_ns);
    return Keep(body());
  });
}

// The parameters of __cudaLaunchKernel are in no header: whoever reads them shall notice.
constexpr uint64_t kUndocumentedParams[8] = {
    0xdeadbeefdeadbeef, 0xdeadbeefdeadbeef, 0xdeadbeefdeadbeef, 0xdeadbeefdeadbeef,
    0xdeadbeefdeadbeef, 0xdeadbeefdeadbeef, 0xdeadbeefdeadbeef, 0xdeadbeefdeadbeef};

}  // namespace
}  // namespace seqpoint::softgpu

using namespace seqpoint::softgpu;

#define SWGPU_UNPACK(...) __VA_ARGS__
#define RUNTIME_API_(name, version, init, signature, args, ...)                               \
  extern "C" cudaError_t CUDARTAPI name signature {                                           \
    const name##_##version##_params params{SWGPU_UNPACK args};                                \
    return RunRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_##name##_##version, #name, params, nullptr, \
                         init, [&]() -> cudaError_t __VA_ARGS__);                             \
  }
#define RUNTIME_API(name, version, signature, args, ...) \
  RUNTIME_API_(name, version, true, signature, args, __VA_ARGS__)
#define RUNTIME_API_NO_CONTEXT(name, version, signature, args, ...) \
  RUNTIME_API_(name, version, false, signature, args, __VA_ARGS__)
#define RUNTIME_API_NO_PARAMS(name, version, ...)                                        \
  extern "C" cudaError_t CUDARTAPI name() {                                              \
    return RunRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_##name##_##version, #name, 0, nullptr, \
                         true, [&]() -> cudaError_t __VA_ARGS__);                        \
  }

// Functions that nvcc's generated code calls, under its names.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

void** CUDARTAPI __cudaRegisterFatBinary(void* image) {
  auto* binary = new FatBinary;
  binary->image = image;
  return reinterpret_cast<void**>(binary);
}

void CUDARTAPI __cudaRegisterFatBinaryEnd(void**) {}

// Kernels stay known: records and exit handlers may still name them.
void CUDARTAPI __cudaUnregisterFatBinary(void**) {}

void CUDARTAPI __cudaRegisterFunction(void** binary, const char* host_function, char*,
                                      const char* device_name, int, uint3*, uint3*, dim3*, dim3*,
                                      int*) {
  Registry& registry = GetRegistry();
  std::unique_lock lock(registry.mutex);
  registry.functions[host_function] = {reinterpret_cast<FatBinary*>(binary), device_name};
}

void CUDARTAPI __cudaRegisterVar(void**, char* host_variable, char*, const char*, int, size_t bytes,
                                 int, int) {
  Registry& registry = GetRegistry();
  std::unique_lock lock(registry.mutex);
  registry.variables[host_variable] = {bytes};
}

void CUDARTAPI __cudaRegisterManagedVar(void**, void** host_variable, char*, const char*, int,
                                        size_t bytes, int, int) {
  Registry& registry = GetRegistry();
  std::unique_lock lock(registry.mutex);
  registry.variables[host_variable] = {bytes, nullptr, host_variable};
}

char CUDARTAPI __cudaInitModule(void**) { return 1; }

unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                               CUstream_st* stream) {
  if (t_pending_count == kMaxPending) return cudaErrorMissingConfiguration;
  t_pending[t_pending_count++] = {grid, block, shared_bytes, stream};
  return cudaSuccess;
}

cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                                 void* stream) {
  if (t_pending_count == 0) return Keep(cudaErrorMissingConfiguration);
  const LaunchConfiguration& c = t_pending[--t_pending_count];
  *grid = c.grid;
  *block = c.block;
  *shared_bytes = c.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}

cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  return Keep(GetKernel(host_function, kernel));
}

cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                         size_t shared_bytes, cudaStream_t stream) {
  const char* symbol =
      GetHooks().armed.load(std::memory_order_relaxed) ? KernelName(kernel) : nullptr;
  return RunRuntimeApi(
      CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000, "__cudaLaunchKernel", kUndocumentedParams,
      symbol, true, [&] { return LaunchKernel(kernel, grid, block, args, shared_bytes, stream); });
}

cudaError_t CUDARTAPI __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block,
                                              void** args, size_t shared_bytes,
                                              cudaStream_t stream) {
  const char* symbol =
      GetHooks().armed.load(std::memory_order_relaxed) ? KernelName(kernel) : nullptr;
  return RunRuntimeApi(CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000,
                       "__cudaLaunchKernel_ptsz", kUndocumentedParams, symbol, true, [&] {
                         return LaunchKernel(kernel, grid, block, args, shared_bytes,
                                             stream == nullptr ? cudaStreamPerThread : stream);
                       });
}

// NOLINTEND(readability-identifier-naming)

cudaError_t CUDARTAPI cudaLaunchKernel(const void* func, dim3 grid, dim3 block, void** args,
                                       size_t shared_bytes, cudaStream_t stream) {
  CUkernel kernel = nullptr;
  if (cudaError_t e = GetKernel(func, &kernel); e != cudaSuccess) return Keep(e);
  const cudaLaunchKernel_v7000_params params{func, grid, block, args, shared_bytes, stream};
  const char* symbol =
      GetHooks().armed.load(std::memory_order_relaxed) ? KernelName(kernel) : nullptr;
  return RunRuntimeApi(
      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, "cudaLaunchKernel", params, symbol, true,
      [&] { return LaunchKernel(kernel, grid, block, args, shared_bytes, stream); });
}

cudaError_t CUDARTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func,
                                          void** args) {
  CUkernel kernel = nullptr;
  if (cudaError_t e = GetKernel(func, &kernel); e != cudaSuccess) return Keep(e);
  if (config == nullptr) return Keep(cudaErrorInvalidValue);
  const cudaLaunchKernelExC_v11060_params params{config, func, args};
  return RunRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, "cudaLaunchKernelExC",
                       params, KernelName(kernel), true, [&] {
                         CUlaunchConfig launch{};
                         launch.gridDimX = config->gridDim.x;
                         launch.gridDimY = config->gridDim.y;
                         launch.gridDimZ = config->gridDim.z;
                         launch.blockDimX = config->blockDim.x;
                         launch.blockDimY = config->blockDim.y;
                         launch.blockDimZ = config->blockDim.z;
                         launch.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
                         launch.hStream = config->stream;
                         return Status(cuLaunchKernelEx(
                             &launch, reinterpret_cast<CUfunction>(kernel), args, nullptr));
                       });
}

cudaError_t CUDARTAPI cudaLaunchCooperativeKernel(const void* func, dim3 grid, dim3 block,
                                                  void** args, size_t shared_bytes,
                                                  cudaStream_t stream) {
  CUkernel kernel = nullptr;
  if (cudaError_t e = GetKernel(func, &kernel); e != cudaSuccess) return Keep(e);
  const cudaLaunchCooperativeKernel_v9000_params params{func, grid,         block,
                                                        args, shared_bytes, stream};
  return RunRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000,
                       "cudaLaunchCooperativeKernel", params, KernelName(kernel), true, [&] {
                         return Status(cuLaunchCooperativeKernel(
                             reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z, block.x,
                             block.y, block.z, static_cast<unsigned>(shared_bytes), stream, args));
                       });
}

const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  const char* name = nullptr;
  cuGetErrorName(static_cast<CUresult>(error), &name);
  return name == nullptr ? "unrecognized error code" : name;
}

const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  cuGetErrorString(static_cast<CUresult>(error), &text);
  return text == nullptr ? "unrecognized error code" : text;
}

cudaError_t CUDARTAPI cudaGetLastError() {
  cudaError_t error = t_last_error;
  t_last_error = cudaSuccess;
  return error;
}

cudaError_t CUDARTAPI cudaPeekAtLastError() { return t_last_error; }

}  // extern "C"

RUNTIME_API_NO_CONTEXT(cudaDriverGetVersion, v3020, (int* version), (version),
                       { return Status(cuDriverGetVersion(version)); })

RUNTIME_API_NO_CONTEXT(cudaRuntimeGetVersion, v3020, (int* version), (version), {
  *version = CUDART_VERSION;
  return cudaSuccess;
})

RUNTIME_API_NO_CONTEXT(cudaGetDeviceCount, v3020, (int* count), (count), {
  if (CUresult r = cuInit(0); r != CUDA_SUCCESS) return Status(r);
  return Status(cuDeviceGetCount(count));
})

RUNTIME_API_NO_CONTEXT(cudaSetDevice, v3020, (int device), (device), {
  int count = 0;
  if (CUresult r = cuInit(0); r != CUDA_SUCCESS) return Status(r);
  cuDeviceGetCount(&count);
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  t_device = device;
  CUcontext primary = nullptr;
  if (CUresult r = cuDevicePrimaryCtxRetain(&primary, device); r != CUDA_SUCCESS) {
    return Status(r);
  }
  cuCtxSetCurrent(primary);
  t_has_context = true;
  return cudaSuccess;
})

RUNTIME_API_NO_CONTEXT(cudaGetDevice, v3020, (int* device), (device), {
  *device = t_device;
  return cudaSuccess;
})

RUNTIME_API_NO_CONTEXT(cudaSetDeviceFlags, v3020, (unsigned int flags), (flags),
                       { return cudaSuccess; })

RUNTIME_API_NO_CONTEXT(cudaDeviceGetAttribute, v5000, (int* value, cudaDeviceAttr attr, int device),
                       (value, attr, device), {
                         if (CUresult r = cuInit(0); r != CUDA_SUCCESS) return Status(r);
                         return Status(cuDeviceGetAttribute(
                             value, static_cast<CUdevice_attribute>(attr), device));
                       })

RUNTIME_API_NO_CONTEXT(
    cudaGetDeviceProperties, v12000, (cudaDeviceProp * prop, int device), (prop, device), {
      if (CUresult r = cuInit(0); r != CUDA_SUCCESS) return Status(r);
      memset(prop, 0, sizeof(*prop));
      if (CUresult r = cuDeviceGetName(prop->name, sizeof(prop->name), device); r != CUDA_SUCCESS) {
        return Status(r);
      }
      cuDeviceGetUuid_v2(reinterpret_cast<CUuuid*>(&prop->uuid), device);
      cuDeviceTotalMem(&prop->totalGlobalMem, device);
      auto get = [device](CUdevice_attribute attribute) {
        int value = 0;
        cuDeviceGetAttribute(&value, attribute, device);
        return value;
      };
      prop->major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
      prop->minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
      prop->multiProcessorCount = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
      prop->warpSize = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
      prop->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
      prop->maxThreadsPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
      prop->maxThreadsDim[0] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
      prop->maxThreadsDim[1] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
      prop->maxThreadsDim[2] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
      prop->maxGridSize[0] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
      prop->maxGridSize[1] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
      prop->maxGridSize[2] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
      prop->sharedMemPerBlock =
          static_cast<size_t>(get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
      prop->sharedMemPerBlockOptin =
          static_cast<size_t>(get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
      prop->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
      prop->l2CacheSize = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
      prop->asyncEngineCount = get(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
      prop->concurrentKernels = 1;
      prop->unifiedAddressing = 1;
      prop->managedMemory = 1;
      prop->memoryPoolsSupported = 1;
      return cudaSuccess;
    })

RUNTIME_API_NO_PARAMS(cudaDeviceSynchronize, v3020, { return Status(cuCtxSynchronize()); })

RUNTIME_API_NO_PARAMS(cudaProfilerStart, v4000, { return cudaSuccess; })

RUNTIME_API_NO_PARAMS(cudaProfilerStop, v4000, { return cudaSuccess; })

RUNTIME_API_NO_CONTEXT(cudaDeviceGetPCIBusId, v4010, (char* id, int len, int device),
                       (id, len, device), {
                         if (CUresult r = cuInit(0); r != CUDA_SUCCESS) return Status(r);
                         return Status(cuDeviceGetPCIBusId(id, len, device));
                       })

// Memory of all devices lies in one address space.
RUNTIME_API(cudaDeviceCanAccessPeer, v4000, (int* can, int device, int peer), (can, device, peer), {
  *can = device != peer;
  return cudaSuccess;
})

RUNTIME_API(cudaDeviceEnablePeerAccess, v4000, (int peer, unsigned int flags), (peer, flags),
            { return cudaSuccess; })

RUNTIME_API_NO_PARAMS(cudaDeviceReset, v3020, {
  CUresult r = cuDevicePrimaryCtxReset(t_device);
  t_has_context = false;
  return Status(r);
})

RUNTIME_API(cudaDeviceGetStreamPriorityRange, v5050, (int* least, int* greatest), (least, greatest),
            { return Status(cuCtxGetStreamPriorityRange(least, greatest)); })

RUNTIME_API(cudaMalloc, v3020, (void** pointer, size_t bytes), (pointer, bytes),
            { return Status(cuMemAlloc(reinterpret_cast<CUdeviceptr*>(pointer), bytes)); })

RUNTIME_API(cudaMallocManaged, v6000, (void** pointer, size_t bytes, unsigned int flags),
            (pointer, bytes, flags), {
              return Status(
                  cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(pointer), bytes, flags));
            })

RUNTIME_API(cudaMallocHost, v3020, (void** pointer, size_t bytes), (pointer, bytes),
            { return Status(cuMemAllocHost(pointer, bytes)); })

RUNTIME_API(cudaHostAlloc, v3020, (void** pointer, size_t bytes, unsigned int flags),
            (pointer, bytes, flags), { return Status(cuMemHostAlloc(pointer, bytes, flags)); })

RUNTIME_API(cudaHostRegister, v4000, (void* pointer, size_t bytes, unsigned int flags),
            (pointer, bytes, flags), { return Status(cuMemHostRegister(pointer, bytes, flags)); })

RUNTIME_API(cudaHostUnregister, v4000, (void* pointer), (pointer),
            { return Status(cuMemHostUnregister(pointer)); })

RUNTIME_API(cudaHostGetDevicePointer, v3020, (void** out, void* pointer, unsigned int flags),
            (out, pointer, flags), {
              *out = pointer;
              return cudaSuccess;
            })

RUNTIME_API(cudaFree, v3020, (void* pointer), (pointer),
            { return Status(cuMemFree(reinterpret_cast<CUdeviceptr>(pointer))); })

RUNTIME_API(cudaFreeHost, v3020, (void* pointer), (pointer),
            { return Status(cuMemFreeHost(pointer)); })

RUNTIME_API(cudaMallocAsync, v11020, (void** pointer, size_t bytes, cudaStream_t stream),
            (pointer, bytes, stream), {
              return Status(
                  cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(pointer), bytes, stream));
            })

RUNTIME_API(cudaFreeAsync, v11020, (void* pointer, cudaStream_t stream), (pointer, stream),
            { return Status(cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(pointer), stream)); })

RUNTIME_API(cudaMemGetInfo, v3020, (size_t * free_bytes, size_t* total_bytes),
            (free_bytes, total_bytes), { return Status(cuMemGetInfo(free_bytes, total_bytes)); })

RUNTIME_API(cudaPointerGetAttributes, v4000,
            (cudaPointerAttributes * attributes, const void* pointer), (attributes, pointer), {
              memset(attributes, 0, sizeof(*attributes));
              unsigned int type = 0;
              unsigned int managed = 0;
              auto address = reinterpret_cast<CUdeviceptr>(pointer);
              if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
                  CUDA_SUCCESS) {
                attributes->type = cudaMemoryTypeUnregistered;
                attributes->hostPointer = const_cast<void*>(pointer);
                return cudaSuccess;
              }
              cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
              attributes->type = managed != 0                 ? cudaMemoryTypeManaged
                                 : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                                              : cudaMemoryTypeDevice;
              attributes->device = t_device;
              attributes->devicePointer = const_cast<void*>(pointer);
              if (attributes->type != cudaMemoryTypeDevice) {
                attributes->hostPointer = const_cast<void*>(pointer);
              }
              return cudaSuccess;
            })

RUNTIME_API(cudaMemcpy, v3020, (void* dst, const void* src, size_t count, cudaMemcpyKind kind),
            (dst, src, count, kind), { return Copy(dst, src, count, kind, false, nullptr); })

RUNTIME_API(cudaMemcpyAsync, v3020,
            (void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream),
            (dst, src, count, kind, stream), { return Copy(dst, src, count, kind, true, stream); })

RUNTIME_API(cudaMemcpyPeerAsync, v4000,
            (void* dst, int dst_device, const void* src, int src_device, size_t count,
             cudaStream_t stream),
            (dst, dst_device, src, src_device, count, stream), {
              CUcontext to = nullptr;
              CUcontext from = nullptr;
              CUresult r = cuDevicePrimaryCtxRetain(&to, dst_device);
              if (r == CUDA_SUCCESS) r = cuDevicePrimaryCtxRetain(&from, src_device);
              if (r != CUDA_SUCCESS) return Status(r);
              return Status(cuMemcpyPeerAsync(reinterpret_cast<CUdeviceptr>(dst), to,
                                              reinterpret_cast<CUdeviceptr>(src), from, count,
                                              stream));
            })

RUNTIME_API(cudaMemcpyToSymbol, v3020,
            (const void* symbol, const void* src, size_t count, size_t offset, cudaMemcpyKind kind),
            (symbol, src, count, offset, kind), {
              void* address = nullptr;
              if (cudaError_t e = SymbolAddress(symbol, &address, nullptr); e != cudaSuccess) {
                return e;
              }
              return Copy(static_cast<char*>(address) + offset, src, count, kind, false, nullptr);
            })

RUNTIME_API(cudaMemcpyFromSymbol, v3020,
            (void* dst, const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind),
            (dst, symbol, count, offset, kind), {
              void* address = nullptr;
              if (cudaError_t e = SymbolAddress(symbol, &address, nullptr); e != cudaSuccess) {
                return e;
              }
              return Copy(dst, static_cast<char*>(address) + offset, count, kind, false, nullptr);
            })

RUNTIME_API(cudaGetSymbolAddress, v3020, (void** address, const void* symbol), (address, symbol),
            { return SymbolAddress(symbol, address, nullptr); })

RUNTIME_API(cudaGetSymbolSize, v3020, (size_t * bytes, const void* symbol), (bytes, symbol), {
  void* address = nullptr;
  return SymbolAddress(symbol, &address, bytes);
})

RUNTIME_API(cudaMemset, v3020, (void* dst, int value, size_t count), (dst, value, count), {
  return Status(
      cuMemsetD8(reinterpret_cast<CUdeviceptr>(dst), static_cast<unsigned char>(value), count));
})

RUNTIME_API(cudaMemsetAsync, v3020, (void* dst, int value, size_t count, cudaStream_t stream),
            (dst, value, count, stream), {
              return Status(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(dst),
                                            static_cast<unsigned char>(value), count, stream));
            })

RUNTIME_API(cudaStreamCreate, v3020, (cudaStream_t * stream), (stream),
            { return Status(cuStreamCreate(stream, CU_STREAM_DEFAULT)); })

RUNTIME_API(cudaStreamCreateWithFlags, v5000, (cudaStream_t * stream, unsigned int flags),
            (stream, flags), { return Status(cuStreamCreate(stream, flags)); })

RUNTIME_API(cudaStreamCreateWithPriority, v5050,
            (cudaStream_t * stream, unsigned int flags, int priority), (stream, flags, priority),
            { return Status(cuStreamCreateWithPriority(stream, flags, priority)); })

RUNTIME_API(cudaStreamDestroy, v5050, (cudaStream_t stream), (stream),
            { return Status(cuStreamDestroy(stream)); })

RUNTIME_API(cudaStreamSynchronize, v3020, (cudaStream_t stream), (stream),
            { return Status(cuStreamSynchronize(stream)); })

RUNTIME_API(cudaStreamQuery, v3020, (cudaStream_t stream), (stream),
            { return Status(cuStreamQuery(stream)); })

RUNTIME_API(cudaStreamWaitEvent, v3020,
            (cudaStream_t stream, cudaEvent_t event, unsigned int flags), (stream, event, flags),
            { return Status(cuStreamWaitEvent(stream, event, flags)); })

RUNTIME_API(cudaStreamGetId, v12000, (cudaStream_t stream, unsigned long long* id), (stream, id),
            { return Status(cuStreamGetId(stream, id)); })

RUNTIME_API(cudaStreamGetPriority, v5050, (cudaStream_t stream, int* priority), (stream, priority),
            { return Status(cuStreamGetPriority(stream, priority)); })

RUNTIME_API(cudaStreamGetFlags, v5050, (cudaStream_t stream, unsigned int* flags), (stream, flags),
            { return Status(cuStreamGetFlags(stream, flags)); })

RUNTIME_API(cudaStreamIsCapturing, v10000, (cudaStream_t stream, cudaStreamCaptureStatus* status),
            (stream, status), {
              return Status(
                  cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status)));
            })

RUNTIME_API(cudaLaunchHostFunc, v10000, (cudaStream_t stream, cudaHostFn_t fn, void* data),
            (stream, fn, data), { return Status(cuLaunchHostFunc(stream, fn, data)); })

RUNTIME_API(cudaEventCreate, v3020, (cudaEvent_t * event), (event),
            { return Status(cuEventCreate(event, CU_EVENT_DEFAULT)); })

RUNTIME_API(cudaEventCreateWithFlags, v3020, (cudaEvent_t * event, unsigned int flags),
            (event, flags), { return Status(cuEventCreate(event, flags)); })

RUNTIME_API(cudaEventDestroy, v3020, (cudaEvent_t event), (event),
            { return Status(cuEventDestroy(event)); })

RUNTIME_API(cudaEventRecord, v3020, (cudaEvent_t event, cudaStream_t stream), (event, stream),
            { return Status(cuEventRecord(event, stream)); })

RUNTIME_API(cudaEventRecordWithFlags, v11010,
            (cudaEvent_t event, cudaStream_t stream, unsigned int flags), (event, stream, flags),
            { return Status(cuEventRecordWithFlags(event, stream, flags)); })

RUNTIME_API(cudaEventSynchronize, v3020, (cudaEvent_t event), (event),
            { return Status(cuEventSynchronize(event)); })

RUNTIME_API(cudaEventQuery, v3020, (cudaEvent_t event), (event),
            { return Status(cuEventQuery(event)); })

RUNTIME_API(cudaEventElapsedTime, v12080, (float* ms, cudaEvent_t start, cudaEvent_t end),
            (ms, start, end), { return Status(cuEventElapsedTime(ms, start, end)); })

RUNTIME_API(cudaFuncGetAttributes, v3020, (cudaFuncAttributes * attr, const void* func),
            (attr, func), {
              CUkernel kernel = nullptr;
              if (cudaError_t e = GetKernel(func, &kernel); e != cudaSuccess) return e;
              memset(attr, 0, sizeof(*attr));
              auto get = [kernel](CUfunction_attribute attribute) {
                int value = 0;
                cuFuncGetAttribute(&value, attribute, reinterpret_cast<CUfunction>(kernel));
                return value;
              };
              attr->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
              attr->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
              attr->maxDynamicSharedSizeBytes =
                  get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
              attr->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
              attr->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
              return cudaSuccess;
            })

RUNTIME_API(cudaFuncSetAttribute, v9000, (const void* func, cudaFuncAttribute attr, int value),
            (func, attr, value), {
              CUkernel kernel = nullptr;
              if (cudaError_t e = GetKernel(func, &kernel); e != cudaSuccess) return e;
              return Status(cuFuncSetAttribute(reinterpret_cast<CUfunction>(kernel),
                                               static_cast<CUfunction_attribute>(attr), value));
            })

RUNTIME_API(cudaFuncSetCacheConfig, v3020, (const void* func, cudaFuncCache config), (func, config),
            { return cudaSuccess; })

RUNTIME_API(cudaFuncGetName, v12030, (const char** name, const void* func), (name, func), {
  CUkernel kernel = nullptr;
  if (cudaError_t e = GetKernel(func, &kernel); e != cudaSuccess) return e;
  return Status(cuKernelGetName(name, kernel));
})

RUNTIME_API(cudaGetKernel, v12000, (cudaKernel_t * kernel, const void* func), (kernel, func),
            { return GetKernel(func, kernel); })

RUNTIME_API(cudaGetFuncBySymbol, v11000, (cudaFunction_t * function, const void* func),
            (function, func), {
              CUkernel kernel = nullptr;
              cudaError_t e = GetKernel(func, &kernel);
              *function = reinterpret_cast<cudaFunction_t>(kernel);
              return e;
            })

RUNTIME_API(cudaOccupancyMaxActiveBlocksPerMultiprocessor, v6050,
            (int* blocks, const void* func, int block_size, size_t shared_bytes),
            (blocks, func, block_size, shared_bytes), {
              CUkernel kernel = nullptr;
              if (cudaError_t e = GetKernel(func, &kernel); e != cudaSuccess) return e;
              return Status(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                  blocks, reinterpret_cast<CUfunction>(kernel), block_size, shared_bytes));
            })

RUNTIME_API(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, v7000,
            (int* blocks, const void* func, int block_size, size_t shared_bytes,
             unsigned int flags),
            (blocks, func, block_size, shared_bytes, flags), {
              CUkernel kernel = nullptr;
              if (cudaError_t e = GetKernel(func, &kernel); e != cudaSuccess) return e;
              return Status(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                  blocks, reinterpret_cast<CUfunction>(kernel), block_size, shared_bytes));
            })

RUNTIME_API(cudaStreamBeginCapture, v10000, (cudaStream_t stream, cudaStreamCaptureMode mode),
            (stream, mode), {
              return Status(cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)));
            })

RUNTIME_API(cudaStreamEndCapture, v10000, (cudaStream_t stream, cudaGraph_t* graph),
            (stream, graph), { return Status(cuStreamEndCapture(stream, graph)); })

RUNTIME_API(cudaThreadExchangeStreamCaptureMode, v10010, (cudaStreamCaptureMode * mode), (mode), {
  return Status(cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)));
})

RUNTIME_API(cudaGraphCreate, v10000, (cudaGraph_t * graph, unsigned int flags), (graph, flags),
            { return Status(cuGraphCreate(graph, flags)); })

RUNTIME_API(cudaGraphInstantiate, v12000,
            (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
            (exec, graph, flags),
            { return Status(cuGraphInstantiateWithFlags(exec, graph, flags)); })

RUNTIME_API(cudaGraphInstantiateWithFlags, v11040,
            (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
            (exec, graph, flags),
            { return Status(cuGraphInstantiateWithFlags(exec, graph, flags)); })

RUNTIME_API(cudaGraphGetNodes, v10000, (cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count),
            (graph, nodes, count), { return Status(cuGraphGetNodes(graph, nodes, count)); })

RUNTIME_API(cudaGraphUpload, v10000, (cudaGraphExec_t exec, cudaStream_t stream), (exec, stream),
            { return Status(cuGraphUpload(exec, stream)); })

RUNTIME_API(cudaGraphLaunch, v10000, (cudaGraphExec_t exec, cudaStream_t stream), (exec, stream),
            { return Status(cuGraphLaunch(exec, stream)); })

RUNTIME_API(cudaGraphExecDestroy, v10000, (cudaGraphExec_t exec), (exec),
            { return Status(cuGraphExecDestroy(exec)); })

RUNTIME_API(cudaGraphDestroy, v10000, (cudaGraph_t graph), (graph),
            { return Status(cuGraphDestroy(graph)); })
