#include "daemon/sparse/radixnet.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/invalid_argument.h"

namespace seqpoint::sparse {
namespace {

constexpr int kCopies = 16;  // neurons of a residue class, as published
constexpr int32_t kMostNeurons = 1 << 24;
constexpr float kWeight = 1.0F / 16;

}  // namespace

int RadixNetSize::block_layers() const {
  return std::bit_width(static_cast<uint32_t>(residues())) - 1;
}

absl::StatusOr<RadixNetSize> ParseRadixNetSize(std::string_view words) {
  const absl::string_view text(words.data(), words.size());
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('x', 1));
  RadixNetSize size;
  if (!absl::SimpleAtoi(parts.first, &size.neurons) ||
      !absl::SimpleAtoi(parts.second, &size.layers)) {
    return InvalidArgument("\"", text, "\" is not NEURONSxLAYERS, such as 1024x120");
  }
  if (size.neurons < 2 * kCopies || size.neurons > kMostNeurons ||
      !std::has_single_bit(static_cast<uint32_t>(size.neurons))) {
    return InvalidArgument("a RadiX-Net has 16 times a power of two neurons, 32 to ", kMostNeurons,
                           ", not ", size.neurons);
  }
  if (size.layers < 1 || int64_t{size.layers} * size.neurons > (int64_t{1} << 31) / (2 * kCopies)) {
    return InvalidArgument(size.layers, " layers of ", size.neurons,
                           " neurons: at least one layer, and at most 2^31 nonzeros");
  }
  return size;
}

absl::StatusOr<Permutations> ReadPermutations(std::string_view bytes, const std::string& file,
                                              const RadixNetSize& size) {
  const absl::string_view text(bytes.data(), bytes.size());
  Permutations permutations;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    const auto error = [&](const auto&... what) {
      return InvalidArgument(file, ":", line_number, ": ", what...);
    };
    if (words.size() != static_cast<size_t>(size.neurons)) {
      return error(words.size(), " numbers in a row, and the network has ", size.neurons,
                   " neurons");
    }
    std::vector<int32_t> row(words.size());
    std::vector<int> copies(size.residues(), 0);
    for (size_t i = 0; i < words.size(); ++i) {
      if (!absl::SimpleAtoi(words[i], &row[i]) || row[i] < 0 || row[i] >= size.residues()) {
        return error("number ", i + 1, " of the row is \"", words[i].substr(0, 20),
                     "\", not a whole number from 0 to ", size.residues() - 1);
      }
      if (++copies[row[i]] > kCopies) {
        return error("the number ", row[i], " is there more than ", kCopies, " times");
      }
    }
    permutations.push_back(std::move(row));
  }
  if (permutations.size() < static_cast<size_t>(size.blocks())) {
    return InvalidArgument(file, ": ", permutations.size(), " rows are enough for ",
                           permutations.size() * size.block_layers(), " layers, not for ",
                           size.layers, "; a row is for ", size.block_layers(), " layers");
  }
  return permutations;
}

Permutations DrawPermutations(const RadixNetSize& size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> row(size.neurons);
  for (int32_t i = 0; i < size.neurons; ++i) row[i] = i % size.residues();
  Permutations permutations = {row};
  while (permutations.size() < static_cast<size_t>(size.blocks())) {
    // Not std::shuffle, whose result differs between libraries.
    for (size_t i = row.size() - 1; i > 0; --i) std::swap(row[i], row[random() % (i + 1)]);
    permutations.push_back(row);
  }
  return permutations;
}

Network MakeRadixNet(const RadixNetSize& size, const Permutations& permutations) {
  Network network;
  for (int k = 0; k < size.layers; ++k) {
    const std::vector<int32_t>& residue_of = permutations[k / size.block_layers()];
    std::vector<std::vector<int32_t>> sources(size.residues());
    for (int32_t i = 0; i < size.neurons; ++i) sources[residue_of[i]].push_back(i);
    const int32_t step = 1 << (k % size.block_layers());

    Layer layer{.rows = size.neurons, .columns = size.neurons};
    layer.row_begin.push_back(0);
    for (int32_t j = 0; j < size.neurons; ++j) {
      const std::vector<int32_t>& one = sources[j % size.residues()];
      const std::vector<int32_t>& other = sources[(j + step) % size.residues()];
      std::merge(one.begin(), one.end(), other.begin(), other.end(),
                 std::back_inserter(layer.column));
      layer.row_begin.push_back(layer.nonzeros());
    }
    layer.weight.assign(layer.column.size(), kWeight);
    network.layers.push_back(std::move(layer));
  }
  return network;
}

}  // namespace seqpoint::sparse
