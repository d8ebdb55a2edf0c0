#include "daemon/sparse/partition_state.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

namespace seqpoint::sparse {
namespace {

// The parts of the vertices of one layer, from its first one on.
std::vector<int32_t> SpreadLayer(const LayeredHypergraph& graph, int layer, int parts,
                                 std::mt19937_64* random) {
  const int32_t begin = graph.vertices_of_layer[layer];
  std::vector<int32_t> order(graph.vertices_of_layer[layer + 1] - begin);
  std::iota(order.begin(), order.end(), begin);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[(*random)() % i]);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return graph.vertex_weight[a] > graph.vertex_weight[b];
  });
  std::vector<int32_t> part_of(order.size());
  std::vector<int64_t> load(parts, 0);
  for (const int32_t vertex : order) {
    const auto emptiest = std::min_element(load.begin(), load.end());
    part_of[vertex - begin] = static_cast<int32_t>(emptiest - load.begin());
    *emptiest += graph.vertex_weight[vertex];
  }
  return part_of;
}

int32_t FullestPart(const PartitionState& state, int layer) {
  int32_t fullest = 0;
  for (int32_t part = 1; part < state.parts(); ++part) {
    if (state.load(layer, part) > state.load(layer, fullest)) fullest = part;
  }
  return fullest;
}

// Moves the vertex out of the part that costs the fewest words for its weight, into a part that is
// within the limit then, else into one that is less full then than this one was; false: there is
// none.
bool MoveOneOut(int layer, int32_t from, int64_t limit, PartitionState* state) {
  const LayeredHypergraph& graph = state->graph();
  const int64_t full = state->load(layer, from);
  std::tuple<bool, double, int32_t, int32_t> best = {true, HUGE_VAL, -1, -1};
  for (const int32_t vertex : state->members(layer, from)) {
    const int64_t weight = graph.vertex_weight[vertex];
    if (weight == 0) continue;
    for (int32_t to = 0; to < state->parts(); ++to) {
      const int64_t then = state->load(layer, to) + weight;
      if (to == from || then >= full) continue;
      const double cost =
          static_cast<double>(state->Change(vertex, to)) / static_cast<double>(weight);
      best = std::min(best, {then > limit, cost, vertex, to});
    }
  }
  const auto [above, cost, vertex, to] = best;
  if (vertex < 0) return false;
  state->Move(vertex, to);
  return true;
}

}  // namespace

PartitionState::PartitionState(const LayeredHypergraph& graph, int parts,
                               std::vector<int32_t> part_of)
    : graph_(graph),
      parts_(parts),
      part_of_(std::move(part_of)),
      layer_of_(graph.LayerOfVertex()),
      pins_in_(static_cast<size_t>(graph.nets()) * parts, 0),
      load_(static_cast<size_t>(graph.layers()) * parts, 0),
      members_(static_cast<size_t>(graph.layers()) * parts),
      place_(graph.vertices()) {
  for (int32_t vertex = 0; vertex < graph.vertices(); ++vertex) {
    const size_t index = Index(layer_of_[vertex], part_of_[vertex]);
    load_[index] += graph.vertex_weight[vertex];
    place_[vertex] = static_cast<int32_t>(members_[index].size());
    members_[index].push_back(vertex);
    for (int64_t k = graph.nets_of_vertex[vertex]; k < graph.nets_of_vertex[vertex + 1]; ++k) {
      int32_t& pins = pins_in_[static_cast<size_t>(graph.net[k]) * parts + part_of_[vertex]];
      if (++pins == 1) words_ += graph.net_weight[graph.net[k]];
    }
  }
  for (int32_t net = 0; net < graph.nets(); ++net) {
    const bool empty =
        graph.owner[net] < 0 && graph.consumers_of_net[net] == graph.consumers_of_net[net + 1];
    if (!empty) words_ -= graph.net_weight[net];
  }
}

int64_t PartitionState::Change(int32_t vertex, int32_t to) const {
  const int32_t from = part_of_[vertex];
  if (from == to) return 0;
  int64_t change = 0;
  for (int64_t k = graph_.nets_of_vertex[vertex]; k < graph_.nets_of_vertex[vertex + 1]; ++k) {
    const int32_t net = graph_.net[k];
    const int32_t* pins = &pins_in_[static_cast<size_t>(net) * parts_];
    change += (static_cast<int64_t>(pins[to] == 0) - static_cast<int64_t>(pins[from] == 1)) *
              graph_.net_weight[net];
  }
  return change;
}

void PartitionState::Move(int32_t vertex, int32_t to) {
  const int32_t from = part_of_[vertex];
  if (from == to) return;
  for (int64_t k = graph_.nets_of_vertex[vertex]; k < graph_.nets_of_vertex[vertex + 1]; ++k) {
    const int32_t net = graph_.net[k];
    int32_t* pins = &pins_in_[static_cast<size_t>(net) * parts_];
    if (--pins[from] == 0) words_ -= graph_.net_weight[net];
    if (++pins[to] == 1) words_ += graph_.net_weight[net];
  }
  const int layer = layer_of_[vertex];
  load_[Index(layer, from)] -= graph_.vertex_weight[vertex];
  load_[Index(layer, to)] += graph_.vertex_weight[vertex];
  std::vector<int32_t>& left = members_[Index(layer, from)];
  left[place_[vertex]] = left.back();
  place_[left.back()] = place_[vertex];
  left.pop_back();
  std::vector<int32_t>& joined = members_[Index(layer, to)];
  place_[vertex] = static_cast<int32_t>(joined.size());
  joined.push_back(vertex);
  part_of_[vertex] = to;
}

std::vector<int64_t> PartLimits(const LayeredHypergraph& graph, int parts, double imbalance) {
  std::mt19937_64 random(1);  // the order of equal rows does not change how full the parts are
  std::vector<int64_t> limits;
  for (int layer = 0; layer < graph.layers(); ++layer) {
    const int32_t begin = graph.vertices_of_layer[layer];
    const std::vector<int32_t> part_of = SpreadLayer(graph, layer, parts, &random);
    std::vector<int64_t> load(parts, 0);
    int64_t all = 0;
    for (size_t i = 0; i < part_of.size(); ++i) {
      const int64_t weight = graph.vertex_weight[begin + static_cast<int32_t>(i)];
      load[part_of[i]] += weight;
      all += weight;
    }
    const auto wanted =
        static_cast<int64_t>(std::floor(static_cast<double>(all) / parts * (1 + imbalance) + 1e-9));
    limits.push_back(std::max(wanted, *std::max_element(load.begin(), load.end())));
  }
  return limits;
}

std::vector<int32_t> SpreadEvenly(const LayeredHypergraph& graph, int parts,
                                  std::mt19937_64* random) {
  std::vector<int32_t> part_of;
  part_of.reserve(graph.vertices());
  for (int layer = 0; layer < graph.layers(); ++layer) {
    const std::vector<int32_t> of_layer = SpreadLayer(graph, layer, parts, random);
    part_of.insert(part_of.end(), of_layer.begin(), of_layer.end());
  }
  return part_of;
}

void RestoreBalance(const std::vector<int64_t>& limits, PartitionState* state) {
  for (int layer = 0; layer < state->graph().layers(); ++layer) {
    int32_t fullest = FullestPart(*state, layer);
    while (state->load(layer, fullest) > limits[layer] &&
           MoveOneOut(layer, fullest, limits[layer], state)) {
      fullest = FullestPart(*state, layer);
    }
  }
}

}  // namespace seqpoint::sparse
