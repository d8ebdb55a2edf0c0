// State of the software libcuda: what its API functions share. One instance per process, made by
// cuInit and never destroyed, because other libraries' exit handlers still call in.
#ifndef SEQPOINT_TESTS_SOFTGPU_DRIVER_H_
#define SEQPOINT_TESTS_SOFTGPU_DRIVER_H_

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>
#include <generated_cuda_meta.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tests/softgpu/clock.h"
#include "tests/softgpu/config.h"
#include "tests/softgpu/hooks.h"
#include "tests/softgpu/model.h"

namespace seqpoint::softgpu {

struct Module {
  uint32_t id = 0;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
  std::map<std::string, std::pair<void*, size_t>> globals;
};

struct GraphExec {
  uint32_t id = 0;
  std::vector<GraphNode> nodes;
  CUgraph source = nullptr;
  // Whether activity kinds were on when the graph was instantiated (CUPTI user guide, 2.3.7).
  bool node_kinds_on = false;   // else its copies and memsets are recorded as kernels
  bool graph_trace_on = false;  // else the graph as a whole leaves no record, ever
};

enum class MemoryKind : uint8_t { kPageable, kPinned, kDevice, kManaged };

struct Allocation {
  uint64_t bytes;
  MemoryKind kind;
  int device;
};

struct Driver {
  Driver();

  const Config& config;
  Clock clock;
  Model model;
  std::vector<float> cpu_noise;
  std::atomic<double> host_slowness{1};  // times what the host's calls and work usually take

  std::mutex mutex;
  std::vector<Context*> primaries;  // per device, null until retained
  std::unordered_set<Context*> contexts;
  std::map<uintptr_t, Allocation> allocations;
  std::vector<uint64_t> allocated_bytes;         // per device
  std::unordered_set<Graph*> captures;           // under way
  std::vector<std::unique_ptr<Module>> modules;  // never freed: records point at kernel names
  std::vector<std::string>
      stale_names;  // kernels of unloaded modules, whose place is not taken yet
  std::atomic<uint32_t> next_context_id{1};
  std::atomic<uint32_t> next_module_id{1};
  std::atomic<uint32_t> next_event_id{1};
  std::atomic<uint32_t> next_graph_id{1};
  std::atomic<uint64_t> next_node_id{1};
  std::atomic<uint32_t> next_correlation_id;
};

// Per-thread state, trivially constructed so that access is one instruction.
struct ThreadState {
  Context* current;
  Context* stack[16];
  int depth;
  ApiCall* call;
  bool in_callback;
  bool submits_work;
  bool has_work;
  SwgpuWork work;
  uint64_t random;
  JointKernel* joint;                // the next launch is this one
  CUstreamCaptureMode capture_mode;  // 0: CU_STREAM_CAPTURE_MODE_GLOBAL, the default
};

extern thread_local constinit ThreadState t_state __attribute__((tls_model("initial-exec")));
extern Hooks g_hooks;
extern std::atomic<Driver*> g_driver;

inline Driver* GetDriver() { return g_driver.load(std::memory_order_acquire); }

// Adds the imagined CPU cost of an API call, with jitter.
void Charge(Driver* driver, uint64_t ns);

// CUDA_ERROR_NOT_INITIALIZED or _INVALID_CONTEXT when the calling thread cannot submit work.
CUresult RequireContext(Driver** driver, Context** context);
Stream* ResolveStream(Context* context, CUstream stream, bool per_thread_default = false);
MemoryKind KindOf(Driver* driver, const void* pointer);

// Starts an operation record for work submitted now, and hands a finished one to CUPTI.
Operation NewOperation(const Stream& stream);
void Report(const Operation& op);
// A wait that began at `start_ns` and ends now; `stream` is its handle, or null.
void ReportSync(Driver* driver, Context* context, uint32_t stream_id, CUstream stream, uint8_t type,
                uint32_t event_id, uint64_t start_ns);

// A wait for all of `context` is illegal while one of its streams is captured: it fails, and the
// capture is worthless from then on (CUDA Programming Guide, 4.2.3, "Prohibited and Unhandled
// Operations", "Invalidation"). True: there was such a capture.
bool InvalidateCaptures(Driver* driver, const Context* context);
// The same of a call that is "potentially unsafe" during a capture, as allocations are: forbidden
// where the calling thread captures, and where any thread captures in global mode, unless the
// calling thread is relaxed (cuThreadExchangeStreamCaptureMode).
bool InvalidateUnsafeCaptures(Driver* driver);

// Submits the node, or appends it to the graph that `stream` captures into.
CUresult Submit(Driver* driver, Stream* stream, const GraphNode& node);
// Runs the node now; `reported` says whether it leaves a record of its own, and `as_kernel` that it
// is one of a kernel, whatever it is.
void Execute(Driver* driver, Stream* stream, const GraphNode& node, uint32_t graph_id,
             bool reported, bool as_kernel = false);
void RunHostFunction(Driver* driver, Stream* stream, void (*fn)(void*), void* data);

inline const char* KernelName(CUfunction function) {
  return function == nullptr ? nullptr : reinterpret_cast<Kernel*>(function)->name.c_str();
}

void RaiseResource(const ResourceEvent& event);
// A resource event of the calling thread's context about a graph.
void RaiseGraph(uint32_t cbid, CUgraph graph, CUgraphExec exec);

template <typename Params, typename Body>
inline CUresult RunDriverApi(uint32_t cbid, const char* name, const Params& params,
                             const char* symbol, Body&& body) {
  return RunApi(g_hooks, kDriver, cbid, name, &params, symbol, body);
}

// Defines one driver function: DRIVER_API(cuX, (T a, U b), (a, b), { body }). The parameter struct
// of CUPTI's callbacks is filled from the third argument. STREAM_API also defines cuX_ptsz, for
// which a null stream is the thread's own; the body tells them apart by kPerThread. LAUNCH_API adds
// the kernel `f` whose name the callback carries.
#define SWGPU_UNPACK(...) __VA_ARGS__
#define SWGPU_DRIVER_FUNCTION(name, per_thread, symbol, signature, args, ...)               \
  extern "C" CUresult CUDAAPI name signature {                                              \
    [[maybe_unused]] constexpr bool kPerThread = per_thread;                                \
    const name##_params params{SWGPU_UNPACK args};                                          \
    return ::seqpoint::softgpu::RunDriverApi(CUPTI_DRIVER_TRACE_CBID_##name, #name, params, \
                                             symbol, [&]() -> CUresult __VA_ARGS__);        \
  }
#define DRIVER_API(name, signature, args, ...) \
  SWGPU_DRIVER_FUNCTION(name, false, nullptr, signature, args, __VA_ARGS__)
#define STREAM_API(name, signature, args, ...)                              \
  SWGPU_DRIVER_FUNCTION(name, false, nullptr, signature, args, __VA_ARGS__) \
  SWGPU_DRIVER_FUNCTION(name##_ptsz, true, nullptr, signature, args, __VA_ARGS__)
#define LAUNCH_API(name, signature, args, ...)                                    \
  SWGPU_DRIVER_FUNCTION(name, false, KernelName(f), signature, args, __VA_ARGS__) \
  SWGPU_DRIVER_FUNCTION(name##_ptsz, true, KernelName(f), signature, args, __VA_ARGS__)

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_DRIVER_H_
