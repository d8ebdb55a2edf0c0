// Stream waits: the works of one lane that wait for works of another. They are taken as recorded,
// or else inferred from the lanes that the neighbours of such a call use and from the times.
//
// Threading: a free function over constant input. Ownership: values.
#ifndef DAEMON_WHATIF_GRAPH_WAITS_H_
#define DAEMON_WHATIF_GRAPH_WAITS_H_

#include <cstdint>
#include <vector>

#include "daemon/whatif/graph/gaps.h"
#include "daemon/whatif/graph/join.h"

namespace seqpoint::whatif {

struct StreamWaits {
  std::vector<uint32_t> wait_lane, wait_source;  // lanes, by stream wait
  std::vector<std::vector<uint32_t>> waits_for;  // works, by work
};

// Sets Figures::waits_*.
StreamWaits FindStreamWaits(const JoinedTrace& joined, const Gaps& gaps, const Graph& graph,
                            Figures* figures);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_WAITS_H_
