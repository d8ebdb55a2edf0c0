#include "daemon/sparse/baselines.h"

#include <algorithm>
#include <random>
#include <utility>

#include "daemon/base/status_macros.h"
#include "daemon/sparse/layered_hypergraph.h"
#include "daemon/sparse/partition_state.h"

namespace seqpoint::sparse {
namespace {

std::vector<int32_t> BlocksOfLayer(const Layer& layer, int parts) {
  std::vector<int32_t> part_of(layer.rows);
  for (int32_t row = 0; row < layer.rows; ++row) {
    // Where the middle of the row lies among all nonzeros.
    const double middle =
        0.5 * static_cast<double>(layer.row_begin[row] + layer.row_begin[row + 1]);
    const double part = middle * parts / static_cast<double>(layer.nonzeros());
    part_of[row] = std::min(static_cast<int32_t>(part), parts - 1);
  }
  return part_of;
}

// With owners of the layer before as given, or without regard to them (null). Parts of the rows.
absl::StatusOr<std::vector<int32_t>> PartitionLayer(const Layer& layer, int parts, double imbalance,
                                                    uint64_t seed,
                                                    const std::vector<int32_t>* owners,
                                                    const HypergraphPartitioner& partitioner) {
  if (parts == 1) return std::vector<int32_t>(layer.rows, 0);
  Hypergraph graph;
  for (int32_t row = 0; row < layer.rows; ++row) {
    graph.vertex_weight.push_back(layer.row_begin[row + 1] - layer.row_begin[row]);
  }
  graph.fixed.assign(layer.rows, -1);
  if (owners != nullptr) {
    // All neurons of a part are one fixed vertex: it has no weight, and the cut is the same.
    for (int32_t part = 0; part < parts; ++part) {
      graph.vertex_weight.push_back(0);
      graph.fixed.push_back(part);
    }
  }
  const auto [begin, rows] = RowsOfColumns(layer);
  graph.pins_of_net.push_back(0);
  for (int32_t column = 0; column < layer.columns; ++column) {
    graph.pin.insert(graph.pin.end(), rows.begin() + begin[column],
                     rows.begin() + begin[column + 1]);
    if (owners != nullptr) graph.pin.push_back(layer.rows + (*owners)[column]);
    graph.pins_of_net.push_back(static_cast<int64_t>(graph.pin.size()));
  }
  absl::StatusOr<std::vector<int32_t>> part_of = partitioner(graph, parts, imbalance, seed);
  if (part_of.ok()) part_of->resize(layer.rows);
  return part_of;
}

// OwnersOfRows() says which way.
void PlaceInputs(const Network& network, int parts, Owners* owners) {
  const Layer& layer = network.layers[0];
  const auto [begin, rows] = RowsOfColumns(layer);
  std::vector<int32_t>& inputs = (*owners)[0];
  inputs.assign(layer.columns, 0);
  std::vector<int64_t> count(parts, 0);
  for (int32_t column = 0; column < layer.columns; ++column) {
    int32_t best = -1;
    for (int64_t k = begin[column]; k < begin[column + 1]; ++k) {
      const int32_t part = (*owners)[1][rows[k]];
      if (best < 0 || count[part] < count[best]) best = part;
    }
    if (best < 0) {
      best = static_cast<int32_t>(std::min_element(count.begin(), count.end()) - count.begin());
    }
    inputs[column] = best;
    ++count[best];
  }
}

}  // namespace

Owners OwnersOfRows(const Network& network, int parts, const std::vector<int32_t>& part_of) {
  Owners owners(1);
  auto first = part_of.begin();
  for (const Layer& layer : network.layers) {
    owners.emplace_back(first, first + layer.rows);
    first += layer.rows;
  }
  PlaceInputs(network, parts, &owners);
  return owners;
}

Owners RandomParts(const Network& network, int parts, uint64_t seed) {
  const LayeredHypergraph graph = MakeHypergraph(network);
  std::mt19937_64 random(seed);
  const std::vector<int32_t> part_of = SpreadEvenly(graph, parts, &random);
  return OwnersOfRows(network, parts, part_of);
}

Owners BlockParts(const Network& network, int parts) {
  const int32_t inputs = network.layers[0].columns;
  Owners owners(1, std::vector<int32_t>(inputs));
  for (int32_t i = 0; i < inputs; ++i) {
    owners[0][i] = static_cast<int32_t>(int64_t{i} * parts / inputs);
  }
  for (const Layer& layer : network.layers) owners.push_back(BlocksOfLayer(layer, parts));
  return owners;
}

absl::StatusOr<Owners> LayerByLayer(const Network& network, int parts, double imbalance,
                                    uint64_t seed, bool alone,
                                    const HypergraphPartitioner& partitioner,
                                    const std::function<bool(size_t layer)>& next) {
  Owners owners(1);
  for (size_t l = 0; l < network.layers.size(); ++l) {
    if (!next(l)) return absl::CancelledError();
    SEQPOINT_ASSIGN_OR_RETURN(std::vector<int32_t> part_of,
                              PartitionLayer(network.layers[l], parts, imbalance, seed + l,
                                             alone || l == 0 ? nullptr : &owners[l], partitioner));
    owners.push_back(std::move(part_of));
  }
  PlaceInputs(network, parts, &owners);
  return owners;
}

}  // namespace seqpoint::sparse
