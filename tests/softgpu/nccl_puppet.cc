// One rank, for tests of the software NCCL: does what its arguments say.
//
//   nccl_puppet RANK RANKS FOLDER STEP...
//
// Rank 0 leaves the communicator's id in FOLDER/id. A step is NAME[:ARGUMENT[:ARGUMENT]]; R=STEP is
// a step of rank R only. Collectives are of float and run on the communication stream. Answers are
// lines on the standard output; a call that fails prints "NAME failed: RESULT, MESSAGE".

#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/softgpu/nccl_abi.h"
#include "tests/softgpu/swgpu.h"

namespace {

[[noreturn]] void Fail(const std::string& what) {
  printf("puppet: %s\n", what.c_str());
  exit(1);
}

void Cuda(CUresult result) {
  if (result != CUDA_SUCCESS) Fail("driver call failed: " + std::to_string(result));
}

void CUPTIAPI OnRequest(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *bytes = 1 << 20;
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, *bytes));
}

void CUPTIAPI OnComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    printf("record %s start=%llu end=%llu correlation=%u grid=%d graph=%d\n", kernel->name,
           static_cast<unsigned long long>(kernel->start),
           static_cast<unsigned long long>(kernel->end), kernel->correlationId, kernel->gridX,
           kernel->graphNodeId != 0);
  }
  free(buffer);
}

void CUPTIAPI OnCallback(void*, CUpti_CallbackDomain, CUpti_CallbackId cbid, const void* data) {
  const auto* call = static_cast<const CUpti_CallbackData*>(data);
  if (call->symbolName == nullptr) return;
  printf("callback %s %s correlation=%u cbid=%u\n",
         call->callbackSite == CUPTI_API_ENTER ? "enter" : "exit", call->symbolName,
         call->correlationId, cbid);
}

class Puppet {
 public:
  Puppet(int rank, int ranks, std::string folder)
      : rank_(rank), ranks_(ranks), folder_(std::move(folder)) {
    Cuda(cuInit(0));
    CUcontext context = nullptr;
    Cuda(cuDevicePrimaryCtxRetain(&context, 0));
    Cuda(cuCtxSetCurrent(context));
    Cuda(cuStreamCreate(&compute_, CU_STREAM_NON_BLOCKING));
    Cuda(cuStreamCreate(&communication_, CU_STREAM_NON_BLOCKING));
    Cuda(cuStreamCreate(&second_, CU_STREAM_NON_BLOCKING));
    Cuda(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    CUmodule module = nullptr;
    Cuda(cuModuleLoadData(&module, "puppet"));
    Cuda(cuModuleGetFunction(&kernel_, module, "compute"));
    Cuda(cuMemAlloc(&memory_, 64 << 20));
    comm_stream_ = communication_;
  }

  void Do(const std::string& step) {
    std::vector<std::string> words;
    for (size_t begin = 0; begin <= step.size();) {
      const size_t end = std::min(step.find(':', begin), step.size());
      words.push_back(step.substr(begin, end - begin));
      begin = end + 1;
    }
    const auto number = [&](size_t i) {
      return i < words.size() ? strtoll(words[i].c_str(), nullptr, 10) : 0;
    };
    const std::string& name = words[0];
    const auto a = number(1);
    const auto b = number(2);
    if (DoCompute(words, a) || DoGraph(name)) return;
    DoNccl(words, a, b);
  }

 private:
  void Check(const std::string& name, ncclResult_t result) {
    if (result == ncclSuccess) return;
    printf("%s failed: %d, %s\n", name.c_str(), result, ncclGetLastError(comm_));
  }

  ncclUniqueId Id(const std::string& name) {
    ncclUniqueId id;
    const std::string path = folder_ + "/" + name;
    if (rank_ == 0) {
      Check("id", ncclGetUniqueId(&id));
      std::ofstream(path + ".new").write(id.internal, sizeof(id.internal));
      rename((path + ".new").c_str(), path.c_str());
      return id;
    }
    for (;;) {
      std::ifstream file(path);
      if (file.read(id.internal, sizeof(id.internal))) return id;
      usleep(1000);
    }
  }

  void Await(const std::string& file) const {
    const std::string path = folder_ + "/" + file + "." + std::to_string(rank_);
    for (int i = 0; access(path.c_str(), F_OK) != 0; ++i) {
      if (i == 30'000) Fail("nobody made " + path);
      usleep(1000);
    }
  }

  bool DoCompute(const std::vector<std::string>& words, long long a) {
    const std::string& name = words[0];
    if (name == "host") {
      swgpu_host_work(static_cast<uint64_t>(a));
    } else if (name == "compute" || name == "small") {
      // 36,000 operations in a nanosecond: 60 TFLOP/s at an efficiency of 0.6.
      const unsigned grid = name == "small" ? 33 : 264;
      const double share = name == "small" ? 0.25 : 1;
      const SwgpuWork work{static_cast<double>(a) * 36000 * share, 0, 0, 0, 1};
      swgpu_next_launch_work(&work);
      Cuda(cuLaunchKernel(kernel_, grid, 1, 1, 128, 1, 1, 0, compute_, nullptr, nullptr));
    } else if (name == "follow") {  // communication follows computation
      Cuda(cuEventRecord(event_, compute_));
      Cuda(cuStreamWaitEvent(comm_stream_, event_, 0));
    } else if (name == "lead") {  // the other way round
      Cuda(cuEventRecord(event_, comm_stream_));
      Cuda(cuStreamWaitEvent(compute_, event_, 0));
    } else if (name == "sync") {
      Cuda(cuCtxSynchronize());
    } else if (name == "mark") {  // when the computation is through, and when it were alone
      uint64_t ns = 0, alone_ns = 0;
      Cuda(cuEventRecord(event_, compute_));
      swgpu_event_times(event_, &ns, &alone_ns);
      printf("mark ns=%llu alone=%llu\n", Number(ns), Number(alone_ns));
    } else if (name == "slow") {  // 1/100: the computing kernel takes so much longer
      swgpu_slow_kernels("", static_cast<double>(a) / 100);
    } else if (name == "slow_host") {
      swgpu_slow_host(static_cast<double>(a) / 100);
    } else if (name == "link") {  // of ranks 0 and 1
      swgpu_nccl_link(0, 1, static_cast<double>(a) / 100);
    } else if (name == "die") {
      swgpu_nccl_die();
    } else if (name == "now") {
      printf("now %llu\n", static_cast<unsigned long long>(swgpu_now_ns()));
    } else if (name == "lines") {  // waits until the plugin has written so many
      const auto lines = [] {
        std::ifstream file(getenv("RECORD_FILE"));
        return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
      };
      while (lines() < a) usleep(1000);
    } else if (name == "await") {  // FILE: waits until the test has made it
      Await(words[1]);
    } else if (name == "kill_when") {  // FILE: the end of the process, on another thread
      std::thread([this, file = words[1]] {
        Await(file);
        kill(getpid(), SIGKILL);
      }).detach();
    } else if (name == "attach") {  // the profiler begins now, in the library that NCCL loaded
      void* library = dlopen(getenv("NCCL_PROFILER_PLUGIN"), RTLD_NOW | RTLD_NOLOAD);
      if (library == nullptr) Fail("NCCL has loaded no plugin");
      const auto attach = reinterpret_cast<int (*)(int)>(dlsym(library, "seqpoint_attach"));
      if (attach == nullptr || attach(1) != 1) Fail("attach failed");
    } else if (name == "sleep") {
      usleep(static_cast<useconds_t>(a) * 1000);
    } else if (name == "fork") {  // the child ends at once
      fflush(nullptr);
      const pid_t child = fork();
      if (child == 0) exit(0);
      waitpid(child, nullptr, 0);
    } else if (name == "stream") {
      comm_stream_ = a == 0 ? communication_ : second_;
    } else if (name == "cupti") {
      static CUpti_SubscriberHandle subscriber;
      cuptiSubscribe(&subscriber, OnCallback, nullptr);
      for (auto id :
           {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel}) {
        cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
      }
      cuptiActivityRegisterCallbacks(OnRequest, OnComplete);
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    } else if (name == "flush") {
      cuptiActivityFlushAll(0);
    } else if (name == "totals") {
      SwgpuNcclTotals t{};
      swgpu_nccl_totals(&t);
      printf(
          "totals kernels=%llu collectives=%llu transfers=%llu bytes=%llu work=%llu wait=%llu "
          "transfer=%llu last=%llu\n",
          Number(t.kernels), Number(t.collectives), Number(t.transfers), Number(t.bytes),
          Number(t.work_ns), Number(t.wait_ns), Number(t.transfer_ns), Number(t.last_arrivals));
    } else {
      return false;
    }
    return true;
  }

  bool DoGraph(const std::string& name) {
    if (name == "capture") {
      Cuda(cuStreamBeginCapture(comm_stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    } else if (name == "instantiate") {
      CUgraph graph = nullptr;
      Cuda(cuStreamEndCapture(comm_stream_, &graph));
      Cuda(cuGraphInstantiate(&graph_, graph, 0));
    } else if (name == "replay") {
      Cuda(cuGraphLaunch(graph_, comm_stream_));
    } else {
      return false;
    }
    return true;
  }

  void DoNccl(const std::vector<std::string>& words, long long a, long long b) {
    const std::string& name = words[0];
    const auto count = static_cast<size_t>(a);
    void* buffer = reinterpret_cast<void*>(memory_);
    if (name == "init" || name == "init_named") {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      if (name == "init_named") config.commName = "world";
      const std::string file = words.size() > 1 ? words[1] : "id";
      Check(name, ncclCommInitRankConfig(&comm_, ranks_, Id(file), rank_, &config));
      comms_.push_back(comm_);
    } else if (name == "use") {
      comm_ = comms_[count];
    } else if (name == "split") {
      ncclComm_t part = nullptr;
      Check(name, ncclCommSplit(comm_, static_cast<int>(a), static_cast<int>(b), &part, nullptr));
      if (part == nullptr) {
        puts("no part");
        return;
      }
      comms_.push_back(comm_ = part);
      int rank = -1, ranks = -1;
      ncclCommUserRank(comm_, &rank);
      ncclCommCount(comm_, &ranks);
      printf("part rank=%d ranks=%d\n", rank, ranks);
    } else if (name == "allreduce") {
      Check(name, ncclAllReduce(buffer, buffer, count, ncclFloat32, ncclSum, comm_, comm_stream_));
    } else if (name == "reduce") {
      Check(name, ncclReduce(buffer, buffer, count, ncclFloat32, ncclSum, static_cast<int>(b),
                             comm_, comm_stream_));
    } else if (name == "broadcast") {
      Check(name, ncclBroadcast(buffer, buffer, count, ncclFloat32, static_cast<int>(b), comm_,
                                comm_stream_));
    } else if (name == "allgather") {
      Check(name, ncclAllGather(buffer, buffer, count, ncclFloat32, comm_, comm_stream_));
    } else if (name == "reducescatter") {
      Check(name,
            ncclReduceScatter(buffer, buffer, count, ncclFloat32, ncclSum, comm_, comm_stream_));
    } else if (name == "alltoall") {
      Check(name, ncclAlltoAll(buffer, buffer, count, ncclFloat32, comm_, comm_stream_));
    } else if (name == "send") {  // PEER:COUNT
      Check(name, ncclSend(buffer, static_cast<size_t>(b), ncclFloat32, static_cast<int>(a), comm_,
                           comm_stream_));
    } else if (name == "recv") {
      Check(name, ncclRecv(buffer, static_cast<size_t>(b), ncclFloat32, static_cast<int>(a), comm_,
                           comm_stream_));
    } else if (name == "group") {
      Check(name, ncclGroupStart());
    } else if (name == "end") {
      Check(name, ncclGroupEnd());
    } else if (name == "finalize") {  // the plugin has heard of everything then
      Check(name, ncclCommFinalize(comm_));
    } else if (name == "destroy") {
      Check(name, ncclCommDestroy(comm_));
    } else if (name == "abort_after") {  // milliseconds, on another thread
      std::thread([comm = comm_, a] {
        usleep(static_cast<useconds_t>(a) * 1000);
        ncclResult_t error = ncclSuccess;
        ncclCommGetAsyncError(comm, &error);
        printf("async error %d\n", error);
        printf("abort gives %d\n", ncclCommAbort(comm));
      }).detach();
    } else {
      Fail("no step " + name);
    }
  }

  static unsigned long long Number(uint64_t n) { return n; }

  const int rank_;
  const int ranks_;
  const std::string folder_;
  CUstream compute_ = nullptr;
  CUstream communication_ = nullptr;
  CUstream second_ = nullptr;
  CUstream comm_stream_ = nullptr;
  CUevent event_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUdeviceptr memory_ = 0;
  CUgraphExec graph_ = nullptr;
  ncclComm_t comm_ = nullptr;
  std::vector<ncclComm_t> comms_;
};

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc < 4) Fail("needs RANK RANKS FOLDER STEP...");
  const int rank = atoi(argv[1]);
  Puppet puppet(rank, atoi(argv[2]), argv[3]);
  for (int i = 4; i < argc; ++i) {
    std::string step = argv[i];
    if (const size_t at = step.find('='); at != std::string::npos) {
      if (atoi(step.c_str()) != rank) continue;
      step = step.substr(at + 1);
    }
    puppet.Do(step);
  }
  puts("done");
  return 0;
}
