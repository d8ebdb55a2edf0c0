// The cost of the injected library in the process. The callback is called directly, the way CUPTI
// calls it, so the figures are the library's own.
//
//   BM_CallbackLearn      a launch at level learn: clock, name, ring record
//   BM_CallbackMark       a launch at level mark that the rule watches and that matches nothing
//   BM_Boundary           a batch copy that begins an iteration: step, boundary, decision, clock
//   BM_NvtxNotWatched     an NVTX push nobody wants
//   BM_NcclCollective     all calls of NCCL 2.30 for a lone collective at level mark
//   BM_NcclWithoutDaemon  the same with a ring that nobody reads, long full
//   BM_NcclChannels/N     the same with kernel channels on, N channels, all on one thread
//   BM_ExecWithoutCuda    exec of a program without CUDA, with and without the library preloaded,
//                         in turn, 1,000 times each; medians and their difference
#include <benchmark/benchmark.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "injection/nccl/plugin.h"
#include "injection/nccl/profiler_abi.h"
#include "injection/process/guest.h"

extern char** environ;

namespace seqpoint::inject {
namespace {

// A guest without CUPTI: what callbacks do does not depend on it.
Guest* StartGuest() {
  static Guest* guest = [] {
    Guest* made = EnsureGuest();
    injection::RingOptions options;
    if (made == nullptr || !made->ring.Create(options).ok()) return static_cast<Guest*>(nullptr);
    made->clock.Decide();
    made->ownership.Pretend(CuptiOwnership::Share::kAll);
    made->levels.Start();
    return made;
  }();
  return guest;
}

// Takes everything out of the ring, as a reader that keeps up does.
void EmptyRing(Guest* guest) {
  abi::RingHeader* header = guest->ring.header();
  __atomic_store_n(&header->lane_tail, __atomic_load_n(&header->lane_head, __ATOMIC_RELAXED),
                   __ATOMIC_RELEASE);
  auto* chunks = reinterpret_cast<abi::ChunkState*>(reinterpret_cast<uint8_t*>(header) +
                                                    header->directory_offset);
  for (uint32_t i = 0; i < header->chunk_count; ++i) {
    const uint64_t state = __atomic_load_n(&chunks[i].state, __ATOMIC_RELAXED);
    if ((state & 3) == abi::kClosed) {
      __atomic_store_n(&chunks[i].state, state & ~3ull, __ATOMIC_RELEASE);
    }
  }
}

void SetControl(Guest* guest, abi::Level level, bool with_rule) {
  auto control = std::make_unique<abi::Control>();
  auto* block = const_cast<abi::ControlBlock*>(guest->ring.control_block());
  control->generation = block->generation + 1;
  control->level = static_cast<uint8_t>(level);
  if (with_rule) {
    abi::Rule& rule = control->rule;
    rule.generation = control->generation;
    rule.watched_ops = 1u << static_cast<uint32_t>(abi::Op::kCopyH2D) |
                       1u << static_cast<uint32_t>(abi::Op::kLaunch);
    rule.boundary.op = static_cast<uint8_t>(abi::Op::kCopyH2D);
    rule.clock = rule.boundary;
    rule.step.op = static_cast<uint8_t>(abi::Op::kLaunch);
    rule.step.match = abi::kMatchName;
    rule.step.name_hash = abi::NameHash("adam", 4);
    rule.length_count = 1;
    rule.length[0].pattern = rule.boundary;
    rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kBytes);
    // A full plan, none of which wants this length: the whole list is searched.
    control->plan_count = abi::kMaxPlanEntries;
    control->measurement_cap = 100;
    for (uint32_t i = 0; i < abi::kMaxPlanEntries; ++i) {
      control->plan[i] = {{1, INT64_MIN}, {2, INT64_MAX}, abi::kConfigTrace, 0, 5, i + 1};
    }
  }
  memcpy(&block->control, control.get(), sizeof(*control));
  block->generation = control->generation;
  // The daemon's sign of life, and a loop that does not run: the helper's tick applies it at once.
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  block->heartbeat_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u;
  while (guest->state.is_learning() != (level == abi::Level::kLearn) ||
         guest->state.Watches(abi::Op::kNvtxPush) != (level == abi::Level::kLearn)) {
    guest->levels.Tick();
  }
}

struct DriverCall {
  CUpti_CallbackData data = {};
  CUpti_CallbackId cbid;
  uint64_t slot = 0;
  cuLaunchKernel_params launch = {};
  cuMemcpyHtoDAsync_v2_params copy = {};

  explicit DriverCall(const char* kernel) : cbid(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel) {
    launch.gridDimX = 128;
    launch.gridDimY = launch.gridDimZ = 1;
    launch.blockDimX = 256;
    launch.blockDimY = launch.blockDimZ = 1;
    data.symbolName = kernel;
    data.functionParams = &launch;
    Prepare();
  }
  explicit DriverCall(size_t bytes) : cbid(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2) {
    copy.ByteCount = bytes;
    data.functionParams = &copy;
    Prepare();
  }
  void Prepare() {
    data.callbackSite = CUPTI_API_ENTER;
    data.contextUid = 1;
    data.correlationData = &slot;
  }
  void Call() {
    ++data.correlationId;
    OnCuptiCallback(nullptr, CUPTI_CB_DOMAIN_DRIVER_API, cbid, &data);
  }
};

// The name of a kernel as a framework has them: 180 characters.
const char* KernelName() {
  static const std::string name =
      "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEE"
      "viT0_T1_" +
      std::string(80, 'x');
  return name.c_str();
}

void BM_CallbackLearn(benchmark::State& state) {
  Guest* guest = StartGuest();
  SetControl(guest, abi::Level::kLearn, false);
  DriverCall call(KernelName());
  uint64_t n = 0;
  for (auto _ : state) {
    call.Call();
    if ((++n & 1023) == 0) {
      state.PauseTiming();
      EmptyRing(guest);
      state.ResumeTiming();
    }
  }
}
BENCHMARK(BM_CallbackLearn)->MinTime(1);

void BM_CallbackMark(benchmark::State& state) {
  Guest* guest = StartGuest();
  SetControl(guest, abi::Level::kMark, true);
  DriverCall call(KernelName());
  for (auto _ : state) call.Call();
}
BENCHMARK(BM_CallbackMark)->MinTime(1);

void BM_Boundary(benchmark::State& state) {
  Guest* guest = StartGuest();
  SetControl(guest, abi::Level::kMark, true);
  DriverCall copy(size_t{4096});
  DriverCall adam("adam");
  uint64_t n = 0;
  for (auto _ : state) {
    adam.Call();
    copy.Call();
    if ((++n & 1023) == 0) {
      state.PauseTiming();
      EmptyRing(guest);
      state.ResumeTiming();
    }
  }
}
BENCHMARK(BM_Boundary)->MinTime(1);

void BM_NvtxNotWatched(benchmark::State& state) {
  Guest* guest = StartGuest();
  SetControl(guest, abi::Level::kMark, true);
  for (auto _ : state) benchmark::DoNotOptimize(guest->state.Watches(abi::Op::kNvtxPush));
}
BENCHMARK(BM_NvtxNotWatched);

// NCCL 2.30, as it calls a plugin for one AllReduce outside a group. The descriptors, which NCCL
// fills for each call, are made once.
class NcclCalls {
 public:
  explicit NcclCalls(uint8_t channels) {
    plugin_->init(&context_, 0xABC, &mask_, "world", 1, 8, 0, nullptr);
    group_api_.type = nccl::kGroupApi;
    api_.type = nccl::kCollectiveApi;
    api_.collective_api = {"AllReduce", 1 << 20, "ncclFloat32", 0, nullptr, false};
    group_.type = nccl::kGroup;
    collective_.type = nccl::kCollective;
    collective_.collective = {0,        "AllReduce", nullptr, nullptr,  1 << 20, 0, "ncclFloat32",
                              channels, 16,          "RING",  "SIMPLE", nullptr};
  }
  ~NcclCalls() { plugin_->finalize(context_); }

  void AllReduce() {
    void *group_api = nullptr, *api = nullptr, *group = nullptr, *collective = nullptr;
    plugin_->start_event(context_, &group_api, &group_api_);
    if (group_api != nullptr) abort();  // its states and its stop are not called
    plugin_->start_event(context_, &api, &api_);
    if (api != nullptr) plugin_->stop_event(api);
    plugin_->start_event(context_, &group, &group_);
    ++collective_.collective.sequence;
    plugin_->start_event(context_, &collective, &collective_);
    if (collective != nullptr) plugin_->stop_event(collective);
    if (group != nullptr) plugin_->stop_event(group);
    if ((mask_ & nccl::kKernelChannel) != 0) Channels(collective, collective_.collective.channels);
  }

 private:
  void Channels(void* parent, uint8_t channels) {
    void* handles[256];
    for (uint8_t channel = 0; channel < channels; ++channel) {
      nccl::EventV6 event{};
      event.type = nccl::kKernelChannel;
      event.parent = parent;
      event.kernel_channel = {channel, 1000};
      plugin_->start_event(context_, &handles[channel], &event);
    }
    for (uint8_t channel = 0; channel < channels; ++channel) {
      if (handles[channel] == nullptr) continue;
      nccl::StateArgsV4 args{};
      args.kernel_channel.gpu_time_ns = 2000;
      plugin_->record_event_state(handles[channel], nccl::kKernelChannelStop, &args);
      plugin_->stop_event(handles[channel]);
    }
  }

  const nccl::PluginV6* const plugin_ = static_cast<const nccl::PluginV6*>(NcclPluginTable(6));
  void* context_ = nullptr;
  int mask_ = 0;
  nccl::EventV6 group_api_{}, api_{}, group_{}, collective_{};
};

void RunNccl(benchmark::State& state, uint32_t channel_period, uint8_t channels) {
  Guest* guest = StartGuest();
  g_activation_masks.SetWish(true, channel_period, 0);
  NcclCalls calls(channels);
  const uint64_t dropped = guest->ring.header()->data_dropped;
  uint64_t n = 0;
  for (auto _ : state) {
    calls.AllReduce();
    if ((++n & 1023) == 0) {
      state.PauseTiming();
      EmptyRing(guest);
      state.ResumeTiming();
    }
  }
  if (guest->ring.header()->data_dropped != dropped) state.SkipWithError("records were dropped");
}
void BM_NcclCollective(benchmark::State& state) { RunNccl(state, 0, 16); }
BENCHMARK(BM_NcclCollective)->MinTime(1);
void BM_NcclWithoutDaemon(benchmark::State& state) {
  Guest* guest = StartGuest();
  g_activation_masks.SetWish(true, 0, 0);
  NcclCalls calls(16);
  const uint64_t dropped = guest->ring.header()->data_dropped;
  while (guest->ring.header()->data_dropped == dropped) calls.AllReduce();
  for (auto _ : state) calls.AllReduce();
  EmptyRing(guest);
}
BENCHMARK(BM_NcclWithoutDaemon)->MinTime(1);
void BM_NcclChannels(benchmark::State& state) {
  RunNccl(state, 1, static_cast<uint8_t>(state.range(0)));
}
BENCHMARK(BM_NcclChannels)->Arg(1)->Arg(16)->MinTime(1);

uint64_t ExecNs(char* const* environment) {
  char program[] = "/bin/true";
  char* const arguments[] = {program, nullptr};
  timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  pid_t child;
  if (posix_spawn(&child, program, nullptr, nullptr, arguments, environment) != 0) return 0;
  int status;
  waitpid(child, &status, 0);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return static_cast<uint64_t>((end.tv_sec - begin.tv_sec) * 1'000'000'000 +
                               (end.tv_nsec - begin.tv_nsec));
}

// As `seqpoint run` starts programs: with the variables alone, and with the library preloaded,
// which it does for programs that call seqpoint_*.
void BM_ExecWithoutCuda(benchmark::State& state) {
  constexpr int kRuns = 1000;
  std::string preload = std::string("LD_PRELOAD=") + SEQPOINT_INJECT_LIBRARY;
  std::string cuda = std::string("CUDA_INJECTION64_PATH=") + SEQPOINT_INJECT_LIBRARY;
  std::string nvtx = std::string("NVTX_INJECTION64_PATH=") + SEQPOINT_INJECT_LIBRARY;
  char* const plain[] = {nullptr};
  char* const named[] = {cuda.data(), nvtx.data(), nullptr};
  char* const preloaded[] = {preload.data(), cuda.data(), nvtx.data(), nullptr};
  char* const* const environments[] = {plain, named, preloaded};
  std::vector<uint64_t> times_ns[3];
  for (auto _ : state) {
    for (int i = 0; i < kRuns; ++i) {
      for (int way = 0; way < 3; ++way) times_ns[way].push_back(ExecNs(environments[way]));
    }
  }
  double median_us[3];
  for (int way = 0; way < 3; ++way) {
    std::vector<uint64_t>& values = times_ns[way];
    std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                     values.end());
    median_us[way] = static_cast<double>(values[values.size() / 2]) / 1e3;
  }
  state.counters["without_us"] = median_us[0];
  state.counters["variables_more_us"] = median_us[1] - median_us[0];
  state.counters["preloaded_more_us"] = median_us[2] - median_us[0];
}
BENCHMARK(BM_ExecWithoutCuda)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace seqpoint::inject

BENCHMARK_MAIN();
