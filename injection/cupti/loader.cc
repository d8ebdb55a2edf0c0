#include "injection/cupti/loader.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "injection/base/system.h"

namespace seqpoint::inject {
namespace {

// The major versions that are known, the newest first.
constexpr const char* kMajors[] = {"13", "12"};
constexpr uint32_t kOldestVersion = 19;  // CUDA 12.0

// The path of a loaded object whose file name begins with `prefix`.
bool Mapped(const char* prefix, char path[PATH_MAX]) {
  return AnyLoaded([&](const dl_phdr_info& info) {
    if (strncmp(Basename(info.dlpi_name), prefix, strlen(prefix)) != 0) return false;
    snprintf(path, PATH_MAX, "%s", info.dlpi_name);
    return true;
  });
}

// For dlopen.
constexpr int kLoad = RTLD_NOW | RTLD_LOCAL;
constexpr int kLoaded = RTLD_NOW | RTLD_NOLOAD;

__attribute__((format(printf, 2, 3))) void* Open(int flags, const char* format, ...) {
  char path[PATH_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(path, sizeof(path), format, arguments);
  va_end(arguments);
  return dlopen(path, flags);
}

// Bytes of the path's folder; 0: it has none.
int FolderLength(const char* path) {
  const int length = static_cast<int>(Basename(path) - path);
  return length > 0 ? length - 1 : 0;
}

// libcupti of one major version, wherever it is. `runtime`: the mapped runtime's path, or "".
void* OpenMajor(const char* major, const char* runtime) {
  void* handle = nullptr;
  if (const int length = FolderLength(runtime); length > 0) {
    handle = Open(kLoad, "%.*s/libcupti.so.%s", length, runtime, major);
    // As pip packages lie.
    if (handle == nullptr) {
      handle = Open(kLoad, "%.*s/../../cuda_cupti/lib/libcupti.so.%s", length, runtime, major);
    }
  }
  if (handle == nullptr) handle = Open(kLoad, "libcupti.so.%s", major);
  for (const char* toolkit : {static_cast<const char*>(getenv("CUDA_HOME")), "/usr/local/cuda"}) {
    if (toolkit == nullptr || toolkit[0] == '\0') continue;
    for (const char* folder : {"extras/CUPTI/lib64", "lib64"}) {
      if (handle == nullptr) handle = Open(kLoad, "%s/%s/libcupti.so.%s", toolkit, folder, major);
    }
  }
  return handle;
}

// `was_mapped`: the process had it already.
void* OpenCupti(bool* was_mapped) {
  *was_mapped = true;
  // The program's runtime tells which major version is its own, where several are about.
  char runtime[PATH_MAX] = "";
  const char* own = nullptr;
  for (const char* major : kMajors) {
    char name[32];
    snprintf(name, sizeof(name), "libcudart.so.%s", major);
    if (own == nullptr && Mapped(name, runtime)) own = major;
  }
  void* handle = own != nullptr ? Open(kLoaded, "libcupti.so.%s", own) : nullptr;
  for (const char* major : kMajors) {
    if (handle == nullptr) handle = Open(kLoaded, "libcupti.so.%s", major);
  }
  if (handle != nullptr) return handle;
  char path[PATH_MAX];
  if (Mapped("libcupti.so", path)) {
    handle = dlopen(path, kLoaded);
    if (handle != nullptr) return handle;
  }
  *was_mapped = false;
  const char* named = getenv("SEQPOINT_CUPTI_LIB");
  if (named != nullptr && named[0] != '\0') return dlopen(named, kLoad);
  if (own != nullptr) handle = OpenMajor(own, runtime);
  for (const char* major : kMajors) {
    if (handle == nullptr) handle = OpenMajor(major, "");
  }
  return handle;
}

// CUPTI opens libnvperf_host.so by its bare name, which fails where its folder is not on the search
// path (pip packages). Opened beforehand from CUPTI's own folder, the bare name finds it.
void PreloadNvperf(const char* cupti_path) {
  const int length = FolderLength(cupti_path);
  if (length == 0) return;
  Open(kLoad, "%.*s/libnvperf_host.so", length, cupti_path);
  Open(kLoad, "%.*s/libnvperf_target.so", length, cupti_path);
}

template <typename Function>
bool Resolve(void* handle, const char* name, Function* function) {
  void* const found = dlsym(handle, name);
  if (found != nullptr) *function = reinterpret_cast<Function>(found);
  return found != nullptr;
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

#define SEQPOINT_IS_THERE(name) &&name != nullptr
bool Cupti::CanProfileRanges() const {
  return true SEQPOINT_CUPTI_COUNTERS(SEQPOINT_IS_THERE) SEQPOINT_CUPTI_RANGES(SEQPOINT_IS_THERE);
}

bool Cupti::CanSample() const {
  return true SEQPOINT_CUPTI_COUNTERS(SEQPOINT_IS_THERE) SEQPOINT_CUPTI_SAMPLING(SEQPOINT_IS_THERE);
}
#undef SEQPOINT_IS_THERE

bool LoadCupti(Cupti* cupti, CudaDriver* driver, Features* features) {
  using abi::Feature;
  using abi::FeatureState;
  if (void* cuda = dlopen("libcuda.so.1", kLoaded); cuda != nullptr) {
#define SEQPOINT_RESOLVE(name, function) Resolve(cuda, #function, &driver->name);
    SEQPOINT_DRIVER(SEQPOINT_RESOLVE)
#undef SEQPOINT_RESOLVE
  }
  void* handle = OpenCupti(&cupti->was_mapped);
  if (handle == nullptr) {
    const char* why = dlerror();
    features->Report(Feature::kCupti, FeatureState::kFailed, 0,
                     "libcupti.so.13 was not found (%s); install the CUPTI of your CUDA, or set "
                     "SEQPOINT_CUPTI_LIB to its path",
                     why == nullptr ? "" : why);
    return false;
  }
  const char* missing = nullptr;
#define SEQPOINT_RESOLVE(name) \
  if (!Resolve(handle, "cupti" #name, &cupti->name)) missing = "cupti" #name;
  SEQPOINT_CUPTI_REQUIRED(SEQPOINT_RESOLVE)
#undef SEQPOINT_RESOLVE
  if (missing != nullptr) {
    features->Report(Feature::kCupti, FeatureState::kFailed, 0,
                     "libcupti lacks %s; install CUDA 12.0 or later", missing);
    return false;
  }
#define SEQPOINT_RESOLVE(name) Resolve(handle, "cupti" #name, &cupti->name);
  SEQPOINT_CUPTI_OPTIONAL(SEQPOINT_RESOLVE)
  SEQPOINT_CUPTI_COUNTERS(SEQPOINT_RESOLVE)
  SEQPOINT_CUPTI_RANGES(SEQPOINT_RESOLVE)
  SEQPOINT_CUPTI_SAMPLING(SEQPOINT_RESOLVE)
#undef SEQPOINT_RESOLVE
  uint32_t version = 0;
  cupti->GetVersion(&version);
  cupti->version = version;
  Dl_info info;
  const bool known = dladdr(reinterpret_cast<void*>(cupti->GetVersion), &info) != 0;
  const char* path = known ? info.dli_fname : "libcupti";
  PreloadNvperf(path);
  if (version < kOldestVersion) {
    features->Report(Feature::kCupti, FeatureState::kFailed, version,
                     "CUPTI version %u in %s is older than CUDA 12.0; install a later one", version,
                     path);
    return false;
  }
  features->Report(Feature::kCupti, FeatureState::kReady, version, "CUPTI version %u from %s",
                   version, path);
  if (cupti->Has(kHasUnknownRecords)) {
    features->Report(Feature::kActivity, FeatureState::kIgnored, version,
                     "CUPTI version %u is newer than this library knows: calls are watched, GPU "
                     "records are not read; install a later SeqPoint",
                     version);
  }
  return true;
}

}  // namespace seqpoint::inject
