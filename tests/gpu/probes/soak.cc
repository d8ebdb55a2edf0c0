// A job for hours in minutes: nothing but launches, told what to do line by line, and telling what
// CUPTI leaves behind in its process.
#include <unistd.h>

#include <algorithm>
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
// torch.compile does it at mode "reduce-overhead"; a new length comes every 20 iterations.
class Training {
 public:
  explicit Training(bool graphs) : graphs_(graphs) {
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
  // What was captured since the last call, and what could not be.
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

  const bool graphs_;
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

// [graphs]. Prints "ready"; then a line of JSON for each line of standard input:
//   block N    N iterations: wall time, and CPU time of this thread, of an iteration
//   state      this process, and the GPU's free memory
//   flush      the same, with the time of five flushes of activity records: for a process in which
//              CUPTI is in use, as the call alone would begin a use
//   end
void SoakJob(Json* out) {
  // The program's other probes use CUPTI, so an injected library leaves it to us. This one does
  // not.
  if (seqpoint_come_back != nullptr) seqpoint_come_back();
  Training training(!Arguments().empty() && Arguments()[0] == "graphs");
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
