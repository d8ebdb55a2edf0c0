// The time and counter model of the software GPU.
//
// Every operation gets its start and end when it is submitted: streams are FIFO, submission order
// is a valid order of all dependencies, so nothing has to be revised later and completion is a
// comparison with the clock. A kernel that fills more than half of the SMs runs alone, smaller ones
// run beside each other; H2D and D2H copies have an engine each; device-side copies and memsets
// take DRAM bandwidth. A joint kernel (a collective) takes few SMs: it neither waits for other
// kernels nor holds them up.
//
// One mutex guards the model. Handles (Stream, Event, Kernel, Context, Graph) are owned by the
// driver layer and outlive every call made with them.
#ifndef SEQPOINT_TESTS_SOFTGPU_MODEL_H_
#define SEQPOINT_TESTS_SOFTGPU_MODEL_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "tests/softgpu/clock.h"
#include "tests/softgpu/config.h"
#include "tests/softgpu/hooks.h"
#include "tests/softgpu/noise.h"
#include "tests/softgpu/swgpu.h"

namespace seqpoint::softgpu {

struct Context;
struct Graph;

struct Kernel {
  std::string name;
  std::string recorded_name;  // in activity records
  uint64_t name_hash = 0;
  uint32_t module_id = 0;
  uint32_t max_dynamic_shared_bytes = 48 * 1024;
  double slowness = 1;       // times its usual duration. Guarded like `truth`
  uint64_t slowness_of = 0;  // the state of the settings that it was looked up in
  Counters truth;            // all launches, guarded by the model's mutex
};

struct Stream {
  enum class Sync : uint8_t { kLegacy, kBlocking, kNonBlocking };

  Context* context = nullptr;
  uint32_t id = 0;
  uint32_t flags = 0;
  int priority = 0;
  Sync sync = Sync::kBlocking;
  // Guarded by the model's mutex.
  Instant tail;
  uint64_t digest = 0;
  std::vector<Instant> queue_ends;  // ends of the last `queue_depth` launches, a ring
  uint64_t queued = 0;
  Graph* capture = nullptr;
};

struct Event {
  uint32_t id = 0;
  uint32_t flags = 0;
  bool recorded = false;
  Instant time;
  Context* context = nullptr;  // of the last record, as the stream may be gone
  uint32_t stream_id = 0;
  Graph* capture = nullptr;
};

struct LaunchShape {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
};

enum class CopyKind : uint8_t { kHtoD = 1, kDtoH = 2, kDtoD = 8, kHtoH = 9, kPtoP = 10 };

// One node of a captured or built graph, in an order that respects its dependencies.
struct GraphNode {
  enum class Type : uint8_t { kKernel, kCopy, kMemset, kHost, kEmpty };
  Type type = Type::kEmpty;
  uint64_t id = 0;
  Kernel* kernel = nullptr;
  LaunchShape shape{};
  SwgpuWork work{};
  void* dst = nullptr;
  const void* src = nullptr;
  uint64_t bytes = 0;
  CopyKind copy_kind = CopyKind::kDtoD;
  bool async = true;
  Context* src_context = nullptr;  // of a peer copy; null: the stream's
  Context* dst_context = nullptr;
  uint32_t value = 0;
  uint32_t value_bytes = 1;
  void (*host)(void*) = nullptr;
  void* host_data = nullptr;
  JointKernel* joint = nullptr;  // of a kernel: its end is decided elsewhere
};

struct Graph {
  uint32_t id = 0;
  Stream* origin = nullptr;
  std::vector<GraphNode> nodes;
  // The capture that makes it.
  uint32_t capture_mode = 0;             // CUstreamCaptureMode
  const void* capture_thread = nullptr;  // its ThreadState
  std::atomic<bool> invalidated{false};
};

struct Context {
  uint32_t id = 0;
  int device = 0;
  bool primary = false;
  Stream legacy;
  Stream per_thread;  // one per-thread default stream serves all threads
  // Guarded by the model's mutex.
  Instant blocking_tail;
  Instant tail;
  Counters counters;
  std::vector<KernelSample>* samples = nullptr;
  uint32_t sample_passes = 1;
  std::unordered_set<Stream*> streams;
};

class Model {
 public:
  Model(const Config& config, Clock* clock);

  // Each of these submits one operation to `stream` now and fills the times into `op`. A launch
  // may block while the stream's queue is full.
  void Launch(Stream* stream, Kernel* kernel, const LaunchShape& shape, const SwgpuWork& work,
              Operation* op);
  // A joint kernel: its start is known at once, its end later. Between the two calls nobody submits
  // to the stream or waits for it. `transfer_ns` of its duration it did not wait for other ranks.
  void BeginJoint(const LaunchShape& shape, JointLaunch* launch);
  void EndJoint(uint64_t end_ns, uint64_t transfer_ns, JointLaunch* launch);
  void Copy(Stream* stream, CopyKind kind, void* dst, const void* src, uint64_t bytes,
            Operation* op);
  void Memset(Stream* stream, void* dst, uint32_t value, uint32_t value_bytes, uint64_t count,
              Operation* op);
  void Record(Stream* stream, Event* event);
  void WaitEvent(Stream* stream, const Event* event);

  // Work of a launch whose program did not describe it.
  SwgpuWork DefaultWork(const LaunchShape& shape) const;

  Instant StreamTail(Stream* stream);
  Instant ContextTail(Context* context);

  void InitStream(Stream* stream, Context* context, uint32_t flags, int priority,
                  Stream::Sync sync);
  void DestroyStream(Stream* stream);

  Counters ContextCounters(Context* context);
  void SampleKernels(Context* context, std::vector<KernelSample>* samples, uint32_t passes);
  void WatchDevice(int device, bool on);
  std::vector<KernelSample> TakeKernels(int device);
  void SlowDevice(int device, double factor);
  // From now on kernels with `part` in their names take `factor` times as long. 1 ends it.
  void SlowKernels(const std::string& part, double factor);

  // Other processes' clocks were ahead: goes on at `time_ns`, as if this one had started later.
  void MeetClocks(uint64_t time_ns);

  Counters Totals();
  uint64_t Digest();

  Clock& clock() { return *clock_; }
  std::mutex& mutex() { return mutex_; }

 private:
  struct Device {
    Instant exclusive_end;        // last kernel that runs alone
    Instant shared_end;           // last kernel that shares
    uint64_t joint_start_ns = 0;  // last joint kernel
    uint64_t joint_end_ns = 0;
    Instant engine_end[2];  // H2D, D2H
    bool watched = false;
    double slowness = 1;                // what kernels take, times
    std::vector<KernelSample> kernels;  // while watched
  };

  // Waits while the stream's queue is full. Returns the place of the next launch in it.
  uint64_t EnterQueue(Stream* stream, std::unique_lock<std::mutex>* lock);
  // Time of a kernel beside a running joint kernel; alone it would take `duration_ns`.
  uint64_t BesideJoint(const Device& device, uint64_t start_ns, uint64_t duration_ns) const;
  Instant Ready(const Stream& stream) const;
  void Finish(Stream* stream, Instant end);
  void LookUpSlowness(Kernel* kernel) const;
  double Noise(const std::vector<float>& factors);
  void UpdateDrift(uint64_t now_ns);
  void BeginStretch();

  const Config& config_;
  Clock* const clock_;

  std::mutex mutex_;
  std::vector<Device> devices_;
  uint64_t launches_ = 0;
  uint64_t noise_state_;
  std::vector<float> kernel_noise_;  // log-normal factors, drawn by index
  double slow_factor_ = 1;
  double drift_ = 1;
  uint64_t drift_due_ns_ = 0;
  bool launched_in_stretch_ = false;
  std::map<std::string, double> slow_kernels_;  // by a part of their names
  uint64_t slow_kernels_state_ = 1;             // counts the changes
  std::unordered_set<uint64_t> searched_;
  Counters totals_;
  uint64_t digest_ = 0;  // of destroyed streams
  uint32_t next_stream_id_ = 7;
  std::unordered_set<Stream*> streams_;

  const double ns_per_flop_;
  const double ns_per_tensor_flop_;
  const double ns_per_byte_;
  const double tensor_flops_per_cycle_;
};

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_MODEL_H_
