#include "injection/cupti/loader.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "injection/base/system.h"

namespace seqpoint::inject {
namespace {

// The major versions that are known, the newest first.
constexpr const char* kMajors[] = {"13", "12"};
constexpr uint32_t kOldestVersion = 19;       // CUDA 12.0
constexpr uint32_t kFirstUnknown = 140'000u;  // CUDA 14

char g_detail[PATH_MAX + 128];

// Walks the mapped objects for one whose file name begins with `prefix`.
struct MappedSearch {
  const char* prefix;
  char path[PATH_MAX];
};
int FindMapped(dl_phdr_info* info, size_t, void* data) {
  MappedSearch* search = static_cast<MappedSearch*>(data);
  if (info->dlpi_name == nullptr) return 0;
  if (strncmp(Basename(info->dlpi_name), search->prefix, strlen(search->prefix)) != 0) return 0;
  snprintf(search->path, sizeof(search->path), "%s", info->dlpi_name);
  return 1;
}
bool Mapped(const char* prefix, MappedSearch* search) {
  search->prefix = prefix;
  search->path[0] = '\0';
  return dl_iterate_phdr(FindMapped, search) == 1;
}

void* OpenIn(const char* folder, size_t folder_length, const char* relative) {
  char path[PATH_MAX];
  const int length =
      snprintf(path, sizeof(path), "%.*s/%s", static_cast<int>(folder_length), folder, relative);
  if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) return nullptr;
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

// libcupti of one major version, wherever it is. `runtime`: the mapped runtime's path, or null.
void* OpenMajor(const char* major, const char* runtime) {
  char soname[32], relative[64];
  snprintf(soname, sizeof(soname), "libcupti.so.%s", major);
  if (runtime != nullptr) {
    const size_t folder = static_cast<size_t>(Basename(runtime) - runtime);
    if (folder > 0) {
      void* handle = OpenIn(runtime, folder - 1, soname);
      if (handle != nullptr) return handle;
      // As pip packages lie.
      snprintf(relative, sizeof(relative), "../../cuda_cupti/lib/%s", soname);
      handle = OpenIn(runtime, folder - 1, relative);
      if (handle != nullptr) return handle;
    }
  }
  void* handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* toolkits[] = {getenv("CUDA_HOME"), "/usr/local/cuda"};
  for (const char* toolkit : toolkits) {
    if (toolkit == nullptr || toolkit[0] == '\0') continue;
    for (const char* folder : {"extras/CUPTI/lib64", "lib64"}) {
      snprintf(relative, sizeof(relative), "%s/%s", folder, soname);
      handle = OpenIn(toolkit, strlen(toolkit), relative);
      if (handle != nullptr) return handle;
    }
  }
  return nullptr;
}

// `was_mapped`: the process had it already.
void* OpenCupti(bool* was_mapped) {
  *was_mapped = true;
  // The program's runtime tells which major version is its own, where several are about.
  MappedSearch runtime;
  const char* own = nullptr;
  for (const char* major : kMajors) {
    char name[32];
    snprintf(name, sizeof(name), "libcudart.so.%s", major);
    if (own == nullptr && Mapped(name, &runtime)) own = major;
  }
  const auto mapped = [](const char* major) {
    char soname[32];
    snprintf(soname, sizeof(soname), "libcupti.so.%s", major);
    return dlopen(soname, RTLD_NOLOAD | RTLD_NOW);
  };
  void* handle = own != nullptr ? mapped(own) : nullptr;
  for (const char* major : kMajors) {
    if (handle == nullptr) handle = mapped(major);
  }
  if (handle != nullptr) return handle;
  MappedSearch search;
  if (Mapped("libcupti.so", &search)) {
    handle = dlopen(search.path, RTLD_NOLOAD | RTLD_NOW);
    if (handle != nullptr) return handle;
  }
  *was_mapped = false;
  const char* named = getenv("SEQPOINT_CUPTI_LIB");
  if (named != nullptr && named[0] != '\0') return dlopen(named, RTLD_NOW | RTLD_LOCAL);
  if (own != nullptr) handle = OpenMajor(own, runtime.path);
  for (const char* major : kMajors) {
    if (handle == nullptr) handle = OpenMajor(major, nullptr);
  }
  return handle;
}

// CUPTI opens libnvperf_host.so by its bare name, which fails where its folder is not on the search
// path (pip packages). Opened beforehand from CUPTI's own folder, the bare name finds it.
void PreloadNvperf(void* any_cupti_function) {
  Dl_info info;
  if (dladdr(any_cupti_function, &info) == 0 || info.dli_fname == nullptr) return;
  const size_t folder = static_cast<size_t>(Basename(info.dli_fname) - info.dli_fname);
  if (folder == 0) return;
  OpenIn(info.dli_fname, folder - 1, "libnvperf_host.so");
  OpenIn(info.dli_fname, folder - 1, "libnvperf_target.so");
}

template <typename Function>
bool Resolve(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

LoadResult Result(LoadStatus status, const char* detail, bool was_mapped) {
  snprintf(g_detail, sizeof(g_detail), "%s", detail == nullptr ? "" : detail);
  return {status, g_detail, was_mapped};
}

}  // namespace

const char* Cupti::ResultName(uint32_t result) const {
  const char* name = nullptr;
  if (GetResultString == nullptr ||
      GetResultString(static_cast<CUptiResult>(result), &name) != CUPTI_SUCCESS ||
      name == nullptr) {
    return "unknown CUPTI result";
  }
  return name;
}

// What both backends need.
static bool CanBuildConfigurations(const Cupti& cupti) {
  return cupti.ProfilerInitialize != nullptr && cupti.ProfilerDeviceSupported != nullptr &&
         cupti.DeviceGetChipName != nullptr && cupti.GetDeviceId != nullptr &&
         cupti.ProfilerHostInitialize != nullptr && cupti.ProfilerHostDeinitialize != nullptr &&
         cupti.ProfilerHostConfigAddMetrics != nullptr &&
         cupti.ProfilerHostGetConfigImageSize != nullptr &&
         cupti.ProfilerHostGetConfigImage != nullptr &&
         cupti.ProfilerHostGetNumOfPasses != nullptr &&
         cupti.ProfilerHostEvaluateToGpuValues != nullptr;
}

bool Cupti::CanProfileRanges() const {
  return CanBuildConfigurations(*this) && ProfilerGetCounterAvailability != nullptr &&
         RangeProfilerEnable != nullptr && RangeProfilerDisable != nullptr &&
         RangeProfilerSetConfig != nullptr && RangeProfilerStart != nullptr &&
         RangeProfilerStop != nullptr && RangeProfilerPushRange != nullptr &&
         RangeProfilerPopRange != nullptr && RangeProfilerDecodeData != nullptr &&
         RangeProfilerGetCounterDataSize != nullptr &&
         RangeProfilerCounterDataImageInitialize != nullptr &&
         RangeProfilerGetCounterDataInfo != nullptr;
}

bool Cupti::CanSample() const {
  return CanBuildConfigurations(*this) && PmSamplingGetCounterAvailability != nullptr &&
         PmSamplingEnable != nullptr && PmSamplingDisable != nullptr &&
         PmSamplingSetConfig != nullptr && PmSamplingStart != nullptr &&
         PmSamplingStop != nullptr && PmSamplingDecodeData != nullptr &&
         PmSamplingGetCounterDataSize != nullptr &&
         PmSamplingCounterDataImageInitialize != nullptr &&
         PmSamplingGetCounterDataInfo != nullptr && PmSamplingCounterDataGetSampleInfo != nullptr;
}

LoadResult LoadCupti(Cupti* cupti, CudaDriver* driver) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
  if (cuda != nullptr) {
    Resolve(cuda, "cuCtxSynchronize", &driver->CtxSynchronize);
    Resolve(cuda, "cuCtxGetCurrent", &driver->CtxGetCurrent);
    Resolve(cuda, "cuCtxSetCurrent", &driver->CtxSetCurrent);
    Resolve(cuda, "cuThreadExchangeStreamCaptureMode", &driver->ThreadExchangeStreamCaptureMode);
    Resolve(cuda, "cuDriverGetVersion", &driver->DriverGetVersion);
    Resolve(cuda, "cuDeviceGetName", &driver->DeviceGetName);
    Resolve(cuda, "cuDeviceGetAttribute", &driver->DeviceGetAttribute);
    Resolve(cuda, "cuDeviceTotalMem_v2", &driver->DeviceTotalMem);
  }
  bool was_mapped = false;
  void* handle = OpenCupti(&was_mapped);
  if (handle == nullptr) return Result(LoadStatus::kNotFound, dlerror(), was_mapped);
  const char* missing = nullptr;
#define SEQPOINT_RESOLVE(name) \
  if (!Resolve(handle, "cupti" #name, &cupti->name)) missing = "cupti" #name;
  SEQPOINT_CUPTI_REQUIRED(SEQPOINT_RESOLVE)
#undef SEQPOINT_RESOLVE
  if (missing != nullptr) return Result(LoadStatus::kIncomplete, missing, was_mapped);
#define SEQPOINT_RESOLVE(name) Resolve(handle, "cupti" #name, &cupti->name);
  SEQPOINT_CUPTI_OPTIONAL(SEQPOINT_RESOLVE)
#undef SEQPOINT_RESOLVE
  uint32_t version = 0;
  cupti->GetVersion(&version);
  cupti->version = version;
  PreloadNvperf(reinterpret_cast<void*>(cupti->GetVersion));
  Dl_info info;
  const bool known = dladdr(reinterpret_cast<void*>(cupti->GetVersion), &info) != 0;
  const char* path = known ? info.dli_fname : "libcupti";
  if (version < kOldestVersion) return Result(LoadStatus::kVersionTooOld, path, was_mapped);
  if (version >= kFirstUnknown) return Result(LoadStatus::kVersionUnknown, path, was_mapped);
  return Result(LoadStatus::kReady, path, was_mapped);
}

}  // namespace seqpoint::inject
