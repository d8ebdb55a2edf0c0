#include "tests/workloads/side_work.h"

#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/workloads/kernels.h"
#include "tests/workloads/random.h"

namespace seqpoint::workload {

NvtxRange::NvtxRange(bool enabled, const char* name) : enabled_(enabled) {
  if (enabled_) nvtxRangePushA(name);
}

NvtxRange::~NvtxRange() {
  if (enabled_) nvtxRangePop();
}

SecondThread::~SecondThread() {
  Run(nullptr);
  thread_.join();
}

void SecondThread::Run(std::function<void()> function) {
  std::unique_lock lock(mutex_);
  function_ = std::move(function);
  pending_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !pending_; });
}

void SecondThread::Loop() {
  for (bool running = true; running;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return pending_; });
    running = function_ != nullptr;
    if (running) function_();
    pending_ = false;
    changed_.notify_all();
  }
}

SideContext::SideContext(uint64_t host_ns_per_launch) : context_(CreateContext()) {
  const Context training = SwitchContext(context_);
  queue_.stream = CreateStream();
  queue_.host_ns_per_launch = host_ns_per_launch;
  data_ = static_cast<float*>(DeviceAlloc(kFloats * sizeof(float)));
  SwitchContext(training);
}

void SideContext::Step() {
  const Context training = SwitchContext(context_);
  FillZero(queue_, data_, kFloats);
  Synchronize(queue_.stream);
  SwitchContext(training);
}

pid_t ForkHelper() {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("seqpoint_workload: --fork-helper: fork");
    std::exit(1);
  }
  if (child > 0) return child;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 20'000'000; ++i) sum += Mix(i);
  // The sum is used, so that the work is not optimised away.
  std::exit(sum == 0 ? 1 : 0);
}

bool AwaitHelper(pid_t helper) {
  int status = 0;
  waitpid(helper, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  std::fprintf(stderr, "seqpoint_workload: the helper process ended with wait status %d\n", status);
  return false;
}

}  // namespace seqpoint::workload
