#include "tests/workloads/gpu.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace seqpoint::workload {
namespace {

std::atomic<uint64_t> g_launches{0};
std::atomic<uint64_t> g_captured_launches{0};
std::atomic<uint64_t> g_graph_launches{0};
std::atomic<uint64_t> g_graph_kernels{0};
std::atomic<uint64_t> g_copies{0};
std::atomic<uint64_t> g_memsets{0};
std::atomic<bool> g_capturing{false};
uint64_t g_captured_before = 0;

std::atomic<double> g_host_factor{1};
int g_device = 0;

KernelAccount* g_account = nullptr;
SwgpuTotals g_accounted{};

void Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "seqpoint_workload: %s failed: %s (%s)\n", call, cudaGetErrorName(error),
               cudaGetErrorString(error));
  std::exit(1);
}
#define CUDA_CHECK(call) Check(call, #call)

// The runtime has no call for contexts; the driver is loaded, as OpenDevice has been called.
template <typename Function>
Function* Driver(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void* function = library == nullptr ? nullptr : dlsym(library, name);
  if (function == nullptr) {
    std::fprintf(stderr, "seqpoint_workload: the CUDA driver has no %s\n", name);
    std::exit(1);
  }
  return reinterpret_cast<Function*>(function);
}

void CheckDriver(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "seqpoint_workload: %s failed with CUresult %d\n", call, result);
  std::exit(1);
}

cudaStream_t Raw(Stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t RawEvent(Event event) { return static_cast<cudaEvent_t>(event); }

uint64_t ClockNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// Whatever was submitted since the last call belongs to `kernel`.
void Account(const char* kernel) {
  if (g_account == nullptr) return;
  SwgpuTotals now;
  swgpu_totals(&now);
  SwgpuTotals& sum = (*g_account)[kernel];
  sum.launches += now.launches - g_accounted.launches;
  sum.kernel_time_ns += now.kernel_time_ns - g_accounted.kernel_time_ns;
  sum.dram_read_bytes += now.dram_read_bytes - g_accounted.dram_read_bytes;
  sum.dram_write_bytes += now.dram_write_bytes - g_accounted.dram_write_bytes;
  sum.instructions += now.instructions - g_accounted.instructions;
  sum.tensor_cycles += now.tensor_cycles - g_accounted.tensor_cycles;
  sum.sm_active_cycles += now.sm_active_cycles - g_accounted.sm_active_cycles;
  g_accounted = now;
}

}  // namespace

std::string OpenDevice(int device) {
  g_device = device;
  if (cudaError_t error = cudaSetDevice(device); error != cudaSuccess) {
    std::fprintf(stderr,
                 "seqpoint_workload: cannot open GPU %d: %s; on a machine without a GPU put the "
                 "software GPU's libraries (softgpu/ in the build folder) on LD_LIBRARY_PATH\n",
                 device, cudaGetErrorString(error));
    std::exit(1);
  }
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

Context CreateContext() {
  const Context before = SwitchContext(nullptr);
  CUcontext context;
  CheckDriver(
      Driver<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&context, 0, g_device),
      "cuCtxCreate");
  SwitchContext(before);
  return context;
}

Context SwitchContext(Context context) {
  CUcontext before;
  CheckDriver(Driver<CUresult(CUcontext*)>("cuCtxGetCurrent")(&before), "cuCtxGetCurrent");
  CheckDriver(Driver<CUresult(CUcontext)>("cuCtxSetCurrent")(static_cast<CUcontext>(context)),
              "cuCtxSetCurrent");
  return before;
}

Stream CreateStream() {
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void Synchronize(Stream stream) { CUDA_CHECK(cudaStreamSynchronize(Raw(stream))); }

void* DeviceAlloc(size_t bytes) {
  void* data = nullptr;
  if (cudaError_t error = cudaMalloc(&data, bytes); error != cudaSuccess) {
    std::fprintf(stderr,
                 "seqpoint_workload: cannot allocate %zu MiB of GPU memory: %s; choose a smaller "
                 "--batch, --max-length or --hidden\n",
                 bytes >> 20, cudaGetErrorString(error));
    std::exit(1);
  }
  return data;
}

void* PinnedAlloc(size_t bytes) {
  void* data = nullptr;
  CUDA_CHECK(cudaHostAlloc(&data, bytes, cudaHostAllocDefault));
  return data;
}

void CopyToDevice(Stream stream, void* to, const void* from, size_t bytes) {
  ++g_copies;
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, Raw(stream)));
}

void CopyToHost(Stream stream, void* to, const void* from, size_t bytes) {
  ++g_copies;
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, Raw(stream)));
}

void MemsetZero(Stream stream, void* data, size_t bytes) {
  ++g_memsets;
  CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, Raw(stream)));
}

Event CreateEvent(bool timed) {
  cudaEvent_t event;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  return event;
}

void RecordEvent(Event event, Stream stream) {
  CUDA_CHECK(cudaEventRecord(RawEvent(event), Raw(stream)));
}

void WaitEvent(Stream stream, Event event) {
  CUDA_CHECK(cudaStreamWaitEvent(Raw(stream), RawEvent(event), 0));
}

bool EventDone(Event event) {
  cudaError_t error = cudaEventQuery(RawEvent(event));
  if (error == cudaErrorNotReady) return false;
  Check(error, "cudaEventQuery");
  return true;
}

double ElapsedNs(Event from, Event to) {
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, RawEvent(from), RawEvent(to)));
  return static_cast<double>(milliseconds) * 1e6;
}

void BeginCapture(Stream stream) {
  g_capturing = true;
  g_captured_before = g_captured_launches;
  // Relaxed: the activation memory may grow while a graph is being recorded.
  CUDA_CHECK(cudaStreamBeginCapture(Raw(stream), cudaStreamCaptureModeRelaxed));
}

Graph EndCapture(Stream stream) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CUDA_CHECK(cudaStreamEndCapture(Raw(stream), &graph));
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CUDA_CHECK(cudaGraphDestroy(graph));
  g_capturing = false;
  return {executable, g_captured_launches - g_captured_before};
}

void LaunchGraph(const Graph& graph, Stream stream) {
  ++g_graph_launches;
  g_graph_kernels += graph.kernels;
  CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.executable), Raw(stream)));
  Account(kGraphAccount);
}

void HostWork(uint64_t ns) {
  if (ns == 0) return;
  if (&swgpu_host_work != nullptr) {
    swgpu_host_work(ns);
    return;
  }
  const uint64_t end =
      ClockNs(CLOCK_MONOTONIC) + static_cast<uint64_t>(static_cast<double>(ns) * g_host_factor);
  while (ClockNs(CLOCK_MONOTONIC) < end) {
  }
}

void SlowHost(double factor) {
  if (&swgpu_slow_host != nullptr) {
    swgpu_slow_host(factor);
  } else {
    g_host_factor = factor;
  }
}

void SlowKernels(const std::string& part, double factor) {
  if (&swgpu_slow_kernels != nullptr) swgpu_slow_kernels(part.c_str(), factor);
}

uint64_t NowNs() { return &swgpu_now_ns != nullptr ? swgpu_now_ns() : ClockNs(CLOCK_REALTIME); }

CallCounts Calls() {
  return {g_launches, g_captured_launches, g_graph_launches, g_graph_kernels, g_copies, g_memsets};
}

void BeforeLaunch(const Queue& queue, const SwgpuWork& work) {
  HostWork(queue.host_ns_per_launch);
  if (&swgpu_next_launch_work != nullptr) swgpu_next_launch_work(&work);
  ++(g_capturing ? g_captured_launches : g_launches);
}

void AfterLaunch(const char* kernel) {
  CUDA_CHECK(cudaGetLastError());
  if (!g_capturing) Account(kernel);
}

void AccountKernels(KernelAccount* account) {
  if (&swgpu_totals == nullptr) return;
  g_account = account;
  swgpu_totals(&g_accounted);
}

std::optional<SwgpuTotals> SoftwareTotals() {
  if (&swgpu_totals == nullptr) return std::nullopt;
  SwgpuTotals totals;
  swgpu_totals(&totals);
  return totals;
}

std::optional<uint64_t> SoftwareDigest() {
  if (&swgpu_digest == nullptr) return std::nullopt;
  return swgpu_digest();
}

std::optional<EventTimes> SoftwareEventTimes(Event event) {
  EventTimes times;
  if (&swgpu_event_times == nullptr || !swgpu_event_times(event, &times.ns, &times.alone_ns)) {
    return std::nullopt;
  }
  return times;
}

}  // namespace seqpoint::workload
