// Simple partitions, to compare with and to start from.
//
// Threading: free functions. Ownership: values.
#ifndef SEQPOINT_DAEMON_SPARSE_BASELINES_H_
#define SEQPOINT_DAEMON_SPARSE_BASELINES_H_

#include <stdint.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/sparse/hypergraph_partitioner.h"
#include "daemon/sparse/network.h"

namespace seqpoint::sparse {

// The owners when `part_of` are those of all rows, layer after layer. Each input of the first layer
// belongs to a part that consumes it, to the one with the fewest inputs so far; an input that
// nobody consumes to the part with the fewest.
Owners OwnersOfRows(const Network& network, int parts, const std::vector<int32_t>& part_of);

// Rows at random, equally many nonzeros for each part as far as rows allow.
Owners RandomParts(const Network& network, int parts, uint64_t seed);

// Consecutive rows, as many as have their share of the nonzeros; of the inputs equally many.
Owners BlockParts(const Network& network, int parts);

// The published way: one layer after another, each with the owners of its inputs as fixed vertices.
// Source: Demirci, Ferhatosmanoglu, ICS 2021, section 5. With `alone` each layer is partitioned
// without regard to those before it. `next` is called before each layer, with its index; Cancelled
// where it returns false.
absl::StatusOr<Owners> LayerByLayer(const Network& network, int parts, double imbalance,
                                    uint64_t seed, bool alone,
                                    const HypergraphPartitioner& partitioner,
                                    const std::function<bool(size_t layer)>& next);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_BASELINES_H_
