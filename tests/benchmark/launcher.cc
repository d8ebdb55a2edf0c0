// A training loop that launches kernels at a given rate, for measurements of the whole path. Driver
// API only, so that every call is known. One iteration is that of a small recurrent network: a
// batch copy, three kernels a step forward and backward, the optimiser for each parameter, the loss
// read back every eighth time.
//
//   seqpoint_launcher rate=200000 seconds=60     after SIGUSR1: 60 s at 200,000 launches per second
//   seqpoint_launcher flood=300000               no loop at all: kernels in no order, at full speed
//   seqpoint_launcher pairs=2000 block=5000      blocks of 5,000 launches, timed (see below)
//
// Prints words and numbers in pairs. "mark": CLOCK_REALTIME at SIGUSR1; what is printed at the end
// counts from there. `pairs`: the CPU time of each block of launches, one number a line.
#include <cuda.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "injection/seqpoint.h"

namespace {

constexpr int kKernels = 40;  // names in a flood
constexpr unsigned kParameters = 12;
constexpr int kReadbackEvery = 8;
// Ahead of the schedule by less, it is not worth going to sleep.
constexpr uint64_t kSlackNs = 100'000;

volatile sig_atomic_t g_marked = 0;

std::map<std::string, uint64_t> g_options;

uint64_t Option(const char* name, uint64_t fallback) {
  const auto found = g_options.find(name);
  return found == g_options.end() ? fallback : found->second;
}

uint64_t NowNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "seqpoint_launcher: %s gave %d\n", what, static_cast<int>(result));
  exit(3);
}

class Launcher {
 public:
  Launcher() {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    Check(cuInit(0), "cuInit");
    Check(cuDeviceGet(&device, 0), "cuDeviceGet");
    Check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    Check(cuModuleLoadData(&module, "image"), "cuModuleLoadData");
    const auto get = [module](const char* name) {
      CUfunction function;
      Check(cuModuleGetFunction(&function, module, name), "cuModuleGetFunction");
      return function;
    };
    for (const char* name : {"gemm_input", "gemm_hidden", "lstm_cell"}) {
      forward_.push_back(get(name));
      backward_.push_back(get((std::string(name) + "_backward").c_str()));
    }
    loss_ = get("loss");
    adam_ = get("adam");
    for (int i = 0; i < kKernels; ++i)
      flood_.push_back(get(("kernel_" + std::to_string(i)).c_str()));
    Check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    Check(cuMemAlloc(&data_, host_.size()), "cuMemAlloc");
  }

  void Launch(CUfunction function, unsigned grid) {
    Check(cuLaunchKernel(function, grid, 1, 1, 128, 1, 1, 0, stream_, nullptr, nullptr),
          "cuLaunchKernel");
    ++launches_;
  }

  void Train(uint64_t rate, uint64_t seconds) {
    std::uniform_int_distribution<uint32_t> lengths(20, 100);
    uint64_t base_ns = NowNs(CLOCK_MONOTONIC), base_launches = 0;  // of the schedule
    uint64_t mark_ns = 0, iterations = 0, late_ns = 0;
    const auto pace = [&] {
      if (rate == 0) return;
      const uint64_t due_ns = base_ns + (launches_ - base_launches) * 1'000'000'000 / rate;
      const uint64_t now_ns = NowNs(CLOCK_MONOTONIC);
      if (now_ns > due_ns) {
        if (mark_ns != 0) late_ns = std::max(late_ns, now_ns - due_ns);
      } else if (due_ns - now_ns > kSlackNs) {
        usleep(static_cast<useconds_t>((due_ns - now_ns) / 1000));
      }
    };
    while (mark_ns == 0 || NowNs(CLOCK_MONOTONIC) - mark_ns < seconds * 1'000'000'000) {
      if (g_marked != 0 && mark_ns == 0) {
        Check(cuCtxSynchronize(), "cuCtxSynchronize");
        printf("mark %llu\n", static_cast<unsigned long long>(NowNs(CLOCK_REALTIME)));
        fflush(stdout);
        base_ns = mark_ns = NowNs(CLOCK_MONOTONIC);
        base_launches = launches_;
      }
      const uint32_t length = lengths(random_);
      // Where iterations begin is told: this program is not about finding them.
      if (seqpoint_iteration_begin) seqpoint_iteration_begin(length);
      Check(cuMemcpyHtoDAsync(data_, host_.data(), size_t{length} * 64, stream_),
            "cuMemcpyHtoDAsync");
      const auto steps = [&](const std::vector<CUfunction>& kernels) {
        for (uint32_t step = 0; step < length; ++step) {
          for (const CUfunction kernel : kernels) Launch(kernel, 16);
          pace();
        }
      };
      steps(forward_);
      Launch(loss_, 1);
      steps(backward_);
      for (unsigned parameter = 0; parameter < kParameters; ++parameter) {
        Launch(adam_, 4 + parameter);
      }
      if (++iterations % kReadbackEvery == 0) {
        Check(cuMemcpyDtoHAsync(host_.data(), data_, 4, stream_), "cuMemcpyDtoHAsync");
        Check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
      }
    }
    Check(cuCtxSynchronize(), "cuCtxSynchronize");
    printf("launches %llu seconds %.3f latest_ms %.1f\n",
           static_cast<unsigned long long>(launches_ - base_launches),
           static_cast<double>(NowNs(CLOCK_MONOTONIC) - mark_ns) * 1e-9,
           static_cast<double>(late_ns) * 1e-6);
  }

  // Launches that no learner can take for a loop.
  void Flood(uint64_t launches) {
    for (uint64_t i = 0; i < launches; ++i) {
      const uint32_t kernel = random_() % kKernels;
      Launch(flood_[kernel], 1 + random_() % 64);
    }
    Check(cuCtxSynchronize(), "cuCtxSynchronize");
    printf("launches %llu synchronisations 1\n", static_cast<unsigned long long>(launches_));
  }

  // The GPU is idle before each block, so that no launch waits for a place in its queue. Before
  // each block one line of standard input is read: the other program has its turn.
  void TimeBlocks(uint64_t blocks, uint64_t launches) {
    // CUDA's driver has threads of its own. Without any, glibc's locks are cheaper than they are in
    // a real program, until the library's thread comes.
    std::thread(pause).detach();
    char line[16];
    for (uint64_t block = 0; block < blocks; ++block) {
      Check(cuMemcpyHtoDAsync(data_, host_.data(), 64 * (1 + block % 7), stream_),
            "cuMemcpyHtoDAsync");
      Launch(adam_, 64);
      Check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
      if (fgets(line, sizeof(line), stdin) == nullptr) return;
      uint64_t ns = 0;
      for (uint64_t done = 0; done < launches; done += kBurst) {
        const uint64_t begin_ns = NowNs(CLOCK_THREAD_CPUTIME_ID);
        for (uint64_t i = 0; i < kBurst; ++i) Launch(forward_[0], 8);
        ns += NowNs(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
        Check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
      }
      printf("%llu\n", static_cast<unsigned long long>(ns));
      fflush(stdout);
    }
  }

 private:
  static constexpr uint64_t kBurst = 500;  // fewer than the GPU's queue takes

  std::vector<CUfunction> forward_, backward_, flood_;
  CUfunction loss_ = nullptr, adam_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr data_ = 0;
  std::vector<char> host_ = std::vector<char>(1 << 20, 1);
  std::mt19937 random_{1};
  uint64_t launches_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const char* equals = strchr(argv[i], '=');
    if (equals == nullptr) {
      fprintf(stderr, "seqpoint_launcher: %s is not key=value\n", argv[i]);
      return 2;
    }
    g_options[std::string(argv[i], static_cast<size_t>(equals - argv[i]))] =
        strtoull(equals + 1, nullptr, 10);
  }
  signal(SIGUSR1, [](int) { g_marked = 1; });
  Launcher launcher;
  if (Option("flood", 0) > 0) {
    launcher.Flood(Option("flood", 0));
  } else if (Option("pairs", 0) > 0) {
    launcher.TimeBlocks(Option("pairs", 0), Option("block", 5000));
  } else {
    launcher.Train(Option("rate", 200'000), Option("seconds", 60));
  }
  return 0;
}
