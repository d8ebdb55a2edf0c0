// The best mixture of several partitions of one network, layer by layer.
//
// What a layer sends depends on its own parts and on those of the layer before, and on nothing
// else. So the layers are a chain, and for candidates for each layer dynamic programming finds the
// sequence that sends the fewest words. The numbers of the parts of a candidate mean nothing: from
// each candidate to each one of the next layer they are matched so that most words are saved, an
// assignment problem, solved exactly. The result sends at most as much as the best candidate.
//
// Threading: free function. Cost: layers x candidates^2 x (parts^3 + nets).
#ifndef SEQPOINT_DAEMON_SPARSE_RECOMBINATION_H_
#define SEQPOINT_DAEMON_SPARSE_RECOMBINATION_H_

#include <stdint.h>

#include <vector>

#include "daemon/sparse/layered_hypergraph.h"

namespace seqpoint::sparse {

// `candidates`: the part of each vertex. A layer of a candidate with a part above its limit is left
// out where another candidate keeps it.
std::vector<int32_t> Recombine(const LayeredHypergraph& graph, int parts,
                               const std::vector<int64_t>& limits,
                               const std::vector<std::vector<int32_t>>& candidates);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_RECOMBINATION_H_
