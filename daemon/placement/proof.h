// A proof that a placement is the best one, or a better one, by integer programming.
//
// The program of Tarnawski et al. (NeurIPS 2020, section 4.2; throughput-ip/ip.py) without
// contiguity, over classes and nets in place of operators, with alike accelerators told apart, so
// that no placement is looked at twice. Solved by COIN-OR's Cbc in this process. Small graphs only:
// seconds to minutes for a hundred classes, and not at all for a thousand.
//
// Needs coinor-libcbc-dev at build time; ProofIsThere() says whether it was there.
#ifndef SEQPOINT_DAEMON_PLACEMENT_PROOF_H_
#define SEQPOINT_DAEMON_PLACEMENT_PROOF_H_

#include <functional>
#include <vector>

#include "daemon/placement/class_graph.h"
#include "daemon/placement/problem.h"

namespace seqpoint::placement {

struct Proof {
  std::vector<int> device;  // of each class, when better than `known`; else empty
  double lower_bound = 0;   // of the largest load of any placement
  bool finished = false;    // not stopped: the bound is the optimum, within Cbc's tolerances
};

bool ProofIsThere();

// `known`: the largest load of a placement that is there already. `seconds`: Cbc looks at its own
// clock; it asks `stop`, too, but only between two nodes of its tree. Not for several threads at
// once: Cbc has global state.
Proof ProveMaxLoad(const Problem& devices, const ClassGraph& graph, double known, double seconds,
                   const std::function<bool()>& stop);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_PROOF_H_
