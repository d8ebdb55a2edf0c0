// The private table through which the software libcudart and libcupti reach the software libcuda.
//
// libcuda owns the one instance; the others find it with dlsym("swgpu_get_hooks"). libcupti writes
// the interest fields and handlers, libcuda and libcudart read them on every API call, so an
// interest field is an atomic that is read without a lock: a process without a profiler pays one
// load per call. The three libraries come from one build, hence plain C++ types may cross.
#ifndef SEQPOINT_TESTS_SOFTGPU_HOOKS_H_
#define SEQPOINT_TESTS_SOFTGPU_HOOKS_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tests/softgpu/swgpu.h"

namespace seqpoint::softgpu {

struct Config;
struct Kernel;
struct Stream;

enum Domain : uint32_t { kDriver = 1, kRuntime = 2 };  // CUpti_CallbackDomain values

enum Interest : uint8_t { kInterestCallback = 1, kInterestRecord = 2 };

inline constexpr uint32_t kMaxCallbackId = 1024;

// One API call in progress; lives on the stack of the function that was called.
struct ApiCall {
  Domain domain;
  uint32_t cbid;
  const char* name;
  const void* params;
  const char* symbol;  // kernel name of a launch, else null
  const void* return_value = nullptr;
  uint8_t interest = 0;
  uint32_t correlation_id = 0;
  uint64_t correlation_data = 0;
  uint64_t start_ns = 0;
  CUcontext context = nullptr;
  uint32_t context_id = 0;
  ApiCall* parent = nullptr;
};

enum class OpKind : uint8_t { kKernel, kMemcpy, kMemcpyPeer, kMemset, kSync, kGraph, kEvent };

// One piece of GPU work (or one wait), with the times the model gave it.
struct Operation {
  OpKind kind;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint32_t device_id = 0;
  uint32_t context_id = 0;
  uint32_t stream_id = 0;
  uint32_t correlation_id = 0;
  uint32_t graph_id = 0;
  uint64_t graph_node_id = 0;
  uint64_t sequence = 0;  // launch number in this process
  // Kernels.
  const char* name = nullptr;
  uint32_t grid[3] = {0, 0, 0};
  uint32_t block[3] = {0, 0, 0};
  uint32_t shared_bytes = 0;
  uint16_t registers = 0;
  // Copies and memsets.
  uint64_t bytes = 0;
  uint32_t value = 0;
  uint8_t copy_kind = 0;  // CUpti_ActivityMemcpyKind
  uint8_t src_kind = 0;   // CUpti_ActivityMemoryKind
  uint8_t dst_kind = 0;
  bool async = false;
  uint32_t src_device_id = 0;
  uint32_t dst_device_id = 0;
  uint32_t src_context_id = 0;
  uint32_t dst_context_id = 0;
  // Waits and events.
  uint8_t sync_type = 0;  // CUpti_ActivitySynchronizationType
  uint32_t event_id = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
};

// Work done by a set of kernels, the base of every counter.
struct Counters {
  uint64_t launches = 0;
  double time_ns = 0;
  double flops = 0;
  double tensor_flops = 0;
  double dram_read_bytes = 0;
  double dram_write_bytes = 0;
  double instructions = 0;
  double tensor_cycles = 0;
  double sm_active_cycles = 0;
  double warp_cycles = 0;

  void Add(const Counters& o, double sign = 1);
};

inline void Counters::Add(const Counters& o, double sign) {
  launches = sign > 0 ? launches + o.launches : launches - o.launches;
  time_ns += sign * o.time_ns;
  flops += sign * o.flops;
  tensor_flops += sign * o.tensor_flops;
  dram_read_bytes += sign * o.dram_read_bytes;
  dram_write_bytes += sign * o.dram_write_bytes;
  instructions += sign * o.instructions;
  tensor_cycles += sign * o.tensor_cycles;
  sm_active_cycles += sign * o.sm_active_cycles;
  warp_cycles += sign * o.warp_cycles;
}

// One kernel inside a per-kernel counter session.
struct KernelSample {
  const char* name;
  Counters counters;
  uint64_t start_ns;
  uint64_t end_ns;
};

// A resource event (cupti_callbacks.h, CUpti_CallbackIdResource).
struct ResourceEvent {
  uint32_t cbid;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec graph_exec = nullptr;
  uint32_t module_id = 0;
  const void* image = nullptr;
};

// A launch whose end other processes decide, too.
struct JointLaunch {
  Stream* stream;
  Kernel* kernel;
  SwgpuWork work;
  Operation op;       // start_ns: when the stream reaches the kernel
  uint64_t alone_ns;  // when it would, had this process never waited for other ranks
  uint64_t queued;    // its place in the stream's queue
  bool reported;      // it leaves a record of its own
  bool in_graph;
};

// A kernel of the software NCCL. libcuda says when a stream reaches it, and hears its end by
// Hooks::end_joint: from the same thread, and before this thread submits more to the stream; of a
// kernel in a graph, before Reached returns.
class JointKernel {
 public:
  virtual ~JointKernel() = default;
  virtual void Reached(const JointLaunch& launch) = 0;  // called without any lock
};

struct Hooks {
  const Config* config;

  // Written by libcupti.
  std::atomic<bool> armed{false};       // any API callback or API record wanted: calls get ids
  std::atomic<uint32_t> operations{0};  // bit per OpKind
  std::atomic<bool> resources{false};
  std::atomic<uint64_t> launch_extra_ns{0};  // what CUPTI adds to each launch
  std::atomic<uint8_t> driver[kMaxCallbackId];
  std::atomic<uint8_t> runtime[kMaxCallbackId];
  void (*enter)(ApiCall*) = nullptr;
  void (*exit)(ApiCall*) = nullptr;
  void (*operation)(const Operation&) = nullptr;
  void (*resource)(const ResourceEvent&) = nullptr;

  // Written by libcuda.
  void (*begin)(ApiCall*) = nullptr;  // gives the call its id, runs `enter` when wanted
  void (*end)(ApiCall*) = nullptr;
  uint64_t (*now_ns)() = nullptr;
  void (*charge_ns)(uint64_t) = nullptr;    // cost of an API call
  void (*overhead_ns)(uint64_t) = nullptr;  // cost of CUPTI; free on threads that submit no work
  uint32_t (*context_id)(CUcontext) = nullptr;
  uint32_t (*stream_id)(CUcontext, CUstream) = nullptr;
  int (*context_device)(CUcontext) = nullptr;
  CUcontext (*current_context)() = nullptr;  // of the calling thread
  void (*drain)(CUcontext) = nullptr;        // waits for all work of the context
  // As a synchronisation by the program, which a capture forbids and does not survive; false: there
  // was one.
  bool (*synchronize_context)(CUcontext) = nullptr;
  // As an allocation by the program; false: a capture forbids it, and is worthless now.
  bool (*allocate)() = nullptr;
  // Cumulative counters of all launches submitted to a context so far.
  Counters (*counters)(CUcontext) = nullptr;
  // Starts (non-null) or ends per-kernel collection: kernels are serialised and appended.
  void (*sample_kernels)(CUcontext, std::vector<KernelSample>*, uint32_t passes) = nullptr;
  // Starts (true) or ends collecting the kernels of a device, whatever their context; takes those
  // that were collected since the last call.
  void (*watch_device)(int device, bool on) = nullptr;
  std::vector<KernelSample> (*take_kernels)(int device) = nullptr;
  // Kernels of the device take so many times as long from now on.
  void (*slow_device)(int device, double factor) = nullptr;
  // The next launch of the calling thread is this kernel, which outlives the graph that it may
  // become a node of.
  void (*next_launch_is_joint)(JointKernel*) = nullptr;
  // Ends a joint launch; its record says `end_ns`. The last `transfer_ns` of it were no wait.
  void (*end_joint)(const JointLaunch&, uint64_t end_ns, uint64_t transfer_ns) = nullptr;
  // Moves the virtual clock on to `time_ns`, as if the process had started later.
  void (*meet_clocks)(uint64_t time_ns) = nullptr;
  void (*wait_until)(uint64_t time_ns) = nullptr;
  // Every context alive: for dumps of what existed before a profiler came.
  void (*for_each_context)(void (*)(CUcontext, uint32_t id, int device, void*), void*) = nullptr;

  // Written by libnccl: threads that wait for other ranks, during which virtual time stands still.
  std::atomic<int> waits_for_ranks{0};
  // Adds libnccl's sums to the truth file.
  std::atomic<void (*)(FILE*)> write_nccl_truth{nullptr};

  std::atomic<uint8_t>& Wanted(Domain domain, uint32_t cbid) {
    return domain == kDriver ? driver[cbid] : runtime[cbid];
  }
};

// Runs `body` as the API function `cbid`, under callbacks and records when anybody wants them.
template <typename Body>
inline auto RunApi(Hooks& hooks, Domain domain, uint32_t cbid, const char* name, const void* params,
                   const char* symbol, Body&& body) -> decltype(body()) {
  // Interest is asked for by function, as in the real library: a launch that nobody watches and
  // that leaves no record needs no id.
  const auto unseen_launch = [&] {
    return symbol != nullptr && hooks.Wanted(domain, cbid).load(std::memory_order_relaxed) == 0 &&
           (hooks.operations.load(std::memory_order_relaxed) &
            1u << static_cast<uint32_t>(OpKind::kKernel)) == 0;
  };
  if (!hooks.armed.load(std::memory_order_acquire) || unseen_launch()) [[likely]] {
    return body();
  }
  ApiCall call{domain, cbid, name, params, symbol};
  hooks.begin(&call);
  auto result = body();
  call.return_value = &result;
  hooks.end(&call);
  return result;
}

}  // namespace seqpoint::softgpu

extern "C" __attribute__((visibility("default"))) seqpoint::softgpu::Hooks* swgpu_get_hooks();

#endif  // SEQPOINT_TESTS_SOFTGPU_HOOKS_H_
