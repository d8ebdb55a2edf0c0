// Questions about callbacks and activity records.
#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "tests/gpu/probes/kernels.h"
#include "tests/gpu/probes/probe.h"
#include "tests/softgpu/swgpu.h"

namespace seqpoint::probe {
namespace {

void CUPTIAPI CountCalls(void* count, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {
  static_cast<std::atomic<int64_t>*>(count)->fetch_add(1, std::memory_order_relaxed);
}

// ns per launch, `threads` threads with a stream each. The queue is emptied before and after.
double PerLaunch(int threads) {
  constexpr int kLaunches = 800;  // fits into the launch queue, so that no launch waits
  std::vector<double> each(static_cast<size_t>(threads));
  std::atomic<int> ready = 0;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      cudaStream_t stream;
      CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      LaunchEmpty(stream);
      CUDA(cudaStreamSynchronize(stream));
      ++ready;
      while (ready < threads) std::this_thread::yield();
      const double begin = Now();
      for (int i = 0; i < kLaunches; ++i) LaunchEmpty(stream);
      each[static_cast<size_t>(t)] = (Now() - begin) / kLaunches;
      CUDA(cudaStreamSynchronize(stream));
      CUDA(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& worker : workers) worker.join();
  return Quantile(each, 0.5);
}

}  // namespace

// Each setting in turn, many rounds over all of them, so that clocks and noise hit all alike.
void LaunchCost(Json* out) {
  std::atomic<int64_t> calls = 0;
  int64_t records = 0;
  CollectActivity([&](const CUpti_Activity*) { ++records; });
  CUpti_SubscriberHandle subscriber = nullptr;
  const auto watch = [&](CUpti_CallbackDomain domain, uint32_t id, bool on) {
    CUPTI(cuptiEnableCallback(on ? 1 : 0, subscriber, domain, id));
  };
  struct Setting {
    const char* name;
    std::function<void()> on, off;
  };
  const std::vector<Setting> settings = {
      {"nothing", [] {}, [] {}},
      {"subscribed", [&] { CUPTI(cuptiSubscribe(&subscriber, CountCalls, &calls)); },
       [&] { CUPTI(cuptiUnsubscribe(subscriber)); }},
      {"a callback that is not called",
       [&] {
         CUPTI(cuptiSubscribe(&subscriber, CountCalls, &calls));
         watch(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, true);
       },
       [&] { CUPTI(cuptiUnsubscribe(subscriber)); }},
      {"a driver callback",
       [&] {
         CUPTI(cuptiSubscribe(&subscriber, CountCalls, &calls));
         watch(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, true);
         watch(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, true);
       },
       [&] { CUPTI(cuptiUnsubscribe(subscriber)); }},
      {"a runtime callback",
       [&] {
         CUPTI(cuptiSubscribe(&subscriber, CountCalls, &calls));
         watch(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, true);
         watch(CUPTI_CB_DOMAIN_RUNTIME_API, 505, true);  // __cudaLaunchKernel of CUDA 13
       },
       [&] { CUPTI(cuptiUnsubscribe(subscriber)); }},
      {"MEMCPY records, of which there are none",
       [] { CUPTI(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY)); },
       [] { CUPTI(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMCPY)); }},
      {"CONCURRENT_KERNEL records", [] { CUPTI(cuptiActivityEnable(kKernel)); },
       [] { CUPTI(cuptiActivityDisable(kKernel)); }},
      {"RUNTIME records", [] { CUPTI(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME)); },
       [] { CUPTI(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_RUNTIME)); }},
      {"CONCURRENT_KERNEL and RUNTIME records",
       [] {
         CUPTI(cuptiActivityEnable(kKernel));
         CUPTI(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME));
       },
       [] {
         CUPTI(cuptiActivityDisable(kKernel));
         CUPTI(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_RUNTIME));
       }},
  };
  // Before anything of CUPTI was ever on, and after everything was.
  for (int i = 0; i < 5; ++i) PerLaunch(1);
  std::vector<double> untouched;
  for (int i = 0; i < 20; ++i) untouched.push_back(PerLaunch(1));
  out->Add("before_cupti_ns", Spread(untouched));
  std::vector<Json> rows;
  for (const int threads : {1, 4}) {
    std::map<std::string, std::vector<double>> costs;
    for (int round = 0; round < 20; ++round) {
      for (const Setting& setting : settings) {
        setting.on();
        costs[setting.name].push_back(PerLaunch(threads));
        setting.off();
        CUPTI(cuptiActivityFlushAll(0));
      }
    }
    const double base = Quantile(costs["nothing"], 0.5);
    for (const Setting& setting : settings) {
      rows.push_back(Json()
                         .Add("setting", setting.name)
                         .Add("threads", threads)
                         .Add("launch_ns", Spread(costs[setting.name]))
                         .Add("more_ns", Quantile(costs[setting.name], 0.5) - base));
    }
  }
  out->Add("settings", rows).Add("calls", calls.load()).Add("records", records);
}

void SwitchCost(Json* out) {
  CollectActivity([](const CUpti_Activity*) {});
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraphExec_t graph = MakeGraph(stream, 200);
  std::vector<Json> rows;
  for (const bool graphs : {false, true}) {
    std::map<std::string, std::vector<double>> costs;
    for (int i = 0; i < 40; ++i) {
      const auto work = [&] {
        if (graphs) {
          CUDA(cudaGraphLaunch(graph, stream));
        } else {
          for (int k = 0; k < 200; ++k) LaunchEmpty(stream);
        }
      };
      work();
      costs["synchronise, 200 kernels queued"].push_back(
          Time([] { CUDA(cudaDeviceSynchronize()); }));
      costs["synchronise, idle"].push_back(Time([] { CUDA(cudaDeviceSynchronize()); }));
      costs["enable CONCURRENT_KERNEL"].push_back(
          Time([] { CUPTI(cuptiActivityEnable(kKernel)); }));
      costs["enable MEMCPY, MEMSET"].push_back(Time([] {
        CUPTI(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY));
        CUPTI(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
      }));
      costs["200 kernels after enabling, to their end"].push_back(Time([&] {
        work();
        CUDA(cudaDeviceSynchronize());
      }));
      costs["flush with 200 records"].push_back(Time([] { CUPTI(cuptiActivityFlushAll(0)); }));
      costs["flush with none"].push_back(Time([] { CUPTI(cuptiActivityFlushAll(0)); }));
      costs["forced flush with none"].push_back(
          Time([] { CUPTI(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)); }));
      costs["disable CONCURRENT_KERNEL"].push_back(
          Time([] { CUPTI(cuptiActivityDisable(kKernel)); }));
      costs["disable MEMCPY, MEMSET"].push_back(Time([] {
        CUPTI(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMCPY));
        CUPTI(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMSET));
      }));
      costs["200 kernels, nothing enabled, to their end"].push_back(Time([&] {
        work();
        CUDA(cudaDeviceSynchronize());
      }));
    }
    for (const auto& [what, values] : costs) {
      rows.push_back(Json()
                         .Add("job", graphs ? "graph" : "eager")
                         .Add("what", what)
                         .Add("ns", Spread(values)));
    }
  }
  out->Add("costs", rows);
}

namespace {

struct Call {
  CUpti_CallbackDomain domain;
  uint32_t id;
  std::string name;
  bool enter;
  uint32_t correlation;
};

void CUPTIAPI NoteCall(void* calls, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                       const void* data) {
  const auto* call = static_cast<const CUpti_CallbackData*>(data);
  static_cast<std::vector<Call>*>(calls)->push_back(
      {domain, id, call->functionName, call->callbackSite == CUPTI_API_ENTER, call->correlationId});
}

}  // namespace

void Nesting(Json* out) {
  float* memory = nullptr;
  CUDA(cudaMalloc(&memory, 4096));
  float host[64] = {};
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  cudaGraphExec_t graph = MakeGraph(stream, 3);
  LaunchEmpty(stream);
  CUDA(cudaDeviceSynchronize());

  std::vector<Call> calls;
  CUpti_SubscriberHandle subscriber;
  CUPTI(cuptiSubscribe(&subscriber, NoteCall, &calls));
  CUPTI(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
  CUPTI(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API));
  struct Work {
    const char* name;
    std::function<void()> run;
  };
  const Work works[] = {
      {"kernel <<<>>>", [&] { LaunchEmpty(stream); }},
      {"cudaMemcpyAsync H2D",
       [&] { CUDA(cudaMemcpyAsync(memory, host, 256, cudaMemcpyHostToDevice, stream)); }},
      {"cudaMemcpy D2H", [&] { CUDA(cudaMemcpy(host, memory, 256, cudaMemcpyDeviceToHost)); }},
      {"cudaMemsetAsync", [&] { CUDA(cudaMemsetAsync(memory, 0, 4096, stream)); }},
      {"cudaGraphLaunch", [&] { CUDA(cudaGraphLaunch(graph, stream)); }},
      {"cudaStreamSynchronize", [&] { CUDA(cudaStreamSynchronize(stream)); }},
  };
  std::vector<Json> rows;
  for (const Work& work : works) {
    calls.clear();
    work.run();
    std::vector<std::string> sequence;
    // The outermost runtime call, and the first driver call within it.
    const Call* runtime = nullptr;
    const Call* driver = nullptr;
    bool within = false;
    for (const Call& call : calls) {
      const bool is_runtime = call.domain == CUPTI_CB_DOMAIN_RUNTIME_API;
      sequence.push_back(std::string(is_runtime ? "runtime " : "driver ") +
                         std::to_string(call.id) + " " + call.name +
                         (call.enter ? " enter " : " exit ") + std::to_string(call.correlation));
      if (is_runtime) {
        within = call.enter;
        if (runtime == nullptr) runtime = &call;
      } else if (call.enter && within && driver == nullptr) {
        driver = &call;
      }
    }
    Json row;
    row.Add("call", work.name)
        .Add("runtime_seen", runtime != nullptr)
        .Add("driver_nested", driver != nullptr);
    if (runtime != nullptr && driver != nullptr) {
      row.Add("same_correlation_id", runtime->correlation == driver->correlation)
          .Add("runtime_id", static_cast<int64_t>(runtime->id))
          .Add("driver_id", static_cast<int64_t>(driver->id));
    }
    rows.push_back(row.Add("sequence", sequence));
  }
  CUPTI(cuptiUnsubscribe(subscriber));
  out->Add("calls", rows);

  // With driver ids alone, which is how the library watches: do records carry the ids of its
  // callbacks? The header says so of copies, memsets and graphs, and of kernels "driver or runtime"
  // (cupti_activity.h, correlationId of each record).
  std::vector<uint32_t> recorded;
  CollectActivity([&](const CUpti_Activity* record) {
    if (record->kind == kKernel) {
      recorded.push_back(reinterpret_cast<const CUpti_ActivityKernel10*>(record)->correlationId);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      recorded.push_back(reinterpret_cast<const CUpti_ActivityMemcpy6*>(record)->correlationId);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      recorded.push_back(reinterpret_cast<const CUpti_ActivityMemset4*>(record)->correlationId);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE) {
      recorded.push_back(reinterpret_cast<const CUpti_ActivityGraphTrace2*>(record)->correlationId);
    }
  });
  constexpr CUpti_ActivityKind kKinds[] = {kKernel, CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMSET,
                                           CUPTI_ACTIVITY_KIND_GRAPH_TRACE};
  for (const CUpti_ActivityKind kind : kKinds) CUPTI(cuptiActivityEnable(kind));
  CUPTI(cuptiSubscribe(&subscriber, NoteCall, &calls));
  for (const uint32_t id :
       {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
        CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2,
        CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2, CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async,
        CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch}) {
    CUPTI(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id));
  }
  graph = MakeGraph(stream, 3);  // while the kind is on, without which it leaves no record
  std::vector<Json> records;
  for (const Work& work : works) {
    CUDA(cudaDeviceSynchronize());
    FlushActivity();
    calls.clear();
    recorded.clear();
    work.run();
    CUDA(cudaDeviceSynchronize());
    FlushActivity();
    if (calls.empty()) continue;  // it reaches the GPU by none of these calls
    records.push_back(
        Json()
            .Add("call", work.name)
            .Add("driver_id", static_cast<int64_t>(calls.front().id))
            .Add("callback_correlation", static_cast<int64_t>(calls.front().correlation))
            .Add("records", recorded.size())
            .Add("record_correlation",
                 static_cast<int64_t>(recorded.empty() ? 0 : recorded.front()))
            .Add("same", !recorded.empty() &&
                             std::all_of(recorded.begin(), recorded.end(), [&](uint32_t id) {
                               return id == calls.front().correlation;
                             })));
  }
  CUPTI(cuptiUnsubscribe(subscriber));
  for (const CUpti_ActivityKind kind : kKinds) CUPTI(cuptiActivityDisable(kind));
  out->Add("records", records);
}

namespace {

// A delay in the callback at one end of the call.
struct Dawdle {
  CUpti_ApiCallbackSite at;
  double for_ns = 0;
};

void CUPTIAPI OnDawdle(void* data, CUpti_CallbackDomain, CUpti_CallbackId, const void* info) {
  const auto* dawdle = static_cast<const Dawdle*>(data);
  if (dawdle->for_ns == 0 ||
      static_cast<const CUpti_CallbackData*>(info)->callbackSite != dawdle->at) {
    return;
  }
  if (swgpu_host_work) {
    swgpu_host_work(static_cast<uint64_t>(dawdle->for_ns));
    return;
  }
  const double until = Now() + dawdle->for_ns;
  while (Now() < until) {
  }
}

}  // namespace

// A callback that takes 20 us at the beginning or at the end of the call: is that in the time of
// the call's own record? And what recording the call, its kernel, or both costs the thread.
void CallTime(Json* out) {
  constexpr int kLaunches = 400;
  constexpr double kDawdleNs = 20'000;
  // Calls leave records only where one was wanted before the context is there.
  CUPTI(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuProfilerStart, 1));
  std::vector<double> lengths;
  CollectActivity([&](const CUpti_Activity* record) {
    if (record->kind != CUPTI_ACTIVITY_KIND_DRIVER) return;
    const auto* call = reinterpret_cast<const CUpti_ActivityAPI*>(record);
    lengths.push_back(static_cast<double>(call->end - call->start));
  });
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  LaunchEmpty(stream);
  CUDA(cudaStreamSynchronize(stream));
  Dawdle dawdle = {CUPTI_API_ENTER};
  CUpti_SubscriberHandle subscriber;
  CUPTI(cuptiSubscribe(&subscriber, OnDawdle, &dawdle));
  for (const uint32_t id :
       {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx}) {
    CUPTI(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id));
  }
  const auto set_calls = [](bool on) {
    for (const uint32_t id :
         {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx}) {
      CUPTI(cuptiActivityEnableDriverApi(id, on ? 1 : 0));
    }
  };
  struct Setting {
    const char* name;
    bool calls, kernels;
    CUpti_ApiCallbackSite at;
    double dawdle_ns;
  };
  const Setting settings[] = {
      {"callback", false, false, CUPTI_API_ENTER, 0},
      {"callback, call recorded", true, false, CUPTI_API_ENTER, 0},
      {"callback, kernel recorded", false, true, CUPTI_API_ENTER, 0},
      {"callback, call and kernel recorded", true, true, CUPTI_API_ENTER, 0},
      {"20 us at the beginning, call recorded", true, false, CUPTI_API_ENTER, kDawdleNs},
      {"20 us at the end, call recorded", true, false, CUPTI_API_EXIT, kDawdleNs},
  };
  std::map<std::string, std::vector<double>> walls, records;
  for (int round = 0; round < 10; ++round) {
    for (const Setting& setting : settings) {
      dawdle = {setting.at, setting.dawdle_ns};
      set_calls(setting.calls);
      if (setting.kernels) CUPTI(cuptiActivityEnable(kKernel));
      lengths.clear();
      walls[setting.name].push_back(Time([&] {
                                      for (int i = 0; i < kLaunches; ++i) LaunchEmpty(stream);
                                    }) /
                                    kLaunches);
      dawdle.for_ns = 0;
      CUDA(cudaStreamSynchronize(stream));
      FlushActivity();
      if (setting.kernels) CUPTI(cuptiActivityDisable(kKernel));
      set_calls(false);
      if (setting.calls && !lengths.empty()) {
        records[setting.name].push_back(Quantile(lengths, 0.5));
      }
    }
  }
  CUPTI(cuptiUnsubscribe(subscriber));
  std::vector<Json> rows;
  for (const Setting& setting : settings) {
    Json row;
    row.Add("setting", setting.name).Add("launch_ns", Spread(walls[setting.name]));
    if (setting.calls) row.Add("record_ns", Quantile(records[setting.name], 0.5));
    rows.push_back(row);
  }
  out->Add("dawdle_ns", kDawdleNs).Add("settings", rows);
}

// Iterations of known, different lengths. The same records tell both clocks: start of the batch
// copy to start of the next, and start of the first kernel to start of the next iteration's first.
void CopyClock(Json* out) {
  constexpr int kIterations = 200;
  constexpr int kKernels = 40;
  struct Stamps {
    std::vector<double> copies, kernels;
  } stamps;
  CollectActivity([&](const CUpti_Activity* record) {
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      stamps.copies.push_back(
          static_cast<double>(reinterpret_cast<const CUpti_ActivityMemcpy6*>(record)->start));
    } else if (record->kind == kKernel) {
      stamps.kernels.push_back(
          static_cast<double>(reinterpret_cast<const CUpti_ActivityKernel10*>(record)->start));
    }
  });
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* memory = nullptr;
  float* pinned = nullptr;
  CUDA(cudaMalloc(&memory, 1 << 20));
  CUDA(cudaMallocHost(&pinned, 1 << 20));
  const auto train = [&] {
    const double begin = Now();
    for (int i = 0; i < kIterations; ++i) {
      CUDA(cudaMemcpyAsync(memory, pinned, 1 << 18, cudaMemcpyHostToDevice, stream));
      for (int k = 0; k < kKernels; ++k) LaunchSpin(stream, 1, 2000 + 400 * (i % 8));
    }
    CUDA(cudaStreamSynchronize(stream));
    return (Now() - begin) / kIterations;
  };
  train();
  struct Setting {
    const char* name;
    std::vector<CUpti_ActivityKind> kinds;
  };
  const Setting settings[] = {
      {"nothing", {}},
      {"MEMCPY", {CUPTI_ACTIVITY_KIND_MEMCPY}},
      {"MEMCPY and CONCURRENT_KERNEL", {CUPTI_ACTIVITY_KIND_MEMCPY, kKernel}}};
  std::map<std::string, std::vector<double>> costs;
  double worst_share = 0, sum_share = 0;
  for (int round = 0; round < 8; ++round) {
    for (const Setting& setting : settings) {
      for (const CUpti_ActivityKind kind : setting.kinds) CUPTI(cuptiActivityEnable(kind));
      stamps = {};
      costs[setting.name].push_back(train());
      FlushActivity();
      for (const CUpti_ActivityKind kind : setting.kinds) CUPTI(cuptiActivityDisable(kind));
      if (setting.kinds.size() < 2) continue;
      std::sort(stamps.copies.begin(), stamps.copies.end());
      std::sort(stamps.kernels.begin(), stamps.kernels.end());
      if (stamps.copies.size() != kIterations || stamps.kernels.size() != kIterations * kKernels) {
        Die("records are missing: " + std::to_string(stamps.copies.size()) + " copies, " +
            std::to_string(stamps.kernels.size()) + " kernels");
      }
      double by_copies = 0, by_kernels = 0;
      for (int i = 1; i + 1 < kIterations; ++i) {
        const auto at = static_cast<size_t>(i);
        const double copy = stamps.copies[at + 1] - stamps.copies[at];
        const double kernel = stamps.kernels[(at + 1) * kKernels] - stamps.kernels[at * kKernels];
        worst_share = std::max(worst_share, std::fabs(copy / kernel - 1));
        by_copies += copy;
        by_kernels += kernel;
      }
      sum_share = std::max(sum_share, std::fabs(by_copies / by_kernels - 1));
    }
  }
  std::vector<Json> rows;
  for (const Setting& setting : settings) {
    rows.push_back(
        Json().Add("kinds", setting.name).Add("iteration_ns", Spread(costs[setting.name])));
  }
  out->Add("cost", rows)
      .Add("worst_period_difference_share", worst_share)
      .Add("sum_difference_share", sum_share);
}

namespace {

std::atomic<int64_t> own_records = 0;

}  // namespace

// A program that traces itself, as NVIDIA's sample activity_trace: buffers and kind before cuInit.
void BeginOwnRecords() {
  CollectActivity([](const CUpti_Activity* record) { own_records += record->kind == kKernel; });
  CUPTI(cuptiActivityEnable(kKernel));
}

void OwnRecords(Json* out) {
  constexpr int kLaunches = 500;
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) {
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  for (int i = 0; i < kLaunches; ++i) LaunchEmpty(streams[i % 2]);
  CUDA(cudaDeviceSynchronize());
  FlushActivity();
  out->Add("launches", kLaunches).Add("records", own_records.load());
}

}  // namespace seqpoint::probe
