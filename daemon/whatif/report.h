// What a replay says about a trace: how long each iteration takes, what the time is spent on, and
// why the GPU was idle.
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

// What a stretch of the critical path, or of idle time, is owed to.
enum class Share : uint8_t {
  kKernel,
  kCopy,  // and memset
  kCommunication,
  kLaunch,       // calls that launch, and the way of their work to an idle GPU
  kQueue,        // from one GPU task to the next
  kCall,         // other calls of CUDA
  kDataLoading,  // the thread was in a data loader
  kCpu,          // framework and program between calls
  kOtherRank,    // a collective waited for another rank
  kCount,
};
const char* ShareName(Share share);
using Shares = std::array<int64_t, static_cast<size_t>(Share::kCount)>;  // nanoseconds

struct IterationTime {
  int32_t iteration = 0;
  int64_t measured_ns = 0;
  int64_t replayed_ns = 0;
};

// Time of an iteration: from the first GPU start of its work to that of the next one's; where an
// iteration has no GPU work, between the begins of their first calls. The last iteration of a trace
// ends with its last task. Pieces of work belong to the iteration that launched them.
std::vector<IterationTime> IterationTimes(const Trace& trace, const Graph& graph,
                                          const RankTimeline& timeline);
// The same of one timeline.
std::vector<int64_t> IterationDurations(const Graph& graph, const RankTimeline& timeline);

// When each task of the graph began and ended as it was recorded, without causes. Tasks that the
// trace does not have (gaps, what a transformation inserted) are kNotRun.
RankTimeline Measured(const Trace& trace, const Graph& graph);

// The chain of tasks that none of could be later without the last one of the trace being later:
// what it is made of, from the first task's begin to the end. `timeline` has causes.
Shares CriticalPath(const Graph& graph, const RankTimeline& timeline);

// The same of each iteration, as IterationDurations has them: from what begins the next one back to
// what began this one, so its parts sum to the iteration's time. `calls_ns`, if any, gets what of
// Share::kCall is owed to each name, of all iterations.
std::vector<Shares> IterationPaths(const Graph& graph, const RankTimeline& timeline,
                                   std::vector<int64_t>* calls_ns = nullptr);
// IdleTime within each iteration.
std::vector<Shares> IterationIdle(const Graph& graph, const RankTimeline& timeline);

// Time in which no task ran on the GPU, between its first and its last, by what the launch that
// ended it had to wait for. `timeline` has causes.
Shares IdleTime(const Graph& graph, const RankTimeline& timeline);

// A gap of that label is data loading.
bool IsDataLoading(const std::string& label);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_REPORT_H_
