// The plainest tracer there can be, for the overhead ladder: by CUDA_INJECTION64_PATH it records
// what torch.profiler's Kineto records (kernels, copies, memsets, all runtime and driver calls)
// into buffers of 4 MiB, as Kineto's, and throws them away. What any tracer through CUPTI costs at
// least.
#include <cupti.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include <initializer_list>

namespace {

constexpr size_t kBufferBytes = 4 << 20;

void CUPTIAPI OnRequest(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *bytes = kBufferBytes;
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, kBufferBytes));
}

void CUPTIAPI OnComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t) { free(buffer); }

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  void* cupti = dlopen("libcupti.so.13", RTLD_NOW);
  if (cupti == nullptr) return 0;
  const auto take = reinterpret_cast<decltype(&cuptiActivityRegisterCallbacks)>(
      dlsym(cupti, "cuptiActivityRegisterCallbacks"));
  const auto enable =
      reinterpret_cast<decltype(&cuptiActivityEnable)>(dlsym(cupti, "cuptiActivityEnable"));
  if (take == nullptr || enable == nullptr || take(OnRequest, OnComplete) != CUPTI_SUCCESS)
    return 0;
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER}) {
    enable(kind);
  }
  return 1;
}
