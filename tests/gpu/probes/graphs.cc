// Questions about graphs and stream captures that meet a profiler which switches kinds on and off.
#include <cuda.h>
#include <cupti_driver_cbid.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "tests/gpu/probes/kernels.h"
#include "tests/gpu/probes/probe.h"
#include "tests/gpu/probes/range_profiler.h"

namespace seqpoint::probe {
namespace {

constexpr CUpti_ActivityKind kGraph = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;

using Kinds = std::vector<CUpti_ActivityKind>;

void Switch(const Kinds& kinds, bool on) {
  for (const CUpti_ActivityKind kind : kinds) {
    CUPTI(on ? cuptiActivityEnable(kind) : cuptiActivityDisable(kind));
  }
}

}  // namespace

cudaGraphExec_t MakeGraph(cudaStream_t stream, int launches) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) LaunchEmpty(stream);
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaGraphDestroy(graph));
  return exec;
}

// CASE, an index: each in a process of its own, as CUPTI may crash.
void GraphRecords(Json* out) {
  constexpr int kNodes = 100, kLaunches = 50;
  struct Case {
    const char* name;
    CUpti_ActivityKind at_instantiation, at_launch;
  };
  constexpr CUpti_ActivityKind kNone = CUPTI_ACTIVITY_KIND_INVALID;
  const Case cases[] = {{"nothing ever", kNone, kNone},
                        {"kernel, from instantiation on", kKernel, kKernel},
                        {"kernel, at instantiation alone", kKernel, kNone},
                        {"kernel, at launch alone", kNone, kKernel},
                        {"graph, from instantiation on", kGraph, kGraph},
                        {"graph, at launch alone", kNone, kGraph},
                        {"kernel at instantiation, graph at launch", kKernel, kGraph}};
  const size_t index = Arguments().empty() ? 0 : std::strtoul(Arguments()[0].c_str(), nullptr, 10);
  if (index >= std::size(cases)) Die("graph_records CASE: 0 to 6");
  const Case& one = cases[index];
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int64_t kernels = 0, graphs = 0;
  CollectActivity([&](const CUpti_Activity* record) {
    kernels += record->kind == kKernel;
    graphs += record->kind == kGraph;
  });
  if (one.at_instantiation != kNone) Switch({one.at_instantiation}, true);
  cudaGraphExec_t exec = MakeGraph(stream, kNodes);
  if (one.at_instantiation != one.at_launch) {
    if (one.at_instantiation != kNone) Switch({one.at_instantiation}, false);
    if (one.at_launch != kNone) Switch({one.at_launch}, true);
  }
  std::vector<double> launch, run;
  for (int i = 0; i < kLaunches; ++i) {
    const double begin = Now();
    CUDA(cudaGraphLaunch(exec, stream));
    launch.push_back(Now() - begin);
    CUDA(cudaStreamSynchronize(stream));
    run.push_back(Now() - begin);
  }
  FlushActivity();
  CUDA(cudaGraphExecDestroy(exec));
  out->Add("nodes", kNodes)
      .Add("enabled", one.name)
      .Add("kernel_records_per_launch", static_cast<double>(kernels) / kLaunches)
      .Add("graph_records_per_launch", static_cast<double>(graphs) / kLaunches)
      .Add("launch_ns", Spread(launch))
      .Add("launch_to_end_ns", Spread(run));
}

namespace {

void CUPTIAPI NoteGraphLaunch(void* ids, CUpti_CallbackDomain, CUpti_CallbackId, const void* info) {
  const auto* call = static_cast<const CUpti_CallbackData*>(info);
  if (call->callbackSite != CUPTI_API_ENTER) return;
  static_cast<std::set<uint32_t>*>(ids)->insert(call->correlationId);
}

}  // namespace

// SETTING, an index, each in a process of its own: a graph that is instantiated in the process'
// first window of traced iterations, and one that is instantiated between two windows, launched in
// windows of several kinds. Each on and off of the kinds may count as a session, after the first of
// which ids of graph launches were wrong before CUDA 13.1 Update 1 (release notes).
void LateGraphs(Json* out) {
  constexpr int kNodes = 20, kWindows = 4, kLaunches = 5;
  struct Setting {
    const char* name;
    Kinds always, in_windows;
  };
  const Setting settings[] = {
      {"kernel in windows", {}, {kKernel}},
      {"graph always, kernel in windows", {kGraph}, {kKernel}},
      {"graph always", {kGraph}, {}},
  };
  const size_t index = Arguments().empty() ? 0 : std::strtoul(Arguments()[0].c_str(), nullptr, 10);
  if (index >= std::size(settings)) Die("late_graphs SETTING: 0 to 2");
  const Setting& setting = settings[index];
  int64_t kernels = 0, graphs = 0;
  std::vector<uint32_t> recorded;
  CollectActivity([&](const CUpti_Activity* record) {
    if (record->kind == kKernel) {
      ++kernels;
      recorded.push_back(reinterpret_cast<const CUpti_ActivityKernel10*>(record)->correlationId);
    } else if (record->kind == kGraph) {
      ++graphs;
      recorded.push_back(reinterpret_cast<const CUpti_ActivityGraphTrace2*>(record)->correlationId);
    }
  });
  std::set<uint32_t> called;
  CUpti_SubscriberHandle subscriber;
  CUPTI(cuptiSubscribe(&subscriber, NoteGraphLaunch, &called));
  CUPTI(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
                            CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Switch(setting.always, true);
  cudaGraphExec_t early = nullptr, late = nullptr;
  std::vector<Json> rows;
  for (int window = 1; window <= kWindows; ++window) {
    Switch(setting.in_windows, true);
    if (early == nullptr) early = MakeGraph(stream, kNodes);
    for (cudaGraphExec_t graph : {early, late}) {
      if (graph == nullptr) continue;
      kernels = graphs = 0;
      recorded.clear();
      called.clear();
      for (int i = 0; i < kLaunches; ++i) CUDA(cudaGraphLaunch(graph, stream));
      CUDA(cudaStreamSynchronize(stream));
      FlushActivity();
      const auto right = std::count_if(recorded.begin(), recorded.end(),
                                       [&](uint32_t id) { return called.count(id) != 0; });
      Json row;
      row.Add("window", window)
          .Add("graph", graph == early ? "in the first window" : "between windows")
          .Add("graph_records_per_launch", static_cast<double>(graphs) / kLaunches)
          .Add("kernel_records_per_launch", static_cast<double>(kernels) / kLaunches);
      if (!recorded.empty()) {
        row.Add("ids_of_the_calls_share",
                static_cast<double>(right) / static_cast<double>(recorded.size()));
      }
      rows.push_back(row);
    }
    Switch(setting.in_windows, false);
    if (late == nullptr) late = MakeGraph(stream, kNodes);
  }
  Switch(setting.always, false);
  CUPTI(cuptiUnsubscribe(subscriber));
  out->Add("kinds", setting.name).Add("nodes", kNodes).Add("windows", rows);
}

// [MODULES]: what windows of kernel records cost in a process that has loaded so many modules, as
// one that compiles its kernels has. The first window is the first of the process.
void FirstWindow(Json* out) {
  const int modules = Arguments().empty() ? 2000 : std::atoi(Arguments()[0].c_str());
  CUDA(cudaFree(nullptr));
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == nullptr) Die("libcuda.so.1 was not found");
  const auto load =
      reinterpret_cast<CUresult (*)(CUmodule*, const void*)>(dlsym(cuda, "cuModuleLoadData"));
  const auto get = reinterpret_cast<CUresult (*)(CUfunction*, CUmodule, const char*)>(
      dlsym(cuda, "cuModuleGetFunction"));
  const auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(cuda, "cuLaunchKernel"));
  // The same text each time, so that the driver compiles it once.
  constexpr char kText[] =
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry module_kernel()\n{\n  "
      "ret;\n}\n";
  std::vector<CUfunction> functions(static_cast<size_t>(modules));
  const double load_ns = Time([&] {
    for (CUfunction& function : functions) {
      CUmodule module;
      if (load(&module, kText) != CUDA_SUCCESS ||
          get(&function, module, "module_kernel") != CUDA_SUCCESS) {
        Die("a module of one kernel could not be loaded");
      }
    }
  });
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int64_t records = 0;
  CollectActivity([&](const CUpti_Activity* record) { records += record->kind == kKernel; });
  const auto work = [&] {
    for (CUfunction function : functions) {
      if (launch(function, 1, 1, 1, 32, 1, 1, 0, reinterpret_cast<CUstream>(stream), nullptr,
                 nullptr) != CUDA_SUCCESS) {
        Die("a kernel of a module could not be launched");
      }
    }
    for (int i = 0; i < 100; ++i) LaunchEmpty(stream);
    CUDA(cudaStreamSynchronize(stream));
  };
  work();
  std::vector<Json> rows;
  for (int window = 1; window <= 3; ++window) {
    records = 0;
    Json row;
    row.Add("window", window)
        .Add("work_before_ns", Time(work))
        .Add("enable_ns", Time([] { CUPTI(cuptiActivityEnable(kKernel)); }))
        .Add("work_within_ns", Time(work))
        .Add("flush_ns", Time([] { CUPTI(cuptiActivityFlushAll(0)); }))
        .Add("disable_ns", Time([] { CUPTI(cuptiActivityDisable(kKernel)); }))
        .Add("work_after_ns", Time(work))
        .Add("records", records);
    rows.push_back(row);
  }
  out->Add("modules", modules)
      .Add("launches", functions.size() + 100)
      .Add("load_ns", load_ns)
      .Add("windows", rows);
}

// CALL: does it end the stream capture of another thread? In each mode of the capture, and with the
// calling thread's own mode relaxed (cudaThreadExchangeStreamCaptureMode). A synchronisation of a
// context with a captured stream is documented to end the capture (CUDA programming guide, CUDA
// graphs, prohibited operations); which of CUPTI's calls synchronise is what is asked.
void Captures(Json* out) {
  if (Arguments().size() != 1) Die("captures CALL");
  CUDA(cudaFree(nullptr));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CollectActivity([](const CUpti_Activity*) {});
  RangeProfiler profiler;
  MetricConfig config({"gpu__time_duration.sum", "sm__inst_executed.sum"},
                      CUPTI_PROFILER_TYPE_RANGE_PROFILER);
  const auto configure = [&] {
    return profiler.Configure(&config, CUPTI_UserRange, CUPTI_UserReplay, 1);
  };
  const std::map<std::string, std::function<std::string()>> calls = {
      {"nothing", [] { return std::string("-"); }},
      {"cudaDeviceSynchronize",
       [] {
         const cudaError_t result = cudaDeviceSynchronize();
         return result == cudaSuccess ? "0" : std::to_string(result);
       }},
      {"cuptiActivityFlushAll", [] { return ResultText(cuptiActivityFlushAll(0)); }},
      {"cuptiActivityEnable, Disable",
       [] {
         const CUptiResult on = cuptiActivityEnable(kKernel);
         return ResultText(on == CUPTI_SUCCESS ? cuptiActivityDisable(kKernel) : on);
       }},
      {"cuptiRangeProfilerDecodeData", [&] { return ResultText(profiler.Decode()); }},
      {"cuptiRangeProfilerSetConfig", [&] { return ResultText(configure()); }},
      {"cuptiRangeProfilerDisable, Enable",
       [&] {
         const CUptiResult off = profiler.Disable();
         return ResultText(off == CUPTI_SUCCESS ? profiler.Enable() : off);
       }},
  };
  const auto call = calls.find(Arguments()[0]);
  if (call == calls.end()) Die("captures: no call \"" + Arguments()[0] + "\"");
  struct Mode {
    const char* name;
    cudaStreamCaptureMode mode;
    bool relaxed;
  };
  const Mode modes[] = {{"global", cudaStreamCaptureModeGlobal, false},
                        {"thread local", cudaStreamCaptureModeThreadLocal, false},
                        {"global, the caller relaxed", cudaStreamCaptureModeGlobal, true}};
  std::vector<Json> rows;
  for (const Mode& mode : modes) {
    // A range to decode. Where the call before has broken the profiler, that is the answer.
    CUptiResult ready = configure();
    if (ready == CUPTI_SUCCESS) ready = profiler.Start();
    if (ready == CUPTI_SUCCESS) ready = profiler.Push("iteration");
    LaunchEmpty(stream);
    if (ready == CUPTI_SUCCESS) ready = profiler.Pop();
    if (ready == CUPTI_SUCCESS) ready = profiler.Stop();
    CUDA(cudaStreamSynchronize(stream));
    std::string answer;
    std::atomic<bool> there = false, captures = false;
    std::thread caller([&] {
      CUDA(cudaSetDevice(0));  // before the capture: it may do more than it says
      cudaStreamCaptureMode own = cudaStreamCaptureModeRelaxed;
      if (mode.relaxed) CUDA(cudaThreadExchangeStreamCaptureMode(&own));
      there = true;
      while (!captures) std::this_thread::yield();
      answer = call->second();
    });
    while (!there) std::this_thread::yield();
    CUDA(cudaStreamBeginCapture(stream, mode.mode));
    LaunchEmpty(stream);
    captures = true;
    caller.join();
    LaunchEmpty(stream);
    const cudaError_t launched = cudaGetLastError();
    cudaGraph_t graph = nullptr;
    const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    if (graph != nullptr) CUDA(cudaGraphDestroy(graph));
    profiler.Decode();  // where it is decoded already, this is refused
    rows.push_back(Json()
                       .Add("mode", mode.name)
                       .Add("range_before", ResultText(ready))
                       .Add("call_result", answer)
                       .Add("launch_result", static_cast<int>(launched))
                       .Add("capture_result", static_cast<int>(captured)));
  }
  out->Add("call", call->first).Add("modes", rows);
}

}  // namespace seqpoint::probe
