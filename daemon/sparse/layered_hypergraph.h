// A sparse network as one hypergraph over all of its layers.
//
// Vertex: rows of one layer's matrix that stay together, at first one row each. Net: a neuron with
// those who consume it; its owner is the vertex of its own row, in the layer before, and the inputs
// of the first layer have none. A net that lies in n parts costs n - 1 words each pass, so the cut
// (connectivity - 1) is the number of words that the network sends. docs/using/partition.md, "The
// method".
//
// Sources: Catalyurek, Aykanat, "Hypergraph-Partitioning-Based Decomposition for Parallel
// Sparse-Matrix Vector Multiplication", IEEE TPDS 10 (1999), the column-net model of one matrix;
// Demirci, Ferhatosmanoglu, ICS 2021, of a network layer by layer.
//
// Values; a const object may be read by any number of threads.
#ifndef SEQPOINT_DAEMON_SPARSE_LAYERED_HYPERGRAPH_H_
#define SEQPOINT_DAEMON_SPARSE_LAYERED_HYPERGRAPH_H_

#include <stdint.h>

#include <random>
#include <utility>
#include <vector>

#include "daemon/sparse/network.h"

namespace seqpoint::sparse {

struct LayeredHypergraph {
  // Vertices and nets of a layer lie together: layer l has [begin[l], begin[l + 1]).
  std::vector<int32_t> vertices_of_layer;
  std::vector<int32_t> nets_of_layer;
  std::vector<int64_t> vertex_weight;  // nonzeros
  std::vector<int64_t> net_weight;     // neurons
  std::vector<int32_t> owner;          // of each net; -1: none
  // Consumers of net n: consumer[consumers_of_net[n]] to [n + 1]. Each once; the owner is not one.
  std::vector<int64_t> consumers_of_net;
  std::vector<int32_t> consumer;
  // The nets of vertex v, as consumer or owner: net[nets_of_vertex[v]] to [v + 1].
  std::vector<int64_t> nets_of_vertex;
  std::vector<int32_t> net;

  int layers() const { return static_cast<int>(vertices_of_layer.size()) - 1; }
  int32_t vertices() const { return static_cast<int32_t>(vertex_weight.size()); }
  int32_t nets() const { return static_cast<int32_t>(net_weight.size()); }
  int64_t pins() const { return static_cast<int64_t>(net.size()); }
  std::vector<int32_t> LayerOfVertex() const;
};

LayeredHypergraph MakeHypergraph(const Network& network);

// The rows that have a nonzero in column c: second[first[c]] to [first[c + 1]], ascending.
std::pair<std::vector<int64_t>, std::vector<int32_t>> RowsOfColumns(const Layer& layer);

// How a coarser hypergraph comes from a finer one.
struct Coarsening {
  LayeredHypergraph coarse;
  std::vector<int32_t> coarse_of;  // for each finer vertex
};

struct CoarseningLimits {
  // Two vertices become one where they consume at least this share of the one's nets together.
  double common_nets = 0;
  std::vector<int64_t> most_weight;            // of a vertex, for each layer
  const std::vector<int32_t>* part = nullptr;  // only vertices of one part become one; null: any
};

// Merges pairs of vertices of a layer, those with the most nets in common first for each.
Coarsening Coarsen(const LayeredHypergraph& fine, const CoarseningLimits& limits,
                   std::mt19937_64* random);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_LAYERED_HYPERGRAPH_H_
