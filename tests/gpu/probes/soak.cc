// A job for hours in minutes: nothing but launches, told what to do line by line, and telling what
// CUPTI leaves behind in its process.
#include <dlfcn.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "injection/seqpoint.h"
#include "tests/gpu/probes/kernels.h"
#include "tests/gpu/probes/probe.h"

namespace seqpoint::probe {
namespace {

double WallNs() {
  return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch().count());
}

double ThreadCpuNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// The work of an iteration: a copy of the batch, launches, the optimiser, the loss read back. With
// graphs, the launches are one graph for each length, captured when the length first comes, as
// torch.compile does it at mode "reduce-overhead"; a new length comes every 20 iterations. With
// marks, the program tells where an iteration begins, as the adapter for PyTorch does.
class Training {
 public:
  Training(bool graphs, bool marks) : graphs_(graphs), marks_(marks) {
    CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CUDA(cudaMallocHost(&batch_, kBatchBytes));
    CUDA(cudaMalloc(&on_gpu_, kBatchBytes));
  }

  void Iterate() {
    const int64_t i = iterations_++;
    int64_t which = i % 4;
    if (graphs_) {
      const int64_t more = i / kNewEvery;  // lengths that came in addition
      which = more > 0 && i % kNewEvery < 2 ? 3 + more : i * 7 % (4 + more);
    }
    const int length = which < 4 ? kLengths[which] : kLengths[3] + static_cast<int>(which) - 3;
    if (marks_ && seqpoint_iteration_begin != nullptr) seqpoint_iteration_begin(length);
    CUDA(cudaMemcpyAsync(on_gpu_, batch_, static_cast<size_t>(length) * 64, cudaMemcpyHostToDevice,
                         stream_));
    if (graphs_) {
      LaunchGraph(length);
    } else {
      Launch(length);
    }
    LaunchSpin(stream_, 1, 1000);  // the optimiser
    CUDA(cudaMemcpyAsync(&loss_, on_gpu_, sizeof(loss_), cudaMemcpyDeviceToHost, stream_));
    CUDA(cudaStreamSynchronize(stream_));
  }

  int64_t iterations() const { return iterations_; }
  cudaStream_t stream() const { return stream_; }
  // Captures since the last call, whole and broken.
  void TellCaptures(Json* out) {
    if (!graphs_) return;
    out->Add("captured_lengths", captured_)
        .Add("captures_failed", failed_)
        .Add("failure", failure_)
        .Add("nodes_of_length", kNodesOfLength);
    captured_.clear();
  }

 private:
  static constexpr int kLengths[] = {16, 24, 32, 40};  // in turn
  static constexpr int kNewEvery = 20;
  static constexpr int kLaunchesOfLength = 36;
  static constexpr int kNodesOfLength = 2;
  static constexpr size_t kBatchBytes = 1 << 16;

  void Launch(int length) {
    const int count = length * (graphs_ ? kNodesOfLength : kLaunchesOfLength);
    for (int i = 0; i < count; ++i) LaunchEmpty(stream_);
  }

  // Where a capture fails, the iteration runs without a graph, and the next one tries again.
  void LaunchGraph(int length) {
    cudaGraphExec_t& exec = execs_[length];
    if (exec == nullptr) {
      cudaGraph_t graph = nullptr;
      // PyTorch's default (torch.cuda.graph).
      cudaError_t result = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal);
      if (result == cudaSuccess) {
        Launch(length);
        result = cudaStreamEndCapture(stream_, &graph);
      }
      if (result == cudaSuccess) result = cudaGraphInstantiate(&exec, graph, 0);
      cudaGetLastError();
      if (graph != nullptr) CUDA(cudaGraphDestroy(graph));
      if (result != cudaSuccess) {
        ++failed_;
        failure_ = std::to_string(result) + " " + cudaGetErrorString(result);
        exec = nullptr;
        Launch(length);
        return;
      }
      captured_.push_back(length);
    }
    CUDA(cudaGraphLaunch(exec, stream_));
  }

  const bool graphs_, marks_;
  cudaStream_t stream_ = nullptr;
  char* batch_ = nullptr;
  float* on_gpu_ = nullptr;
  float loss_ = 0;
  int64_t iterations_ = 0;
  std::map<int, cudaGraphExec_t> execs_;
  std::vector<double> captured_;
  int64_t failed_ = 0;
  std::string failure_ = "none";
};

}  // namespace

namespace {

CUpti_SubscriberHandle own_subscriber = nullptr;
std::atomic<bool> ends_cupti = false;

uint64_t CUPTIAPI Ticks() { return __rdtsc(); }

// At the end of the first call after the profile, with TEARDOWN_CUPTI=1.
void CUPTIAPI OnCall(void*, CUpti_CallbackDomain domain, CUpti_CallbackId, const void* info) {
  if (domain != CUPTI_CB_DOMAIN_RUNTIME_API && domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  if (static_cast<const CUpti_CallbackData*>(info)->callbackSite != CUPTI_API_EXIT) return;
  if (!ends_cupti.exchange(false)) return;
  CUPTI(cuptiUnsubscribe(own_subscriber));
  CUPTI(cuptiFinalize());
}

// torch.profiler's calls of CUPTI (pytorch/kineto@114171df, libkineto/src: CuptiTimestamp.cpp,
// CuptiActivityApi.cpp, CuptiCallbackApi.cpp:96), told to an injected library as the adapter for
// PyTorch tells it. Once in a process.
Json Profile(Training* training, int64_t iterations) {
  constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                           CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
                                           CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER};
  if (seqpoint_stand_down != nullptr) seqpoint_stand_down("torch.profiler");
  static std::atomic<int64_t> kernels = 0, copies = 0;
  CUPTI(cuptiSubscribe(&own_subscriber, OnCall, nullptr));
  CUPTI(cuptiActivityRegisterTimestampCallback(Ticks));
  CollectActivity([](const CUpti_Activity* record) {
    kernels += record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    copies += record->kind == CUPTI_ACTIVITY_KIND_MEMCPY;
  });
  for (const CUpti_ActivityKind kind : kKinds) CUPTI(cuptiActivityEnable(kind));
  for (int64_t i = 0; i < iterations; ++i) training->Iterate();
  CUDA(cudaDeviceSynchronize());
  FlushActivity();
  for (const CUpti_ActivityKind kind : kKinds) CUPTI(cuptiActivityDisable(kind));
  const char* teardown = std::getenv("TEARDOWN_CUPTI");
  if (teardown != nullptr && std::strcmp(teardown, "1") == 0) {
    CUPTI(cuptiEnableDomain(1, own_subscriber, CUPTI_CB_DOMAIN_RUNTIME_API));
    CUPTI(cuptiEnableDomain(1, own_subscriber, CUPTI_CB_DOMAIN_DRIVER_API));
    FlushActivity();
    ends_cupti = true;
  }
  if (seqpoint_come_back != nullptr) seqpoint_come_back();
  uint32_t version = 0;
  CUPTI(cuptiGetVersion(&version));
  Dl_info cupti = {};
  dladdr(reinterpret_cast<void*>(cuptiGetVersion), &cupti);
  const std::string path = cupti.dli_fname != nullptr ? cupti.dli_fname : "";
  return Json()
      .Add("kernels", kernels.load())
      .Add("operators", copies.load())
      .Add("cupti", Json()
                        .Add("file", path.substr(path.rfind('/') + 1))
                        .Add("version", static_cast<int64_t>(version)));
}

// The median over the iterations, by the GPU's events.
double MedianMs(Training* training, int64_t iterations) {
  std::vector<cudaEvent_t> marks(static_cast<size_t>(iterations) + 1);
  for (cudaEvent_t& mark : marks) CUDA(cudaEventCreate(&mark));
  CUDA(cudaEventRecord(marks[0], training->stream()));
  for (size_t i = 1; i < marks.size(); ++i) {
    training->Iterate();
    CUDA(cudaEventRecord(marks[i], training->stream()));
  }
  CUDA(cudaEventSynchronize(marks.back()));
  std::vector<double> times;
  for (size_t i = 1; i < marks.size(); ++i) {
    float ms = 0;
    CUDA(cudaEventElapsedTime(&ms, marks[i - 1], marks[i]));
    times.push_back(ms);
  }
  for (cudaEvent_t mark : marks) CUDA(cudaEventDestroy(mark));
  return Quantile(times, 0.5);
}

}  // namespace

// [graphs|marks]. Prints "ready"; then a line of JSON for each line of standard input:
//   block N    N iterations: wall time, and CPU time of this thread, of an iteration
//   timed N    the median over N iterations, by the GPU's events
//   profile N  N iterations under a profiler of the program's own, as torch.profiler is one
//   state      this process, and the GPU's free memory
//   flush      the same, with the time of five flushes of activity records: for a process in which
//              CUPTI is in use, as the call alone would begin a use
//   end
void SoakJob(Json* out) {
  // The program's other probes use CUPTI, so an injected library leaves it to us. This one does
  // not.
  if (seqpoint_come_back != nullptr) seqpoint_come_back();
  const std::string kind = Arguments().empty() ? "" : Arguments()[0];
  Training training(kind == "graphs", kind == "marks");
  std::printf("ready\n");
  std::fflush(stdout);
  for (char line[64]; std::fgets(line, sizeof line, stdin) != nullptr;) {
    if (std::strncmp(line, "end", 3) == 0) break;
    Json answer;
    if (std::strncmp(line, "block ", 6) == 0) {
      const int64_t count = std::max<int64_t>(1, std::atoll(line + 6));
      const double wall = WallNs(), cpu = ThreadCpuNs();
      for (int64_t i = 0; i < count; ++i) training.Iterate();
      const auto per = 1e6 * static_cast<double>(count);
      answer.Add("ms", (WallNs() - wall) / per).Add("host_ms", (ThreadCpuNs() - cpu) / per);
      training.TellCaptures(&answer);
    } else if (std::strncmp(line, "timed ", 6) == 0) {
      answer.Add("median_ms", MedianMs(&training, std::max<int64_t>(1, std::atoll(line + 6))));
    } else if (std::strncmp(line, "profile ", 8) == 0) {
      answer = Profile(&training, std::max<int64_t>(1, std::atoll(line + 8)));
    } else {
      size_t free_bytes = 0, all_bytes = 0;
      CUDA(cudaMemGetInfo(&free_bytes, &all_bytes));
      answer.Add("pid", static_cast<int64_t>(getpid())).Add("free_bytes", free_bytes);
    }
    if (std::strncmp(line, "flush", 5) == 0) {
      std::vector<double> flushes;
      for (int i = 0; i < 5; ++i) {
        const double begin = WallNs();
        CUPTI(cuptiActivityFlushAll(0));
        flushes.push_back(WallNs() - begin);
      }
      answer.Add("flush_ns", Quantile(flushes, 0.5)).Add("slowest_flush_ns", Quantile(flushes, 1));
    }
    std::printf("%s\n", answer.Text().c_str());
    std::fflush(stdout);
  }
  out->Add("iterations", training.iterations());
}

}  // namespace seqpoint::probe
