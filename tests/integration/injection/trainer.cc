// A small training program for the tests of the injected library: driver API only, so that every
// call is known. One iteration is: [NVTX range or mark,] batch copy, memset, `layers` forward
// kernels with the length in the grid, a loss kernel, the optimiser ("adam"), and now and then the
// loss read back.
//
//   injection_trainer iterations=50 lengths=16,32,48 sync=1 nvtx=1 ...
//
// Ways to end after iteration N: kill=N, _exit=N, abort=N, throw=N, term=N (SIGTERM, not handled),
// reset=N (the context first).
//
// tool=N tool_end=M: another profiler records from before iteration N to after iteration M, and the
// library stands down for it (tool_tells=0: nobody tells it; tool_keeps=1: the tool keeps its
// subscription; tool=-1: from before cuInit; tool_period=P: again every P iterations). storm=T: T
// threads ask for standing down and coming back all the time; a thread that captures (below) begins
// while the library stands down.
//
// tool_ticks=1: the tool's clock is CUPTI's from then on, and counts ticks. tool_finalizes=N: the
// tool ends CUPTI after iteration N, or at its own end, before it says so, with N = tool_end.
// ends_cupti=N: a tool that nobody can notice does.
//
// tool_hidden=1: nobody can notice the tool; tool_ends_first=1: it ends CUPTI before it begins.
//
// wait=N wait_again=M go=FILE: after iterations N and M it waits until there are the files FILE.N
// and FILE.M.
//
// open=A:B opens libraries first. host_profiler=1 asks the process' libcupti for its host profiler
// and prints the result. child=N starts, after iteration N, this program once more with 10
// iterations (how=posix_spawn, fork, vfork or exec).
//
// load=FILE: a thread loads and unloads the library FILE all the time, from before cuInit.
//
// evaluate_from=N evaluate_until=M: these iterations are evaluation batches, in all but the
// optimiser like the others. evaluate_period=K: and so are those K, 2 K, ... iterations later.
//
// replay=1: each iteration launches a graph of one kernel. capture_us=N: each iteration captures a
// graph at its begin, in global mode, which takes so long, and launches it. recapture=N: a new
// graph every N iterations. helped=1: another thread launches into captures, as autograd's does.
//
// reload=N: after iteration N its kernels are those of another module, with other names.
//
// mark_thread=1: iterations are marked by a thread that uses no GPU. launch_threads=N: so many
// threads launch a kernel now and then. second_gpu=1: a thread keeps the second GPU busy.
// capture_thread=1: a thread captures graphs all the time, in global mode; prints "broken N", those
// that failed.
//
// truth=1 prints the bytes that each length's kernels read, as the software GPU knows them.
//
// Prints "digest 0x..." at the end: the software GPU's digest of all work, which must be the same
// with and without the profiler.
#include <cuda.h>
#include <cupti.h>
#include <cupti_profiler_host.h>
#include <dlfcn.h>
#include <link.h>
#include <nvtx3/nvToolsExt.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "injection/seqpoint.h"
#include "tests/integration/injection/second_tool.h"
#include "tests/softgpu/swgpu.h"

namespace {

constexpr int kBytesPerStep = 64;

std::map<std::string, std::string> g_options;

long Option(const char* name, long fallback) {
  const auto found = g_options.find(name);
  return found == g_options.end() ? fallback : atol(found->second.c_str());
}

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "injection_trainer: %s gave %d\n", what, static_cast<int>(result));
  exit(3);
}

struct Trainer {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUfunction forward = nullptr, loss = nullptr, adam = nullptr;
  CUdeviceptr data = 0;
  CUgraphExec executable = nullptr;
  long replays = 0;
  SwgpuTotals totals = {};
  std::vector<char> host = std::vector<char>(1 << 20, 1);

  explicit Trainer(CUdevice device) {
    Check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    Check(cuModuleLoadData(&module, "image"), "cuModuleLoadData");
    Check(cuModuleGetFunction(&forward, module, "forward_layer"), "cuModuleGetFunction");
    Check(cuModuleGetFunction(&loss, module, "loss"), "cuModuleGetFunction");
    Check(cuModuleGetFunction(&adam, module, "adam"), "cuModuleGetFunction");
    Check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    Check(cuMemAlloc(&data, 1 << 20), "cuMemAlloc");
  }

  void Launch(CUfunction function, unsigned grid) {
    void* arguments[] = {&data};
    Check(cuLaunchKernel(function, grid, 1, 1, 128, 1, 1, 0, stream, arguments, nullptr),
          "cuLaunchKernel");
  }

  // Another module takes the place of the one that the kernels are from.
  void Reload() {
    Check(cuModuleUnload(module), "cuModuleUnload");
    Check(cuModuleLoadData(&module, "another image"), "cuModuleLoadData");
    Check(cuModuleGetFunction(&forward, module, "another_layer"), "cuModuleGetFunction");
    Check(cuModuleGetFunction(&loss, module, "another_loss"), "cuModuleGetFunction");
  }

  void Iteration(long index, long length) {
    if (Option("mark", 0) == 1 && seqpoint_iteration_begin) {
      if (Option("mark_thread", 0) != 0) {
        std::thread([length] { seqpoint_iteration_begin(length); }).join();
      } else {
        seqpoint_iteration_begin(length);
      }
    }
    if (Option("mark", 0) == 2 && seqpoint_iteration_begin2) {
      seqpoint_iteration_begin2(length, 2 * length);
    }
    if (Option("nvtx", 0) != 0) {
      char name[64];
      snprintf(name, sizeof(name), "step %ld, %ld tokens", index, length);
      nvtxRangePushA(name);
    }
    if (Option("framework", 0) != 0 && seqpoint_forward) {
      static const char* const kNames[] = {"ids.shape[0]", "ids.shape[1]"};
      const int64_t values[] = {64, length};
      seqpoint_forward(1, 2, kNames, values, 0);
    }
    Check(cuMemcpyHtoDAsync(data, host.data(), static_cast<size_t>(length * kBytesPerStep), stream),
          "cuMemcpyHtoDAsync");
    Check(cuMemsetD8Async(data, 0, 4096, stream), "cuMemsetD8Async");
    if (Option("capture_us", 0) > 0) CaptureSlowly();
    for (long layer = 0; layer < Option("layers", 6); ++layer) {
      Launch(forward, static_cast<unsigned>(length));
    }
    if (Option("replay", 0) != 0) Replay();
    Launch(loss, 1);
    const long accumulate = Option("accumulate", 1);
    const long from = Option("evaluate_from", 1L << 40);
    const long place = index < from ? 0 : (index - from) % Option("evaluate_period", 1L << 40);
    const bool evaluates = index >= from && from + place < Option("evaluate_until", 1L << 40);
    if ((index + 1) % accumulate == 0 && !evaluates) {
      Launch(adam, 64);
      if (Option("framework", 0) != 0 && seqpoint_step) seqpoint_step(0);
    }
    if (Option("truth", 0) != 0 && swgpu_totals) {
      SwgpuTotals now;
      swgpu_totals(&now);
      if ((index + 1) % accumulate == 0) {
        printf("truth%ld %.0f\n", length, now.dram_read_bytes - totals.dram_read_bytes);
        totals = now;
      }
    }
    if (Option("sync", 0) > 0 && (index + 1) % Option("sync", 0) == 0) {
      Check(cuMemcpyDtoHAsync(host.data(), data, 4, stream), "cuMemcpyDtoHAsync");
      Check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    if (Option("nvtx", 0) != 0) nvtxRangePop();
    if (swgpu_host_work) swgpu_host_work(static_cast<uint64_t>(Option("host_ns", 200000)));
    if (Option("sleep_us", 0) > 0) usleep(static_cast<useconds_t>(Option("sleep_us", 0)));
  }

  // An evaluation batch: the same but for the optimiser.
  void Evaluation(long length) {
    Check(cuMemcpyHtoDAsync(data, host.data(), static_cast<size_t>(length * kBytesPerStep), stream),
          "cuMemcpyHtoDAsync");
    for (long layer = 0; layer < Option("layers", 6); ++layer) {
      Launch(forward, static_cast<unsigned>(length));
    }
    Launch(loss, 1);
  }

  // The graph that the first iteration captured; the capture launches it, too.
  void Replay() {
    const long period = Option("recapture", 0);
    if (executable == nullptr || (period > 0 && ++replays % period == 0)) {
      CaptureGraph();
    } else {
      Check(cuGraphLaunch(executable, stream), "cuGraphLaunch");
    }
  }

  // As a framework that captures a new graph for each new length: nothing may fail.
  void CaptureSlowly() {
    CUgraph graph;
    CUgraphExec exec;
    Check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    Check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    Launch(forward, 7);
    usleep(static_cast<useconds_t>(Option("capture_us", 0)));
    Launch(forward, 7);
    Check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    Check(cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
    Check(cuGraphLaunch(exec, stream), "cuGraphLaunch");
    Check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    Check(cuGraphDestroy(graph), "cuGraphDestroy");
  }

  // Captures one kernel into a graph; launches it.
  void CaptureGraph() {
    CUgraph graph;
    if (cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) != CUDA_SUCCESS) return;
    if (Option("helped", 0) != 0) {
      std::thread([this] {
        Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
        Launch(forward, 7);
      }).join();
    } else {
      Launch(forward, 7);
    }
    Check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    Check(cuGraphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
    Check(cuGraphLaunch(executable, stream), "cuGraphLaunch");
  }
};

// Functions that another tool in the same process took by dlsym before the library came and keeps
// on the heap, as nobody can notice.
struct Unnoticed {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamps = nullptr;
  decltype(&cuptiFinalize) finalize = nullptr;
  void LookUp() {
    void* cupti = dlopen("libcupti.so.13", RTLD_NOW);
    const std::string prefix = "cuptiActivity";  // the names are nowhere in the program
    register_callbacks = reinterpret_cast<decltype(register_callbacks)>(
        dlsym(cupti, (prefix + "RegisterCallbacks").c_str()));
    register_timestamps = reinterpret_cast<decltype(register_timestamps)>(
        dlsym(cupti, (prefix + "RegisterTimestampCallback").c_str()));
    finalize = reinterpret_cast<decltype(finalize)>(
        dlsym(cupti, (prefix.substr(0, 5) + "Finalize").c_str()));
  }
};
Unnoticed& g_unnoticed = *new Unnoticed;

// The tool takes CUPTI's buffers, and frees what it gets, as NVIDIA's samples do.
void StealBuffers() {
  g_unnoticed.register_callbacks(
      [](uint8_t** bytes, size_t* size, size_t* records) {
        *size = 1 << 16;
        *bytes = static_cast<uint8_t*>(aligned_alloc(8, *size));
        *records = 0;
      },
      [](CUcontext, uint32_t, uint8_t* bytes, size_t, size_t) { free(bytes); });
}

// The tool sets CUPTI's clock.
void SetTimestamps() {
  g_unnoticed.register_timestamps([]() -> uint64_t {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  });
}

// The other profiler, begun and ended as its user does.
seqpoint::SecondTool& g_tool = *new seqpoint::SecondTool;
void StartTool() {
  if (Option("tool_tells", 1) != 0 && seqpoint_stand_down) {
    const int free = seqpoint_stand_down("torch.profiler");
    fprintf(stderr, "stand_down %d\n", free);
  }
  if (Option("tool_ends_first", 0) != 0) g_tool.Finalize();
  if (!g_tool.Start()) fprintf(stderr, "no CUPTI for the tool\n");
}
void StopTool() {
  g_tool.Stop(Option("tool_keeps", 0) != 0);
  if (Option("tool_finalizes", -1) == Option("tool_end", 0)) g_tool.Finalize();
  if (Option("tool_tells", 1) == 0 || !seqpoint_come_back) return;
  fprintf(stderr, "come_back %d\n", seqpoint_come_back());
}

// A program that ends by exit() in a signal handler, as many do, sends itself signals from another
// thread until one hits.
void ExitOnSignal() {
  signal(SIGTERM, [](int) { exit(9); });
  const pthread_t main_thread = pthread_self();
  std::thread([main_thread] {
    usleep(static_cast<useconds_t>(Option("exit_on_signal_us", 0)));
    pthread_kill(main_thread, SIGTERM);
  }).detach();
}

// Another copy of the profiler's library comes into the process and is started too.
void StartLibrary(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) exit(4);
  const auto start = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  if (start == nullptr || start() != 1) exit(5);
}

void OpenLibraries(const std::string& paths) {
  for (size_t begin = 0; begin < paths.size();) {
    const size_t end = std::min(paths.find(':', begin), paths.size());
    if (dlopen(paths.substr(begin, end - begin).c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
      fprintf(stderr, "injection_trainer: %s\n", dlerror());
      exit(6);
    }
    begin = end + 1;
  }
}

// Whether the counters' host library is found, which libcupti opens by its bare name.
void AskHostProfiler() {
  void* cupti = dlopen("libcupti.so.13", RTLD_NOLOAD | RTLD_NOW);
  if (cupti == nullptr) return;
  const auto initialize = reinterpret_cast<decltype(&cuptiProfilerHostInitialize)>(
      dlsym(cupti, "cuptiProfilerHostInitialize"));
  CUpti_Profiler_Host_Initialize_Params params = {};
  params.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
  params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  params.pChipName = "GH100";
  printf("host_profiler %d\n", static_cast<int>(initialize(&params)));
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void*) {
        if (strstr(info->dlpi_name, "libnvperf_host") != nullptr) {
          printf("nvperf %s\n", info->dlpi_name);
        }
        return 0;
      },
      nullptr);
}

// Another program, started the ways that programs are started.
void StartChild(const char* self) {
  const std::string how = g_options.count("how") ? g_options["how"] : "posix_spawn";
  std::string name = self, argument = "iterations=10";
  char* const arguments[] = {name.data(), argument.data(), nullptr};
  pid_t child = 0;
  fflush(stdout);
  if (how == "exec") execv(self, arguments);
  if (how == "posix_spawn") posix_spawn(&child, self, nullptr, nullptr, arguments, environ);
  if (how == "fork") child = fork();
  if (how == "vfork") child = vfork();
  if (child == 0) {
    execv(self, arguments);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

// A child forked while CUDA is up, like a data loader's worker: it must neither hang nor write.
void ForkWorker() {
  const pid_t child = fork();
  if (child == 0) {
    if (seqpoint_iteration_begin) seqpoint_iteration_begin(1);
    nvtxRangePushA("worker");
    nvtxRangePop();
    exit(0);  // runs the exit handlers of the parent's libraries
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("worker %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      fprintf(stderr, "injection_trainer: %s is not key=value\n", argv[i]);
      return 2;
    }
    g_options[argument.substr(0, equals)] = argument.substr(equals + 1);
  }
  std::vector<long> lengths;
  for (const char* at = g_options.count("lengths") ? g_options["lengths"].c_str() : "16,32,48";;) {
    char* end;
    lengths.push_back(strtol(at, &end, 10));
    if (*end != ',') break;
    at = end + 1;
  }

  OpenLibraries(g_options["open"]);
  if (g_options.count("steal") + g_options.count("timestamps") + g_options.count("ends_cupti") !=
      0) {
    g_unnoticed.LookUp();
  }
  const bool with_tool = g_options.count("tool") != 0;
  if (Option("tool_ticks", 0) != 0) g_tool.CountTicks();
  if (Option("tool_hidden", 0) != 0) g_tool.LookUpAll();
  if (with_tool && Option("tool", 0) < 0) StartTool();
  std::atomic<bool> stop{false}, loads{false};
  std::vector<std::thread> others;
  if (g_options.count("load") != 0) {
    others.emplace_back([&stop, &loads, file = g_options["load"]] {
      while (!stop) {
        void* library = dlopen(file.c_str(), RTLD_NOW);
        if (library == nullptr) exit(4);
        dlclose(library);
        loads = true;
      }
    });
    while (!loads) usleep(100);
  }
  if (Option("attach", 0) != 0 && seqpoint_attach) {
    seqpoint_attach(0);
    seqpoint_iteration_begin(lengths[0]);
    usleep(static_cast<useconds_t>(1000 * Option("attach", 0)));
  }
  Check(cuInit(0), "cuInit");
  CUdevice device;
  Check(cuDeviceGet(&device, 0), "cuDeviceGet");
  Trainer trainer(device);
  const long iterations = Option("iterations", 50);
  if (g_options.count("start_library")) StartLibrary(g_options["start_library"].c_str());

  if (Option("exit_on_signal_us", 0) > 0) ExitOnSignal();

  for (long i = 0; i < Option("threads", 0); ++i) {
    others.emplace_back([&trainer, &stop] {
      Check(cuCtxSetCurrent(trainer.context), "cuCtxSetCurrent");
      CUstream own;
      Check(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
      void* arguments[] = {&trainer.data};
      while (!stop) {
        Check(cuLaunchKernel(trainer.forward, 3, 1, 1, 64, 1, 1, 0, own, arguments, nullptr),
              "cuLaunchKernel");
        Check(cuStreamSynchronize(own), "cuStreamSynchronize");
        usleep(100);
      }
    });
  }
  for (long i = 0; i < Option("launch_threads", 0); ++i) {
    others.emplace_back([&trainer, &stop] {
      Check(cuCtxSetCurrent(trainer.context), "cuCtxSetCurrent");
      while (!stop) {
        trainer.Launch(trainer.forward, 3);
        usleep(200'000);
      }
    });
  }
  if (Option("second_gpu", 0) != 0) {
    others.emplace_back([&stop] {
      Trainer second(1);
      while (!stop) {
        for (int i = 0; i < 8; ++i) second.Launch(second.forward, 20'000);
        Check(cuStreamSynchronize(second.stream), "cuStreamSynchronize");
      }
    });
  }
  std::atomic<int> broken{0}, captured{0};
  const bool begins_unseen =
      Option("capture_thread", 0) != 0 && Option("storm", 0) != 0 && seqpoint_stand_down;
  if (begins_unseen) seqpoint_stand_down("storm");
  if (Option("capture_thread", 0) != 0) {
    others.emplace_back([&] {
      Check(cuCtxSetCurrent(trainer.context), "cuCtxSetCurrent");
      CUstream own;
      Check(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
      void* arguments[] = {&trainer.data};
      while (!stop) {
        CUgraph graph = nullptr;
        Check(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
        cuLaunchKernel(trainer.forward, 3, 1, 1, 64, 1, 1, 0, own, arguments, nullptr);
        usleep(50);
        ++captured;
        if (cuStreamEndCapture(own, &graph) != CUDA_SUCCESS) ++broken;
        if (graph != nullptr) cuGraphDestroy(graph);
        usleep(50);
      }
    });
  }
  if (begins_unseen) {
    while (captured == 0) usleep(100);
    seqpoint_come_back();
  }
  std::vector<std::thread> storm;
  for (long i = 0; i < Option("storm", 0); ++i) {
    storm.emplace_back([&stop, i] {
      // Threads of equal periods may cover each other's pauses for long.
      const auto pause_us = static_cast<useconds_t>(1000 + 200 * i);
      while (!stop && seqpoint_stand_down) {
        seqpoint_stand_down("storm");
        usleep(2000);
        seqpoint_come_back();
        usleep(pause_us);
      }
    });
  }
  for (long i = 0; i < iterations; ++i) {
    if (i + 100 == iterations && !storm.empty()) {  // the last ones are quiet
      stop = true;
      for (std::thread& thread : storm) thread.join();
      storm.clear();
    }
    const auto due = [i](long first) {
      const long period = Option("tool_period", 0);
      return i == first || (period > 0 && i > first && (i - first) % period == 0);
    };
    if (with_tool && due(Option("tool", 0))) StartTool();
    if (with_tool && due(Option("tool_end", 0) + 1)) StopTool();
    if (Option("evaluate", 0) > 0 && i % Option("evaluate", 0) == 0) {
      trainer.Evaluation(lengths[0]);
      trainer.Evaluation(lengths[0]);
    }
    trainer.Iteration(i, lengths[static_cast<size_t>(i) % lengths.size()]);
    if (Option("wait", -1) == i || Option("wait_again", -1) == i) {
      const std::string go = g_options["go"] + "." + std::to_string(i);
      while (access(go.c_str(), F_OK) != 0) usleep(1000);
    }
    if (Option("reload", -1) == i) trainer.Reload();
    if (Option("tool_finalizes", -1) == i && i != Option("tool_end", 0)) g_tool.Finalize();
    if (Option("fork", -1) == i) ForkWorker();
    if (Option("child", -1) == i) StartChild(argv[0]);
    if (Option("steal", -1) == i) StealBuffers();
    if (Option("capture", -1) == i || Option("capture_all", 0) != 0) trainer.CaptureGraph();
    if (Option("kill", -1) == i) raise(SIGKILL);
    if (Option("_exit", -1) == i) _exit(7);
    if (Option("timestamps", -1) == i) SetTimestamps();
    if (Option("ends_cupti", -1) == i) g_unnoticed.finalize();
    if (Option("abort", -1) == i) abort();
    if (Option("throw", -1) == i) throw std::runtime_error("uncaught");
    if (Option("term", -1) == i) raise(SIGTERM);
    if (Option("reset", -1) == i) {
      Check(cuDevicePrimaryCtxReset(device), "cuDevicePrimaryCtxReset");
      trainer = Trainer(device);
    }
  }
  stop = true;
  for (std::thread& other : others) other.join();
  if (Option("capture_thread", 0) != 0) printf("broken %d of %d\n", broken.load(), captured.load());
  if (Option("final_sync", 1) != 0) Check(cuCtxSynchronize(), "cuCtxSynchronize");
  if (swgpu_digest && Option("threads", 0) + Option("launch_threads", 0) == 0) {
    printf("digest 0x%llx\n", static_cast<unsigned long long>(swgpu_digest()));
  }
  if (Option("host_profiler", 0) != 0) AskHostProfiler();
  if (with_tool && Option("tool_end", 0) + 1 >= iterations) g_tool.Stop(true);
  if (with_tool) g_tool.Print();
  fflush(stdout);
  if (Option("destroy", 0) != 0) {
    Check(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  }
  return static_cast<int>(Option("status", 0));
}
