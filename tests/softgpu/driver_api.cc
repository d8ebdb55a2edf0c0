// Devices, contexts, modules and memory of the software libcuda.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/softgpu/driver.h"
#include "tests/softgpu/releases.h"

using namespace seqpoint::softgpu;

namespace {

constexpr int kDriverVersion = 13000;

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorText* FindError(CUresult error) {
  for (const ErrorText& e : kErrors) {
    if (e.code == error) return &e;
  }
  return nullptr;
}

// Driver of an initialised process whose device ordinal is valid, else an error.
CUresult RequireDevice(CUdevice device, Driver** driver) {
  *driver = GetDriver();
  if (*driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  bool valid = device >= 0 && static_cast<uint64_t>(device) < (*driver)->config.gpu_count;
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

Context* NewContext(Driver* driver, int device) {
  auto* context = new Context;
  context->id = driver->next_context_id.fetch_add(1);
  context->device = device;
  driver->model.InitStream(&context->legacy, context, 0, 0, Stream::Sync::kLegacy);
  driver->model.InitStream(&context->per_thread, context, CU_STREAM_DEFAULT, 0,
                           Stream::Sync::kBlocking);
  std::lock_guard lock(driver->mutex);
  driver->contexts.insert(context);
  return context;
}

void RaiseContext(uint32_t cbid, Context* context) {
  RaiseResource({.cbid = cbid, .context = reinterpret_cast<CUcontext>(context)});
}

void DestroyContext(Driver* driver, Context* context) {
  RaiseContext(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, context);
  driver->clock.WaitUntil(driver->model.ContextTail(context));
  if (t_state.current == context) t_state.current = nullptr;
  std::lock_guard lock(driver->mutex);
  driver->contexts.erase(context);  // the object stays: records and late calls may still name it
}

CUresult CreateContext(CUcontext* out, CUdevice device) {
  Driver* driver;
  if (CUresult r = RequireDevice(device, &driver); r != CUDA_SUCCESS) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Charge(driver, driver->config.cpu_alloc_ns);
  Context* context = NewContext(driver, device);
  if (t_state.depth < static_cast<int>(std::size(t_state.stack))) {
    t_state.stack[t_state.depth++] = t_state.current;
  }
  t_state.current = context;
  *out = reinterpret_cast<CUcontext>(context);
  RaiseContext(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, context);
  return CUDA_SUCCESS;
}

uint64_t RoundToPages(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

// Memory of every kind is host memory; untouched pages cost nothing.
CUresult Allocate(Driver* driver, MemoryKind kind, int device, uint64_t bytes, void** out) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Charge(driver, driver->config.cpu_alloc_ns);
  const uint64_t rounded = RoundToPages(bytes);
  const bool on_device = kind == MemoryKind::kDevice || kind == MemoryKind::kManaged;
  std::lock_guard lock(driver->mutex);
  if (on_device && static_cast<double>(driver->allocated_bytes[device] + rounded) >
                       driver->config.memory_gb * 1e9) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  if (on_device) driver->allocated_bytes[device] += rounded;
  driver->allocations[reinterpret_cast<uintptr_t>(memory)] = {bytes, kind, device};
  *out = memory;
  return CUDA_SUCCESS;
}

CUresult Release(Driver* driver, void* pointer) {
  if (pointer == nullptr) return CUDA_SUCCESS;
  Charge(driver, driver->config.cpu_alloc_ns);
  std::lock_guard lock(driver->mutex);
  auto it = driver->allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (it == driver->allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t rounded = RoundToPages(it->second.bytes);
  if (it->second.kind == MemoryKind::kDevice || it->second.kind == MemoryKind::kManaged) {
    driver->allocated_bytes[it->second.device] -= rounded;
  }
  munmap(pointer, rounded);
  driver->allocations.erase(it);
  return CUDA_SUCCESS;
}

CUresult AllocateInContext(MemoryKind kind, uint64_t bytes, void** out) {
  Driver* driver;
  Context* context;
  if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) return r;
  if (InvalidateUnsafeCaptures(driver)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return Allocate(driver, kind, context->device, bytes, out);
}

CUresult ReleaseInContext(void* pointer) {
  Driver* driver;
  Context* context;
  if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) return r;
  driver->clock.WaitUntil(driver->model.ContextTail(context));  // freeing waits for the device
  return Release(driver, pointer);
}

Module* LoadModule(Driver* driver, const void* image) {
  auto module = std::make_unique<Module>();
  module->id = driver->next_module_id.fetch_add(1);
  Module* raw = module.get();
  {
    std::lock_guard lock(driver->mutex);
    driver->modules.push_back(std::move(module));
  }
  RaiseResource({.cbid = CUPTI_CBID_RESOURCE_MODULE_LOADED,
                 .context = reinterpret_cast<CUcontext>(t_state.current),
                 .module_id = raw->id,
                 .image = image});
  return raw;
}

// A kernel that takes the place of one of an unloaded module is recorded under that one's name.
void TakeStaleName(Kernel* kernel) {
  Driver* driver = GetDriver();
  if (driver == nullptr) return;
  std::lock_guard lock(driver->mutex);
  if (driver->stale_names.empty()) return;
  kernel->recorded_name = driver->stale_names.back();
  driver->stale_names.pop_back();
}

void UnloadModule(Module* module) {
  Driver* driver = GetDriver();
  RaiseResource({.cbid = CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING,
                 .context = reinterpret_cast<CUcontext>(t_state.current),
                 .module_id = module->id});
  if (!releases::KeepNamesOfUnloadedModules(driver->config.cupti_version)) return;
  std::scoped_lock lock(driver->mutex, module->mutex);
  for (const auto& [name, kernel] : module->kernels) driver->stale_names.push_back(name);
}

Kernel* GetKernel(Module* module, const char* name) {
  std::lock_guard lock(module->mutex);
  std::unique_ptr<Kernel>& kernel = module->kernels[name];
  if (kernel == nullptr) {
    kernel = std::make_unique<Kernel>();
    kernel->name = kernel->recorded_name = name;
    TakeStaleName(kernel.get());
    kernel->name_hash = HashBytes(name, strlen(name));
    kernel->module_id = module->id;
  }
  return kernel.get();
}

// The image is not parsed, so a global variable has the size that its first user asks for.
constexpr size_t kGlobalBytes = 1 << 20;

CUresult GetGlobal(Module* module, const char* name, CUdeviceptr* pointer, size_t* bytes) {
  Driver* driver;
  Context* context;
  if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) return r;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(module->mutex);
  auto& [memory, size] = module->globals[name];
  if (memory == nullptr) {
    CUresult r = Allocate(driver, MemoryKind::kDevice, context->device, kGlobalBytes, &memory);
    if (r != CUDA_SUCCESS) return r;
    size = kGlobalBytes;
  }
  if (pointer != nullptr) *pointer = reinterpret_cast<CUdeviceptr>(memory);
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

int DeviceAttribute(const Config& config, CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 * 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 227 * 1024;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return static_cast<int>(config.clock_mhz * 1000);
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 5120;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 50 << 20;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return static_cast<int>(config.sms);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return static_cast<int>(config.compute_major);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return static_cast<int>(config.compute_minor);
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 2;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
      return 1;
    default:
      return 0;
  }
}

CUresult DeviceUuid(CUuuid* uuid, CUdevice device) {
  Driver* driver;
  if (CUresult r = RequireDevice(device, &driver); r != CUDA_SUCCESS) return r;
  memcpy(uuid->bytes, "software gpu 00", 16);
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) {
  const ErrorText* text = FindError(error);
  *name = text == nullptr ? nullptr : text->name;
  return text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

extern "C" CUresult CUDAAPI cuGetErrorString(CUresult error, const char** string) {
  const ErrorText* text = FindError(error);
  *string = text == nullptr ? nullptr : text->text;
  return text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// The private tables through which NVIDIA's own libraries talk to its driver do not exist here.
extern "C" CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid*) {
  if (table != nullptr) *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

DRIVER_API(cuDriverGetVersion, (int* version), (version), {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
})

DRIVER_API(cuDeviceGetCount, (int* count), (count), {
  if (GetDriver() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *count = static_cast<int>(GetDriver()->config.gpu_count);
  return CUDA_SUCCESS;
})

DRIVER_API(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal), {
  Driver* driver;
  if (CUresult r = RequireDevice(ordinal, &driver); r != CUDA_SUCCESS) return r;
  *device = ordinal;
  return CUDA_SUCCESS;
})

DRIVER_API(cuDeviceGetName, (char* name, int len, CUdevice dev), (name, len, dev), {
  Driver* driver;
  if (CUresult r = RequireDevice(dev, &driver); r != CUDA_SUCCESS) return r;
  snprintf(name, static_cast<size_t>(len), "%s", driver->config.gpu_name.c_str());
  return CUDA_SUCCESS;
})

DRIVER_API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice dev), (uuid, dev),
           { return DeviceUuid(uuid, dev); })

DRIVER_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice dev), (uuid, dev),
           { return DeviceUuid(uuid, dev); })

DRIVER_API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev), (bytes, dev), {
  Driver* driver;
  if (CUresult r = RequireDevice(dev, &driver); r != CUDA_SUCCESS) return r;
  *bytes = static_cast<size_t>(driver->config.memory_gb * 1e9);
  return CUDA_SUCCESS;
})

DRIVER_API(cuDeviceGetAttribute, (int* pi, CUdevice_attribute attrib, CUdevice dev),
           (pi, attrib, dev), {
             Driver* driver;
             if (CUresult r = RequireDevice(dev, &driver); r != CUDA_SUCCESS) return r;
             if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
             *pi = attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID
                       ? dev + 1
                       : DeviceAttribute(driver->config, attrib);
             return CUDA_SUCCESS;
           })

DRIVER_API(cuDeviceGetPCIBusId, (char* id, int len, CUdevice dev), (id, len, dev), {
  Driver* driver;
  if (CUresult r = RequireDevice(dev, &driver); r != CUDA_SUCCESS) return r;
  snprintf(id, static_cast<size_t>(len), "0000:%02X:00.0", dev + 1);
  return CUDA_SUCCESS;
})

DRIVER_API(cuCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev),
           { return CreateContext(pctx, dev); })

DRIVER_API(cuCtxCreate_v4,
           (CUcontext * pctx, CUctxCreateParams* ctx_params, unsigned int flags, CUdevice dev),
           (pctx, ctx_params, flags, dev), { return CreateContext(pctx, dev); })

DRIVER_API(cuCtxDestroy_v2, (CUcontext ctx), (ctx), {
  Driver* driver = GetDriver();
  if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  auto* context = reinterpret_cast<Context*>(ctx);
  {
    std::lock_guard lock(driver->mutex);
    if (driver->contexts.count(context) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  }
  DestroyContext(driver, context);
  return CUDA_SUCCESS;
})

DRIVER_API(cuCtxSetCurrent, (CUcontext ctx), (ctx), {
  if (GetDriver() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  t_state.current = reinterpret_cast<Context*>(ctx);
  return CUDA_SUCCESS;
})

DRIVER_API(cuCtxGetCurrent, (CUcontext * pctx), (pctx), {
  if (GetDriver() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *pctx = reinterpret_cast<CUcontext>(t_state.current);
  return CUDA_SUCCESS;
})

DRIVER_API(cuCtxPushCurrent_v2, (CUcontext ctx), (ctx), {
  if (GetDriver() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (t_state.depth == static_cast<int>(std::size(t_state.stack))) return CUDA_ERROR_INVALID_VALUE;
  t_state.stack[t_state.depth++] = t_state.current;
  t_state.current = reinterpret_cast<Context*>(ctx);
  return CUDA_SUCCESS;
})

DRIVER_API(cuCtxPopCurrent_v2, (CUcontext * pctx), (pctx), {
  if (GetDriver() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pctx != nullptr) *pctx = reinterpret_cast<CUcontext>(t_state.current);
  t_state.current = t_state.depth > 0 ? t_state.stack[--t_state.depth] : nullptr;
  return CUDA_SUCCESS;
})

DRIVER_API(cuCtxGetDevice, (CUdevice * device), (device), {
  Driver* driver;
  Context* context;
  if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) return r;
  *device = context->device;
  return CUDA_SUCCESS;
})

DRIVER_API(cuCtxGetId, (CUcontext ctx, unsigned long long* id), (ctx, id), {
  auto* context = ctx == nullptr ? t_state.current : reinterpret_cast<Context*>(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
})

DRIVER_API(cuCtxGetApiVersion, (CUcontext ctx, unsigned int* version), (ctx, version), {
  *version = kDriverVersion;
  return CUDA_SUCCESS;
})

DRIVER_API(cuCtxGetFlags, (unsigned int* flags), (flags), {
  *flags = 0;
  return CUDA_SUCCESS;
})

DRIVER_API(cuCtxGetStreamPriorityRange, (int* least, int* greatest), (least, greatest), {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
})

DRIVER_API(cuDevicePrimaryCtxRetain, (CUcontext * pctx, CUdevice dev), (pctx, dev), {
  Driver* driver;
  if (CUresult r = RequireDevice(dev, &driver); r != CUDA_SUCCESS) return r;
  static std::mutex mutex;
  std::unique_lock lock(mutex);
  Context*& primary = driver->primaries[dev];
  bool created = primary == nullptr;
  if (created) {
    primary = NewContext(driver, dev);
    primary->primary = true;
  }
  Context* context = primary;
  lock.unlock();
  *pctx = reinterpret_cast<CUcontext>(context);
  if (created) RaiseContext(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, context);
  return CUDA_SUCCESS;
})

DRIVER_API(cuDevicePrimaryCtxRelease_v2, (CUdevice dev), (dev), {
  Driver* driver;
  return RequireDevice(dev, &driver);
})

DRIVER_API(cuDevicePrimaryCtxReset_v2, (CUdevice dev), (dev), {
  Driver* driver;
  if (CUresult r = RequireDevice(dev, &driver); r != CUDA_SUCCESS) return r;
  Context* context = driver->primaries[dev];
  if (context == nullptr) return CUDA_SUCCESS;
  DestroyContext(driver, context);
  driver->primaries[dev] = nullptr;
  return CUDA_SUCCESS;
})

DRIVER_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned int flags), (dev, flags), {
  Driver* driver;
  return RequireDevice(dev, &driver);
})

DRIVER_API(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned int* flags, int* active),
           (dev, flags, active), {
             Driver* driver;
             if (CUresult r = RequireDevice(dev, &driver); r != CUDA_SUCCESS) return r;
             *flags = 0;
             *active = driver->primaries[dev] != nullptr;
             return CUDA_SUCCESS;
           })

DRIVER_API(cuModuleLoadData, (CUmodule * module, const void* image), (module, image), {
  Driver* driver;
  Context* context;
  if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) return r;
  *module = reinterpret_cast<CUmodule>(LoadModule(driver, image));
  return CUDA_SUCCESS;
})

DRIVER_API(cuModuleLoadDataEx,
           (CUmodule * module, const void* image, unsigned int count, CUjit_option* options,
            void** values),
           (module, image, count, options, values), {
             Driver* driver;
             Context* context;
             if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) return r;
             *module = reinterpret_cast<CUmodule>(LoadModule(driver, image));
             return CUDA_SUCCESS;
           })

DRIVER_API(cuModuleLoad, (CUmodule * module, const char* path), (module, path), {
  Driver* driver;
  Context* context;
  if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) return r;
  if (access(path, R_OK) != 0) return CUDA_ERROR_FILE_NOT_FOUND;
  *module = reinterpret_cast<CUmodule>(LoadModule(driver, path));
  return CUDA_SUCCESS;
})

DRIVER_API(cuModuleUnload, (CUmodule module), (module), {
  if (module == nullptr || GetDriver() == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  UnloadModule(reinterpret_cast<Module*>(module));
  return CUDA_SUCCESS;
})

DRIVER_API(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name),
           (function, module, name), {
             if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
             if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
             *function =
                 reinterpret_cast<CUfunction>(GetKernel(reinterpret_cast<Module*>(module), name));
             return CUDA_SUCCESS;
           })

DRIVER_API(cuModuleGetGlobal_v2,
           (CUdeviceptr * pointer, size_t* bytes, CUmodule module, const char* name),
           (pointer, bytes, module, name), {
             if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
             return GetGlobal(reinterpret_cast<Module*>(module), name, pointer, bytes);
           })

DRIVER_API(cuLibraryLoadData,
           (CUlibrary * library, const void* code, CUjit_option* jit_options, void** jit_values,
            unsigned int jit_count, CUlibraryOption* options, void** values, unsigned int count),
           (library, code, jit_options, jit_values, jit_count, options, values, count), {
             if (GetDriver() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
             *library = reinterpret_cast<CUlibrary>(LoadModule(GetDriver(), code));
             return CUDA_SUCCESS;
           })

DRIVER_API(cuLibraryUnload, (CUlibrary library), (library), { return CUDA_SUCCESS; })

DRIVER_API(cuLibraryGetModule, (CUmodule * module, CUlibrary library), (module, library), {
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
})

DRIVER_API(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name),
           (kernel, library, name), {
             if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
             if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
             *kernel =
                 reinterpret_cast<CUkernel>(GetKernel(reinterpret_cast<Module*>(library), name));
             return CUDA_SUCCESS;
           })

DRIVER_API(cuLibraryGetGlobal,
           (CUdeviceptr * pointer, size_t* bytes, CUlibrary library, const char* name),
           (pointer, bytes, library, name), {
             if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
             return GetGlobal(reinterpret_cast<Module*>(library), name, pointer, bytes);
           })

// A CUkernel and a CUfunction are one object here; real launches accept either as well.
DRIVER_API(cuKernelGetFunction, (CUfunction * function, CUkernel kernel), (function, kernel), {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
})

DRIVER_API(cuKernelGetName, (const char** name, CUkernel kernel), (name, kernel), {
  *name = reinterpret_cast<Kernel*>(kernel)->name.c_str();
  return CUDA_SUCCESS;
})

DRIVER_API(cuFuncGetName, (const char** name, CUfunction function), (name, function), {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = reinterpret_cast<Kernel*>(function)->name.c_str();
  return CUDA_SUCCESS;
})

DRIVER_API(cuFuncGetAttribute, (int* pi, CUfunction_attribute attrib, CUfunction function),
           (pi, attrib, function), {
             if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
             switch (attrib) {
               case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
                 *pi = 1024;
                 break;
               case CU_FUNC_ATTRIBUTE_NUM_REGS:
                 *pi = 32;
                 break;
               case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
                 *pi = static_cast<int>(
                     reinterpret_cast<Kernel*>(function)->max_dynamic_shared_bytes);
                 break;
               case CU_FUNC_ATTRIBUTE_PTX_VERSION:
               case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
                 *pi = 90;
                 break;
               default:
                 *pi = 0;
             }
             return CUDA_SUCCESS;
           })

DRIVER_API(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attrib, int value),
           (function, attrib, value), {
             if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
             if (attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
               reinterpret_cast<Kernel*>(function)->max_dynamic_shared_bytes =
                   static_cast<uint32_t>(value);
             }
             return CUDA_SUCCESS;
           })

DRIVER_API(cuFuncSetCacheConfig, (CUfunction function, CUfunc_cache config), (function, config),
           { return CUDA_SUCCESS; })

DRIVER_API(cuFuncGetModule, (CUmodule * module, CUfunction function), (module, function), {
  Driver* driver = GetDriver();
  if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard lock(driver->mutex);
  uint32_t id = reinterpret_cast<Kernel*>(function)->module_id;
  for (const auto& candidate : driver->modules) {
    if (candidate->id == id) *module = reinterpret_cast<CUmodule>(candidate.get());
  }
  return CUDA_SUCCESS;
})

DRIVER_API(cuOccupancyMaxActiveBlocksPerMultiprocessor,
           (int* blocks, CUfunction function, int block_size, size_t shared_bytes),
           (blocks, function, block_size, shared_bytes), {
             if (block_size <= 0 || block_size > 1024) return CUDA_ERROR_INVALID_VALUE;
             int by_shared = shared_bytes == 0 ? 32 : static_cast<int>(233472 / shared_bytes);
             *blocks = std::min({2048 / block_size, 32, by_shared});
             return CUDA_SUCCESS;
           })

DRIVER_API(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes), (pointer, bytes), {
  return AllocateInContext(MemoryKind::kDevice, bytes, reinterpret_cast<void**>(pointer));
})

DRIVER_API(cuMemAllocManaged, (CUdeviceptr * pointer, size_t bytes, unsigned int flags),
           (pointer, bytes, flags), {
             return AllocateInContext(MemoryKind::kManaged, bytes,
                                      reinterpret_cast<void**>(pointer));
           })

DRIVER_API(cuMemFree_v2, (CUdeviceptr pointer), (pointer),
           { return ReleaseInContext(reinterpret_cast<void*>(pointer)); })

DRIVER_API(cuMemAllocAsync, (CUdeviceptr * pointer, size_t bytes, CUstream stream),
           (pointer, bytes, stream), {
             Driver* driver;
             Context* context;
             if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) return r;
             return Allocate(driver, MemoryKind::kDevice, context->device, bytes,
                             reinterpret_cast<void**>(pointer));
           })

DRIVER_API(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream), (pointer, stream), {
  Driver* driver;
  Context* context;
  if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) return r;
  return Release(driver, reinterpret_cast<void*>(pointer));
})

DRIVER_API(cuMemAllocHost_v2, (void** pointer, size_t bytes), (pointer, bytes),
           { return AllocateInContext(MemoryKind::kPinned, bytes, pointer); })

DRIVER_API(cuMemHostAlloc, (void** pointer, size_t bytes, unsigned int flags),
           (pointer, bytes, flags),
           { return AllocateInContext(MemoryKind::kPinned, bytes, pointer); })

DRIVER_API(cuMemFreeHost, (void* pointer), (pointer), { return ReleaseInContext(pointer); })

DRIVER_API(
    cuMemHostRegister_v2, (void* pointer, size_t bytes, unsigned int flags),
    (pointer, bytes, flags), {
      Driver* driver = GetDriver();
      if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
      std::lock_guard lock(driver->mutex);
      driver->allocations[reinterpret_cast<uintptr_t>(pointer)] = {bytes, MemoryKind::kPinned, 0};
      return CUDA_SUCCESS;
    })

DRIVER_API(cuMemHostUnregister, (void* pointer), (pointer), {
  Driver* driver = GetDriver();
  if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  std::lock_guard lock(driver->mutex);
  return driver->allocations.erase(reinterpret_cast<uintptr_t>(pointer)) > 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
})

DRIVER_API(cuMemHostGetDevicePointer_v2, (CUdeviceptr * out, void* pointer, unsigned int flags),
           (out, pointer, flags), {
             *out = reinterpret_cast<CUdeviceptr>(pointer);
             return CUDA_SUCCESS;
           })

DRIVER_API(cuMemGetInfo_v2, (size_t * free_bytes, size_t* total_bytes), (free_bytes, total_bytes), {
  Driver* driver;
  Context* context;
  if (CUresult r = RequireContext(&driver, &context); r != CUDA_SUCCESS) return r;
  std::lock_guard lock(driver->mutex);
  *total_bytes = static_cast<size_t>(driver->config.memory_gb * 1e9);
  *free_bytes = *total_bytes - driver->allocated_bytes[context->device];
  return CUDA_SUCCESS;
})

DRIVER_API(cuPointerGetAttribute, (void* data, CUpointer_attribute attribute, CUdeviceptr pointer),
           (data, attribute, pointer), {
             Driver* driver = GetDriver();
             if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
             MemoryKind kind = KindOf(driver, reinterpret_cast<void*>(pointer));
             if (kind == MemoryKind::kPageable) return CUDA_ERROR_INVALID_VALUE;
             switch (attribute) {
               case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                 *static_cast<unsigned int*>(data) =
                     kind == MemoryKind::kPinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
                 return CUDA_SUCCESS;
               case CU_POINTER_ATTRIBUTE_IS_MANAGED:
                 *static_cast<unsigned int*>(data) = kind == MemoryKind::kManaged;
                 return CUDA_SUCCESS;
               case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
               case CU_POINTER_ATTRIBUTE_HOST_POINTER:
                 *static_cast<CUdeviceptr*>(data) = pointer;
                 return CUDA_SUCCESS;
               case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                 *static_cast<int*>(data) =
                     t_state.current == nullptr ? 0 : t_state.current->device;
                 return CUDA_SUCCESS;
               default:
                 return CUDA_ERROR_NOT_SUPPORTED;
             }
           })
