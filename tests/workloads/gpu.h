// The door between the training programs and the GPU: memory, streams, events, graphs, host work
// and the account of every call made. `gpu.cc` implements it over the CUDA runtime; `gpu_on_cpu.cc`
// implements it over plain memory, so that the models' arithmetic can be tested without a GPU.
//
// Threading: every function may be called from any thread. Errors: a failed CUDA call prints the
// call, the error's name and its text, and ends the process with status 1: a training script could
// not go on either. Memory and streams live until the process ends.
#ifndef SEQPOINT_TESTS_WORKLOADS_GPU_H_
#define SEQPOINT_TESTS_WORKLOADS_GPU_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/softgpu/swgpu.h"

namespace seqpoint::workload {

using Stream = void*;   // cudaStream_t
using Event = void*;    // cudaEvent_t
using Context = void*;  // CUcontext

struct Graph {
  void* executable = nullptr;  // cudaGraphExec_t
  uint64_t kernels = 0;
};

// GPU calls of this process so far, in API order. A kernel launch inside a stream capture runs
// nothing yet: it is in `captured_launches` alone.
struct CallCounts {
  uint64_t launches = 0;
  uint64_t captured_launches = 0;
  uint64_t graph_launches = 0;
  uint64_t graph_kernels = 0;  // in those graphs
  uint64_t copies = 0;
  uint64_t memsets = 0;
};

// Stream and workspace of a kernel launch. `workspace` serves split-K partial sums.
struct Queue {
  Stream stream = nullptr;
  uint64_t host_ns_per_launch = 0;  // the framework's work before each launch
  float* workspace = nullptr;
  size_t workspace_floats = 0;
};

// Opens a device for the process and returns its name.
std::string OpenDevice(int device = 0);
// A context besides the one that OpenDevice made. It is not current afterwards.
Context CreateContext();
// Makes a context current to the calling thread and returns the one that was.
Context SwitchContext(Context context);
Stream CreateStream();
void Synchronize(Stream stream);

// Contents are undefined, as with cudaMalloc.
void* DeviceAlloc(size_t bytes);
void* PinnedAlloc(size_t bytes);

// Asynchronous in stream order. A pageable source is staged before the call returns.
void CopyToDevice(Stream stream, void* to, const void* from, size_t bytes);
void CopyToHost(Stream stream, void* to, const void* from, size_t bytes);
void MemsetZero(Stream stream, void* data, size_t bytes);

Event CreateEvent(bool timed);
void RecordEvent(Event event, Stream stream);
void WaitEvent(Stream stream, Event event);
bool EventDone(Event event);
double ElapsedNs(Event from, Event to);

// Calls between Begin and End are recorded, not run. End instantiates the graph.
void BeginCapture(Stream stream);
Graph EndCapture(Stream stream);
void LaunchGraph(const Graph& graph, Stream stream);

// `ns` nanoseconds of CPU work: told to the software GPU, spun on a real one.
void HostWork(uint64_t ns);
// From now on host work takes `factor` times as long; on the software GPU, the calls of CUDA, too.
void SlowHost(double factor);
// From now on kernels with `part` in their names take `factor` times as long, all with "". Only the
// software GPU can do that.
void SlowKernels(const std::string& part, double factor);
// The clock that a profiler would see: the software GPU's, else CLOCK_REALTIME.
uint64_t NowNs();

CallCounts Calls();
// Host work, the work hint and the count of one kernel launch; then its check and account.
void BeforeLaunch(const Queue& queue, const SwgpuWork& work);
void AfterLaunch(const char* kernel);

// Empty on a real GPU.
std::optional<SwgpuTotals> SoftwareTotals();
std::optional<uint64_t> SoftwareDigest();
// By the software GPU's clock: when a recorded event happened, and when it would have, had no
// collective of this process ever waited for another rank.
struct EventTimes {
  uint64_t ns = 0;
  uint64_t alone_ns = 0;
};
std::optional<EventTimes> SoftwareEventTimes(Event event);

// By kernel name in the source; the kernels of graphs, which are submitted together, under
// kGraphAccount.
using KernelAccount = std::map<std::string, SwgpuTotals>;
constexpr char kGraphAccount[] = "(graph)";
// From now on the software GPU's totals are split by launch into `account`; null stops. Whoever
// launches must be ordered with the caller.
void AccountKernels(KernelAccount* account);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_GPU_H_
