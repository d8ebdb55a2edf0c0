#include "daemon/counters/host_library.h"

#include "absl/status/status.h"

#if SEQPOINT_HAS_CUPTI_HEADERS

#include <cupti_profiler_host.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace seqpoint::counters {
namespace {

template <typename Function>
Function* Symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}
// Every call may be missing in an older library: then it fails as CUPTI would.
#define SEQPOINT_HOST_CALL(name, params)                                       \
  [&] {                                                                        \
    auto* const function = Symbol<decltype(::name)>(handle_, #name);           \
    return function == nullptr ? CUPTI_ERROR_NOT_SUPPORTED : function(params); \
  }()

absl::Status Failed(absl::string_view function, absl::string_view chip, CUptiResult result) {
  return absl::InternalError(
      absl::StrCat(function, " for ", chip, " gave ", static_cast<int>(result)));
}

}  // namespace

absl::StatusOr<HostLibrary> HostLibrary::Open() {
  std::vector<std::string> folders;
  for (const char* root : {static_cast<const char*>(std::getenv("CUDA_HOME")), "/usr/local/cuda"}) {
    if (root == nullptr || *root == '\0') continue;
    folders.push_back(absl::StrCat(root, "/extras/CUPTI/lib64/"));
    folders.push_back(absl::StrCat(root, "/lib64/"));
  }
  folders.push_back("");
  for (const std::string& folder : folders) {
    // CUPTI opens libnvperf_host.so by its bare name: have it loaded already.
    dlopen(absl::StrCat(folder, "libnvperf_host.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    void* handle = dlopen(absl::StrCat(folder, "libcupti.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return HostLibrary(handle);
  }
  return absl::NotFoundError(
      "libcupti.so.13 was not found: set CUDA_HOME to a CUDA 13 toolkit, or LD_LIBRARY_PATH to "
      "the folder that has it");
}

absl::StatusOr<int> HostLibrary::Passes(std::string_view chip_name, Backend backend,
                                        const std::vector<std::string>& metrics) const {
  const std::string chip(chip_name);
  const auto open = [&](CUpti_Profiler_Host_Object** object) {
    CUpti_Profiler_Host_Initialize_Params init = {
        CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE};
    init.profilerType = backend == Backend::kPm ? CUPTI_PROFILER_TYPE_PM_SAMPLING
                                                : CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    init.pChipName = chip.c_str();
    const CUptiResult result = SEQPOINT_HOST_CALL(cuptiProfilerHostInitialize, &init);
    *object = init.pHostObject;
    return result;
  };
  const auto close = [&](CUpti_Profiler_Host_Object* object) {
    CUpti_Profiler_Host_Deinitialize_Params end = {
        CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE};
    end.pHostObject = object;
    SEQPOINT_HOST_CALL(cuptiProfilerHostDeinitialize, &end);
  };
  // All in one call: metrics added by separate calls are scheduled in separate passes.
  const auto add = [&](CUpti_Profiler_Host_Object* object, const std::vector<const char*>& names) {
    CUpti_Profiler_Host_ConfigAddMetrics_Params params = {
        CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE};
    params.pHostObject = object;
    params.ppMetricNames = const_cast<const char**>(names.data());
    params.numMetrics = names.size();
    return SEQPOINT_HOST_CALL(cuptiProfilerHostConfigAddMetrics, &params);
  };
  CUpti_Profiler_Host_Object* object = nullptr;
  CUptiResult result = open(&object);
  if (result == CUPTI_ERROR_INVALID_CHIP_NAME) {
    return absl::NotFoundError(absl::StrCat("CUPTI knows no chip \"", chip,
                                            "\"; there are: ", absl::StrJoin(Chips(), ", ")));
  }
  if (result == CUPTI_ERROR_NOT_SUPPORTED) {
    return absl::NotFoundError(
        absl::StrCat(chip, " has no ", BackendName(backend) == "pm" ? "PM sampling" : "ranges"));
  }
  if (result != CUPTI_SUCCESS) return Failed("cuptiProfilerHostInitialize", chip, result);
  std::vector<const char*> names;
  for (const std::string& metric : metrics) names.push_back(metric.c_str());
  result = add(object, names);
  if (result != CUPTI_SUCCESS) {
    close(object);
    // It takes all or none: one by one shows which metric it was.
    if (open(&object) != CUPTI_SUCCESS) {
      return Failed("cuptiProfilerHostConfigAddMetrics", chip, result);
    }
    for (const char* name : names) {
      if (add(object, {name}) == CUPTI_ERROR_NOT_SUPPORTED) break;
      CUpti_Profiler_Host_Object* alone = nullptr;
      if (open(&alone) != CUPTI_SUCCESS) break;
      const CUptiResult offered = add(alone, {name});
      close(alone);
      if (offered == CUPTI_SUCCESS) continue;
      close(object);
      return absl::NotFoundError(absl::StrCat(chip, " does not offer \"", name, "\" to the ",
                                              std::string(BackendName(backend)), " backend"));
    }
    close(object);
    if (result == CUPTI_ERROR_NOT_SUPPORTED) {
      return absl::FailedPreconditionError(
          "metrics of the whole device (NVLink, PCIe) and of the context cannot share a "
          "configuration; split it");
    }
    return Failed("cuptiProfilerHostConfigAddMetrics", chip, result);
  }
  CUpti_Profiler_Host_GetConfigImageSize_Params size = {
      CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE};
  size.pHostObject = object;
  result = SEQPOINT_HOST_CALL(cuptiProfilerHostGetConfigImageSize, &size);
  std::vector<uint8_t> image(size.configImageSize);
  CUpti_Profiler_Host_GetConfigImage_Params get = {
      CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE};
  get.pHostObject = object;
  get.pConfigImage = image.data();
  get.configImageSize = image.size();
  if (result == CUPTI_SUCCESS) result = SEQPOINT_HOST_CALL(cuptiProfilerHostGetConfigImage, &get);
  CUpti_Profiler_Host_GetNumOfPasses_Params passes = {
      CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE};
  passes.pConfigImage = image.data();
  passes.configImageSize = image.size();
  if (result == CUPTI_SUCCESS) {
    result = SEQPOINT_HOST_CALL(cuptiProfilerHostGetNumOfPasses, &passes);
  }
  close(object);
  if (result != CUPTI_SUCCESS) return Failed("cuptiProfilerHostGetNumOfPasses", chip, result);
  return static_cast<int>(passes.numOfPasses);
}

std::vector<std::string> HostLibrary::Chips() const {
  CUpti_Profiler_Host_GetSupportedChips_Params params = {
      CUpti_Profiler_Host_GetSupportedChips_Params_STRUCT_SIZE};
  if (SEQPOINT_HOST_CALL(cuptiProfilerHostGetSupportedChips, &params) != CUPTI_SUCCESS) return {};
  return {params.ppChipNames, params.ppChipNames + params.numChips};
}

}  // namespace seqpoint::counters

#else

namespace seqpoint::counters {

absl::StatusOr<HostLibrary> HostLibrary::Open() {
  return absl::UnimplementedError("this build has no CUPTI headers, so passes are not counted");
}
absl::StatusOr<int> HostLibrary::Passes(std::string_view, Backend,
                                        const std::vector<std::string>&) const {
  return Open().status();
}
std::vector<std::string> HostLibrary::Chips() const { return {}; }

}  // namespace seqpoint::counters

#endif
