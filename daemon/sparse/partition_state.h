// The parts of a hypergraph's vertices, with counts that make moving one vertex cheap: the pins of
// each net in each part, and the load of each part.
//
// Threading: one thread. Ownership: refers to the hypergraph, which outlives it.
#ifndef SEQPOINT_DAEMON_SPARSE_PARTITION_STATE_H_
#define SEQPOINT_DAEMON_SPARSE_PARTITION_STATE_H_

#include <stdint.h>

#include <random>
#include <vector>

#include "daemon/sparse/layered_hypergraph.h"

namespace seqpoint::sparse {

class PartitionState {
 public:
  PartitionState(const LayeredHypergraph& graph, int parts, std::vector<int32_t> part_of);

  const LayeredHypergraph& graph() const { return graph_; }
  int parts() const { return parts_; }
  const std::vector<int32_t>& part_of() const { return part_of_; }
  int layer_of(int32_t vertex) const { return layer_of_[vertex]; }
  int64_t words() const { return words_; }
  // Nonzeros of a layer in a part.
  int64_t load(int layer, int part) const { return load_[Index(layer, part)]; }
  // Vertices of a layer in a part, in no order.
  const std::vector<int32_t>& members(int layer, int part) const {
    return members_[Index(layer, part)];
  }

  // How many more words are sent when the vertex goes there. Cost: its nets.
  int64_t Change(int32_t vertex, int32_t to) const;
  void Move(int32_t vertex, int32_t to);

 private:
  size_t Index(int layer, int part) const { return static_cast<size_t>(layer) * parts_ + part; }

  const LayeredHypergraph& graph_;
  int parts_;
  std::vector<int32_t> part_of_;
  std::vector<int32_t> layer_of_;
  std::vector<int32_t> pins_in_;  // of each net in each part
  std::vector<int64_t> load_;
  std::vector<std::vector<int32_t>> members_;
  std::vector<int32_t> place_;  // of each vertex in its list of members
  int64_t words_ = 0;
};

// Nonzeros that a part of each layer may have: `imbalance` (a share) above the mean, or, where rows
// are too long for that, the load of the fullest part when the longest rows are dealt out first.
std::vector<int64_t> PartLimits(const LayeredHypergraph& graph, int parts, double imbalance);

// A part for each vertex: the heaviest first, each to the emptiest part of its layer, those of
// equal weight in random order. Source: Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM
// J. Appl. Math. 17 (1969).
std::vector<int32_t> SpreadEvenly(const LayeredHypergraph& graph, int parts,
                                  std::mt19937_64* random);

// Moves vertices out of parts above their limit into emptier ones, those first that cost the fewest
// words for their weight. Where vertices are heavy a part may stay above its limit.
void RestoreBalance(const std::vector<int64_t>& limits, PartitionState* state);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_PARTITION_STATE_H_
