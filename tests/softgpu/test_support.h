// Helpers of the software GPU's own tests: a process of its own per case, because settings are read
// once per process, and a recorder of callbacks and activity records.
#ifndef SEQPOINT_TESTS_SOFTGPU_TEST_SUPPORT_H_
#define SEQPOINT_TESTS_SOFTGPU_TEST_SUPPORT_H_

#include <cuda.h>
#include <cupti.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/softgpu/swgpu.h"

namespace seqpoint::softgpu {

inline constexpr char kNoNoise[] =
    "noise.kernel=0,noise.slow_share=0,noise.cpu=0,noise.drift=0,noise.counters=0,"
    "noise.search_ns=0,";

// Runs `body` in a child process under SWGPU_SET=`settings`. Expectations in it count.
inline void InProcess(const std::string& settings, const std::function<void()>& body) {
  fflush(nullptr);
  pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    setenv("SWGPU_SET", settings.c_str(), 1);
    body();
    fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see the failures above";
}

#define CU_OK(call) ASSERT_EQ((call), CUDA_SUCCESS)
#define CUPTI_OK(call) ASSERT_EQ((call), CUPTI_SUCCESS)

// A context, a stream, two kernels and some memory.
struct Gpu {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUfunction gemm = nullptr;
  CUfunction relu = nullptr;
  CUdeviceptr memory = 0;

  void Open() {
    CU_OK(cuInit(0));
    CU_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CU_OK(cuCtxSetCurrent(context));
    CU_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmodule module;
    CU_OK(cuModuleLoadData(&module, "image"));
    CU_OK(cuModuleGetFunction(&gemm, module, "gemm"));
    CU_OK(cuModuleGetFunction(&relu, module, "relu"));
    CU_OK(cuMemAlloc(&memory, 1 << 20));
  }

  void Launch(CUfunction function, unsigned grid = 256, CUstream on = nullptr) {
    CU_OK(cuLaunchKernel(function, grid, 1, 1, 128, 1, 1, 0, on == nullptr ? stream : on, nullptr,
                         nullptr));
  }
};

struct CallbackSeen {
  CUpti_CallbackDomain domain;
  uint32_t cbid;
  CUpti_ApiCallbackSite site;
  uint32_t correlation_id;
  std::string symbol;
};

// Records everything that CUPTI says, as bytes. One per process.
class Recorder {
 public:
  static Recorder& Get() {
    static auto* recorder = new Recorder;
    return *recorder;
  }

  void Subscribe() { CUPTI_OK(cuptiSubscribe(&handle, OnCallback, this)); }

  void Enable(std::initializer_list<CUpti_ActivityKind> kinds) {
    CUPTI_OK(cuptiActivityRegisterCallbacks(OnRequest, OnComplete));
    for (CUpti_ActivityKind kind : kinds) CUPTI_OK(cuptiActivityEnable(kind));
  }

  template <typename Record>
  std::vector<Record> Records(CUpti_ActivityKind kind) {
    std::lock_guard lock(mutex);
    std::vector<Record> found;
    for (const std::string& bytes : records) {
      if (reinterpret_cast<const CUpti_Activity*>(bytes.data())->kind != kind) continue;
      Record record{};
      memcpy(&record, bytes.data(), std::min(sizeof(record), bytes.size()));
      found.push_back(record);
    }
    return found;
  }

  std::vector<CUpti_ActivityKernel10> Kernels() {
    return Records<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  }

  CUpti_SubscriberHandle handle = nullptr;
  size_t buffer_bytes = 1 << 16;
  bool refuse_buffers = false;
  std::function<void(CUpti_CallbackDomain, uint32_t, const void*)> also;

  std::mutex mutex;
  std::vector<CallbackSeen> callbacks;
  std::vector<std::string> records;
  std::vector<CUptiResult> walk_ends;
  std::vector<pid_t> complete_threads;

 private:
  static void CUPTIAPI OnCallback(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                                  const void* data) {
    auto* self = static_cast<Recorder*>(user);
    CallbackSeen seen{domain, cbid, CUPTI_API_ENTER, 0, ""};
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API || domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
      auto* call = static_cast<const CUpti_CallbackData*>(data);
      seen.site = call->callbackSite;
      seen.correlation_id = call->correlationId;
      if (call->symbolName != nullptr) seen.symbol = call->symbolName;
    }
    {
      std::lock_guard lock(self->mutex);
      self->callbacks.push_back(seen);
    }
    if (self->also) self->also(domain, cbid, data);
  }

  static void CUPTIAPI OnRequest(uint8_t** buffer, size_t* bytes, size_t* max_records) {
    *bytes = Get().buffer_bytes;
    *max_records = 0;
    *buffer = Get().refuse_buffers ? nullptr : static_cast<uint8_t*>(aligned_alloc(8, *bytes));
  }

  static void CUPTIAPI OnComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
    Recorder& self = Get();
    std::lock_guard lock(self.mutex);
    self.complete_threads.push_back(gettid());
    CUpti_Activity* record = nullptr;
    CUptiResult result;
    std::vector<uint8_t*> starts;
    while ((result = cuptiActivityGetNextRecord(buffer, valid, &record)) == CUPTI_SUCCESS) {
      starts.push_back(reinterpret_cast<uint8_t*>(record));
    }
    for (size_t i = 0; i < starts.size(); ++i) {
      // The last record of a walk that stopped early ends where the walk could not go on.
      uint8_t* end = i + 1 < starts.size() ? starts[i + 1] : buffer + valid;
      size_t bytes = std::min<size_t>(static_cast<size_t>(end - starts[i]), 256);
      self.records.emplace_back(reinterpret_cast<char*>(starts[i]), bytes);
    }
    self.walk_ends.push_back(result);
    free(buffer);
  }
};

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_TEST_SUPPORT_H_
