// The activity of a process on its CPU threads and its GPU's streams during some time, as a
// profiler recorded it. Our own trace windows become one, and so do the traces of other profilers
// (daemon/traces). The dependency graph (daemon/whatif) is made from one.
//
// Times are nanoseconds of one clock for CPU and GPU. The elements are in no promised order.
//
// Threading: plain values. Ownership: a Trace owns all that it refers to; names, threads and
// streams are indices into its tables.
#ifndef DAEMON_TRACE_TRACE_H_
#define DAEMON_TRACE_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace seqpoint::trace {

inline constexpr uint32_t kNone = UINT32_MAX;

// The kinds of calls of the CUDA or HIP runtime or driver.
enum class CallKind : uint8_t {
  kOther,  // nothing that reaches a stream (an attribute, an allocation)
  kLaunch,
  kGraphLaunch,
  kCopy,
  kMemset,
  kStreamSync,   // the host waits for one stream,
  kEventSync,    // for the work in a stream when an event was recorded,
  kContextSync,  // for all streams of the device
  kEventRecord,
  kStreamWait,  // a stream waits for an event
};

struct Call {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t correlation = 0;  // 0: none
  uint32_t name = 0;
  uint32_t thread = 0;
  CallKind kind = CallKind::kOther;
};

enum class WorkKind : uint8_t {
  kKernel,
  kCollective,  // a kernel of NCCL, RCCL, ...
  kCopyH2D,
  kCopyD2H,
  kCopyD2D,
  kCopyOther,
  kMemset,
  kGraph,  // a whole graph launch, whose nodes were not recorded
};

// One unit of work of a GPU.
struct Work {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint64_t correlation = 0;  // of the call that launched it; one graph launch has many
  uint64_t bytes = 0;        // of a copy, memset or collective; 0: not known
  uint32_t name = 0;
  uint32_t stream = 0;
  uint32_t grid[3] = {0, 0, 0};  // 0: not a kernel, or not known
  uint16_t block[3] = {0, 0, 0};
  WorkKind kind = WorkKind::kKernel;
  bool pageable = false;  // a copy whose host side the driver stages
};

enum class SpanKind : uint8_t {
  kOperator,    // of the framework, "aten::mm"
  kAnnotation,  // of the program or the framework's hooks, "ProfilerStep#12", NVTX
};

// Something on a CPU thread that lasts; spans of a thread nest.
struct Span {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t name = 0;
  uint32_t thread = 0;
  SpanKind kind = SpanKind::kOperator;
  // PyTorch's number for this execution of an operator; 0: not known, or not asked for. Stores do
  // not keep it.
  uint32_t record_function = 0;
};

// The work that a synchronising call is known to wait for; joined with the call by its correlation.
// In a trace without waits they are inferred.
struct Wait {
  uint64_t correlation = 0;         // of the call
  uint64_t record_correlation = 0;  // of the call that recorded the event; 0: not known
  uint32_t stream = kNone;          // of kStreamWait: the one that waits; else: that is waited for
  uint32_t source = kNone;          // of kStreamWait and kEventSync: the event's stream
};

// A forward operator and the one of the backward pass that belongs to it, by their begins. Tools
// draw an arrow; the graph does not need it.
struct Flow {
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;
  uint32_t forward_thread = 0;
  uint32_t backward_thread = 0;
};

struct Stream {
  int32_t device = 0;
  int64_t id = 0;  // as the profiler numbers it
};

// Why parts of the input are not here, or not as they were; for answers.
struct LeftOut {
  uint64_t damaged = 0;           // elements that are no JSON, or lack a time
  uint64_t first_damaged_at = 0;  // byte of the uncompressed input
  uint64_t mended = 0;            // elements that are no JSON, and could be read all the same
  uint64_t without_duration = 0;  // kept with length 0: no duration, or one below 0
  uint64_t python_frames = 0;
  uint64_t other = 0;           // counters, instants, flows of launches: not needed
  uint64_t trailing_bytes = 0;  // behind the end of the trace
  bool truncated = false;       // the input ends, or cannot be unpacked further, in the middle
};

struct Trace {
  std::string source;              // for people: "Kineto, resnet.json.gz"
  std::vector<std::string> names;  // [0] is empty
  std::vector<std::string> threads;
  std::vector<Stream> streams;
  std::vector<Call> calls;
  std::vector<Work> works;
  std::vector<Span> spans;
  std::vector<Wait> waits;
  std::vector<Flow> flows;
  std::vector<std::string> gpus;  // names, by device; may be empty
  int32_t rank = 0;
  int32_t world_size = 1;
  LeftOut left_out;
};

}  // namespace seqpoint::trace

#endif  // DAEMON_TRACE_TRACE_H_
