// Matches the collectives in the traces of several ranks, so that a replay of all ranks together
// knows which rank waits for which (dPRO, Hu et al., MLSys 2022, section 4.1).
//
// Profilers record no number that ranks share. Ranks share time: a collective ends on all of them
// within some ten microseconds, whichever came last. The ranks of one host have one clock. The
// clocks of several hosts are aligned by the ends themselves.
//
//   std::vector<Graph> graphs = ...;  // one of each rank
//   MatchedCollectives matched = MatchCollectives({&a, &b}, {&trace_a, &trace_b});
//   Timeline timeline = Replay({&a, &b});
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_GRAPH_COLLECTIVES_H_
#define DAEMON_WHATIF_GRAPH_COLLECTIVES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/trace/trace.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

struct MatchedCollectives {
  uint32_t count = 0;     // in which two ranks or more take part
  uint64_t members = 0;   // their tasks, of all ranks
  uint64_t alone = 0;     // tasks that no other rank has; the replay treats them as kernels
  int64_t spread_ns = 0;  // the most between the first and the last end of one collective
  // By rank: how far its clock was behind the first rank's. 0: the same clock.
  std::vector<int64_t> clock_behind_ns;
};

// Sets GpuTask::collective, and makes all graphs start at the time at which the earliest does, each
// on its own clock. A time of one replay is then the same moment on all ranks. Collectives are the
// same when their kernels have the same name, stand in the same order on one stream each (a
// communicator uses one), and end at the same time. A stream that agrees with another rank's in
// less than half belongs to another communicator.
//
// `traces` are those that the graphs were built from.
MatchedCollectives MatchCollectives(absl::Span<Graph* const> graphs,
                                    absl::Span<const Trace* const> traces);

// The same where it is known which collectives belong together. `numbers`: by rank and work of its
// trace, kNone: of no other rank.
void SetCollectives(const std::vector<std::vector<uint32_t>>& numbers,
                    const std::vector<int64_t>& clock_behind_ns, absl::Span<Graph* const> graphs);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_COLLECTIVES_H_
