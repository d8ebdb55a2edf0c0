#include "tests/softgpu/nccl_plan.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "tests/softgpu/nccl_events.h"
#include "tests/softgpu/nccl_truth.h"
#include "tests/softgpu/noise.h"

namespace seqpoint::softgpu {
namespace {

constexpr unsigned kThreads = 512;
// Looks of a rank that never comes, at whether it was aborted.
constexpr useconds_t kNeverUs = 20'000;

std::atomic<bool> g_dies{false};  // swgpu_nccl_die was called

bool Is(const Config::Incident& incident, const NcclCommunicator& communicator) {
  return communicator.is_first && incident.rank == communicator.rank &&
         incident.kernel == communicator.kernels;
}

// Equal on ranks that make the same collectives.
uint64_t SignatureOf(const std::vector<NcclTask>& tasks) {
  uint64_t signature = tasks.size();
  for (const NcclTask& task : tasks) {
    signature = Mix(signature, Mix(static_cast<uint64_t>(task.function), task.bytes));
  }
  return signature;
}

}  // namespace

struct NcclPlan::Arrivals {
  uint64_t start_ns;  // the last arrival
  uint64_t end_ns;
  int last_rank;
};

void NcclPlan::Add(const NcclTask& task) {
  (task.is_transfer() ? transfers_ : collectives_).push_back(task);
  const CUstream stream = task.stream;
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    streams_.push_back(stream);
  }
}

// The kernel follows what all streams of the group have got so far.
ncclResult_t NcclPlan::JoinStreams() {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuStreamIsCapturing(streams_.front(), &status);
  captured_ = status != CU_STREAM_CAPTURE_STATUS_NONE;
  if (captured_ && streams_.size() > 1) {
    return NcclFail(ncclInvalidUsage,
                    "the software NCCL captures groups on one stream only, and this group has " +
                        std::to_string(streams_.size()));
  }
  for (size_t i = 1; i < streams_.size(); ++i) {
    CUevent event = nullptr;
    if (cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
      return ncclUnhandledCudaError;
    cuEventRecord(event, streams_[i]);
    cuStreamWaitEvent(streams_.front(), event, 0);
    cuEventDestroy(event);
  }
  return ncclSuccess;
}

// Later work of the other streams follows the kernel.
void NcclPlan::LeaveStreams() {
  if (streams_.size() == 1) return;
  CUevent event = nullptr;
  if (cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
  cuEventRecord(event, streams_.front());
  for (size_t i = 1; i < streams_.size(); ++i) cuStreamWaitEvent(streams_[i], event, 0);
  cuEventDestroy(event);
}

ncclResult_t NcclPlan::Launch() {
  ContextScope scope(communicator_->context);
  // NCCL begins with the largest.
  std::stable_sort(
      collectives_.begin(), collectives_.end(),
      [](const NcclTask& a, const NcclTask& b) { return a.traffic_bytes > b.traffic_bytes; });
  if (const ncclResult_t result = JoinStreams(); result != ncclSuccess) return result;
  const NcclTask& first = collectives_.empty() ? transfers_.front() : collectives_.front();
  CUfunction kernel = NcclKernel(communicator_->context,
                                 KernelName(first.function, first.choice.algorithm, first.type));
  if (kernel == nullptr) return NcclFail(ncclUnhandledCudaError, "NCCL's kernels cannot be loaded");
  SwgpuWork work{};
  uint8_t channels = 1;
  for (auto* tasks : {&collectives_, &transfers_}) {
    for (const NcclTask& task : *tasks) {
      channels = std::max(channels, task.choice.channels);
      // Each byte is read and written once on its way.
      work.dram_read_bytes += static_cast<double>(task.traffic_bytes);
      work.dram_write_bytes += static_cast<double>(task.traffic_bytes);
    }
  }
  work.instructions = (work.dram_read_bytes + work.dram_write_bytes) / 512;

  NoteLaunch(this);
  swgpu_next_launch_work(&work);
  NcclHooks().next_launch_is_joint(this);
  CUlaunchConfig config{};
  config.gridDimX = channels;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = kThreads;
  config.hStream = streams_.front();
  const CUresult result = cuLaunchKernelEx(&config, kernel, nullptr, nullptr);
  NcclHooks().next_launch_is_joint(nullptr);
  NoteLaunched(this);
  if (result != CUDA_SUCCESS) {
    return NcclFail(ncclUnhandledCudaError, "cuLaunchKernelEx failed: " + std::to_string(result));
  }
  NoteEnqueued(this);
  return ncclSuccess;
}

void NcclPlan::Reached(const JointLaunch& launch) {
  launch_ = launch;
  reached_ = true;
  posted_ = Post();
  if (launch.in_graph) End();
}

bool NcclPlan::Post() {
  NcclCommunicator& c = *communicator_;
  const uint64_t arrival_ns = launch_.op.start_ns;
  if (Is(NcclConfig().nccl_never, c)) {
    while (!c.segment->aborted()) usleep(kNeverUs);
    return false;
  }
  if (g_dies) kill(getpid(), SIGKILL);
  const bool is_killed = Is(NcclConfig().nccl_kill, c);
  kernel_ = c.kernels++;
  if (!collectives_.empty()) {
    collective_ = c.collectives++;
    round_ = c.segment->Enter({arrival_ns, SignatureOf(collectives_), 0});
  }
  transfer_numbers_.clear();
  for (const NcclTask& task : transfers_) {
    const bool sends = task.function == NcclFunction::kSend;
    auto& numbers = sends ? c.sends : c.receives;
    transfer_numbers_.push_back(numbers[static_cast<size_t>(task.root)]++);
    c.segment->Offer(task.root, sends, transfer_numbers_.back(), arrival_ns);
  }
  if (is_killed) kill(getpid(), SIGKILL);
  return true;
}

std::optional<NcclPlan::Arrivals> NcclPlan::Await() {
  NcclCommunicator& c = *communicator_;
  const uint64_t arrival_ns = launch_.op.start_ns;
  Arrivals all{arrival_ns, arrival_ns, c.rank};
  if (!posted_) return std::nullopt;
  RankWait wait;
  if (!collectives_.empty()) {
    if (!c.segment->Await(round_)) return std::nullopt;
    all.start_ns = 0;
    for (int r = 0; r < c.ranks; ++r) {
      const NcclSegment::Post& post = c.segment->At(round_, r);
      if (post.a != SignatureOf(collectives_)) {
        NcclFail(ncclInvalidUsage, "rank " + std::to_string(c.rank) + " called " +
                                       Name(collectives_.front().function) + " of " +
                                       std::to_string(collectives_.front().bytes) +
                                       " bytes, and rank " + std::to_string(r) + " something else");
      }
      if (post.time_ns <= all.start_ns) continue;
      all.start_ns = post.time_ns;
      all.last_rank = r;
    }
    double transfer_ns = c.law->base_ns();
    for (const NcclTask& task : collectives_) transfer_ns += task.choice.transfer_ns;
    all.end_ns = all.start_ns + static_cast<uint64_t>(transfer_ns * c.Noise(collective_));
  }
  for (size_t i = 0; i < transfers_.size(); ++i) {
    const NcclTask& task = transfers_[i];
    const bool sends = task.function == NcclFunction::kSend;
    uint64_t peer_ns = 0;
    if (!c.segment->AwaitPeer(task.root, sends, transfer_numbers_[i], &peer_ns)) {
      return std::nullopt;
    }
    const uint64_t start_ns = std::max(arrival_ns, peer_ns);
    const int source = sends ? c.rank : task.root;
    const int destination = sends ? task.root : c.rank;
    const uint64_t pair = static_cast<uint64_t>(source) * static_cast<uint64_t>(c.ranks) +
                          static_cast<uint64_t>(destination);
    const uint64_t end_ns =
        start_ns + static_cast<uint64_t>(task.choice.transfer_ns *
                                         c.Noise(Mix(pair + 1, transfer_numbers_[i])));
    if (end_ns <= all.end_ns) continue;
    all = {start_ns, end_ns, peer_ns > arrival_ns ? task.root : c.rank};
  }
  return all;
}

void NcclPlan::End() {
  if (!reached_) return;
  reached_ = false;
  NcclCommunicator& c = *communicator_;
  ContextScope scope(c.context);
  const std::optional<Arrivals> all = Await();
  if (!all.has_value()) {
    NcclHooks().end_joint(launch_, NcclHooks().now_ns(), 0);
    return;
  }
  NcclHooks().end_joint(launch_, all->end_ns, all->end_ns - all->start_ns);
  if (!launch_.in_graph) LeaveStreams();
  c.last_end_ns = std::max(c.last_end_ns, all->end_ns);

  NcclTruthOfKernel truth{
      c.hash,      kernel_,        c.rank, c.world_rank, launch_.op.start_ns, all->start_ns,
      all->end_ns, all->last_rank, {}};
  for (const NcclTask& task : collectives_) {
    truth.operations.push_back(
        {task.function, c.sequence[static_cast<int>(task.function)]++, task.bytes});
  }
  for (size_t i = 0; i < transfers_.size(); ++i) {
    truth.operations.push_back({transfers_[i].function, transfer_numbers_[i], transfers_[i].bytes});
  }
  NoteNcclKernel(truth);
  Tell(all->end_ns);
}

// The plugin hears of the kernel's course from the progress thread. It hears nothing of kernels in
// graphs.
void NcclPlan::Tell(uint64_t end_ns) {
  NcclCommunicator& c = *communicator_;
  if (captured_ || !ProcessProfiler().loaded()) return;
  constexpr int kWanted =
      nccl::kKernelChannel | nccl::kProxyOp | nccl::kProxyStep | nccl::kNetPlugin;
  for (auto* tasks : {&collectives_, &transfers_}) {
    for (const NcclTask& task : *tasks) {
      if ((task.mask & kWanted) == 0) continue;
      NcclProgress::Operation op{};
      op.context = c.profiler_context;
      op.mask = task.mask;
      op.event = task.event;
      op.rank = c.rank;
      op.peer = task.is_transfer() ? task.root : (c.rank + 1) % c.ranks;
      op.sends = task.function != NcclFunction::kRecv;
      op.receives = task.function != NcclFunction::kSend;
      op.bytes = task.bytes;
      op.channels = task.choice.channels;
      op.start_ns = launch_.op.start_ns;
      op.end_ns = end_ns;
      c.progress.Add(op);
    }
  }
}

}  // namespace seqpoint::softgpu

extern "C" __attribute__((visibility("default"))) void swgpu_nccl_die() {
  seqpoint::softgpu::g_dies = true;
}
