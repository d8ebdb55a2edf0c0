// Questions about counter ranges.
#include <cuda.h>
#include <cupti_driver_cbid.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "tests/gpu/probes/kernels.h"
#include "tests/gpu/probes/probe.h"
#include "tests/gpu/probes/range_profiler.h"

namespace seqpoint::probe {
namespace {

std::vector<std::string> OnePass() {
  return {"gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
          "sm__inst_executed.sum", "sm__cycles_active.sum"};
}
constexpr size_t kDuration = 0, kRead = 1, kWrite = 2, kInstructions = 3;

// A little of everything, always the same: 64 MiB copied, arithmetic, and 20 short kernels.
class Iteration {
 public:
  Iteration() {
    CUDA(cudaMalloc(&from_, kFloats * sizeof(float)));
    CUDA(cudaMalloc(&to_, kFloats * sizeof(float)));
    CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Run();
    CUDA(cudaDeviceSynchronize());
  }
  // `times` as much of it, in as many more kernels.
  void Run(int times = 1) const {
    for (int i = 0; i < times; ++i) {
      LaunchCopy(stream_, to_, from_, kFloats);
      LaunchMultiplyAdd(stream_, to_, 132 * 4, 2000);
      for (int k = 0; k < kShort; ++k) LaunchEmpty(stream_);
    }
  }
  static constexpr int kShort = 20;
  static constexpr int kKernels = kShort + 2;
  cudaStream_t stream() const { return stream_; }
  float* memory() const { return to_; }

 private:
  static constexpr size_t kFloats = 16 << 20;
  float* from_ = nullptr;
  float* to_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// One pass over `work`; the values of its range. Dies when a step fails.
std::vector<double> Measure(RangeProfiler* profiler, MetricConfig* config,
                            const std::function<void()>& work) {
  CUPTI(profiler->Configure(config, CUPTI_UserRange, CUPTI_UserReplay, 1));
  CUPTI(profiler->Start());
  CUPTI(profiler->Push("iteration"));
  work();
  CUPTI(profiler->Pop());
  CUPTI(profiler->Stop());
  CUPTI(profiler->Decode());
  if (profiler->Ranges() != 1) {
    Die("a range was lost: " + std::to_string(profiler->Ranges()) + " of 1");
  }
  return profiler->Values(0);
}

Json Named(const std::vector<std::string>& names, const std::vector<double>& values) {
  Json out;
  for (size_t i = 0; i < names.size(); ++i) out.Add(names[i], values[i]);
  return out;
}

// State of the callback that starts a range.
struct StartInCallback {
  RangeProfiler* profiler;
  bool armed = true;
  CUptiResult start = CUPTI_ERROR_UNKNOWN, push = CUPTI_ERROR_UNKNOWN;
};

void CUPTIAPI OnLaunch(void* data, CUpti_CallbackDomain, CUpti_CallbackId, const void* info) {
  auto* state = static_cast<StartInCallback*>(data);
  if (!state->armed ||
      static_cast<const CUpti_CallbackData*>(info)->callbackSite != CUPTI_API_ENTER) {
    return;
  }
  state->armed = false;
  state->start = state->profiler->Start();
  if (state->start == CUPTI_SUCCESS) state->push = state->profiler->Push("iteration");
}

// Time of a launch, and of a kernel that only the clock of the GPU makes longer or shorter: what an
// enabled profiler changes for a program that is not being measured.
Json StateOfTheGpu(const char* state, const Iteration& iteration) {
  std::vector<double> launches, kernels;
  for (int i = 0; i < 30; ++i) {
    constexpr int kLaunches = 200;
    launches.push_back(Time([&] {
                         for (int k = 0; k < kLaunches; ++k) LaunchEmpty(iteration.stream());
                       }) /
                       kLaunches);
    CUDA(cudaStreamSynchronize(iteration.stream()));
    kernels.push_back(Time([&] {
      LaunchMultiplyAdd(iteration.stream(), iteration.memory(), 132 * 4, 50'000);
      CUDA(cudaStreamSynchronize(iteration.stream()));
    }));
  }
  return Json()
      .Add("state", state)
      .Add("launch_ns", Spread(launches))
      .Add("kernel_ns", Spread(kernels));
}

}  // namespace

void RangeCost(Json* out) {
  const Iteration iteration;
  const auto work = [&] { iteration.Run(); };
  std::vector<Json> states;
  states.push_back(StateOfTheGpu("never enabled", iteration));
  RangeProfiler profiler;
  states.push_back(StateOfTheGpu("enabled", iteration));
  MetricConfig config(OnePass(), kRange);
  std::map<std::string, std::vector<double>> costs;
  for (int i = 0; i < 10; ++i) {
    costs["disable"].push_back(Time([&] { CUPTI(profiler.Disable()); }));
    costs["enable"].push_back(Time([&] { CUPTI(profiler.Enable()); }));
  }
  for (int i = 0; i < 30; ++i) {
    costs["configure"].push_back(
        Time([&] { CUPTI(profiler.Configure(&config, CUPTI_UserRange, CUPTI_UserReplay, 1)); }));
    costs["start, GPU idle"].push_back(Time([&] { CUPTI(profiler.Start()); }));
    costs["push, GPU idle"].push_back(Time([&] { CUPTI(profiler.Push("iteration")); }));
    work();
    CUDA(cudaDeviceSynchronize());
    costs["pop, GPU idle"].push_back(Time([&] { CUPTI(profiler.Pop()); }));
    costs["stop, GPU idle"].push_back(Time([&] { CUPTI(profiler.Stop()); }));
    costs["decode"].push_back(Time([&] { CUPTI(profiler.Decode()); }));
    costs["evaluate"].push_back(Time([&] { profiler.Values(0); }));
  }
  states.push_back(StateOfTheGpu("enabled, at rest after 30 ranges", iteration));

  // The launches of one thread during a decode on another one.
  for (const bool decoding : {false, true}) {
    CUPTI(profiler.Configure(&config, CUPTI_UserRange, CUPTI_UserReplay, 1));
    CUPTI(profiler.Start());
    CUPTI(profiler.Push("iteration"));
    work();
    CUPTI(profiler.Pop());
    CUPTI(profiler.Stop());
    std::atomic<bool> over = false;
    std::vector<double> launches;
    std::thread launcher([&] {
      cudaStream_t stream;
      CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      while (!over || launches.size() < 100) {
        launches.push_back(Time([&] { LaunchEmpty(stream); }));
        // The decode waits for the context: it would never end behind a queue that is kept full.
        if (launches.size() % 10 == 0) CUDA(cudaStreamSynchronize(stream));
      }
    });
    if (decoding) CUPTI(profiler.Decode());
    over = true;
    launcher.join();
    if (!decoding) CUPTI(profiler.Decode());
    const std::string what = decoding ? " while a range is decoded" : ", nothing decoded";
    costs["launches of another thread" + what] = launches;
    out->Add(decoding ? "longest_launch_beside_decode_ns" : "longest_launch_ns",
             *std::max_element(launches.begin(), launches.end()));
  }

  // With 5 ms of work in the queue: who waits for it?
  constexpr double kQueuedNs = 5e6;
  const auto queue = [&] { LaunchSpin(iteration.stream(), 1, kQueuedNs); };
  CUPTI(profiler.Configure(&config, CUPTI_UserRange, CUPTI_UserReplay, 1));
  queue();
  costs["start, 5 ms queued"].push_back(Time([&] { CUPTI(profiler.Start()); }));
  CUDA(cudaDeviceSynchronize());
  queue();
  costs["push, 5 ms queued"].push_back(Time([&] { CUPTI(profiler.Push("iteration")); }));
  queue();
  costs["pop, 5 ms queued"].push_back(Time([&] { CUPTI(profiler.Pop()); }));
  CUDA(cudaDeviceSynchronize());
  queue();
  costs["stop, 5 ms queued"].push_back(Time([&] { CUPTI(profiler.Stop()); }));
  CUDA(cudaDeviceSynchronize());
  std::vector<Json> rows;
  for (const auto& [what, values] : costs) {
    rows.push_back(Json().Add("what", what).Add("ns", Spread(values)));
  }
  out->Add("costs", rows);
  for (const char* what : {"start", "push", "pop", "stop"}) {
    out->Add(std::string(what) + "_drains",
             costs[std::string(what) + ", 5 ms queued"][0] > kQueuedNs / 2);
  }

  // Is work of another stream, or of another thread, in the range? 100 kernels beside the
  // iteration.
  const auto more = [&](cudaStream_t stream) {
    for (int i = 0; i < 100; ++i) LaunchMultiplyAdd(stream, iteration.memory(), 132, 1000);
  };
  const double alone = Measure(&profiler, &config, work)[kInstructions];
  const double same = Measure(&profiler, &config, [&] {
    work();
    more(iteration.stream());
  })[kInstructions];
  cudaStream_t other;
  CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  const double stream = Measure(&profiler, &config, [&] {
    work();
    more(other);
  })[kInstructions];
  const double thread = Measure(&profiler, &config, [&] {
    work();
    std::thread([&] { more(other); }).join();
  })[kInstructions];
  out->Add("instructions_alone", alone)
      .Add("share_of_other_stream_in_range", (stream - alone) / (same - alone))
      .Add("share_of_other_thread_in_range", (thread - alone) / (same - alone));

  // A start from the callback of a launch, as the library does it.
  StartInCallback state{&profiler};
  CUpti_SubscriberHandle subscriber;
  CUPTI(cuptiSubscribe(&subscriber, OnLaunch, &state));
  CUPTI(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
                            CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel));
  CUPTI(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
                            CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx));
  CUPTI(profiler.Configure(&config, CUPTI_UserRange, CUPTI_UserReplay, 1));
  work();
  out->Add("start_in_callback", ResultText(state.start))
      .Add("push_in_callback", ResultText(state.push));
  if (state.push == CUPTI_SUCCESS) {
    CUPTI(profiler.Pop());
    CUPTI(profiler.Stop());
    CUPTI(profiler.Decode());
    out->Add("instructions_from_callback_on_share", profiler.Values(0)[kInstructions] / alone);
  }
  CUPTI(cuptiUnsubscribe(subscriber));
  CUPTI(profiler.Disable());
  states.push_back(StateOfTheGpu("disabled again", iteration));
  out->Add("states", states);
}

void RangeActivity(Json* out) {
  const Iteration iteration;
  const auto work = [&] { iteration.Run(); };
  int64_t kernels = 0;
  uint64_t first = UINT64_MAX, last = 0;  // of the kernels on the GPU
  CollectActivity([&](const CUpti_Activity* record) {
    if (record->kind != kKernel) return;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    ++kernels;
    first = std::min(first, kernel->start);
    last = std::max(last, kernel->end);
  });
  RangeProfiler profiler;
  MetricConfig config(OnePass(), kRange);
  std::map<bool, std::vector<std::vector<double>>> values;
  std::string errors;
  for (int round = 0; round < 10; ++round) {
    for (const bool records : {false, true}) {
      if (records) {
        const CUptiResult result = cuptiActivityEnable(kKernel);
        if (result != CUPTI_SUCCESS) errors += "enable: " + ResultText(result) + "; ";
      }
      CUptiResult result = profiler.Configure(&config, CUPTI_UserRange, CUPTI_UserReplay, 1);
      if (result == CUPTI_SUCCESS) result = profiler.Start();
      if (result == CUPTI_SUCCESS) result = profiler.Push("iteration");
      if (result != CUPTI_SUCCESS) {
        errors += "start or push: " + ResultText(result) + "; ";
      } else {
        work();
        CUPTI(profiler.Pop());
        CUPTI(profiler.Stop());
        CUPTI(profiler.Decode());
        if (profiler.Ranges() == 1) values[records].push_back(profiler.Values(0));
      }
      if (records) {
        FlushActivity();
        cuptiActivityDisable(kKernel);
      }
    }
  }
  out->Add("errors", errors.empty() ? "none" : errors)
      .Add("kernel_records", kernels)
      .Add("kernel_records_expected", values[true].size() * Iteration::kKernels);
  std::vector<Json> rows;
  for (size_t metric = 0; metric < OnePass().size(); ++metric) {
    std::vector<double> without, with;
    for (const auto& one : values[false]) without.push_back(one[metric]);
    for (const auto& one : values[true]) with.push_back(one[metric]);
    rows.push_back(Json()
                       .Add("metric", OnePass()[metric])
                       .Add("without_records", Quantile(without, 0.5))
                       .Add("with_records", Quantile(with, 0.5)));
  }
  out->Add("values", rows);

  // The same iterations by both clocks, at several lengths: what is left at no length is what the
  // range adds (NVIDIA's forum, 353002: times of user ranges are longer than those of auto ranges).
  std::vector<Json> lengths;
  for (const int times : {1, 2, 4, 8, 16}) {
    std::vector<double> ranged, recorded, recorded_beside;
    for (int round = 0; round < 10; ++round) {
      for (const bool range : {false, true}) {
        first = UINT64_MAX;
        last = 0;
        CUPTI(cuptiActivityEnable(kKernel));
        if (range) {
          ranged.push_back(Measure(&profiler, &config, [&] { iteration.Run(times); })[kDuration]);
        } else {
          iteration.Run(times);
        }
        CUDA(cudaDeviceSynchronize());
        FlushActivity();
        CUPTI(cuptiActivityDisable(kKernel));
        if (last > first) {
          (range ? recorded_beside : recorded).push_back(static_cast<double>(last - first));
        }
      }
    }
    lengths.push_back(Json()
                          .Add("times", times)
                          .Add("range_ns", Quantile(ranged, 0.5))
                          .Add("records_in_the_range_ns", Quantile(recorded_beside, 0.5))
                          .Add("records_alone_ns", Quantile(recorded, 0.5)));
  }
  out->Add("lengths", lengths);
}

void Permission(Json* out) {
  CUDA(cudaFree(nullptr));
  std::vector<uint8_t> image;
  const CUptiResult available = CounterAvailability(&image);
  out->Add("availability", ResultText(available));
  if (available != CUPTI_SUCCESS) return;
  CUptiResult result = CUPTI_SUCCESS;
  RangeProfiler profiler(&result);
  out->Add("enable", ResultText(result));
  if (result != CUPTI_SUCCESS) return;
  MetricConfig config(OnePass(), kRange);
  result = profiler.Configure(&config, CUPTI_UserRange, CUPTI_UserReplay, 1);
  out->Add("configure", ResultText(result));
  if (result != CUPTI_SUCCESS) return;
  result = profiler.Start();
  out->Add("start", ResultText(result));
  if (result == CUPTI_SUCCESS) CUPTI(profiler.Stop());
}

void DecodeThread(Json* out) {
  const Iteration iteration;
  RangeProfiler profiler;
  MetricConfig config(OnePass(), kRange);
  // Looked up and not linked, so that a machine without a driver is told so in words.
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == nullptr) Die("libcuda.so.1 was not found");
  const auto get_current =
      reinterpret_cast<CUresult (*)(CUcontext*)>(dlsym(cuda, "cuCtxGetCurrent"));
  const auto set_current =
      reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(cuda, "cuCtxSetCurrent"));
  CUcontext context = nullptr;
  if (get_current(&context) != CUDA_SUCCESS) Die("no context is current");
  std::vector<Json> rows;
  for (const bool current : {true, false}) {
    CUPTI(profiler.Configure(&config, CUPTI_UserRange, CUPTI_UserReplay, 1));
    CUPTI(profiler.Start());
    CUPTI(profiler.Push("iteration"));
    iteration.Run();
    CUPTI(profiler.Pop());
    CUPTI(profiler.Stop());
    CUptiResult decoded = CUPTI_ERROR_UNKNOWN;
    std::vector<double> values;
    std::thread([&] {
      if (current) set_current(context);
      decoded = profiler.Decode();
      if (decoded == CUPTI_SUCCESS && profiler.Ranges() == 1) values = profiler.Values(0);
    }).join();
    Json row;
    row.Add("context_current", current).Add("decode", ResultText(decoded));
    if (!values.empty()) row.Add("values", Named(OnePass(), values));
    if (decoded != CUPTI_SUCCESS) {
      row.Add("decode_on_the_first_thread_then", ResultText(profiler.Decode()));
    }
    rows.push_back(row);
  }
  out->Add("threads", rows);
}

void GraphRange(Json* out) {
  const Iteration iteration;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA(cudaStreamBeginCapture(iteration.stream(), cudaStreamCaptureModeThreadLocal));
  iteration.Run();
  CUDA(cudaStreamEndCapture(iteration.stream(), &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaGraphLaunch(exec, iteration.stream()));
  CUDA(cudaDeviceSynchronize());
  RangeProfiler profiler;
  MetricConfig config(OnePass(), kRange);
  std::vector<std::vector<double>> eager, graphs;
  for (int i = 0; i < 10; ++i) {
    eager.push_back(Measure(&profiler, &config, [&] { iteration.Run(); }));
    graphs.push_back(
        Measure(&profiler, &config, [&] { CUDA(cudaGraphLaunch(exec, iteration.stream())); }));
  }
  std::vector<Json> rows;
  for (size_t metric = 0; metric < OnePass().size(); ++metric) {
    std::vector<double> one, other;
    for (const auto& values : eager) one.push_back(values[metric]);
    for (const auto& values : graphs) other.push_back(values[metric]);
    rows.push_back(Json()
                       .Add("metric", OnePass()[metric])
                       .Add("eager", Quantile(one, 0.5))
                       .Add("graph", Quantile(other, 0.5)));
  }
  out->Add("values", rows);
}

namespace {

// One range of one configuration, step by step. `result`, and which call it is of.
Json CollectOnce(const Iteration& iteration, const std::vector<std::string>& metrics,
                 bool with_image) {
  CUptiResult result = CUPTI_SUCCESS;
  std::string call;
  MetricConfig config(metrics, with_image, &result, &call);
  Json out;
  if (result == CUPTI_SUCCESS) {
    out.Add("passes", config.passes());
    RangeProfiler profiler;
    const std::pair<const char*, std::function<CUptiResult()>> steps[] = {
        {"cuptiRangeProfilerSetConfig",
         [&] { return profiler.Configure(&config, CUPTI_UserRange, CUPTI_UserReplay, 1); }},
        {"cuptiRangeProfilerStart", [&] { return profiler.Start(); }},
        {"cuptiRangeProfilerPushRange", [&] { return profiler.Push("iteration"); }},
        {"cuptiRangeProfilerPopRange",
         [&] {
           iteration.Run();
           return profiler.Pop();
         }},
        {"cuptiRangeProfilerStop", [&] { return profiler.Stop(); }},
        {"cuptiRangeProfilerDecodeData", [&] { return profiler.Decode(); }},
    };
    for (const auto& [name, step] : steps) {
      call = name;
      result = step();
      if (result != CUPTI_SUCCESS) break;
    }
    if (result == CUPTI_SUCCESS && profiler.Ranges() == 1) {
      out.Add("values", Named(metrics, profiler.Values(0)));
    }
  }
  out.Add("result", ResultText(result));
  if (result != CUPTI_SUCCESS) out.Add("call", call);
  return out;
}

}  // namespace

// METRIC ...: is this configuration built, started and decoded? Once with the image of the counters
// that are available, and once without.
void Collect(Json* out) {
  const Iteration iteration;
  const std::vector<std::string>& metrics = Arguments();
  if (metrics.empty()) Die("collect METRIC ...");
  out->Add("metrics", metrics)
      .Add("with_image", CollectOnce(iteration, metrics, true))
      .Add("without_image", CollectOnce(iteration, metrics, false));
}

// Measures one range, and says so; rests; with a line on standard input disables the profiler, and
// says so; ends with the next one. What another process is answered meanwhile is the question.
void HoldCounters(Json* out) {
  const Iteration iteration;
  RangeProfiler profiler;
  MetricConfig config(OnePass(), kRange);
  out->Add("instructions", Measure(&profiler, &config, [&] { iteration.Run(); })[kInstructions]);
  const auto say = [](const char* what) {
    std::printf("%s\n", what);
    std::fflush(stdout);
    std::getchar();
  };
  say("at rest");
  CUPTI(profiler.Disable());
  say("disabled");
}

namespace {

// Kernels whose work can be counted by hand, far larger than the L2.
constexpr size_t kKnownFloats = 64 << 20;
constexpr int kKnownBlocks = 132 * 16;
constexpr int kKnownRounds = 4096;

void RunKnown() {
  float* from = nullptr;
  float* to = nullptr;
  CUDA(cudaMalloc(&from, kKnownFloats * sizeof(float)));
  CUDA(cudaMalloc(&to, kKnownFloats * sizeof(float)));
  for (int i = 0; i < 3; ++i) {
    LaunchCopy(nullptr, to, from, kKnownFloats);
    LaunchMultiplyAdd(nullptr, to, kKnownBlocks, kKnownRounds);
  }
  CUDA(cudaDeviceSynchronize());
}

void AddExpected(Json* out) {
  const double bytes = 4.0 * kKnownFloats;
  out->Add("expected",
           Json()
               .Add("probe_copy_read_bytes", bytes)
               .Add("probe_copy_write_bytes", bytes)
               .Add("probe_multiply_add_flops", 2.0 * 256 * kKnownBlocks * kKnownRounds));
}

}  // namespace

void Known(Json* out) {
  RunKnown();
  AddExpected(out);
}

void KnownMeasured(Json* out) {
  CUDA(cudaFree(nullptr));
  RangeProfiler profiler;
  MetricConfig config(OnePass(), kRange);
  CUPTI(profiler.Configure(&config, CUPTI_AutoRange, CUPTI_KernelReplay, 64));
  CUPTI(profiler.Start());
  RunKnown();
  CUPTI(profiler.Stop());
  CUPTI(profiler.Decode());
  AddExpected(out);
  std::vector<Json> rows;
  for (size_t i = 0; i < profiler.Ranges(); ++i) {
    const std::vector<double> values = profiler.Values(i);
    rows.push_back(Named(OnePass(), values)
                       .Add("kernel", i % 2 == 0 ? "probe_copy" : "probe_multiply_add")
                       .Add("ns", values[kDuration])
                       .Add("bytes", values[kRead] + values[kWrite]));
  }
  out->Add("kernels", rows);
}

}  // namespace seqpoint::probe
