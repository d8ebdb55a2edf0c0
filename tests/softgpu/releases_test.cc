// The differences between CUPTI's releases, and misuse that no release survives: releases.h and
// docs/internals/software-gpu.md.
#include "tests/softgpu/releases.h"

#include <time.h>

#include "tests/softgpu/test_support.h"

namespace seqpoint::softgpu {
namespace {

constexpr CUpti_ActivityKind kKernel = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;

uint64_t Ticks() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec)) *
         12 / 5;
}
uint64_t System() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// How long a record says that a kernel took, under the clock of `callback`.
uint64_t KernelTook(Gpu& gpu, CUpti_TimestampCallbackFunc callback) {
  if (callback != nullptr) cuptiActivityRegisterTimestampCallback(callback);
  usleep(50'000);  // the rate of the two clocks is known to some parts in a thousand
  gpu.Launch(gpu.gemm, 20'000);
  cuCtxSynchronize();
  cuptiActivityFlushAll(0);
  const CUpti_ActivityKernel10 kernel = Recorder::Get().Kernels().back();
  return kernel.end - kernel.start;
}

TEST(Releases, AClockMayCountAnythingAndStays) {
  InProcess(
      "clock.mode=real,noise.kernel=0,noise.drift=0,noise.slow_share=0,cupti.version=130100", [] {
        Gpu gpu;
        gpu.Open();
        Recorder::Get().Enable({kKernel});
        const double usual = static_cast<double>(KernelTook(gpu, nullptr));
        EXPECT_NEAR(static_cast<double>(KernelTook(gpu, Ticks)) / usual, 2.4, 0.1);
        EXPECT_EQ(cuptiActivityRegisterTimestampCallback(nullptr), CUPTI_ERROR_INVALID_PARAMETER);
        uint64_t now = 0;
        CUPTI_OK(cuptiGetTimestamp(&now));
        EXPECT_NEAR(static_cast<double>(now), static_cast<double>(Ticks()), 1e9);
        EXPECT_NEAR(static_cast<double>(KernelTook(gpu, System)) / usual, 1, 0.001);
      });
}

TEST(Releases, KernelStartsAreLostOnlyWhereTheNotesSaySo) {
  for (const auto& [version, lost] :
       {std::pair{22, false}, {24, true}, {130001, true}, {130100, false}}) {
    InProcess("clock.mode=real,cupti.version=" + std::to_string(version), [lost = lost] {
      Gpu gpu;
      gpu.Open();
      Recorder::Get().Enable({kKernel});
      KernelTook(gpu, System);
      EXPECT_EQ(Recorder::Get().Kernels().at(0).start == 0, lost);
    });
  }
}

TEST(Releases, TheTwoActivityApisExcludeEachOtherFrom132On) {
  for (const auto& [version, separate] : {std::pair{130101, false}, {130200, true}}) {
    InProcess("cupti.version=" + std::to_string(version), [separate = separate] {
      Gpu gpu;
      gpu.Open();
      CUpti_SubscriberParams params = {};
      params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
      CUpti_SubscriberHandle handle;
      CUPTI_OK(cuptiSubscribe_v2(
          &handle, [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}, nullptr,
          &params));
      EXPECT_EQ(cuptiActivityEnable(kKernel),
                separate ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED : CUPTI_SUCCESS);
    });
  }
}

TEST(Releases, IdsOfGraphLaunchesAreWrongFromTheSecondSessionOn) {
  for (const auto& [version, wrong] : {std::pair{130100, true}, {130101, false}}) {
    InProcess("cupti.version=" + std::to_string(version), [wrong = wrong] {
      Gpu gpu;
      gpu.Open();
      Recorder& recorder = Recorder::Get();
      recorder.Subscribe();
      CUPTI_OK(cuptiEnableCallback(1, recorder.handle, CUPTI_CB_DOMAIN_DRIVER_API,
                                   CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch));
      recorder.Enable({kKernel});
      CUgraph graph;
      CUgraphExec exec = nullptr;
      CU_OK(cuStreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
      gpu.Launch(gpu.gemm);
      CU_OK(cuStreamEndCapture(gpu.stream, &graph));
      CU_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
      for (int session = 0; session < 2; ++session) {
        for (int i = 0; i < 2; ++i) CU_OK(cuGraphLaunch(exec, gpu.stream));
        CU_OK(cuCtxSynchronize());
        CUPTI_OK(cuptiActivityDisable(kKernel));
        CUPTI_OK(cuptiActivityEnable(kKernel));
      }
      CUPTI_OK(cuptiActivityFlushAll(0));
      ASSERT_EQ(recorder.Kernels().size(), 4u);
      // Each callback comes twice, at the call's begin and end.
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(recorder.Kernels()[i].correlationId == recorder.callbacks[2 * i].correlation_id,
                  i < 2 || !wrong)
            << i;
      }
    });
  }
}

TEST(Releases, KernelsHaveTheNamesOfAnUnloadedModule) {
  for (const auto& [version, stale] : {std::pair{130400, true}, {130401, false}}) {
    InProcess("cupti.version=" + std::to_string(version), [stale = stale] {
      Gpu gpu;
      gpu.Open();
      Recorder::Get().Enable({kKernel});
      CUmodule first, second;
      CUfunction before, after;
      CU_OK(cuModuleLoadData(&first, "image"));
      CU_OK(cuModuleGetFunction(&before, first, "before"));
      CU_OK(cuModuleUnload(first));
      CU_OK(cuModuleLoadData(&second, "image"));
      CU_OK(cuModuleGetFunction(&after, second, "after"));
      gpu.Launch(after);
      CU_OK(cuCtxSynchronize());
      CUPTI_OK(cuptiActivityFlushAll(0));
      EXPECT_STREQ(Recorder::Get().Kernels().at(0).name, stale ? "before" : "after");
    });
  }
}

TEST(Releases, WorkThatRunsWhenItsKindIsDisabledHasNoEnd) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder::Get().Enable({kKernel});
    gpu.Launch(gpu.gemm, 20'000);
    CUPTI_OK(cuptiActivityDisable(kKernel));
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    EXPECT_EQ(Recorder::Get().Kernels().at(0).end, 0u);
  });
}

// Seen on an H200 with CUPTI 13.0.1 (docs/measurements/2026-11-27-h200.md).
TEST(Releases, CopiesEndWithMemsetsUntilTheyAreBegunAgain) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    CUdeviceptr memory;
    CU_OK(cuMemAlloc(&memory, 64));
    Recorder& recorder = Recorder::Get();
    recorder.Enable({CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET});
    const auto copy = [&] {
      const char data[64] = {};
      CU_OK(cuMemcpyHtoD(memory, data, sizeof(data)));
      CUPTI_OK(cuptiActivityFlushAll(0));
    };
    const auto copies = [&] {
      return recorder.Records<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY).size();
    };
    copy();
    EXPECT_EQ(copies(), 1u);
    CUPTI_OK(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMSET));
    copy();
    EXPECT_EQ(copies(), 1u);
    CUPTI_OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY));
    copy();
    EXPECT_EQ(copies(), 1u);
    CUPTI_OK(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMCPY));
    CUPTI_OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY));
    copy();
    EXPECT_EQ(copies(), 2u);
  });
}

TEST(Releases, AnEndOfCuptiDropsEverythingOfEverybody) {
  InProcess("cupti.residual_launch_ns=100000,cupti.kernel_record_limit=3", [] {
    Gpu gpu;
    gpu.Open();
    const auto launch = [&gpu] {
      const uint64_t begin = swgpu_now_ns();
      gpu.Launch(gpu.gemm);
      return swgpu_now_ns() - begin;
    };
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    recorder.Enable({kKernel});
    EXPECT_LT(launch(), 50'000u);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityDisable(kKernel));
    EXPECT_GT(launch(), 50'000u) << "slower, to the end of CUPTI";
    CUPTI_OK(cuptiFinalize());
    EXPECT_LT(launch(), 50'000u);
    EXPECT_EQ(cuptiEnableCallback(1, recorder.handle, CUPTI_CB_DOMAIN_RESOURCE, 1),
              CUPTI_ERROR_INVALID_PARAMETER);
    const size_t before = recorder.records.size();
    CUPTI_OK(cuptiActivityEnable(kKernel));
    launch();
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.records.size(), before) << "nobody is registered";
    recorder.Enable({kKernel});
    launch();
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.Kernels().back().end, 0u) << "the device buffers have run out";
  });
}

TEST(Releases, ACallThatIsUnderWayHasItsEndAlone) {
  InProcess("clock.mode=real", [] {
    constexpr auto kDriver = CUPTI_CB_DOMAIN_DRIVER_API;
    constexpr auto kCall = CUPTI_DRIVER_TRACE_CBID_cuStreamCreate;
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    CUPTI_OK(cuptiEnableCallback(1, recorder.handle, kDriver,
                                 CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion));  // calls have ids
    CUPTI_OK(cuptiEnableCallback(1, recorder.handle, CUPTI_CB_DOMAIN_RESOURCE,
                                 CUPTI_CBID_RESOURCE_STREAM_CREATED));
    // The stream is told of within the call that creates it.
    recorder.also = [&](CUpti_CallbackDomain domain, uint32_t, const void*) {
      if (domain == kDriver) return;
      CUPTI_OK(cuptiEnableCallback(1, recorder.handle, kDriver, kCall));
    };
    CUstream stream = nullptr;
    CU_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ASSERT_EQ(recorder.callbacks.size(), 2u);
    EXPECT_EQ(recorder.callbacks[0].cbid, uint32_t{CUPTI_CBID_RESOURCE_STREAM_CREATED});
    EXPECT_EQ(recorder.callbacks[1].cbid, uint32_t{kCall});
    EXPECT_EQ(recorder.callbacks[1].site, CUPTI_API_EXIT);
  });
}

}  // namespace
}  // namespace seqpoint::softgpu
