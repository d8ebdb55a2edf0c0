#include "client/sgd/local_layer.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace seqpoint::sgd {
namespace {

// Where each neuron stands in `neurons`; -1: it does not.
std::vector<int32_t> Places(const std::vector<int32_t>& neurons, int32_t of) {
  std::vector<int32_t> place(of, -1);
  for (size_t i = 0; i < neurons.size(); ++i) place[neurons[i]] = static_cast<int32_t>(i);
  return place;
}

}  // namespace

std::vector<int32_t> Owned(const std::vector<int32_t>& owners, int rank) {
  std::vector<int32_t> owned;
  for (size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] == rank) owned.push_back(static_cast<int32_t>(i));
  }
  return owned;
}

LocalLayer MakeLocalLayer(const sparse::Layer& layer, const std::vector<int32_t>& before,
                          const std::vector<int32_t>& owners, int rank) {
  LocalLayer local;
  local.rows = Owned(owners, rank);
  local.columns = Owned(before, rank);

  std::map<int, std::set<int32_t>> from, to;  // rank -> neurons
  for (int32_t row = 0; row < layer.rows; ++row) {
    for (int64_t i = layer.row_begin[row]; i < layer.row_begin[row + 1]; ++i) {
      const int32_t column = layer.column[i];
      if (owners[row] == before[column]) continue;
      if (owners[row] == rank) from[before[column]].insert(column);
      if (before[column] == rank) to[owners[row]].insert(column);
    }
  }
  const std::vector<int32_t> place_own = Places(local.columns, layer.columns);
  std::map<int, Peer> peers;
  for (const auto& [owner, neurons] : from) {
    Peer& peer = peers[owner];
    peer.receive_begin = static_cast<int32_t>(local.received.size());
    peer.receive_count = static_cast<int32_t>(neurons.size());
    local.received.insert(local.received.end(), neurons.begin(), neurons.end());
  }
  for (const auto& [consumer, neurons] : to) {
    for (int32_t neuron : neurons) peers[consumer].send.push_back(place_own[neuron]);
  }
  for (auto& [other, peer] : peers) {
    peer.rank = other;
    local.peers.push_back(std::move(peer));
  }

  const std::vector<int32_t> place_received = Places(local.received, layer.columns);
  std::vector<Eigen::Triplet<float, int32_t>> own, remote;
  for (size_t r = 0; r < local.rows.size(); ++r) {
    const int32_t row = local.rows[r];
    for (int64_t i = layer.row_begin[row]; i < layer.row_begin[row + 1]; ++i) {
      const int32_t column = layer.column[i];
      const bool here = place_own[column] >= 0;
      (here ? own : remote)
          .emplace_back(static_cast<int32_t>(r), here ? place_own[column] : place_received[column],
                        layer.weight[i]);
    }
  }
  local.own = Weights(local.rows.size(), local.columns.size());
  local.own.setFromTriplets(own.begin(), own.end());
  local.remote = Weights(local.rows.size(), local.received.size());
  local.remote.setFromTriplets(remote.begin(), remote.end());
  return local;
}

std::vector<float> RowWeights(const LocalLayer& layer) {
  std::vector<float> weights;
  std::vector<std::pair<int32_t, float>> row;  // column of the whole layer
  for (int r = 0; r < layer.own.outerSize(); ++r) {
    row.clear();
    for (Weights::InnerIterator i(layer.own, r); i; ++i) {
      row.emplace_back(layer.columns[i.col()], i.value());
    }
    for (Weights::InnerIterator i(layer.remote, r); i; ++i) {
      row.emplace_back(layer.received[i.col()], i.value());
    }
    std::sort(row.begin(), row.end());
    for (const auto& [column, weight] : row) weights.push_back(weight);
  }
  return weights;
}

}  // namespace seqpoint::sgd
