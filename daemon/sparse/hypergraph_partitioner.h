// A partitioner of one hypergraph, as a library offers it.
//
// Threading: one thread at a time.
#ifndef SEQPOINT_DAEMON_SPARSE_HYPERGRAPH_PARTITIONER_H_
#define SEQPOINT_DAEMON_SPARSE_HYPERGRAPH_PARTITIONER_H_

#include <stdint.h>

#include <functional>
#include <vector>

#include "absl/status/statusor.h"

namespace seqpoint::sparse {

struct Hypergraph {
  std::vector<int64_t> vertex_weight;
  std::vector<int32_t> fixed;        // the part of a vertex that is given; -1: free
  std::vector<int64_t> pins_of_net;  // nets + 1 entries: net n has [n, n + 1) of pin
  std::vector<int32_t> pin;
};

// Returns the part of each vertex: few parts in each net (connectivity - 1), the weight of no part
// more than `imbalance` (a share) above the mean, which is an aim and no promise. Unavailable, with
// the library's words, where it fails.
using HypergraphPartitioner = std::function<absl::StatusOr<std::vector<int32_t>>(
    const Hypergraph& graph, int parts, double imbalance, uint64_t seed)>;

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_HYPERGRAPH_PARTITIONER_H_
