// What a training program does besides training: NVTX ranges, threads, contexts and processes of
// its own. Each class is used by the thread that made it.
#ifndef SEQPOINT_TESTS_WORKLOADS_SIDE_WORK_H_
#define SEQPOINT_TESTS_WORKLOADS_SIDE_WORK_H_

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "tests/workloads/gpu.h"

namespace seqpoint::workload {

// Does nothing unless enabled.
class NvtxRange {
 public:
  NvtxRange(bool enabled, const char* name);
  ~NvtxRange();
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  bool enabled_;
};

// Runs a function on another thread while the caller waits.
class SecondThread {
 public:
  SecondThread() : thread_([this] { Loop(); }) {}
  ~SecondThread();
  // An empty function ends the thread.
  void Run(std::function<void()> function);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> function_;
  bool pending_ = false;
  std::thread thread_;
};

// A little work in a context of its own, such as a preprocessing library's.
class SideContext {
 public:
  explicit SideContext(uint64_t host_ns_per_launch);
  void Step();

 private:
  static constexpr size_t kFloats = 1 << 16;
  Context context_;
  Queue queue_;
  float* data_;
};

// A process that does CPU work beside the training, as a data loader's worker does.
pid_t ForkHelper();
// Waits for it. False, with a message, when it did not exit normally.
bool AwaitHelper(pid_t helper);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_SIDE_WORK_H_
