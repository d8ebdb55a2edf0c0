// CUPTI as a profiler sees it: callbacks, records, correlation, and every failure that can be set.

#include <atomic>
#include <map>
#include <set>

#include "tests/softgpu/test_support.h"

namespace seqpoint::softgpu {
namespace {

constexpr auto kKernel = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
constexpr auto kMemcpy = CUPTI_ACTIVITY_KIND_MEMCPY;
constexpr auto kMemset = CUPTI_ACTIVITY_KIND_MEMSET;

void EnableDriver(uint32_t cbid) {
  CUPTI_OK(cuptiEnableCallback(1, Recorder::Get().handle, CUPTI_CB_DOMAIN_DRIVER_API, cbid));
}

TEST(Cupti, RecordsCarryTheIdsOfTheCallbacks) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    for (uint32_t cbid :
         {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2,
          CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async}) {
      EnableDriver(cbid);
    }
    recorder.Enable({kKernel, kMemcpy, kMemset});
    int value = 3;
    gpu.Launch(gpu.gemm);
    CU_OK(cuMemcpyHtoDAsync(gpu.memory, &value, 4, gpu.stream));
    CU_OK(cuMemsetD8Async(gpu.memory, 0, 64, gpu.stream));
    CU_OK(cuStreamSynchronize(gpu.stream));
    CUPTI_OK(cuptiActivityFlushAll(0));

    ASSERT_EQ(recorder.callbacks.size(), 6u);
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < 6; i += 2) {
      EXPECT_EQ(recorder.callbacks[i].site, CUPTI_API_ENTER);
      EXPECT_EQ(recorder.callbacks[i + 1].site, CUPTI_API_EXIT);
      EXPECT_EQ(recorder.callbacks[i].correlation_id, recorder.callbacks[i + 1].correlation_id);
      ids.push_back(recorder.callbacks[i].correlation_id);
    }
    EXPECT_EQ(recorder.callbacks[0].symbol, "gemm");
    EXPECT_EQ(std::set<uint32_t>(ids.begin(), ids.end()).size(), 3u);
    auto kernels = recorder.Kernels();
    auto copies = recorder.Records<CUpti_ActivityMemcpy6>(kMemcpy);
    auto sets = recorder.Records<CUpti_ActivityMemset4>(kMemset);
    ASSERT_EQ(kernels.size(), 1u);
    ASSERT_EQ(copies.size(), 1u);
    ASSERT_EQ(sets.size(), 1u);
    EXPECT_EQ(kernels[0].correlationId, ids[0]);
    EXPECT_EQ(copies[0].correlationId, ids[1]);
    EXPECT_EQ(copies[0].copyKind, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
    EXPECT_EQ(copies[0].bytes, 4u);
    EXPECT_EQ(copies[0].srcKind, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
    EXPECT_EQ(copies[0].flags, CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC);
    EXPECT_EQ(copies[0].dstKind, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
    EXPECT_EQ(sets[0].correlationId, ids[2]);
    EXPECT_EQ(sets[0].bytes, 64u);
    uint32_t stream_id = 0;
    CUPTI_OK(cuptiGetStreamIdEx(gpu.context, gpu.stream, 0, &stream_id));
    EXPECT_EQ(kernels[0].streamId, stream_id);
  });
}

TEST(Cupti, WithoutApiCallbacksOrRecordsThereAreNoIds) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder::Get().Enable({kKernel});
    gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    ASSERT_EQ(Recorder::Get().Kernels().size(), 1u);
    EXPECT_EQ(Recorder::Get().Kernels()[0].correlationId, 0u);
  });
}

// A call that is rare, so that others leave records once they are asked for.
void WantARareCall() {
  CUPTI_OK(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuProfilerStart, 1));
}

TEST(Cupti, NoCallLeavesARecordWhereNoneWasWantedBeforeTheContext) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({kKernel});
    WantARareCall();
    CUPTI_OK(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1));
    gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.Kernels().size(), 1u);
    EXPECT_EQ(recorder.Records<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_DRIVER).size(), 0u);
  });
}

TEST(Cupti, ApiRecordsObeyTheFilter) {
  InProcess("", [] {
    Gpu gpu;
    WantARareCall();
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({kKernel});
    CUPTI_OK(cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM));
    CUPTI_OK(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1));
    gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    auto calls = recorder.Records<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_DRIVER);
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].cbid, static_cast<uint32_t>(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel));
    EXPECT_EQ(calls[0].threadId, static_cast<uint32_t>(gettid()));
    EXPECT_EQ(calls[0].correlationId, recorder.Kernels()[0].correlationId);
    EXPECT_LT(calls[0].start, calls[0].end);
    EXPECT_GE(recorder.Kernels()[0].start, calls[0].start);
    CUPTI_OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER));  // overrides the filter
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.Records<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_DRIVER).size(), 2u);
  });
}

TEST(Cupti, WaitsLeaveSynchronizationRecords) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({CUPTI_ACTIVITY_KIND_SYNCHRONIZATION});
    CUevent event;
    CU_OK(cuEventCreate(&event, 0));
    gpu.Launch(gpu.gemm);
    CU_OK(cuEventRecord(event, gpu.stream));
    CU_OK(cuEventSynchronize(event));
    CU_OK(cuStreamWaitEvent(gpu.stream, event, 0));
    CU_OK(cuStreamSynchronize(gpu.stream));
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    auto waits =
        recorder.Records<CUpti_ActivitySynchronization2>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
    ASSERT_EQ(waits.size(), 4u);
    EXPECT_EQ(waits[0].type, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
    EXPECT_EQ(waits[1].type, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
    EXPECT_EQ(waits[2].type, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
    EXPECT_EQ(waits[3].type, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);
  });
}

TEST(Cupti, ResourceCallbacksTellOfContextsModulesAndStreams) {
  InProcess("", [] {
    CU_OK(cuInit(0));
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    CUPTI_OK(cuptiEnableDomain(1, recorder.handle, CUPTI_CB_DOMAIN_RESOURCE));
    Gpu gpu;
    gpu.Open();
    CU_OK(cuDevicePrimaryCtxReset(0));
    std::vector<uint32_t> seen;
    for (const auto& callback : recorder.callbacks) seen.push_back(callback.cbid);
    EXPECT_EQ(seen, (std::vector<uint32_t>{CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
                                           CUPTI_CBID_RESOURCE_STREAM_CREATED,
                                           CUPTI_CBID_RESOURCE_MODULE_LOADED,
                                           CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING}));
  });
}

TEST(Cupti, ExternalIdsPrecedeTheirCalls) {
  InProcess("", [] {
    Gpu gpu;
    WantARareCall();
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION});
    CUPTI_OK(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1));
    CUPTI_OK(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, 41));
    gpu.Launch(gpu.gemm);
    uint64_t last = 0;
    CUPTI_OK(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, &last));
    EXPECT_EQ(last, 41u);
    EXPECT_EQ(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, &last),
              CUPTI_ERROR_QUEUE_EMPTY);
    gpu.Launch(gpu.gemm);
    CUPTI_OK(cuptiActivityFlushAll(1));
    auto external = recorder.Records<CUpti_ActivityExternalCorrelation>(
        CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    auto calls = recorder.Records<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_DRIVER);
    ASSERT_EQ(external.size(), 1u);
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(external[0].correlationId, calls[0].correlationId);
    EXPECT_EQ(external[0].externalId, 41u);
  });
}

TEST(Cupti, OnlyCompleteBuffersAreHandedOver) {
  InProcess("cupti.flush_ns=0", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({kKernel});
    gpu.Launch(gpu.gemm);
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.walk_ends.size(), 0u) << "the kernel had not ended";
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.Kernels().size(), 1u);
    // A forced flush gives what there is, and the walk stops at the unfinished record.
    gpu.Launch(gpu.gemm);
    CUPTI_OK(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    EXPECT_EQ(recorder.Kernels().size(), 1u);
    EXPECT_EQ(recorder.walk_ends.back(), CUPTI_ERROR_INVALID_KIND);
  });
}

TEST(Cupti, FullBuffersComeOnAnotherThread) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.buffer_bytes = 216 * 10;
    recorder.Enable({kKernel});
    for (int i = 0; i < 25; ++i) gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
    for (int i = 0; i < 1000; ++i) {
      std::lock_guard lock(recorder.mutex);
      if (recorder.walk_ends.size() == 2) break;
      usleep(1000);
    }
    ASSERT_EQ(recorder.complete_threads.size(), 2u);
    EXPECT_NE(recorder.complete_threads[0], gettid());
    EXPECT_EQ(recorder.Kernels().size(), 20u);
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.Kernels().size(), 25u);
  });
}

TEST(Cupti, ARefusedBufferCountsAsDropped) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.refuse_buffers = true;
    recorder.Enable({kKernel});
    for (int i = 0; i < 7; ++i) gpu.Launch(gpu.gemm);
    size_t dropped = 0;
    CUPTI_OK(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped));
    EXPECT_EQ(dropped, 7u);
    CUPTI_OK(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped));
    EXPECT_EQ(dropped, 0u) << "reading resets";
  });
}

TEST(Cupti, DroppedAndReceivedAddUp) {
  InProcess("cupti.drop_share=0.25", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({kKernel});
    for (int i = 0; i < 400; ++i) gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    size_t dropped = 0;
    CUPTI_OK(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped));
    EXPECT_EQ(dropped, 100u);
    EXPECT_EQ(recorder.Kernels().size(), 300u);
  });
}

void CUPTIAPI OtherRequest(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *bytes = 4096;
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, *bytes));
}
std::atomic<int> g_other_buffers{0};
void CUPTIAPI OtherComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t) {
  ++g_other_buffers;
  free(buffer);
}

TEST(Cupti, TheLastRegisteredCallbacksGetTheBuffers) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({kKernel});
    CUPTI_OK(cuptiActivityRegisterCallbacks(OtherRequest, OtherComplete));
    gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.Kernels().size(), 0u);
    EXPECT_EQ(g_other_buffers, 1);
  });
}

TEST(Cupti, OneSubscriberOnly) {
  InProcess("", [] {
    CU_OK(cuInit(0));
    Recorder::Get().Subscribe();
    CUpti_SubscriberHandle second;
    auto callback = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
    EXPECT_EQ(cuptiSubscribe(&second, callback, nullptr),
              CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CUPTI_OK(cuptiUnsubscribe(Recorder::Get().handle));
    EXPECT_EQ(cuptiEnableDomain(1, Recorder::Get().handle, CUPTI_CB_DOMAIN_DRIVER_API),
              CUPTI_ERROR_INVALID_PARAMETER);
    CUPTI_OK(cuptiSubscribe(&second, callback, nullptr));
  });
}

TEST(Cupti, TheHolderOfTheSlotHasAName) {
  InProcess("cupti.held_by=Nsight Systems", [] {
    CU_OK(cuInit(0));
    char name[64] = "";
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "test";
    params.oldSubscriberName = name;
    params.oldSubscriberSize = sizeof(name);
    CUpti_SubscriberHandle handle;
    auto callback = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
    EXPECT_EQ(cuptiSubscribe_v2(&handle, callback, nullptr, &params),
              CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    EXPECT_STREQ(name, "Nsight Systems");
    params.structSize = 8;
    EXPECT_EQ(cuptiSubscribe_v2(&handle, callback, nullptr, &params),
              CUPTI_ERROR_INVALID_PARAMETER);
  });
}

TEST(Cupti, SubscribeCanFail) {
  InProcess("cupti.subscribe_result=999", [] {
    CU_OK(cuInit(0));
    CUpti_SubscriberHandle handle;
    auto callback = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
    EXPECT_EQ(cuptiSubscribe(&handle, callback, nullptr), CUPTI_ERROR_UNKNOWN);
  });
}

TEST(Cupti, CorrelationIdsWrapPastZero) {
  InProcess("cupti.first_correlation_id=4294967294", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    EnableDriver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    for (int i = 0; i < 4; ++i) gpu.Launch(gpu.gemm);
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < recorder.callbacks.size(); i += 2) {
      ids.push_back(recorder.callbacks[i].correlation_id);
    }
    EXPECT_EQ(ids, (std::vector<uint32_t>{4294967294u, 4294967295u, 1u, 2u}));
  });
}

TEST(Cupti, KernelsMayLackTimestamps) {
  InProcess("cupti.zero_kernel_share=0.1", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({kKernel});
    for (int i = 0; i < 100; ++i) gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    int zero = 0;
    for (const auto& kernel : recorder.Kernels()) zero += kernel.start == 0 && kernel.end == 0;
    EXPECT_EQ(zero, 10);
    EXPECT_EQ(recorder.Kernels().size(), 100u);
  });
}

TEST(Cupti, ATimestampCallbackLosesStarts) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Enable({kKernel, kMemset});
    CUPTI_OK(cuptiActivityRegisterTimestampCallback([] { return uint64_t{5'000'000'000}; }));
    gpu.Launch(gpu.gemm);
    CU_OK(cuMemsetD8Async(gpu.memory, 0, 64, gpu.stream));
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.Kernels().at(0).start, 0u);
    EXPECT_NE(recorder.Kernels().at(0).end, 0u);
    uint64_t start = recorder.Records<CUpti_ActivityMemset4>(kMemset).at(0).start;
    EXPECT_NEAR(static_cast<double>(start), 5e9, 1e6) << "in the other clock";
  });
}

TEST(Cupti, OlderLibrariesHaveSmallerRecords) {
  for (auto [version, kernel_bytes, sync_bytes] :
       {std::tuple{130001u, 216, 56}, {26u, 208, 56}, {24u, 208, 40}}) {
    InProcess("cupti.version=" + std::to_string(version),
              [version = version, kernel_bytes = kernel_bytes, sync_bytes = sync_bytes] {
                uint32_t reported = 0;
                CUPTI_OK(cuptiGetVersion(&reported));
                EXPECT_EQ(reported, version);
                Gpu gpu;
                gpu.Open();
                Recorder& recorder = Recorder::Get();
                recorder.Enable({kKernel, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION});
                gpu.Launch(gpu.gemm);
                CU_OK(cuCtxSynchronize());
                gpu.Launch(gpu.gemm);
                CU_OK(cuCtxSynchronize());
                CUPTI_OK(cuptiActivityFlushAll(0));
                ASSERT_EQ(recorder.records.size(), 4u);
                EXPECT_EQ(recorder.records[0].size(), static_cast<size_t>(kernel_bytes));
                EXPECT_EQ(recorder.records[1].size(), static_cast<size_t>(sync_bytes));
                EXPECT_STREQ(recorder.Kernels()[0].name, "gemm");
              });
  }
}

TEST(Cupti, AFatalErrorIsToldOnceAndEndsEverything) {
  InProcess("cupti.fatal_after=5", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    EnableDriver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    CUPTI_OK(cuptiEnableDomain(1, recorder.handle, CUPTI_CB_DOMAIN_STATE));
    recorder.Enable({kKernel});
    for (int i = 0; i < 20; ++i) gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
    int fatal = 0;
    size_t enters = 0;
    for (const auto& callback : recorder.callbacks) {
      fatal += callback.domain == CUPTI_CB_DOMAIN_STATE;
      enters += callback.domain == CUPTI_CB_DOMAIN_DRIVER_API && callback.site == CUPTI_API_ENTER;
    }
    EXPECT_EQ(fatal, 1);
    EXPECT_EQ(enters, 4u);
    EXPECT_EQ(cuptiActivityEnable(kKernel), CUPTI_ERROR_UNKNOWN);
  });
}

TEST(Cupti, FinalizeFlushesAndANewSessionMayBegin) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    EnableDriver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    recorder.Enable({kKernel});
    gpu.Launch(gpu.gemm);
    CUPTI_OK(cuptiFinalize());
    EXPECT_EQ(recorder.Kernels().size(), 1u);
    gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
    EXPECT_EQ(recorder.callbacks.size(), 2u);
    recorder.Subscribe();
    recorder.Enable({kKernel});
    gpu.Launch(gpu.gemm);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.Kernels().size(), 2u);
  });
}

CUgraphExec CaptureTwoKernels(Gpu& gpu) {
  CUgraph graph;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuStreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  gpu.Launch(gpu.gemm);
  gpu.Launch(gpu.relu);
  EXPECT_EQ(cuStreamEndCapture(gpu.stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  return exec;
}

TEST(Cupti, GraphsGiveNodeRecordsOrOneForTheWhole) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    EnableDriver(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
    CUgraphExec late = CaptureTwoKernels(gpu);  // before any kind is on
    SwgpuTotals totals;
    swgpu_totals(&totals);
    EXPECT_EQ(totals.launches, 0u) << "capturing launches nothing";
    recorder.Enable({kKernel});
    CUgraphExec exec = CaptureTwoKernels(gpu);
    CU_OK(cuGraphLaunch(exec, gpu.stream));
    CU_OK(cuGraphLaunch(late, gpu.stream));
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    auto kernels = recorder.Kernels();
    ASSERT_EQ(kernels.size(), 4u) << "kernels of a graph instantiated before are recorded, too";
    EXPECT_EQ(kernels[0].correlationId, recorder.callbacks[0].correlation_id);
    EXPECT_NE(kernels[0].graphNodeId, kernels[1].graphNodeId);
    EXPECT_NE(kernels[0].graphId, 0u);
    swgpu_totals(&totals);
    EXPECT_EQ(totals.launches, 4u);

    CUPTI_OK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
    CUgraphExec whole = CaptureTwoKernels(gpu);
    CU_OK(cuGraphLaunch(whole, gpu.stream));
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.Kernels().size(), 4u);
    auto graphs = recorder.Records<CUpti_ActivityGraphTrace2>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    ASSERT_EQ(graphs.size(), 1u);
    EXPECT_EQ(graphs[0].correlationId, recorder.callbacks.back().correlation_id);
    EXPECT_GT(graphs[0].end, graphs[0].start);
  });
}

TEST(Cupti, CopiesOfAGraphThatCameFirstLookLikeKernels) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    CUgraph graph;
    CUgraphExec exec = nullptr;
    CU_OK(cuStreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_OK(cuMemsetD8Async(gpu.memory, 0, 64, gpu.stream));
    CU_OK(cuStreamEndCapture(gpu.stream, &graph));
    CU_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    Recorder& recorder = Recorder::Get();
    recorder.Enable({kKernel, CUPTI_ACTIVITY_KIND_MEMSET});
    CU_OK(cuGraphLaunch(exec, gpu.stream));
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(recorder.Kernels().size(), 1u);
    EXPECT_TRUE(recorder.Records<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET).empty());
  });
}

TEST(Cupti, GraphsAnnounceThemselves) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    CUPTI_OK(cuptiEnableDomain(1, recorder.handle, CUPTI_CB_DOMAIN_RESOURCE));
    std::vector<CUgraphExec> execs;
    recorder.also = [&](CUpti_CallbackDomain, uint32_t, const void* data) {
      auto* resource = static_cast<const CUpti_ResourceData*>(data);
      execs.push_back(static_cast<CUpti_GraphData*>(resource->resourceDescriptor)->graphExec);
    };
    CUgraphExec exec = CaptureTwoKernels(gpu);
    CU_OK(cuGraphExecDestroy(exec));
    std::vector<uint32_t> seen;
    for (const auto& callback : recorder.callbacks) seen.push_back(callback.cbid);
    EXPECT_EQ(seen, (std::vector<uint32_t>{CUPTI_CBID_RESOURCE_GRAPH_CREATED,
                                           CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED,
                                           CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING,
                                           CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING}));
    EXPECT_EQ(execs, (std::vector<CUgraphExec>{nullptr, exec, nullptr, exec}));
  });
}

TEST(Cupti, WaitsRaiseSynchronizeCallbacks) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    CUPTI_OK(cuptiEnableDomain(1, recorder.handle, CUPTI_CB_DOMAIN_SYNCHRONIZE));
    CUstream seen = nullptr;
    recorder.also = [&](CUpti_CallbackDomain, uint32_t cbid, const void* data) {
      if (cbid == CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED) {
        seen = static_cast<const CUpti_SynchronizeData*>(data)->stream;
      }
    };
    CU_OK(cuStreamSynchronize(gpu.stream));
    CU_OK(cuCtxSynchronize());
    ASSERT_EQ(recorder.callbacks.size(), 2u);
    EXPECT_EQ(seen, gpu.stream);
    EXPECT_EQ(recorder.callbacks[1].cbid,
              static_cast<uint32_t>(CUPTI_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED));
  });
}

TEST(Cupti, CostsFallOnTheVirtualClockAndVanishWithTheProfiler) {
  InProcess(std::string(kNoNoise) + "cupti.callback_ns=1000,cupti.operation_record_ns=5000", [] {
    Gpu gpu;
    gpu.Open();
    auto launch_ns = [&] {
      uint64_t before = swgpu_now_ns();
      gpu.Launch(gpu.gemm);
      return swgpu_now_ns() - before;
    };
    uint64_t bare = launch_ns();
    Recorder& recorder = Recorder::Get();
    recorder.Subscribe();
    EnableDriver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    EXPECT_EQ(launch_ns(), bare + 2000);
    recorder.Enable({kKernel});
    EXPECT_EQ(launch_ns(), bare + 7000);
    CUPTI_OK(cuptiActivityDisable(kKernel));
    CUPTI_OK(cuptiUnsubscribe(recorder.handle));
    EXPECT_EQ(launch_ns(), bare);
  });
}

TEST(Cupti, ThreadsUnderLoadLoseNothing) {
  InProcess("clock.mode=real,gpu.kernel_min_ns=100,gpu.kernel_gap_ns=0,gpu.launch_latency_ns=100",
            [] {
              constexpr int kThreads = 4;
              constexpr int kLaunches = 2000;
              Gpu gpu;
              gpu.Open();
              Recorder& recorder = Recorder::Get();
              recorder.Subscribe();
              EnableDriver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
              recorder.Enable({kKernel, kMemcpy});
              std::atomic<bool> done{false};
              std::thread flusher([&] {
                while (!done) {
                  cuptiActivityFlushAll(0);
                  usleep(500);
                }
              });
              std::vector<std::thread> threads;
              for (int t = 0; t < kThreads; ++t) {
                threads.emplace_back([&] {
                  CU_OK(cuCtxSetCurrent(gpu.context));
                  CUstream stream;
                  CU_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
                  for (int i = 0; i < kLaunches; ++i) gpu.Launch(gpu.gemm, 1, stream);
                  CU_OK(cuStreamSynchronize(stream));
                });
              }
              for (auto& thread : threads) thread.join();
              done = true;
              flusher.join();
              CU_OK(cuCtxSynchronize());
              CUPTI_OK(cuptiActivityFlushAll(0));
              std::map<uint32_t, int> ids;
              for (const auto& kernel : recorder.Kernels()) ++ids[kernel.correlationId];
              EXPECT_EQ(ids.size(), static_cast<size_t>(kThreads * kLaunches));
              for (const auto& callback : recorder.callbacks) --ids[callback.correlation_id];
              for (const auto& [id, count] : ids) ASSERT_EQ(count, -1) << "enter, exit, one record";
            });
}

TEST(Cupti, AForkedChildGetsNoAnswerButNoHangEither) {
  InProcess("", [] {
    Gpu gpu;
    gpu.Open();
    Recorder::Get().Enable({kKernel});
    gpu.Launch(gpu.gemm);
    pid_t pid = fork();
    if (pid == 0) _exit(cuptiActivityFlushAll(1) == CUPTI_ERROR_UNKNOWN ? 0 : 1);
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
    CU_OK(cuCtxSynchronize());
    CUPTI_OK(cuptiActivityFlushAll(0));
    EXPECT_EQ(Recorder::Get().Kernels().size(), 1u);
  });
}

}  // namespace
}  // namespace seqpoint::softgpu
