#include "tests/softgpu/nccl_progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "tests/softgpu/nccl_communicator.h"

namespace seqpoint::softgpu {
namespace {

// How often (real time) the thread looks at the clock while something is under way.
constexpr auto kLook = std::chrono::microseconds(200);

uint64_t GpuTimer(uint64_t time_ns) { return time_ns + NcclConfig().nccl_gpu_timer_offset_ns; }

void StartKernelChannels(NcclProgress::Operation* op) {
  if ((op->mask & nccl::kKernelChannel) == 0 || NcclConfig().nccl_profiler_version < 3) return;
  op->kernel_events.assign(op->channels, nullptr);
  for (uint8_t channel = 0; channel < op->channels; ++channel) {
    NcclEvent event;
    event.type = nccl::kKernelChannel;
    event.parent = op->event;
    event.kernel_channel = {channel, GpuTimer(op->start_ns)};
    ProcessProfiler().Start(op->context, &op->kernel_events[channel], &event);
  }
}

void StopKernelChannels(NcclProgress::Operation* op) {
  for (void* handle : op->kernel_events) {
    if (handle == nullptr) continue;
    nccl::StateArgsV4 args{};
    args.kernel_channel.gpu_time_ns = GpuTimer(op->end_ns);
    if (NcclConfig().nccl_profiler_version >= 4) {
      ProcessProfiler().Record(handle, nccl::kKernelChannelStop, &args);
    }
    ProcessProfiler().Stop(handle);
  }
}

// One network operation of one step for each channel and direction.
void StartProxy(NcclProgress::Operation* op) {
  constexpr int kWanted = nccl::kProxyOp | nccl::kProxyStep | nccl::kNetPlugin;
  if (!NcclConfig().nccl_proxy || (op->mask & kWanted) == 0) return;
  for (uint8_t channel = 0; channel < op->channels; ++channel) {
    for (bool sends : {true, false}) {
      if (sends ? !op->sends : !op->receives) continue;
      NcclEvent event;
      event.type = nccl::kProxyOp;
      event.parent = op->event;
      event.rank = op->rank;
      event.proxy_op = {
          getpid(),     channel, op->peer, 1, static_cast<int>(op->bytes / op->channels),
          sends ? 1 : 0};
      void* handle = nullptr;
      ProcessProfiler().Start(op->context, &handle, &event);
      op->proxy_ops.push_back(handle);
      nccl::StateArgsV4 args{};
      if (handle != nullptr) ProcessProfiler().Record(handle, nccl::kProxyOpInProgress, &args);
      void* step = nullptr;
      if ((op->mask & (nccl::kProxyStep | nccl::kNetPlugin)) != 0) {
        NcclEvent step_event;
        step_event.type = nccl::kProxyStep;
        step_event.parent = handle;
        step_event.rank = op->rank;
        step_event.proxy_step.step = 0;
        ProcessProfiler().Start(op->context, &step, &step_event);
      }
      op->proxy_steps.push_back(step);
      if (step == nullptr) continue;
      ProcessProfiler().Record(step, sends ? nccl::kProxyStepSendGpuWait : nccl::kProxyStepRecvWait,
                               &args);
    }
  }
}

void StopProxy(NcclProgress::Operation* op) {
  size_t i = 0;
  for (uint8_t channel = 0; channel < op->channels; ++channel) {
    for (bool sends : {true, false}) {
      if ((sends ? !op->sends : !op->receives) || i == op->proxy_ops.size()) continue;
      nccl::StateArgsV4 args{};
      args.proxy_step.transferred_bytes = op->bytes / op->channels;
      void* step = op->proxy_steps[i];
      if (step != nullptr) {
        if (sends) {
          ProcessProfiler().Record(step, nccl::kProxyStepSendPeerWait, &args);
          ProcessProfiler().Record(step, nccl::kProxyStepSendWait, &args);
        } else {
          ProcessProfiler().Record(step, nccl::kProxyStepRecvFlushWait, &args);
          ProcessProfiler().Record(step, nccl::kProxyStepRecvGpuWait, &args);
        }
        ProcessProfiler().Stop(step);
      }
      if (op->proxy_ops[i] != nullptr) ProcessProfiler().Stop(op->proxy_ops[i]);
      ++i;
    }
  }
}

}  // namespace

void NcclProgress::Add(const Operation& operation) {
  std::lock_guard lock(mutex_);
  operations_.push_back(operation);
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  changed_.notify_all();
}

void NcclProgress::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return operations_.empty() || stop_; });
}

void NcclProgress::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool NcclProgress::Look() {
  const uint64_t now = NcclHooks().now_ns();
  for (Operation& op : operations_) {
    if (op.started || op.start_ns > now) continue;
    op.started = true;
    StartProxy(&op);
    StartKernelChannels(&op);
  }
  bool ended = false;
  for (auto op = operations_.begin(); op != operations_.end();) {
    if (!op->started || op->end_ns > now) {
      ++op;
      continue;
    }
    StopKernelChannels(&*op);
    StopProxy(&*op);
    op = operations_.erase(op);
    ended = true;
  }
  return ended;
}

void NcclProgress::Loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (operations_.empty()) {
      changed_.wait(lock);
    } else if (Look()) {
      changed_.notify_all();
    } else {
      changed_.wait_for(lock, kLook);
    }
  }
}

}  // namespace seqpoint::softgpu
