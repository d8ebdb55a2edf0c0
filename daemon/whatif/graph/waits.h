// Which work of one queue waits for which work of another: stream waits, as they were recorded, or
// else inferred from what the neighbours of such a call are about and what the times allow.
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
  std::vector<uint32_t> wait_queue, wait_source;  // queues, of a stream wait
  std::vector<std::vector<uint32_t>> waits_for;   // works, of a work
};

// Sets Figures::waits_*.
StreamWaits FindStreamWaits(const JoinedTrace& joined, const Gaps& gaps, const Graph& graph,
                            Figures* figures);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_WAITS_H_
