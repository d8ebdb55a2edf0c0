// gpu.h over plain memory: everything happens at once, in call order. Kernels run by cpu_cuda.h.
#include <cstdlib>
#include <cstring>

#include "tests/workloads/gpu.h"

namespace seqpoint::workload {
namespace {

CallCounts g_calls;

}  // namespace

std::string OpenDevice(int) { return "CPU"; }
Context CreateContext() { return nullptr; }
Context SwitchContext(Context) { return nullptr; }
Stream CreateStream() { return nullptr; }
void Synchronize(Stream) {}
// Filled with NaN patterns, so that a read before the first write shows.
void* DeviceAlloc(size_t bytes) {
  void* data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(data, 0xff, bytes);
  return data;
}
void* PinnedAlloc(size_t bytes) { return DeviceAlloc(bytes); }
void CopyToDevice(Stream, void* to, const void* from, size_t bytes) {
  ++g_calls.copies;
  std::memcpy(to, from, bytes);
}
void CopyToHost(Stream, void* to, const void* from, size_t bytes) {
  ++g_calls.copies;
  std::memcpy(to, from, bytes);
}
void MemsetZero(Stream, void* data, size_t bytes) {
  ++g_calls.memsets;
  std::memset(data, 0, bytes);
}
Event CreateEvent(bool) { return nullptr; }
void RecordEvent(Event, Stream) {}
void WaitEvent(Stream, Event) {}
bool EventDone(Event) { return true; }
double ElapsedNs(Event, Event) { return 0; }
void BeginCapture(Stream) { std::abort(); }
Graph EndCapture(Stream) { std::abort(); }
void LaunchGraph(const Graph&, Stream) { std::abort(); }
void HostWork(uint64_t) {}
void SlowHost(double) {}
void SlowKernels(const std::string&, double) {}
uint64_t NowNs() { return 0; }
CallCounts Calls() { return g_calls; }
void BeforeLaunch(const Queue&, const SwgpuWork&) { ++g_calls.launches; }
void AfterLaunch(const char*) {}
void AccountKernels(KernelAccount*) {}
std::optional<SwgpuTotals> SoftwareTotals() { return std::nullopt; }
std::optional<uint64_t> SoftwareDigest() { return std::nullopt; }
std::optional<EventTimes> SoftwareEventTimes(Event) { return std::nullopt; }

}  // namespace seqpoint::workload
