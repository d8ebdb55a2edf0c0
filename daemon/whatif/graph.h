// The dependency graph of a recorded trace: the tasks that each task waits for. A replay computes
// from it when each would start if other tasks took another time (Daydream, Zhu et al., ATC 2020,
// section 4).
//
//   CPU tasks   calls and the gaps between them, in order on their threads. A gap is what the
//               thread does without CUDA: framework, Python, data loading. It is cut where an
//               annotation begins or ends, and knows those it lies in.
//   GPU tasks   kernels, copies, memsets and collectives, in order on their lanes. A lane is a
//               stream, or a branch of a graph launch.
//
//   Graph graph = BuildGraph(trace, {});
//   Timeline timeline = Replay(graph);
//
// The graph does not record idle time of a lane: it follows from the edges. A late start that no
// edge explains stays as long after the task before it as it was, and Graph::figures counts it.
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
  kCall,        // returns when its own work is done
  kWaitStream,  // ... and when the work that is then last in lane `lane` is over,
  kWaitAll,     // ... or in all lanes of the rank,
  kWaitEvent,   // ... or the work that event `event` stands for,
  kWaitOwn,     // ... or the copy that it launched (pageable memory)
  kRecord,      // event `event` stands for the work that is last in lane `lane` now
  kStreamWait,  // work launched into `lane` from now on comes after event `event`
};

inline bool IsWait(CpuKind kind) {
  return kind == CpuKind::kWaitStream || kind == CpuKind::kWaitAll || kind == CpuKind::kWaitEvent ||
         kind == CpuKind::kWaitOwn;
}

// A phase of an iteration. kUnknown: nothing in the trace says. kOther: none of the others.
enum class Phase : uint8_t { kUnknown, kForward, kBackward, kOptimizer, kLoading, kOther };
const char* PhaseName(Phase phase);
std::optional<Phase> PhaseOf(std::string_view name);

struct CpuTask {
  int64_t duration_ns = 0;  // a call that waits: without the wait
  int64_t tail_ns =
      0;  // a call that waits: from the end of the work that it waited for to its own end
  uint32_t name = 0;
  uint32_t label = 0;  // names of the annotations around it, outermost first, a line each; 0: none
  uint32_t after =
      kNone;  // CPU task of another thread that this one waits for (cross-thread dependency)
  uint32_t first_work = kNone;  // first GPU task that it launches; GpuTask::next has the others
  uint32_t lane = kNone;
  uint32_t event =
      kNone;  // of kWaitEvent and kStreamWait; kNone: the work that is last in `source` now
  uint32_t source = kNone;  // lane
  uint32_t thread = 0;
  uint32_t call = kNone;   // of Trace::calls; kNone: a gap, or inserted
  int32_t iteration = -1;  // -1: before the first
  CpuKind kind = CpuKind::kGap;
  Phase phase = Phase::kUnknown;  // a launch: its work's phase, too
};

struct GpuTask {
  int64_t duration_ns = 0;
  int64_t latency_ns = 0;  // from the start of the call to its own, where it waits for nothing else
  int64_t gap_ns = 0;      // from the end of the task before it in its lane to its start
  int64_t wait_gap_ns = 0;  // from the end of the task of another lane that it waits for
  uint64_t bytes = 0;
  uint32_t name = 0;
  uint32_t layer = 0;  // label of its call
  uint32_t lane = 0;
  uint32_t call = kNone;  // that launches it; kNone: see `before`, or removed by a transformation
  uint32_t next = kNone;  // of the same call
  uint32_t first_dependency = 0;  // in Graph::dependencies
  uint16_t dependency_count = 0;
  WorkKind kind = WorkKind::kKernel;
  bool before = false;  // in flight when the trace began: ready at latency_ns from its begin
  uint32_t collective = kNone;  // the same number on all ranks that take part
  uint32_t work = kNone;        // in the trace; kNone: inserted by a transformation
  uint32_t priority = kNone;    // see Lane::by_priority
};

// Removed by a transformation.
inline bool IsRemoved(const GpuTask& task) { return task.call == kNone && !task.before; }

struct Lane {
  uint32_t stream = 0;  // of Trace::streams
  uint32_t branch = 0;  // 0: the stream itself
  // Set by a transformation: of the tasks that could start, the one with the lowest
  // GpuTask::priority does.
  bool by_priority = false;
  std::string name;  // of a lane that a transformation made
};

// Figures for answers about the parts of a run that the trace does not show.
struct Figures {
  uint64_t calls_left_out = 0;             // launches whose work was not recorded
  uint64_t works_before = 0;               // work launched before the trace started: in flight then
  uint64_t launches_lost = 0;              // later work whose launch was not recorded
  uint64_t waits_recorded = 0;             // stream waits that the trace explains,
  uint64_t waits_inferred = 0;             // ... that times and neighbours explain,
  uint64_t waits_unknown = 0;              // ... that nothing explains: left out
  uint64_t cross_thread_dependencies = 0;  // from CPU thread to CPU thread
  uint64_t shared = 0;       // tasks that waited for a kernel of another lane without an event
  uint64_t unexplained = 0;  // tasks that started later than any edge explains: kept as they were
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
  std::vector<Lane> lanes;
  uint32_t events = 0;     // number of them
  int32_t iterations = 0;  // that have a number; the last one may be cut off
  int64_t begin_ns = 0;    // of the trace
  Figures figures;
};

// Where the iterations start on the CPU: times, ascending.
struct GraphOptions {
  std::vector<int64_t> iteration_starts_ns;
};

Graph BuildGraph(const Trace& trace, const GraphOptions& options);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_H_
