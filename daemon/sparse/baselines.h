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

// Gives each input of the first layer to a part that consumes it, to the one with the fewest inputs
// so far; an input that nobody consumes to the part with the fewest.
void PlaceInputs(const Network& network, int parts, Owners* owners);

// Rows at random, equally many nonzeros for each part as far as rows allow.
Owners RandomParts(const Network& network, int parts, uint64_t seed);

// Consecutive rows, as many as have their share of the nonzeros; of the inputs equally many.
Owners BlockParts(const Network& network, int parts);

// The partitioning of one layer, with owners of the layer before as given, or without regard to
// them (null). Parts of the rows.
absl::StatusOr<std::vector<int32_t>> PartitionLayer(const Layer& layer, int parts, double imbalance,
                                                    uint64_t seed,
                                                    const std::vector<int32_t>* owners,
                                                    HypergraphPartitioner* partitioner);

// The published way: one layer after another, each with the owners of its inputs as fixed vertices.
// Source: Demirci, Ferhatosmanoglu, ICS 2021, section 5. `next` is called before each layer, with
// its index; Cancelled where it returns false.
absl::StatusOr<Owners> LayerByLayer(const Network& network, int parts, double imbalance,
                                    uint64_t seed, HypergraphPartitioner* partitioner,
                                    const std::function<bool(size_t layer)>& next);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_BASELINES_H_
