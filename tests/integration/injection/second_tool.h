// Another profiler in the trainer's process that records GPU work through CUPTI, the way
// torch.profiler's Kineto does: it subscribes, registers buffers of its own, enables kinds, and at
// its end disables them and flushes. Counts what it got.
// Threading: Start and Stop from one thread.
#ifndef SEQPOINT_TESTS_INTEGRATION_INJECTION_SECOND_TOOL_H_
#define SEQPOINT_TESTS_INTEGRATION_INJECTION_SECOND_TOOL_H_

#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <map>
#include <mutex>
#include <set>
#include <string>

namespace seqpoint {

class SecondTool {
 public:
  // False: there is no CUPTI.
  bool Start() {
    if (library_ == nullptr) library_ = dlopen("libcupti.so.13", RTLD_NOW);
    if (library_ == nullptr) return false;
    TheTool() = this;
    if (subscriber_ == nullptr) {
      subscribed_ = Find<decltype(&cuptiSubscribe)>("Subscribe")(
          &subscriber_, [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}, nullptr);
    }
    Find<decltype(&cuptiActivityRegisterCallbacks)>("ActivityRegisterCallbacks")(OnRequest,
                                                                                 OnComplete);
    if (ticks_) {
      Find<decltype(&cuptiActivityRegisterTimestampCallback)>("ActivityRegisterTimestampCallback")(
          Ticks);
    }
    const auto enable = Find<decltype(&cuptiActivityEnable)>("ActivityEnable");
    for (const CUpti_ActivityKind kind : kKinds) enable(kind);
    return true;
  }

  // Takes the functions' addresses now and keeps them on the heap (of which the object must be):
  // before cuInit, nobody can notice the tool.
  void LookUpAll() {
    if (library_ == nullptr) library_ = dlopen("libcupti.so.13", RTLD_NOW);
    for (const char* name : {"Subscribe", "Unsubscribe", "Finalize", "ActivityRegisterCallbacks",
                             "ActivityRegisterTimestampCallback", "ActivityEnable",
                             "ActivityDisable", "ActivityFlushAll", "ActivityGetNextRecord"}) {
      functions_[name] = Find<void*>(name);
    }
  }

  // CUPTI's clock counts the processor's ticks, as Kineto has it by default.
  void CountTicks() { ticks_ = true; }

  // As Kineto does with TEARDOWN_CUPTI=1.
  void Finalize() {
    Find<decltype(&cuptiFinalize)>("Finalize")();
    subscriber_ = nullptr;
  }

  // `keep`: the subscription, as Kineto does.
  void Stop(bool keep) {
    const auto disable = Find<decltype(&cuptiActivityDisable)>("ActivityDisable");
    const auto flush = Find<decltype(&cuptiActivityFlushAll)>("ActivityFlushAll");
    cuCtxSynchronize();
    for (const CUpti_ActivityKind kind : kKinds) disable(kind);
    flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (keep || subscriber_ == nullptr) return;
    Find<decltype(&cuptiUnsubscribe)>("Unsubscribe")(subscriber_);
    subscriber_ = nullptr;
  }

  // "tool_subscribe 0 tool_lost 0 tool_foreign 0 tool_kind3 120 ...": the result of
  // subscribing, buffers that never came back, buffers that are not its own, records by
  // kind.
  void Print() {
    const std::lock_guard lock(mutex_);
    printf("tool_subscribe %d tool_lost %zu tool_foreign %d", static_cast<int>(subscribed_),
           own_.size(), foreign_);
    for (const auto& [kind, count] : records_) printf(" tool_kind%d %d", kind, count);
    printf("\n");
  }

 private:
  static constexpr CUpti_ActivityKind kKinds[] = {
      CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
      CUPTI_ACTIVITY_KIND_DRIVER};

  // 2.4 ticks a nanosecond, since the machine was started.
  static uint64_t Ticks() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 +
            static_cast<uint64_t>(now.tv_nsec)) *
           12 / 5;
  }

  static SecondTool*& TheTool() {
    static SecondTool* tool = nullptr;
    return tool;
  }

  // `name` without "cupti", as tools that look up many functions do: the full names are nowhere in
  // the program.
  template <typename Function>
  Function Find(const std::string& name) {
    const auto known = functions_.find(name);
    if (known != functions_.end()) return reinterpret_cast<Function>(known->second);
    return reinterpret_cast<Function>(dlsym(library_, ("cupti" + name).c_str()));
  }

  static void OnRequest(uint8_t** buffer, size_t* size, size_t* max_records) {
    SecondTool* tool = TheTool();
    const std::lock_guard lock(tool->mutex_);
    *size = 1 << 16;
    *max_records = 0;
    *buffer = static_cast<uint8_t*>(aligned_alloc(8, *size));
    tool->own_.insert(*buffer);
  }
  static void OnComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
    SecondTool* tool = TheTool();
    const auto next = tool->Find<decltype(&cuptiActivityGetNextRecord)>("ActivityGetNextRecord");
    const std::lock_guard lock(tool->mutex_);
    if (tool->own_.erase(buffer) == 0) {
      ++tool->foreign_;
      return;
    }
    CUpti_Activity* record = nullptr;
    while (valid > 0 && next(buffer, valid, &record) == CUPTI_SUCCESS) {
      ++tool->records_[record->kind];
    }
    free(buffer);
  }

  std::map<std::string, void*> functions_;
  void* library_ = nullptr;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  CUptiResult subscribed_ = CUPTI_SUCCESS;
  bool ticks_ = false;
  std::mutex mutex_;
  std::set<uint8_t*> own_;
  std::map<int, int> records_;
  int foreign_ = 0;
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_INTEGRATION_INJECTION_SECOND_TOOL_H_
