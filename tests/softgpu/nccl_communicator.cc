#include "tests/softgpu/nccl_communicator.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include "tests/softgpu/noise.h"

namespace seqpoint::softgpu {
namespace {

char g_last_error[1024] = "";

// Kernels, and the ranks of the first communicators, by context; links. Leaked: exit handlers may
// call in.
struct Contexts {
  std::mutex mutex;
  std::map<CUcontext, CUmodule> modules;
  std::map<std::pair<CUcontext, std::string>, CUfunction> kernels;
  std::map<CUcontext, int> world_ranks;
  std::map<std::pair<int, int>, double> links;  // shares of bandwidth that the program has set
};

Contexts& GetContexts() {
  static auto* contexts = new Contexts;
  return *contexts;
}

}  // namespace

Hooks& NcclHooks() {
  static Hooks& hooks = *swgpu_get_hooks();
  return hooks;
}

void SetNcclLink(int a, int b, double factor) {
  std::lock_guard lock(GetContexts().mutex);
  GetContexts().links[{a, b}] = factor;
}

NcclProfiler& ProcessProfiler() {
  static auto* profiler = new NcclProfiler(NcclConfig());
  return *profiler;
}

ncclResult_t NcclFail(ncclResult_t result, const std::string& message) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  snprintf(g_last_error, sizeof(g_last_error), "%s", message.c_str());
  NcclLog(2, 0, "", 0, "%s", message.c_str());
  return result;
}

const char* NcclLastError() { return g_last_error; }

ContextScope::ContextScope(CUcontext context) {
  former_ = NcclHooks().current_context();
  changed_ = former_ != context;
  if (changed_) cuCtxSetCurrent(context);
}

ContextScope::~ContextScope() {
  if (changed_) cuCtxSetCurrent(former_);
}

CUfunction NcclKernel(CUcontext context, const std::string& name) {
  Contexts& contexts = GetContexts();
  std::lock_guard lock(contexts.mutex);
  CUfunction& kernel = contexts.kernels[{context, name}];
  if (kernel != nullptr) return kernel;
  CUmodule& module = contexts.modules[context];
  static constexpr char kImage[] = "software NCCL";
  if (module == nullptr && cuModuleLoadData(&module, kImage) != CUDA_SUCCESS) return nullptr;
  if (cuModuleGetFunction(&kernel, module, name.c_str()) != CUDA_SUCCESS) kernel = nullptr;
  return kernel;
}

NcclCommunicator::NcclCommunicator(const NcclMeeting& meeting, CUcontext on)
    : rank(meeting.rank),
      ranks(meeting.ranks),
      hash(meeting.hash),
      context(on),
      sends(static_cast<size_t>(meeting.ranks)),
      receives(static_cast<size_t>(meeting.ranks)),
      segment_name_(meeting.segment),
      name_(meeting.name),
      noise_(LogNormalFactors(NcclConfig().noise_collective)) {
  device = NcclHooks().context_device(context);
  Contexts& contexts = GetContexts();
  std::lock_guard lock(contexts.mutex);
  const auto [it, is_new] = contexts.world_ranks.try_emplace(context, rank);
  world_rank = it->second;
  is_first = is_new;
}

NcclCommunicator::~NcclCommunicator() = default;

ncclResult_t NcclCommunicator::Create(const NcclMeeting& meeting, CUcontext context,
                                      std::shared_ptr<NcclCommunicator>* out) {
  std::shared_ptr<NcclCommunicator> communicator(new NcclCommunicator(meeting, context));
  const ncclResult_t result = communicator->Meet();
  if (result == ncclSuccess) *out = std::move(communicator);
  return result;
}

// Learns who the others are. The ranks' clocks go on at the latest of them, so that what follows
// does not depend on when their processes started.
ncclResult_t NcclCommunicator::Meet() {
  ContextScope scope(context);
  std::string error;
  segment = NcclSegment::Join(segment_name_, ranks, rank, &error);
  if (segment == nullptr) return NcclFail(ncclInvalidUsage, "ncclCommInitRank: " + error);
  Hooks& hooks = NcclHooks();
  hooks.drain(context);
  RankWait wait;
  const uint32_t round =
      segment->Enter({hooks.now_ns(), static_cast<uint64_t>(world_rank), NcclConfig().seed});
  if (!segment->Await(round)) return NcclFail(ncclSystemError, "ncclCommInitRank: aborted");
  uint64_t latest_ns = 0;
  for (int r = 0; r < ranks; ++r) {
    const NcclSegment::Post& post = segment->At(round, r);
    latest_ns = std::max(latest_ns, post.time_ns);
    world_ranks_.push_back(static_cast<int>(post.a));
    if (r == 0) seed_ = post.b;
  }
  hooks.meet_clocks(latest_ns);
  RenewLaw();
  ProcessProfiler().Init({hash, name(), law->nodes(), ranks, rank}, &profiler_context);
  return ncclSuccess;
}

void NcclCommunicator::RenewLaw() {
  Config config = NcclConfig();
  {
    std::lock_guard lock(GetContexts().mutex);
    for (const auto& [ranks, factor] : GetContexts().links) {
      config.nccl_link.push_back({ranks.first, ranks.second, factor});
    }
  }
  law = std::make_unique<NcclLaw>(config, world_ranks_);
}

ncclResult_t NcclCommunicator::Split(int color, int key, const std::string& name,
                                     std::shared_ptr<NcclCommunicator>* out) {
  const uint64_t split = splits_++;
  const uint32_t round = segment->Enter({0, static_cast<uint64_t>(static_cast<int64_t>(color)),
                                         static_cast<uint64_t>(static_cast<int64_t>(key))});
  const bool met = [&] {
    RankWait wait;
    return segment->Await(round);
  }();
  if (!met) return NcclFail(ncclSystemError, "ncclCommSplit: aborted");
  if (color < 0) return ncclSuccess;
  std::vector<std::pair<int64_t, int>> members;  // key, rank here
  for (int r = 0; r < ranks; ++r) {
    const NcclSegment::Post& post = segment->At(round, r);
    if (static_cast<int64_t>(post.a) != color) continue;
    members.push_back({static_cast<int64_t>(post.b), r});
  }
  std::sort(members.begin(), members.end());
  const auto own = std::find_if(members.begin(), members.end(),
                                [this](const auto& member) { return member.second == rank; });
  const std::string suffix = "." + std::to_string(split) + "." + std::to_string(color);
  return Create({segment_name_ + suffix, Mix(hash, Mix(split + 1, static_cast<uint64_t>(color))),
                 static_cast<int>(members.size()), static_cast<int>(own - members.begin()), name},
                context, out);
}

void NcclCommunicator::Drain() {
  NcclHooks().wait_until(last_end_ns);
  progress.Drain();
}

void NcclCommunicator::Abort() {
  segment->Abort();
  progress.Stop();
}

void NcclCommunicator::Close() {
  progress.Stop();
  ProcessProfiler().Finalize(profiler_context);
  profiler_context = nullptr;
}

double NcclCommunicator::Noise(uint64_t number) const {
  return noise_[Mix(seed_, Mix(hash, number)) % noise_.size()];
}

uint64_t NcclCommunicator::WaitingMs() const {
  const uint64_t since_ns = segment->waiting_since_ns();
  if (since_ns == 0) return 0;
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec) -
          since_ns) /
         1'000'000;
}

}  // namespace seqpoint::softgpu
