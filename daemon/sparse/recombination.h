// The best mixture of several partitions of one network, layer by layer.
//
// The words that a layer sends depend only on its own parts and on those of the layer before. The
// layers are a chain, and dynamic programming over candidates for each layer finds the sequence
// that sends the fewest words. The numbers of a candidate's parts are arbitrary: they are matched
// from each candidate to each one of the next layer so that most words are saved, an assignment
// problem, solved exactly. The result sends at most as much as the best candidate.
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
