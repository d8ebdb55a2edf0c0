// Which collectives of several ranks' traces are the same one, so that a replay of all ranks
// together knows who waits for whom (dPRO, Hu et al., MLSys 2022, section 4.1).
//
// Profilers record no number that ranks share. What they share is time: a collective ends on all
// its ranks within some ten microseconds, whoever came last. The ranks of one host have one clock;
// hosts have not, and their clocks are aligned by the ends themselves.
//
//   std::vector<Graph> graphs = ...;  // one of each rank
//   MatchedCollectives matched = MatchCollectives({&a, &b}, {&trace_a, &trace_b});
//   Timeline timeline = Replay({&a, &b});
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_COLLECTIVES_H_
#define DAEMON_WHATIF_COLLECTIVES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/trace/trace.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

struct MatchedCollectives {
  uint32_t count = 0;     // that two ranks and more take part in
  uint64_t members = 0;   // their tasks, of all ranks
  uint64_t alone = 0;     // tasks that no other rank has: kernels like any other in the replay
  int64_t spread_ns = 0;  // between the first and the last end of one collective, the most
  // By rank: what its clock was behind the first rank's. 0: the same clock.
  std::vector<int64_t> clock_behind_ns;
};

// Sets GpuTask::collective, and lets all graphs begin at the time at which the earliest of them
// does, each in its own clock: times of one replay are then the same moment on all ranks.
// Collectives are the same when their kernels have the same name, they are in the same order on one
// stream each (a communicator uses one), and end at the same time. A stream of which less than half
// agrees with another rank's belongs to another communicator.
//
// `traces` are those that the graphs were built from.
MatchedCollectives MatchCollectives(absl::Span<Graph* const> graphs,
                                    absl::Span<const Trace* const> traces);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_COLLECTIVES_H_
