// A training program that uses CUPTI itself, in one of the ways that there are, and counts what it
// gets. Nobody tells the library of it.
//
//   cupti_user uses=activity|callbacks|clock|range|pm|pc from=N until=M iterations=K sleep_us=U
//
// uses=both: it subscribes and records from N, gives the subscription back after M, and records on.
// uses=between: it records from N, and subscribes for a moment after M. uses=library: a library
// that is loaded beside it (cupti_tool.cc) records from N.
//
// It begins before iteration N and ends after iteration M; N = -1: before cuInit, where that is
// possible. guard=1: a page of its own data may not be read by anybody. data_mb=N: it has written
// to that much static data. It is linked with CUPTI, or (without SEQPOINT_LINKED) takes the
// addresses of its functions by dlsym at its start.
//
// Prints "tool ..." with results and counts, and the software GPU's digest of all work. Both must
// be the same with and without the profiler.
#include <cuda.h>
#include <cupti.h>
#include <cupti_pcsampling.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/softgpu/swgpu.h"

extern "C" {
__attribute__((weak)) int cupti_tool_begin();
__attribute__((weak)) int cupti_tool_kernels();
}

namespace {

// A page with a pointer that the loader has set.
struct alignas(1 << 16) Page {
  decltype(&::cuInit) function = ::cuInit;
} g_guarded;
char g_data[512 << 20];

std::map<std::string, std::string> g_options;
long Option(const char* name, long fallback) {
  const auto found = g_options.find(name);
  return found == g_options.end() ? fallback : atol(found->second.c_str());
}

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "cupti_user: %s gave %d\n", what, static_cast<int>(result));
  exit(3);
}

#ifdef SEQPOINT_LINKED
#define CALL(name) ::name
void LookUp() {}
#else
#define FUNCTIONS(X)                        \
  X(cuptiSubscribe)                         \
  X(cuptiUnsubscribe)                       \
  X(cuptiEnableCallback)                    \
  X(cuptiActivityRegisterCallbacks)         \
  X(cuptiActivityRegisterTimestampCallback) \
  X(cuptiActivityEnable)                    \
  X(cuptiActivityDisable)                   \
  X(cuptiActivityFlushAll)                  \
  X(cuptiActivityGetNextRecord)             \
  X(cuptiProfilerInitialize)                \
  X(cuptiRangeProfilerEnable)               \
  X(cuptiRangeProfilerDisable)              \
  X(cuptiPmSamplingEnable)                  \
  X(cuptiPmSamplingDisable)                 \
  X(cuptiPCSamplingEnable)                  \
  X(cuptiPCSamplingDisable)
struct {
#define FUNCTION(name) decltype(&::name) name = nullptr;
  FUNCTIONS(FUNCTION)
#undef FUNCTION
} g_cupti;
#define CALL(name) g_cupti.name
void LookUp() {
  void* cupti = dlopen("libcupti.so.13", RTLD_NOW);
#define FUNCTION(name) g_cupti.name = reinterpret_cast<decltype(&::name)>(dlsym(cupti, #name));
  FUNCTIONS(FUNCTION)
#undef FUNCTION
}
#endif

std::mutex g_mutex;
std::map<int, int> g_records;
int g_callbacks = 0;

uint64_t OwnClock() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void OnRequest(uint8_t** buffer, size_t* size, size_t* max_records) {
  *size = 1 << 16;
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, *size));
}

void OnComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(g_mutex);
  CUpti_Activity* record = nullptr;
  while (valid > 0 && CALL(cuptiActivityGetNextRecord)(buffer, valid, &record) == CUPTI_SUCCESS) {
    ++g_records[record->kind];
  }
  free(buffer);
}

void OnCallback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  const auto* call = static_cast<const CUpti_CallbackData*>(data);
  if (call->callbackSite == CUPTI_API_ENTER) ++g_callbacks;
}

struct Tool {
  std::string uses;
  std::string results;
  CUpti_SubscriberHandle subscriber = nullptr;
  CUpti_RangeProfiler_Object* range = nullptr;
  CUpti_PmSampling_Object* sampler = nullptr;
  CUcontext context = nullptr;

  void Note(CUptiResult result) { results += " " + std::to_string(static_cast<int>(result)); }
  void InitializeProfiler() {
    CUpti_Profiler_Initialize_Params params = {};
    params.structSize = CUpti_Profiler_Initialize_Params_STRUCT_SIZE;
    Note(CALL(cuptiProfilerInitialize)(&params));
  }

  void Subscribe() { Note(CALL(cuptiSubscribe)(&subscriber, OnCallback, nullptr)); }
  void Record() {
    Note(CALL(cuptiActivityRegisterCallbacks)(OnRequest, OnComplete));
    Note(CALL(cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  }

  void Begin() {
    if (uses == "both") Subscribe();
    if (uses == "both" || uses == "between") Record();
    if (uses == "library") {
      if (!cupti_tool_begin) exit(4);
      results += " " + std::to_string(cupti_tool_begin());
    }
    if (uses == "activity" || uses == "clock") {
      if (uses == "clock") Note(CALL(cuptiActivityRegisterTimestampCallback)(OwnClock));
      Note(CALL(cuptiActivityRegisterCallbacks)(OnRequest, OnComplete));
      Note(CALL(cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
      Note(CALL(cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_MEMCPY));
    } else if (uses == "callbacks") {
      Note(CALL(cuptiSubscribe)(&subscriber, OnCallback, nullptr));
      Note(CALL(cuptiEnableCallback)(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
                                     CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel));
    } else if (uses == "range") {
      InitializeProfiler();
      CUpti_RangeProfiler_Enable_Params params = {};
      params.structSize = CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE;
      Note(CALL(cuptiRangeProfilerEnable)(&params));
      range = params.pRangeProfilerObject;
    } else if (uses == "pm") {
      InitializeProfiler();
      CUpti_PmSampling_Enable_Params params = {};
      params.structSize = CUpti_PmSampling_Enable_Params_STRUCT_SIZE;
      Note(CALL(cuptiPmSamplingEnable)(&params));
      sampler = params.pPmSamplingObject;
    } else if (uses == "pc") {
      CUpti_PCSamplingEnableParams params = {};
      params.size = CUpti_PCSamplingEnableParamsSize;
      params.ctx = context;
      Note(CALL(cuptiPCSamplingEnable)(&params));
    }
  }

  void End() {
    if (uses == "between") Subscribe();
    if (uses == "both" || uses == "between") Note(CALL(cuptiUnsubscribe)(subscriber));
    if (uses == "activity" || uses == "clock") {
      Check(cuCtxSynchronize(), "cuCtxSynchronize");
      Note(CALL(cuptiActivityDisable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
      Note(CALL(cuptiActivityDisable)(CUPTI_ACTIVITY_KIND_MEMCPY));
      Note(CALL(cuptiActivityFlushAll)(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    } else if (uses == "callbacks") {
      Note(CALL(cuptiUnsubscribe)(subscriber));
    } else if (uses == "range") {
      CUpti_RangeProfiler_Disable_Params params = {};
      params.structSize = CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE;
      params.pRangeProfilerObject = range;
      Note(CALL(cuptiRangeProfilerDisable)(&params));
    } else if (uses == "pm") {
      CUpti_PmSampling_Disable_Params params = {};
      params.structSize = CUpti_PmSampling_Disable_Params_STRUCT_SIZE;
      params.pPmSamplingObject = sampler;
      Note(CALL(cuptiPmSamplingDisable)(&params));
    } else if (uses == "pc") {
      CUpti_PCSamplingDisableParams params = {};
      params.size = CUpti_PCSamplingDisableParamsSize;
      params.ctx = context;
      Note(CALL(cuptiPCSamplingDisable)(&params));
    }
  }

  void Print() {
    if (uses == "both" || uses == "between")
      CALL(cuptiActivityFlushAll)(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (uses == "library") results += " " + std::to_string(cupti_tool_kernels());
    const std::lock_guard lock(g_mutex);
    printf("tool%s, %d callbacks", results.c_str(), g_callbacks);
    for (const auto& [kind, count] : g_records) printf(", %d of kind %d", count, kind);
    printf("\n");
  }
};

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) return 2;
    g_options[argument.substr(0, equals)] = argument.substr(equals + 1);
  }
  LookUp();
  if (Option("guard", 0) != 0 && mprotect(&g_guarded, sizeof(g_guarded), PROT_NONE) != 0) return 5;
  memset(g_data, 1, std::min<size_t>(Option("data_mb", 0) << 20, sizeof(g_data)));
  Tool tool;
  tool.uses = g_options["uses"];
  const long from = Option("from", 0), until = Option("until", 1 << 30);
  const long iterations = Option("iterations", 50);
  if (from < 0) tool.Begin();
  Check(cuInit(0), "cuInit");
  CUdevice device;
  CUmodule module;
  CUfunction forward, adam;
  CUstream stream;
  CUdeviceptr data;
  Check(cuDeviceGet(&device, 0), "cuDeviceGet");
  Check(cuDevicePrimaryCtxRetain(&tool.context, device), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(tool.context), "cuCtxSetCurrent");
  Check(cuModuleLoadData(&module, "image"), "cuModuleLoadData");
  Check(cuModuleGetFunction(&forward, module, "forward_layer"), "cuModuleGetFunction");
  Check(cuModuleGetFunction(&adam, module, "adam"), "cuModuleGetFunction");
  Check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  Check(cuMemAlloc(&data, 1 << 20), "cuMemAlloc");
  std::vector<char> host(1 << 20, 1);
  void* arguments[] = {&data};
  for (long i = 0; i < iterations; ++i) {
    if (i == from) tool.Begin();
    Check(cuMemcpyHtoDAsync(data, host.data(), i % 2 == 0 ? 1024 : 2048, stream), "copy");
    for (int layer = 0; layer < 4; ++layer) {
      Check(cuLaunchKernel(forward, 16, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr), "launch");
    }
    Check(cuLaunchKernel(adam, 64, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr), "launch");
    Check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (i == until) tool.End();
    if (Option("sleep_us", 0) > 0) usleep(static_cast<useconds_t>(Option("sleep_us", 0)));
  }
  if (until >= iterations) tool.End();
  tool.Print();
  if (swgpu_digest) {
    printf("digest 0x%llx\n", static_cast<unsigned long long>(swgpu_digest()));
  }
  return 0;
}
