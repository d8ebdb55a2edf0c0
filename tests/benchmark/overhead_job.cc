// A training loop of known shape for the overhead ladder (overhead_benchmark.cc). Driver API only,
// its kernels as PTX, so that the same binary runs on the software GPU and on a real one.
//
//   overhead_job kind=launch rounds=0          1,000 kernels of no length an iteration
//   overhead_job kind=compute rounds=60000     40 kernels that are busy for a while
//   overhead_job kind=graph rounds=1000        20 launches of a graph of 50 kernels
//   overhead_job calibrate=250000              prints the rounds of a kernel of 250,000 ns
//
// An iteration: the batch is copied to the GPU (its bytes follow the length), the kernels, the
// optimiser, the loss read back. copy=0: no batch is copied. nvtx=1: it is an NVTX range. Prints
// "ready"; then, for each number of iterations read from standard input, "wall_ns cpu_ns kernels
// launches": time of the loop with the GPU idle before and after, CPU time of its thread, kernels
// and calls that launch.
#include <cuda.h>
#include <nvtx3/nvToolsExt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "tests/softgpu/swgpu.h"

namespace {

constexpr int kLengths[] = {16, 24, 32, 40};  // in turn, so that every fourth iteration is the same
constexpr int kGraphKernels = 50;
constexpr unsigned kThreads = 256;
constexpr uint64_t kSoftwareLaunchNs = 2000;
// A kernel on the software GPU, whose time follows its operations: per round, at 36 TFLOP/s.
constexpr double kSoftwareFlopsPerRound = 36e12 * 4e-9;

std::string KernelText(const char* name) {
  return std::string(".visible .entry ") + name + R"((.param .u64 data, .param .u32 rounds)
{
  .reg .pred %p;
  .reg .b32 %r<3>;
  .reg .f32 %f<3>;
  .reg .b64 %d<2>;
  ld.param.u64 %d0, [data];
  ld.param.u32 %r0, [rounds];
  mov.u32 %r1, 0;
  mov.f32 %f0, 0f3F800000;
  mov.f32 %f1, 0f3F7FFFFF;
  setp.eq.u32 %p, %r0, 0;
  @%p bra DONE;
AGAIN:
  fma.rn.f32 %f0, %f0, %f1, %f1;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p, %r1, %r0;
  @%p bra AGAIN;
  cvta.to.global.u64 %d1, %d0;
  st.global.f32 [%d1], %f0;
DONE:
  ret;
}
)";
}

uint64_t NowNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "overhead_job: %s gave %d\n", what, static_cast<int>(result));
  exit(3);
}

class Job {
 public:
  Job(const std::string& kind, unsigned rounds, bool copy, bool nvtx)
      : kind_(kind), rounds_(rounds), copy_(copy), nvtx_(nvtx) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    Check(cuInit(0), "cuInit");
    Check(cuDeviceGet(&device, 0), "cuDeviceGet");
    Check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    const std::string text =
        ".version 7.0\n.target sm_75\n.address_size 64\n" + KernelText("work") + KernelText("adam");
    Check(cuModuleLoadData(&module, text.c_str()), "cuModuleLoadData");
    Check(cuModuleGetFunction(&work_, module, "work"), "cuModuleGetFunction");
    Check(cuModuleGetFunction(&adam_, module, "adam"), "cuModuleGetFunction");
    Check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    Check(cuMemAlloc(&data_, kBytes), "cuMemAlloc");
    Check(cuMemAllocHost(reinterpret_cast<void**>(&host_), kBytes), "cuMemAllocHost");
    memset(host_, 1, kBytes);
    int processors = 0;
    Check(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
          "cuDeviceGetAttribute");
    grid_ = kind == "launch" ? 1 : 2 * static_cast<unsigned>(processors);
    if (kind == "graph") Capture();
  }

  // Rounds of a kernel that takes `wanted_ns`.
  unsigned Calibrate(double wanted_ns) {
    rounds_ = 100'000;
    for (int i = 0; i < 3; ++i) {  // the first one loads the kernel
      const uint64_t begin_ns = NowNs(CLOCK_MONOTONIC);
      for (int kernel = 0; kernel < 20; ++kernel) Launch(work_, rounds_);
      Check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
      const auto took_ns = static_cast<double>(NowNs(CLOCK_MONOTONIC) - begin_ns) / 20;
      rounds_ = std::max(1u, static_cast<unsigned>(rounds_ * wanted_ns / took_ns));
    }
    return rounds_;
  }

  void Iterate(uint64_t number) {
    const auto length = static_cast<size_t>(kLengths[number % 4]);
    if (nvtx_) nvtxRangePushA("iteration");
    if (copy_) {
      Check(cuMemcpyHtoDAsync(data_, host_, length * 64, stream_), "cuMemcpyHtoDAsync");
    }
    if (kind_ == "launch") {
      for (size_t i = 0; i < 36 * length; ++i) {
        // A launch of the software GPU costs next to nothing.
        if (swgpu_host_work) swgpu_host_work(kSoftwareLaunchNs);
        Launch(work_, rounds_);
      }
    } else if (kind_ == "compute") {
      const auto rounds = static_cast<unsigned>(rounds_ * length / 28);
      for (int i = 0; i < 40; ++i) Launch(work_, rounds);
    } else {
      for (size_t i = 0; i < length * 20 / 28; ++i) {
        Check(cuGraphLaunch(graph_, stream_), "cuGraphLaunch");
        kernels_ += kGraphKernels;
        ++launches_;
      }
    }
    Launch(adam_, 0);
    Check(cuMemcpyDtoHAsync(host_, data_, 4, stream_), "cuMemcpyDtoHAsync");
    Check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    if (nvtx_) nvtxRangePop();
  }

  void Serve() {
    // CUDA's driver has threads of its own. Without any, glibc's locks are cheaper than they are in
    // a real program, until the library's thread comes.
    std::thread(pause).detach();
    printf("ready\n");
    fflush(stdout);
    char line[32];
    while (fgets(line, sizeof(line), stdin) != nullptr) {
      const uint64_t iterations = strtoull(line, nullptr, 10);
      kernels_ = launches_ = 0;
      const uint64_t cpu_ns = NowNs(CLOCK_THREAD_CPUTIME_ID);
      const uint64_t wall_ns = NowNs(CLOCK_MONOTONIC);
      for (uint64_t i = 0; i < iterations; ++i) Iterate(i);
      printf("%llu %llu %llu %llu\n",
             static_cast<unsigned long long>(NowNs(CLOCK_MONOTONIC) - wall_ns),
             static_cast<unsigned long long>(NowNs(CLOCK_THREAD_CPUTIME_ID) - cpu_ns),
             static_cast<unsigned long long>(kernels_), static_cast<unsigned long long>(launches_));
      fflush(stdout);
    }
  }

 private:
  static constexpr size_t kBytes = 1 << 16;

  void Launch(CUfunction function, unsigned rounds) {
    if (swgpu_next_launch_work && rounds > 0) {
      SwgpuWork work = {};
      work.flops = rounds * kSoftwareFlopsPerRound;
      swgpu_next_launch_work(&work);
    }
    void* arguments[] = {&data_, &rounds};
    Check(cuLaunchKernel(function, grid_, 1, 1, kThreads, 1, 1, 0, stream_, arguments, nullptr),
          "cuLaunchKernel");
    ++kernels_;
    ++launches_;
  }

  void Capture() {
    CUgraph graph;
    Check(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "cuStreamBeginCapture");
    for (int i = 0; i < kGraphKernels; ++i) Launch(work_, rounds_);
    Check(cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    Check(cuGraphInstantiate(&graph_, graph, 0), "cuGraphInstantiate");
  }

  std::string kind_;
  unsigned rounds_, grid_ = 1;
  bool copy_, nvtx_;
  CUfunction work_ = nullptr, adam_ = nullptr;
  CUstream stream_ = nullptr;
  CUgraphExec graph_ = nullptr;
  CUdeviceptr data_ = 0;
  char* host_ = nullptr;
  uint64_t kernels_ = 0, launches_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::string kind = "launch";
  unsigned rounds = 0;
  double calibrate_ns = 0;
  bool copy = true, nvtx = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("kind=", 0) == 0) {
      kind = argument.substr(5);
    } else if (argument.rfind("rounds=", 0) == 0) {
      rounds = static_cast<unsigned>(strtoul(argv[i] + 7, nullptr, 10));
    } else if (argument.rfind("calibrate=", 0) == 0) {
      calibrate_ns = strtod(argv[i] + 10, nullptr);
    } else if (argument == "copy=0") {
      copy = false;
    } else if (argument == "nvtx=1") {
      nvtx = true;
    } else {
      fprintf(stderr, "overhead_job: %s is not kind=, rounds=, calibrate=, copy=0 or nvtx=1\n",
              argv[i]);
      return 2;
    }
  }
  if (kind != "launch" && kind != "compute" && kind != "graph") {
    fprintf(stderr, "overhead_job: kind=%s; there are launch, compute, graph\n", kind.c_str());
    return 2;
  }
  Job job(kind, rounds, copy, nvtx);
  if (calibrate_ns > 0) {
    printf("%u\n", job.Calibrate(calibrate_ns));
    return 0;
  }
  job.Serve();
  return 0;
}
