// The cost of the software GPU itself in real mode, which is part of all measurements of the
// profiler: a launch alone, with a driver callback, with an activity record, with both; and a
// launch from several threads.

#include <benchmark/benchmark.h>
#include <cuda.h>
#include <cupti.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

CUcontext g_context;
CUfunction g_kernel;
CUpti_SubscriberHandle g_subscriber;

void Check(bool ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "softgpu_benchmark: %s failed\n", what);
  exit(1);
}

constexpr size_t kBufferBytes = 1 << 20;
constexpr size_t kBuffers = 16;

void CUPTIAPI OnRequest(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  static auto* pool = static_cast<uint8_t*>(aligned_alloc(4096, kBufferBytes * kBuffers));
  static std::atomic<size_t> next{0};
  *buffer = pool + next++ % kBuffers * kBufferBytes;
  *bytes = kBufferBytes;
  *max_records = 0;
}

void CUPTIAPI OnComplete(CUcontext, uint32_t, uint8_t*, size_t, size_t) {}

void CUPTIAPI OnCallback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  benchmark::DoNotOptimize(data);
}

void Initialize() {
  setenv("SWGPU_SET",
         "clock.mode=real,gpu.kernel_min_ns=10,gpu.kernel_gap_ns=0,gpu.launch_latency_ns=10", 0);
  Check(cuInit(0) == CUDA_SUCCESS, "cuInit");
  Check(cuDevicePrimaryCtxRetain(&g_context, 0) == CUDA_SUCCESS, "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(g_context) == CUDA_SUCCESS, "cuCtxSetCurrent");
  CUmodule module;
  Check(cuModuleLoadData(&module, "image") == CUDA_SUCCESS, "cuModuleLoadData");
  Check(cuModuleGetFunction(&g_kernel, module, "kernel") == CUDA_SUCCESS, "cuModuleGetFunction");
  Check(cuptiSubscribe(&g_subscriber, OnCallback, nullptr) == CUPTI_SUCCESS, "cuptiSubscribe");
  Check(cuptiActivityRegisterCallbacks(OnRequest, OnComplete) == CUPTI_SUCCESS,
        "cuptiActivityRegisterCallbacks");
}

// Arguments: callback, record.
void LaunchKernels(benchmark::State& state) {
  cuCtxSetCurrent(g_context);
  CUstream stream;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (state.thread_index() == 0) {
    cuptiEnableCallback(state.range(0) != 0, g_subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
                        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    if (state.range(1) != 0) {
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    } else {
      cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    }
  }
  for (auto _ : state) {
    cuLaunchKernel(g_kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
  }
  cuStreamSynchronize(stream);
  cuStreamDestroy(stream);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(LaunchKernels)
    ->ArgNames({"callback", "record"})
    ->Args({0, 0})
    ->Args({1, 0})
    ->Args({0, 1})
    ->Args({1, 1});
BENCHMARK(LaunchKernels)->ArgNames({"callback", "record"})->Args({1, 1})->Threads(2);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  Initialize();
  benchmark::RunSpecifiedBenchmarks();
}
