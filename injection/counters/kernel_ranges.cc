#include "injection/counters/kernel_ranges.h"

namespace seqpoint::inject {

void KernelRanges::Begin(CUcontext context) {
  LockGuard lock(&lock_);
  context_ = context;
  ++window_;
  in_flight_ = launches_ = 0;
  overlapped_ = saw_graph_ = false;
  listing_.store(true, std::memory_order_relaxed);
}

const char* KernelRanges::End() {
  LockGuard lock(&lock_);
  listing_.store(false, std::memory_order_relaxed);
  if (saw_graph_) return "the iteration launches CUDA graphs, whose kernels cannot be told apart";
  // A launch under way may be inside or outside of the measurement.
  if (overlapped_ || in_flight_ != 0) return "several threads launched kernels at the same time";
  return nullptr;
}

void KernelRanges::OnCall(CUcontext context, abi::Op op, uint32_t name_id) {
  if (op != abi::Op::kLaunch && op != abi::Op::kGraphLaunch) return;
  ThreadState* thread = Thread();
  LockGuard lock(&lock_);
  if (!listing() || context != context_) return;
  if (op == abi::Op::kGraphLaunch) {
    saw_graph_ = true;
    return;
  }
  if (in_flight_++ != 0) overlapped_ = true;
  thread->listed_launch = window_;
  if (launches_ < kMaxRanges) name_ids_[launches_] = name_id;
  ++launches_;
}

void KernelRanges::OnLaunched() {
  ThreadState* thread = Thread();
  LockGuard lock(&lock_);
  if (thread->listed_launch != window_ || in_flight_ == 0) return;
  thread->listed_launch = 0;
  --in_flight_;
}

void KernelRanges::Add(uint32_t range, const double* values, uint32_t count) {
  const uint32_t name_id = name_ids_[range];
  uint32_t i = 0;
  while (i < kernel_count_ && kernels_[i].name_id != name_id) ++i;
  Kernel& kernel = kernels_[i];
  if (i == kernel_count_) {
    ++kernel_count_;
    kernel = {};
    kernel.name_id = name_id;
  }
  ++kernel.launches;
  for (uint32_t value = 0; value < count; ++value) kernel.value[value] += values[value];
}

}  // namespace seqpoint::inject
