#include "daemon/sparse/volume.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/invalid_argument.h"

namespace seqpoint::sparse {

absl::Status CheckOwners(const Network& network, const Owners& owners, int parts) {
  if (owners.size() != network.layers.size() + 1) {
    return InvalidArgument("the network has ", network.layers.size(),
                           " layers and its inputs; there are owners for ", owners.size(),
                           " of these");
  }
  for (size_t level = 0; level < owners.size(); ++level) {
    const int32_t neurons = level == 0 ? network.layers[0].columns : network.layers[level - 1].rows;
    if (owners[level].size() != static_cast<size_t>(neurons)) {
      return InvalidArgument("layer ", level, " has ", neurons, " neurons, and owners for ",
                             owners[level].size());
    }
    for (size_t neuron = 0; neuron < owners[level].size(); ++neuron) {
      const int32_t part = owners[level][neuron];
      if (part < 0 || part >= parts) {
        return InvalidArgument("neuron ", neuron, " of layer ", level, " is in part ", part,
                               "; parts are 0 to ", parts - 1);
      }
    }
  }
  return absl::OkStatus();
}

std::vector<Message> SendLists(const Network& network, const Owners& owners, int parts) {
  std::vector<Message> messages;
  for (size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    std::vector<bool> wanted(static_cast<size_t>(layer.columns) * parts, false);
    for (int32_t row = 0; row < layer.rows; ++row) {
      for (int64_t k = layer.row_begin[row]; k < layer.row_begin[row + 1]; ++k) {
        wanted[static_cast<size_t>(layer.column[k]) * parts + owners[l + 1][row]] = true;
      }
    }
    std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> lists;
    for (int32_t column = 0; column < layer.columns; ++column) {
      for (int32_t part = 0; part < parts; ++part) {
        if (part == owners[l][column]) continue;
        if (wanted[static_cast<size_t>(column) * parts + part]) {
          lists[{owners[l][column], part}].push_back(column);
        }
      }
    }
    for (auto& [ranks, neurons] : lists) {
      messages.push_back({static_cast<int>(l), ranks.first, ranks.second, std::move(neurons)});
    }
  }
  return messages;
}

Volume CountVolume(const Network& network, const Owners& owners, int parts, bool training) {
  const int passes = training ? 2 : 1;
  Volume volume;
  volume.layers.resize(network.layers.size());
  volume.sent_words.assign(parts, 0);
  for (const Message& message : SendLists(network, owners, parts)) {
    const auto words = static_cast<int64_t>(message.neurons.size());
    volume.layers[message.layer].words += passes * words;
    volume.layers[message.layer].messages += passes;
    volume.sent_words[message.sender] += words;
    if (training) volume.sent_words[message.receiver] += words;
  }
  for (const LayerVolume& layer : volume.layers) {
    volume.words += layer.words;
    volume.messages += layer.messages;
  }
  volume.largest_sender_words =
      *std::max_element(volume.sent_words.begin(), volume.sent_words.end());
  for (size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    std::vector<int64_t> nonzeros(parts, 0);
    for (int32_t row = 0; row < layer.rows; ++row) {
      nonzeros[owners[l + 1][row]] += layer.row_begin[row + 1] - layer.row_begin[row];
    }
    const double fullest = static_cast<double>(*std::max_element(nonzeros.begin(), nonzeros.end()));
    const double imbalance =
        layer.nonzeros() == 0 ? 0 : fullest * parts / static_cast<double>(layer.nonzeros()) - 1;
    if (imbalance > volume.imbalance) {
      volume.imbalance = imbalance;
      volume.imbalance_layer = static_cast<int>(l);
    }
  }
  return volume;
}

}  // namespace seqpoint::sparse
