// The dependency graph of a recorded trace: what each task waits for, so that a replay can tell
// when it would begin if other tasks took another time (Daydream, Zhu et al., ATC 2020, section 4).
//
//   CPU tasks   calls and the gaps between them, in order on their threads. A gap is what the
//               thread does without CUDA: framework, Python, data loading. It is cut where an
//               annotation begins or ends, and knows those it lies in.
//   GPU tasks   kernels, copies, memsets and collectives, in order on their queues. A queue is a
//               stream, or a branch of a graph launch.
//
//   Graph graph = BuildGraph(trace, {});
//   Timeline timeline = Replay(graph);
//
// Idle time of a queue is not recorded: it has to come out of the edges. Where no edge explains a
// late start, it stays as long after the task before it as it was, and Graph::figures counts it.
// docs/internals/whatif-graph.md has the edges with the reasons.
//
// Threading: plain values, free functions. Ownership: a Graph owns all that it refers to; indices
// refer to its own tables.
#ifndef DAEMON_WHATIF_GRAPH_H_
#define DAEMON_WHATIF_GRAPH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/trace/trace.h"

namespace seqpoint::whatif {

using trace::Call;
using trace::CallKind;
using trace::kNone;
using trace::Span;
using trace::SpanKind;
using trace::Stream;
using trace::Trace;
using trace::Wait;
using trace::Work;
using trace::WorkKind;

enum class CpuKind : uint8_t {
  kGap,
  kCall,        // returns when it has done its own work
  kWaitStream,  // ... and when what is then last in queue `queue` is over,
  kWaitAll,     // ... or in all queues of the rank,
  kWaitEvent,   // ... or what event `event` stands for,
  kWaitOwn,     // ... or the copy that it launched (pageable memory)
  kRecord,      // event `event` stands for what is last in queue `queue` now
  kStreamWait,  // what is launched into `queue` from now on comes after event `event`
};

inline bool IsWait(CpuKind kind) {
  return kind == CpuKind::kWaitStream || kind == CpuKind::kWaitAll || kind == CpuKind::kWaitEvent ||
         kind == CpuKind::kWaitOwn;
}

// Of an iteration. What nothing tells is unknown; what is none of the others is other.
enum class Phase : uint8_t { kUnknown, kForward, kBackward, kOptimizer, kLoading, kOther };
const char* PhaseName(Phase phase);
std::optional<Phase> PhaseOf(std::string_view name);

struct CpuTask {
  int64_t duration_ns = 0;  // of a call that waits: without the wait
  int64_t tail_ns = 0;      // of a call that waits: from the end of what it waited for to its own
  uint32_t name = 0;
  uint32_t label = 0;  // names of the annotations around it, outermost first, a line each; 0: none
  uint32_t after = kNone;       // CPU task of another thread that hands over to this one
  uint32_t first_work = kNone;  // GPU task that it launches; the others by GpuTask::next
  uint32_t queue = kNone;
  uint32_t event = kNone;   // of kWaitEvent and kStreamWait; kNone: what is last in `source` now
  uint32_t source = kNone;  // queue
  uint32_t thread = 0;
  uint32_t call = kNone;   // of Trace::calls; kNone: a gap, or inserted
  int32_t iteration = -1;  // -1: before the first
  CpuKind kind = CpuKind::kGap;
  Phase phase = Phase::kUnknown;  // of a launch: its work's too
};

struct GpuTask {
  int64_t duration_ns = 0;
  int64_t latency_ns = 0;   // from the begin of the call to the start where nothing else holds it
  int64_t gap_ns = 0;       // from the end of what is before it in its queue to the start
  int64_t wait_gap_ns = 0;  // from the end of what it waits for in another queue
  uint64_t bytes = 0;
  uint32_t name = 0;
  uint32_t layer = 0;  // label of its call
  uint32_t queue = 0;
  uint32_t call = kNone;  // that launches it; kNone: see `before`, or removed by a transformation
  uint32_t next = kNone;  // of the same call
  uint32_t first_dependency = 0;  // in Graph::dependencies
  uint16_t dependency_count = 0;
  WorkKind kind = WorkKind::kKernel;
  bool before = false;    // in flight when the trace began: ready at latency_ns from its begin
  bool by_graph = false;  // one node of a graph launch
  uint32_t collective = kNone;  // the same number on all ranks that take part
  uint32_t work = kNone;        // in the trace; kNone: inserted by a transformation
  uint32_t rank = kNone;        // see Queue::by_rank
};

// By a transformation.
inline bool IsRemoved(const GpuTask& task) { return task.call == kNone && !task.before; }

struct Queue {
  uint32_t stream = 0;  // of Trace::streams
  uint32_t branch = 0;  // 0: the stream itself
  // By a transformation: of what could start, that with the lowest GpuTask::rank does.
  bool by_rank = false;
  std::string name;  // of one that a transformation made
};

// What the graph could not be told, for answers.
struct Figures {
  uint64_t calls_left_out = 0;  // launches whose work was not recorded
  uint64_t works_before = 0;    // work launched before the trace began: in flight then
  uint64_t launches_lost = 0;   // work that came later, and whose launch was not recorded
  uint64_t waits_recorded = 0;  // stream waits that the trace explains,
  uint64_t waits_inferred = 0;  // ... that times and neighbours explain,
  uint64_t waits_unknown = 0;   // ... that nothing explains: left out
  uint64_t handovers = 0;       // from CPU thread to CPU thread
  uint64_t shared = 0;          // tasks that waited for another queue's kernel without an event
  uint64_t unexplained = 0;     // tasks that started later than any edge tells: kept as they were
  int64_t unexplained_ns = 0;
};

struct Graph {
  std::vector<std::string> names;
  std::vector<std::string> threads;
  std::vector<Stream> streams;
  std::vector<CpuTask> cpu;
  std::vector<std::vector<uint32_t>> order;  // CPU tasks of each thread
  std::vector<int64_t> thread_begin_ns;      // when its first task begins, from the trace's begin
  std::vector<GpuTask> gpu;                  // works_before first
  std::vector<uint32_t> dependencies;        // GPU tasks
  std::vector<Queue> queues;
  uint32_t events = 0;     // number of them
  int32_t iterations = 0;  // that have a number; the last one may be cut off
  int64_t begin_ns = 0;    // of the trace
  Figures figures;
};

// Where the iterations begin on the CPU: times, ascending.
struct GraphOptions {
  std::vector<int64_t> iteration_begins_ns;
};

Graph BuildGraph(const Trace& trace, const GraphOptions& options);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_H_
