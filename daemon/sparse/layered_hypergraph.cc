#include "daemon/sparse/layered_hypergraph.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace seqpoint::sparse {
namespace {

// A neuron that feeds more vertices than this says little about which of them are alike, and
// comparing them all would cost the square.
constexpr int64_t kMostCompared = 512;

void ListNetsOfVertices(LayeredHypergraph* graph) {
  std::vector<int64_t>& begin = graph->nets_of_vertex;
  begin.assign(static_cast<size_t>(graph->vertices()) + 1, 0);
  for (const int32_t vertex : graph->consumer) ++begin[vertex + 1];
  for (const int32_t vertex : graph->owner) {
    if (vertex >= 0) ++begin[vertex + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  graph->net.resize(begin.back());
  std::vector<int64_t> next(begin.begin(), begin.end() - 1);
  for (int32_t net = 0; net < graph->nets(); ++net) {
    if (graph->owner[net] >= 0) graph->net[next[graph->owner[net]]++] = net;
    for (int64_t k = graph->consumers_of_net[net]; k < graph->consumers_of_net[net + 1]; ++k) {
      graph->net[next[graph->consumer[k]]++] = net;
    }
  }
}

// For each vertex the one that it becomes, numbered from 0 on, layer by layer.
class Matching {
 public:
  Matching(const LayeredHypergraph& fine, const CoarseningLimits& limits)
      : fine_(fine), limits_(limits), coarse_of_(fine.vertices(), -1), common_(fine.vertices()) {}

  void MatchLayer(int layer, std::mt19937_64* random) {
    const int32_t begin = fine_.vertices_of_layer[layer];
    std::vector<int32_t> order(fine_.vertices_of_layer[layer + 1] - begin);
    std::iota(order.begin(), order.end(), begin);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[(*random)() % i]);
    for (const int32_t vertex : order) {
      if (coarse_of_[vertex] >= 0) continue;
      const int32_t partner = Partner(vertex, layer);
      coarse_of_[vertex] = count_;
      if (partner >= 0) coarse_of_[partner] = count_;
      ++count_;
    }
  }

  int32_t count() const { return count_; }
  std::vector<int32_t> Take() { return std::move(coarse_of_); }

 private:
  int32_t Partner(int32_t vertex, int layer) {
    int64_t own = 0;
    met_.clear();
    for (int64_t k = fine_.nets_of_vertex[vertex]; k < fine_.nets_of_vertex[vertex + 1]; ++k) {
      const int32_t net = fine_.net[k];
      if (fine_.owner[net] == vertex) continue;
      own += fine_.net_weight[net];
      const int64_t begin = fine_.consumers_of_net[net];
      const int64_t end = fine_.consumers_of_net[net + 1];
      if (end - begin > kMostCompared) continue;
      for (int64_t pin = begin; pin < end; ++pin) {
        const int32_t other = fine_.consumer[pin];
        if (coarse_of_[other] >= 0 || other == vertex) continue;
        if (limits_.part != nullptr && (*limits_.part)[other] != (*limits_.part)[vertex]) continue;
        if (common_[other] == 0) met_.push_back(other);
        common_[other] += fine_.net_weight[net];
      }
    }
    int32_t best = -1;
    int64_t most = 0;
    for (const int32_t other : met_) {
      if (common_[other] > most &&
          static_cast<double>(common_[other]) >= limits_.common_nets * static_cast<double>(own) &&
          fine_.vertex_weight[vertex] + fine_.vertex_weight[other] <= limits_.most_weight[layer]) {
        most = common_[other];
        best = other;
      }
      common_[other] = 0;
    }
    return best;
  }

  const LayeredHypergraph& fine_;
  const CoarseningLimits& limits_;
  std::vector<int32_t> coarse_of_;
  int32_t count_ = 0;
  std::vector<int64_t> common_;  // nets in common with the vertex that is looked at
  std::vector<int32_t> met_;     // those for which this is not 0
};

// Appends the nets of a layer, those with equal pins as one.
class NetMerger {
 public:
  explicit NetMerger(LayeredHypergraph* graph) : graph_(*graph) {}

  void StartLayer() { seen_.clear(); }

  // `consumers` ascend, none twice.
  void Add(int32_t owner, absl::Span<const int32_t> consumers, int64_t weight) {
    const size_t hash = absl::HashOf(owner, consumers);
    const auto [found, is_new] = seen_.try_emplace(hash, graph_.nets());
    if (!is_new) {
      const int32_t net = found->second;
      const int64_t begin = graph_.consumers_of_net[net];
      const int64_t count = graph_.consumers_of_net[net + 1] - begin;
      if (graph_.owner[net] == owner &&
          absl::MakeConstSpan(graph_.consumer).subspan(begin, count) == consumers) {
        graph_.net_weight[net] += weight;
        return;
      }
    }
    graph_.owner.push_back(owner);
    graph_.net_weight.push_back(weight);
    graph_.consumer.insert(graph_.consumer.end(), consumers.begin(), consumers.end());
    graph_.consumers_of_net.push_back(static_cast<int64_t>(graph_.consumer.size()));
  }

 private:
  LayeredHypergraph& graph_;
  absl::flat_hash_map<size_t, int32_t> seen_;  // by hash; of two that collide the first
};

}  // namespace

std::vector<int32_t> LayeredHypergraph::LayerOfVertex() const {
  std::vector<int32_t> layer_of(vertices());
  for (int layer = 0; layer < layers(); ++layer) {
    std::fill(layer_of.begin() + vertices_of_layer[layer],
              layer_of.begin() + vertices_of_layer[layer + 1], layer);
  }
  return layer_of;
}

std::pair<std::vector<int64_t>, std::vector<int32_t>> RowsOfColumns(const Layer& layer) {
  std::vector<int64_t> begin(static_cast<size_t>(layer.columns) + 1, 0);
  for (const int32_t column : layer.column) ++begin[column + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<int64_t> next(begin.begin(), begin.end() - 1);
  std::vector<int32_t> rows(layer.column.size());
  for (int32_t row = 0; row < layer.rows; ++row) {
    for (int64_t k = layer.row_begin[row]; k < layer.row_begin[row + 1]; ++k) {
      rows[next[layer.column[k]]++] = row;
    }
  }
  return {std::move(begin), std::move(rows)};
}

LayeredHypergraph MakeHypergraph(const Network& network) {
  LayeredHypergraph graph;
  graph.vertices_of_layer = {0};
  graph.nets_of_layer = {0};
  graph.consumers_of_net = {0};
  for (size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    const int32_t first_row = graph.vertices_of_layer.back();
    const int32_t first_owner = l == 0 ? 0 : graph.vertices_of_layer[l - 1];
    const auto [begin, rows] = RowsOfColumns(layer);
    const auto before = static_cast<int64_t>(graph.consumer.size());
    for (int32_t column = 0; column < layer.columns; ++column) {
      graph.owner.push_back(l == 0 ? -1 : first_owner + column);
      graph.net_weight.push_back(1);
      graph.consumers_of_net.push_back(before + begin[column + 1]);
    }
    for (const int32_t row : rows) graph.consumer.push_back(first_row + row);
    for (int32_t row = 0; row < layer.rows; ++row) {
      graph.vertex_weight.push_back(layer.row_begin[row + 1] - layer.row_begin[row]);
    }
    graph.vertices_of_layer.push_back(graph.vertices());
    graph.nets_of_layer.push_back(graph.nets());
  }
  ListNetsOfVertices(&graph);
  return graph;
}

Coarsening Coarsen(const LayeredHypergraph& fine, const CoarseningLimits& limits,
                   std::mt19937_64* random) {
  Coarsening result;
  LayeredHypergraph& coarse = result.coarse;
  Matching matching(fine, limits);
  coarse.vertices_of_layer = {0};
  for (int layer = 0; layer < fine.layers(); ++layer) {
    matching.MatchLayer(layer, random);
    coarse.vertices_of_layer.push_back(matching.count());
  }
  result.coarse_of = matching.Take();
  coarse.vertex_weight.assign(matching.count(), 0);
  for (int32_t vertex = 0; vertex < fine.vertices(); ++vertex) {
    coarse.vertex_weight[result.coarse_of[vertex]] += fine.vertex_weight[vertex];
  }

  coarse.nets_of_layer = {0};
  coarse.consumers_of_net = {0};
  NetMerger merger(&coarse);
  std::vector<int32_t> consumers;
  for (int layer = 0; layer < fine.layers(); ++layer) {
    merger.StartLayer();
    for (int32_t net = fine.nets_of_layer[layer]; net < fine.nets_of_layer[layer + 1]; ++net) {
      consumers.clear();
      for (int64_t k = fine.consumers_of_net[net]; k < fine.consumers_of_net[net + 1]; ++k) {
        consumers.push_back(result.coarse_of[fine.consumer[k]]);
      }
      std::sort(consumers.begin(), consumers.end());
      consumers.erase(std::unique(consumers.begin(), consumers.end()), consumers.end());
      const int32_t owner = fine.owner[net] < 0 ? -1 : result.coarse_of[fine.owner[net]];
      // A net with one pin is never cut.
      if (consumers.empty() || (owner < 0 && consumers.size() == 1)) continue;
      merger.Add(owner, consumers, fine.net_weight[net]);
    }
    coarse.nets_of_layer.push_back(coarse.nets());
  }
  ListNetsOfVertices(&coarse);
  return result;
}

}  // namespace seqpoint::sparse
