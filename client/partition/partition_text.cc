#include "client/partition/partition_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/text/plain_text.h"
#include "daemon/base/json_string.h"

namespace seqpoint::client {
namespace {

using sparse::LayerVolume;
using sparse::Network;
using sparse::Volume;

std::string Percent(double share) { return absl::StrFormat("%.2f %%", 100 * share); }

std::string Headline(const Network& network, const PartitionAnswer& answer) {
  int64_t nonzeros = 0;
  for (const sparse::Layer& layer : network.layers) nonzeros += layer.nonzeros();
  return absl::StrCat(FormatCount(static_cast<int64_t>(network.layers.size()), "layer"), ", ",
                      FormatCount(nonzeros, "nonzero"), ", ",
                      FormatCount(answer.options.parts, "part"), ", ",
                      answer.options.training ? "forward and backward pass" : "forward pass",
                      " of one sample, ", absl::StrFormat("%.1f s", answer.seconds));
}

std::string Comparison(const PartitionAnswer& answer) {
  Table table({"PARTITION", ">WORDS", ">MESSAGES", ">LARGEST SENDER", ">IMBALANCE", ">OF WORDS"});
  const auto add = [&](const std::string& name, const Volume& volume) {
    const double share = volume.words == 0 ? 1
                                           : static_cast<double>(answer.plan.volume.words) /
                                                 static_cast<double>(volume.words);
    table.AddRow({name, FormatCount(volume.words), FormatCount(volume.messages),
                  FormatCount(volume.largest_sender_words), Percent(volume.imbalance),
                  FormatShare(share)});
  };
  add("this one", answer.plan.volume);
  if (answer.plan.layer_by_layer.has_value()) add("layer by layer", *answer.plan.layer_by_layer);
  add("blocks", answer.plan.blocks);
  add("random", answer.plan.random);
  return table.ToString();
}

std::string Layers(const Network& network, const PartitionAnswer& answer) {
  Table table({">LAYER", ">NEURONS", ">NONZEROS", ">WORDS", ">MESSAGES"});
  for (size_t l = 0; l < network.layers.size(); ++l) {
    const LayerVolume& layer = answer.plan.volume.layers[l];
    table.AddRow({FormatCount(static_cast<int64_t>(l) + 1), FormatCount(network.layers[l].rows),
                  FormatCount(network.layers[l].nonzeros()), FormatCount(layer.words),
                  FormatCount(layer.messages)});
  }
  return table.ToString();
}

}  // namespace

std::string PartitionText(const Network& network, const PartitionAnswer& answer) {
  std::string text = absl::StrCat(Headline(network, answer), "\n\n", Comparison(answer), "\n",
                                  Layers(network, answer));
  for (const std::string& note : answer.plan.notes) {
    absl::StrAppend(&text, "\n", Wrap("note: ", note));
  }
  return text;
}

std::string PartitionJson(const PartitionAnswer& answer) {
  const Volume& volume = answer.plan.volume;
  const auto words_of = [](const LayerVolume& layer) {
    return absl::StrCat("{\"words\": ", layer.words, ", \"messages\": ", layer.messages, "}");
  };
  std::vector<std::string> layers;
  layers.reserve(volume.layers.size());
  for (const LayerVolume& layer : volume.layers) layers.push_back(words_of(layer));
  std::vector<std::string> notes;
  notes.reserve(answer.plan.notes.size());
  for (const std::string& note : answer.plan.notes) notes.push_back(JsonString(note));
  const std::string layer_by_layer = answer.plan.layer_by_layer.has_value()
                                         ? absl::StrCat(answer.plan.layer_by_layer->words)
                                         : "null";
  return absl::StrCat(
      "{\"words\": ", volume.words, ", \"messages\": ", volume.messages,
      ", \"largest_sender_words\": ", volume.largest_sender_words,
      absl::StrFormat(", \"imbalance\": %.9g", volume.imbalance),
      ", \"parts\": ", answer.options.parts,
      ", \"training\": ", answer.options.training ? "true" : "false", ",\n \"layers\": [",
      absl::StrJoin(layers, ", "), "],\n \"baselines\": {\"random\": ", answer.plan.random.words,
      ", \"blocks\": ", answer.plan.blocks.words, ", \"layer_by_layer\": ", layer_by_layer,
      absl::StrFormat("},\n \"seconds\": %.3f", answer.seconds),
      ", \"stopped\": ", answer.plan.stopped ? "true" : "false", ", \"notes\": [",
      absl::StrJoin(notes, ", "), "]}\n");
}

}  // namespace seqpoint::client
