// The model as a CUDA program sees it: order and times of work, bytes, digest, truth.

#include <atomic>
#include <cmath>
#include <thread>

#include "tests/softgpu/test_support.h"

namespace seqpoint::softgpu {
namespace {

SwgpuWork Work(double flops, double bytes) {
  SwgpuWork work{};
  work.flops = flops;
  work.dram_read_bytes = bytes;
  return work;
}

double ElapsedUs(CUevent a, CUevent b) {
  float ms = -1;
  EXPECT_EQ(cuEventElapsedTime(&ms, a, b), CUDA_SUCCESS);
  return ms * 1e3;
}

TEST(Model, CopiesMoveBytesInStreamOrder) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    std::vector<uint8_t> in(1000), out(1000);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 7);
    CU_OK(cuMemcpyHtoDAsync(gpu.memory, in.data(), in.size(), gpu.stream));
    CU_OK(cuMemsetD8Async(gpu.memory, 9, 10, gpu.stream));
    CU_OK(cuMemcpyDtoHAsync(out.data(), gpu.memory, out.size(), gpu.stream));
    CU_OK(cuStreamSynchronize(gpu.stream));
    for (size_t i = 0; i < 10; ++i) in[i] = 9;
    EXPECT_EQ(in, out);
    CU_OK(cuMemsetD32(gpu.memory, 0x01020304, 250));
    CU_OK(cuMemcpyDtoH(out.data(), gpu.memory, out.size()));
    EXPECT_EQ(out[4], 4);
    EXPECT_EQ(out[999], 1);
    CU_OK(cuMemsetD8(gpu.memory, 0, 1 << 20));
    CU_OK(cuMemcpyDtoH(out.data(), gpu.memory + 5000, out.size()));
    EXPECT_EQ(out, std::vector<uint8_t>(1000, 0));
  });
}

TEST(Model, DurationFollowsTheRoofline) {
  InProcess(std::string(kNoNoise) +
                "gpu.efficiency=1,gpu.fp32_tflops=10,gpu.dram_gbps=1000,gpu.sms=100,"
                "gpu.kernel_min_ns=1000",
            [] {
              Gpu gpu;
              gpu.Open();
              CUevent a, b;
              CU_OK(cuEventCreate(&a, 0));
              CU_OK(cuEventCreate(&b, 0));
              auto time_us = [&](const SwgpuWork& work, unsigned grid) {
                gpu.Launch(gpu.relu);  // so that the stream is busy when the events come
                EXPECT_EQ(cuEventRecord(a, gpu.stream), CUDA_SUCCESS);
                swgpu_next_launch_work(&work);
                gpu.Launch(gpu.gemm, grid);
                EXPECT_EQ(cuEventRecord(b, gpu.stream), CUDA_SUCCESS);
                EXPECT_EQ(cuStreamSynchronize(gpu.stream), CUDA_SUCCESS);
                return ElapsedUs(a, b);
              };
              const double gap_us = 10;
              EXPECT_NEAR(time_us(Work(1e10, 0), 100), 1000, gap_us);    // 10 TFLOP/s
              EXPECT_NEAR(time_us(Work(1e10, 0), 25), 4000, gap_us);     // a quarter of the SMs
              EXPECT_NEAR(time_us(Work(0, 1e9), 100), 1000, gap_us);     // 1 TB/s
              EXPECT_NEAR(time_us(Work(1e10, 5e8), 100), 1000, gap_us);  // the larger counts
              EXPECT_NEAR(time_us(Work(1, 0), 100), 1, gap_us);          // the minimum
            });
}

TEST(Model, OneKernelCanBeMadeSlower) {
  InProcess(std::string(kNoNoise) +
                "gpu.efficiency=1,gpu.fp32_tflops=10,gpu.sms=100,gpu.slow_kernel=gemm,"
                "gpu.slow_kernel_factor=1.5",
            [] {
              Gpu gpu;
              gpu.Open();
              CUevent a, b;
              CU_OK(cuEventCreate(&a, 0));
              CU_OK(cuEventCreate(&b, 0));
              auto time_us = [&](CUfunction kernel) {
                const SwgpuWork work = Work(1e10, 0);
                gpu.Launch(gpu.relu);  // so that the stream is busy when the events come
                EXPECT_EQ(cuEventRecord(a, gpu.stream), CUDA_SUCCESS);
                swgpu_next_launch_work(&work);
                gpu.Launch(kernel, 100);
                EXPECT_EQ(cuEventRecord(b, gpu.stream), CUDA_SUCCESS);
                EXPECT_EQ(cuStreamSynchronize(gpu.stream), CUDA_SUCCESS);
                return ElapsedUs(a, b);
              };
              EXPECT_NEAR(time_us(gpu.gemm), 1500, 10);
              EXPECT_NEAR(time_us(gpu.relu), 1000, 10);
            });
}

TEST(Model, KernelsOfOneStreamNeverOverlap) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY});
    int value = 1;
    for (int i = 0; i < 2000; ++i) {
      gpu.Launch(i % 2 ? gpu.gemm : gpu.relu, 1 + i % 300);
      if (i % 100 == 0) {
        CU_OK(cuMemcpyHtoDAsync(gpu.memory, &value, 4, gpu.stream));
      }
    }
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    auto kernels = recorder.Kernels();
    ASSERT_EQ(kernels.size(), 2000u);
    for (size_t i = 1; i < kernels.size(); ++i) {
      ASSERT_GE(kernels[i].start, kernels[i - 1].end);
      ASSERT_GT(kernels[i].end, kernels[i].start);
    }
    EXPECT_STREQ(kernels[0].name, "relu");
    EXPECT_STREQ(kernels[1].name, "gemm");
    EXPECT_EQ(kernels[7].gridX, 8);
    EXPECT_EQ(kernels[7].blockX, 128);
  });
}

TEST(Model, StreamsOverlapUnlessTheyMayNot) {
  InProcess(std::string(kNoNoise) + "gpu.sms=100", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY});
    CUstream other;
    CU_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    SwgpuWork long_work = Work(1e10, 0);
    auto launch = [&](unsigned grid, CUstream stream) {
      swgpu_next_launch_work(&long_work);
      gpu.Launch(gpu.gemm, grid, stream);
    };
    launch(10, gpu.stream);  // small ones share the GPU
    launch(10, other);
    launch(100, gpu.stream);  // large ones do not
    launch(100, other);
    CUevent event;
    CU_OK(cuEventCreate(&event, 0));
    launch(10, gpu.stream);
    CU_OK(cuEventRecord(event, gpu.stream));
    CU_OK(cuStreamWaitEvent(other, event, 0));
    launch(10, other);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    auto k = recorder.Kernels();
    ASSERT_EQ(k.size(), 6u);
    EXPECT_LT(k[1].start, k[0].end);
    EXPECT_GE(k[2].start, std::max(k[0].end, k[1].end));
    EXPECT_GE(k[3].start, k[2].end);
    EXPECT_GE(k[5].start, k[4].end);
  });
}

TEST(Model, TheLegacyStreamWaitsForBlockingStreams) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    CUstream blocking;
    CU_OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    gpu.Launch(gpu.gemm, 1, blocking);
    gpu.Launch(gpu.gemm, 1, CU_STREAM_LEGACY);
    gpu.Launch(gpu.gemm, 1, blocking);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    auto k = recorder.Kernels();
    ASSERT_EQ(k.size(), 3u);
    EXPECT_GE(k[1].start, k[0].end);
    EXPECT_GE(k[2].start, k[1].end);
  });
}

TEST(Model, WaitsJumpInVirtualTimeAndLastInRealTime) {
  for (const char* mode : {"virtual", "real"}) {
    InProcess(std::string(kNoNoise) + "clock.speed_cap=0,clock.mode=" + mode, [] {
      Gpu gpu;
      gpu.Open();
      SwgpuWork work = Work(60e12 * 0.6 * 0.2, 0);  // 200 ms
      uint64_t before = swgpu_now_ns();
      swgpu_next_launch_work(&work);
      gpu.Launch(gpu.gemm);
      EXPECT_EQ(cuStreamQuery(gpu.stream), CUDA_ERROR_NOT_READY);
      CU_OK(cuStreamSynchronize(gpu.stream));
      EXPECT_EQ(cuStreamQuery(gpu.stream), CUDA_SUCCESS);
      EXPECT_GE(swgpu_now_ns() - before, 200'000'000u);
    });
  }
}

TEST(Model, VirtualSpeedIsCapped) {
  InProcess(std::string(kNoNoise) + "clock.speed_cap=10", [] {
    Gpu gpu;
    gpu.Open();
    timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 100; ++i) swgpu_host_work(10'000'000);  // a second
    clock_gettime(CLOCK_MONOTONIC, &end);
    double real_s = static_cast<double>(end.tv_sec - begin.tv_sec) +
                    static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-9;
    EXPECT_GE(real_s, 0.09);
  });
}

TEST(Model, AFullQueueBlocksTheLaunch) {
  InProcess(std::string(kNoNoise) + "clock.speed_cap=0,gpu.queue_depth=4,gpu.kernel_min_ns=1000000",
            [] {
              Gpu gpu;
              gpu.Open();
              uint64_t before = swgpu_now_ns();
              for (int i = 0; i < 4; ++i) gpu.Launch(gpu.gemm);
              EXPECT_LT(swgpu_now_ns() - before, 1'000'000u);
              gpu.Launch(gpu.gemm);
              EXPECT_GE(swgpu_now_ns() - before, 1'000'000u);
            });
}

TEST(Model, HostFunctionsRunInStreamOrder) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    static std::vector<int> order;
    for (int i = 0; i < 10; ++i) {
      gpu.Launch(gpu.gemm);
      CU_OK(cuLaunchHostFunc(
          gpu.stream, [](void* i) { order.push_back(static_cast<int>(intptr_t(i))); },
          reinterpret_cast<void*>(intptr_t(i))));
    }
    CU_OK(cuStreamSynchronize(gpu.stream));
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  });
}

TEST(Model, WaitingForAHostFunctionByOtherMeansIsNoDeadlock) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    static std::atomic<bool> ran{false};
    SwgpuWork work = Work(1e12, 0);
    swgpu_next_launch_work(&work);
    gpu.Launch(gpu.gemm);
    uint64_t before = swgpu_now_ns();
    CU_OK(cuLaunchHostFunc(
        gpu.stream, [](void*) { ran = true; }, nullptr));
    while (!ran) usleep(100);
    EXPECT_GT(swgpu_now_ns() - before, 1'000'000u) << "it ran after the kernel";
  });
}

TEST(Model, CapturesJoinOverEvents) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    CUstream other;
    CUevent fork_event, join_event;
    CU_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CU_OK(cuEventCreate(&fork_event, 0));
    CU_OK(cuEventCreate(&join_event, 0));
    CU_OK(cuStreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    gpu.Launch(gpu.gemm);
    CU_OK(cuEventRecord(fork_event, gpu.stream));
    CU_OK(cuStreamWaitEvent(other, fork_event, 0));
    gpu.Launch(gpu.relu, 1, other);
    CU_OK(cuEventRecord(join_event, other));
    CU_OK(cuStreamWaitEvent(gpu.stream, join_event, 0));
    CUgraph graph;
    CU_OK(cuStreamEndCapture(gpu.stream, &graph));
    size_t nodes = 0;
    CU_OK(cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 2u);
    CUstreamCaptureStatus status;
    CU_OK(cuStreamIsCapturing(other, &status));
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(cuStreamWaitEvent(other, fork_event, 0), CUDA_ERROR_CAPTURED_EVENT);
    CUgraphExec exec;
    CU_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CU_OK(cuGraphLaunch(exec, gpu.stream));
    CU_OK(cuCtxSynchronize());
    SwgpuTotals totals;
    swgpu_totals(&totals);
    EXPECT_EQ(totals.launches, 2u);
  });
}

// Whether a capture of one kernel, in `mode`, survives what `meanwhile` does.
template <typename Meanwhile>
bool CaptureSurvives(Gpu& gpu, CUstreamCaptureMode mode, const Meanwhile& meanwhile) {
  EXPECT_EQ(cuStreamBeginCapture(gpu.stream, mode), CUDA_SUCCESS);
  gpu.Launch(gpu.gemm);
  meanwhile();
  CUgraph graph = nullptr;
  const CUresult result = cuStreamEndCapture(gpu.stream, &graph);
  EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph != nullptr, result == CUDA_SUCCESS);
  return result == CUDA_SUCCESS;
}

TEST(Model, WhatACaptureForbidsEndsIt) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    const auto on_another_thread = [&gpu](auto work) {
      return [&gpu, work] {
        std::thread([&] {
          CU_OK(cuCtxSetCurrent(gpu.context));
          work();
        }).join();
      };
    };
    const auto synchronize = [] {
      EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    };
    const auto allocate = [] {
      CUdeviceptr memory;
      cuMemAlloc(&memory, 64);
    };
    const auto relaxed = [allocate] {
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      CU_OK(cuThreadExchangeStreamCaptureMode(&mode));
      allocate();
      CU_OK(cuThreadExchangeStreamCaptureMode(&mode));
    };
    const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const CUstreamCaptureMode local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    EXPECT_TRUE(CaptureSurvives(gpu, global, [] {}));
    EXPECT_FALSE(CaptureSurvives(gpu, global, [&] {
      EXPECT_EQ(cuStreamSynchronize(gpu.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }));
    for (const CUstreamCaptureMode mode : {global, local, CU_STREAM_CAPTURE_MODE_RELAXED}) {
      EXPECT_FALSE(CaptureSurvives(gpu, mode, synchronize));
      EXPECT_FALSE(CaptureSurvives(gpu, mode, on_another_thread(synchronize)));
    }
    EXPECT_FALSE(CaptureSurvives(gpu, global, allocate));
    EXPECT_FALSE(CaptureSurvives(gpu, global, on_another_thread(allocate)));
    EXPECT_TRUE(CaptureSurvives(gpu, global, on_another_thread(relaxed)));
    EXPECT_FALSE(CaptureSurvives(gpu, local, allocate));
    EXPECT_TRUE(CaptureSurvives(gpu, local, on_another_thread(allocate)));
    EXPECT_TRUE(CaptureSurvives(gpu, CU_STREAM_CAPTURE_MODE_RELAXED, allocate));
  });
}

struct RunResult {
  uint64_t digest;
  uint64_t virtual_ns;
  SwgpuTotals totals;
};

// One run of a small program in a process of its own; the result comes back through a pipe.
RunResult RunProgram(const std::string& settings, int variant) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  InProcess(settings, [&] {
    Gpu gpu;
    gpu.Open();
    uint64_t start = swgpu_now_ns();
    for (int i = 0; i < 200; ++i) {
      int batch = i + (variant == 2 && i == 100);
      CU_OK(cuMemcpyHtoDAsync(gpu.memory, &batch, sizeof(batch), gpu.stream));
      bool swapped = variant == 1 && i == 100;
      gpu.Launch(swapped ? gpu.relu : gpu.gemm, 50);
      gpu.Launch(swapped ? gpu.gemm : gpu.relu, 50);
      swgpu_host_work(10000);
      CU_OK(cuStreamSynchronize(gpu.stream));
    }
    RunResult result{swgpu_digest(), swgpu_now_ns() - start, {}};
    swgpu_totals(&result.totals);
    ASSERT_EQ(write(ends[1], &result, sizeof(result)), static_cast<ssize_t>(sizeof(result)));
  });
  RunResult result{};
  close(ends[1]);
  EXPECT_EQ(read(ends[0], &result, sizeof(result)), static_cast<ssize_t>(sizeof(result)));
  close(ends[0]);
  return result;
}

TEST(Model, SameSeedSameRunAndTheDigestSeesOrderAndBytes) {
  RunResult first = RunProgram("noise.seed=3", 0);
  RunResult again = RunProgram("noise.seed=3", 0);
  EXPECT_EQ(first.digest, again.digest);
  EXPECT_EQ(first.virtual_ns, again.virtual_ns);
  EXPECT_EQ(first.totals.kernel_time_ns, again.totals.kernel_time_ns);
  RunResult other_seed = RunProgram("noise.seed=4", 0);
  EXPECT_EQ(first.digest, other_seed.digest);
  EXPECT_NE(first.totals.kernel_time_ns, other_seed.totals.kernel_time_ns);
  EXPECT_NE(first.digest, RunProgram("", 1).digest);  // two launches swapped
  EXPECT_NE(first.digest, RunProgram("", 2).digest);  // one byte of one copy
}

TEST(Model, TotalsAreTheWorkThatWasTold) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    SwgpuWork work{};
    work.dram_read_bytes = 1000;
    work.dram_write_bytes = 500;
    work.instructions = 77;
    for (int i = 0; i < 10; ++i) {
      swgpu_next_launch_work(&work);
      gpu.Launch(gpu.gemm);
    }
    SwgpuTotals totals;
    swgpu_totals(&totals);
    EXPECT_EQ(totals.launches, 10u);
    EXPECT_EQ(totals.dram_read_bytes, 10000);
    EXPECT_EQ(totals.dram_write_bytes, 5000);
    EXPECT_EQ(totals.instructions, 770);
    gpu.Launch(gpu.gemm);  // the hint held for one launch
    swgpu_totals(&totals);
    EXPECT_NE(totals.instructions, 847);
  });
}

TEST(Model, NoiseHasTheConfiguredSize) {
  InProcess("clock.speed_cap=0,noise.kernel=0.02,noise.slow_share=0,noise.drift=0", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.buffer_bytes = 8 << 20;
    recorder.Enable({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    SwgpuWork work = Work(36e6, 0);
    work.flops = 36e9;  // 1 ms
    for (int i = 0; i < 5000; ++i) {
      swgpu_next_launch_work(&work);
      gpu.Launch(gpu.gemm);
    }
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    double sum = 0, squares = 0;
    auto kernels = recorder.Kernels();
    ASSERT_EQ(kernels.size(), 5000u);
    for (const auto& k : kernels) {
      double ms = static_cast<double>(k.end - k.start) * 1e-6;
      sum += ms;
      squares += ms * ms;
    }
    double mean = sum / 5000;
    EXPECT_NEAR(mean, 1, 0.002);
    EXPECT_NEAR(std::sqrt(squares / 5000 - mean * mean), 0.02, 0.002);
  });
}

TEST(Model, SlowPeriodsBeginAtCopiesFromTheHost) {
  InProcess(std::string(kNoNoise) + "clock.speed_cap=0,noise.slow_share=0.2,noise.slow_factor=2",
            [] {
              Gpu gpu;
              gpu.Open();
              Recorder& recorder = Recorder::Get();
              recorder.Enable({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
              int batch = 0;
              for (int i = 0; i < 200; ++i) {
                CU_OK(cuMemcpyHtoDAsync(gpu.memory, &batch, 4, gpu.stream));
                gpu.Launch(gpu.gemm);
                gpu.Launch(gpu.gemm);
              }
              CU_OK(cuCtxSynchronize());
              CUPTI_OK(cuptiActivityFlushAll(0));
              auto k = recorder.Kernels();
              ASSERT_EQ(k.size(), 400u);
              int slow = 0;
              for (size_t i = 0; i < k.size(); i += 2) {
                EXPECT_NEAR(static_cast<double>(k[i].end - k[i].start),
                            static_cast<double>(k[i + 1].end - k[i + 1].start), 2);
                slow += k[i].end - k[i].start > 3000;
              }
              EXPECT_GT(slow, 15);
              EXPECT_LT(slow, 80);
            });
}

TEST(Model, TheFirstUseOfAMatrixShapePaysForASearch) {
  InProcess(std::string(kNoNoise) + "clock.speed_cap=0,noise.search_ns=5000000", [] {
    Gpu gpu;
    gpu.Open();
    SwgpuWork work{};
    work.tensor_flops = 1e6;
    auto launch_ns = [&](unsigned grid) {
      uint64_t before = swgpu_now_ns();
      swgpu_next_launch_work(&work);
      gpu.Launch(gpu.gemm, grid);
      return swgpu_now_ns() - before;
    };
    EXPECT_GE(launch_ns(10), 5'000'000u);
    EXPECT_LT(launch_ns(10), 1'000'000u);
    EXPECT_GE(launch_ns(11), 5'000'000u);
  });
}

TEST(Model, DevicesWorkBesideEachOther) {
  InProcess(std::string(kNoNoise) + "gpu.count=2", [] {
    Gpu gpus[2];
    Recorder& recorder = Recorder::Get();
    recorder.Enable({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY2});
    CU_OK(cuInit(0));
    SwgpuWork work = Work(1e10, 0);
    for (int device = 0; device < 2; ++device) {
      Gpu& gpu = gpus[device];
      CU_OK(cuDevicePrimaryCtxRetain(&gpu.context, device));
      CU_OK(cuCtxSetCurrent(gpu.context));
      CU_OK(cuStreamCreate(&gpu.stream, CU_STREAM_NON_BLOCKING));
      CU_OK(cuMemAlloc(&gpu.memory, 1000));
      CUmodule module;
      CU_OK(cuModuleLoadData(&module, "image"));
      CU_OK(cuModuleGetFunction(&gpu.gemm, module, "gemm"));
      swgpu_next_launch_work(&work);
      gpu.Launch(gpu.gemm);
    }
    CU_OK(cuMemcpyPeerAsync(gpus[0].memory, gpus[0].context, gpus[1].memory, gpus[1].context, 1000,
                            gpus[1].stream));
    for (Gpu& gpu : gpus) {
      CU_OK(cuCtxSetCurrent(gpu.context));
      CU_OK(cuCtxSynchronize());
    }
    CUPTI_OK(cuptiActivityFlushAll(0));
    auto kernels = recorder.Kernels();
    ASSERT_EQ(kernels.size(), 2u);
    EXPECT_EQ(kernels[0].deviceId, 0u);
    EXPECT_EQ(kernels[1].deviceId, 1u);
    EXPECT_LT(kernels[1].start, kernels[0].end);
    auto copies = recorder.Records<CUpti_ActivityMemcpyPtoP4>(CUPTI_ACTIVITY_KIND_MEMCPY2);
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].srcDeviceId, 1u);
    EXPECT_EQ(copies[0].dstDeviceId, 0u);
    EXPECT_GE(copies[0].start, kernels[1].end);
  });
}

TEST(Model, ErrorsAreTheDriversErrors) {
  InProcess("gpu.memory_gb=1", [] {
    CUdevice device;
    EXPECT_EQ(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    CU_OK(cuInit(0));
    CUdeviceptr memory;
    EXPECT_EQ(cuMemAlloc(&memory, 10), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
    Gpu gpu;
    gpu.Open();
    EXPECT_EQ(cuMemAlloc(&memory, 2ull << 30), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemFree(12345), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuLaunchKernel(gpu.gemm, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuLaunchKernel(gpu.gemm, 1, 1, 1, 2048, 1, 1, 0, nullptr, nullptr, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    const char* name = nullptr;
    CU_OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    EXPECT_STREQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
  });
}

TEST(Model, AForkedChildCannotUseTheGpu) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    gpu.Launch(gpu.gemm);
    pid_t pid = fork();
    if (pid == 0) {
      CUdeviceptr memory;
      bool refused = cuMemAlloc(&memory, 10) == CUDA_ERROR_NOT_INITIALIZED &&
                     cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
      _exit(refused ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
    gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
  });
}

}  // namespace
}  // namespace seqpoint::softgpu
