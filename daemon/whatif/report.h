// The answers of a replay: how long each iteration takes, what the time is spent on, and why the
// GPU was idle.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_REPORT_H_
#define DAEMON_WHATIF_REPORT_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "daemon/trace/trace.h"
#include "daemon/whatif/graph.h"
#include "daemon/whatif/replay.h"

namespace seqpoint::whatif {

// The causes of the time on the critical path, and of idle time.
enum class Share : uint8_t {
  kKernel,
  kCopy,  // and memset
  kCommunication,
  kLaunch,       // calls that launch, and the latency of their work on an idle GPU
  kLane,         // from one GPU task to the next
  kCall,         // other calls of CUDA
  kDataLoading,  // the thread was in a data loader
  kCpu,          // framework and program between calls
  kOtherRank,    // a collective waited for another rank
  kCount,
};
const char* ShareName(Share share);
using Shares = std::array<int64_t, static_cast<size_t>(Share::kCount)>;  // nanoseconds

// Time of an iteration: from the first GPU start of its work to the first GPU start of the next
// one's work; without GPU work, between the starts of their first calls. The last iteration of a
// trace ends with its last task. Work belongs to the iteration that launched it.
std::vector<int64_t> IterationDurations(const Graph& graph, const RankTimeline& timeline);

// The start and end of each task of the graph as recorded, without causes. Tasks that the trace
// does not have (gaps, inserted tasks) are kNotRun.
RankTimeline Measured(const Trace& trace, const Graph& graph);

// The critical path of each iteration, a chain of tasks where a delay of any delays the end, from
// the task that starts the next iteration back to the task that started this one: its time by
// cause. The parts sum to the iteration's time in IterationDurations. `calls_ns`, if any, gets the
// time of Share::kCall by the call's name, over all iterations. `timeline` has causes.
std::vector<Shares> IterationPaths(const Graph& graph, const RankTimeline& timeline,
                                   std::vector<int64_t>* calls_ns = nullptr);
// Time of each iteration, from its first GPU task on, in which no task ran on the GPU, by the cause
// for which the next launch had to wait. `timeline` has causes.
std::vector<Shares> IterationIdle(const Graph& graph, const RankTimeline& timeline);

// Whether a gap of that label is data loading.
bool IsDataLoading(const std::string& label);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_REPORT_H_
