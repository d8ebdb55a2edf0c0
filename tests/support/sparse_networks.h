// Networks for tests: random ones, small or not, and owners drawn at random.
// Threading: free functions.
#ifndef TESTS_SUPPORT_SPARSE_NETWORKS_H_
#define TESTS_SUPPORT_SPARSE_NETWORKS_H_

#include <algorithm>
#include <random>
#include <vector>

#include "daemon/sparse/network.h"

namespace seqpoint::sparse {

// Layers with these numbers of neurons, the inputs first; each neuron has about `degree` of its
// inputs, and at least one.
inline Network RandomNetwork(const std::vector<int32_t>& neurons, double degree,
                             std::mt19937_64* random) {
  Network network;
  for (size_t l = 1; l < neurons.size(); ++l) {
    Layer layer{.rows = neurons[l], .columns = neurons[l - 1]};
    layer.row_begin.push_back(0);
    for (int32_t row = 0; row < layer.rows; ++row) {
      for (int32_t column = 0; column < layer.columns; ++column) {
        const double lot = static_cast<double>((*random)() >> 11) * 0x1p-53;
        const bool last_chance =
            column + 1 == layer.columns && layer.nonzeros() == layer.row_begin.back();
        if (lot * layer.columns < degree || last_chance) layer.column.push_back(column);
      }
      layer.row_begin.push_back(layer.nonzeros());
    }
    layer.weight.assign(layer.column.size(), 0.5F);
    network.layers.push_back(std::move(layer));
  }
  return network;
}

inline Owners RandomOwners(const Network& network, int parts, std::mt19937_64* random) {
  Owners owners;
  for (size_t level = 0; level <= network.layers.size(); ++level) {
    owners.emplace_back(level == 0 ? network.layers[0].columns : network.layers[level - 1].rows);
    for (int32_t& part : owners.back()) part = static_cast<int32_t>((*random)() % parts);
  }
  return owners;
}

}  // namespace seqpoint::sparse

#endif  // TESTS_SUPPORT_SPARSE_NETWORKS_H_
