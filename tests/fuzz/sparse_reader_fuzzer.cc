// Fuzz target of the readers of sparse networks: files of strangers. Nothing may crash, a network
// that is read must hold together, and what is written of it reads back as the same.
//
// Input: the first byte chooses the reader, the rest is the file.
#include <stdlib.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/sparse/matrix_text.h"
#include "daemon/sparse/npz.h"
#include "daemon/sparse/owners_text.h"
#include "daemon/sparse/radixnet.h"

namespace seqpoint::sparse {
namespace {

// A number of neurons costs memory without any nonzero: that much a fuzzer need not have.
constexpr int32_t kMostNeurons = 1 << 16;

void Require(bool holds) {
  if (!holds) abort();
}

void RequireWhole(const Layer& layer) {
  Require(layer.rows > 0 && layer.columns > 0 && layer.nonzeros() > 0);
  Require(layer.row_begin.size() == static_cast<size_t>(layer.rows) + 1);
  Require(layer.row_begin.front() == 0 && layer.row_begin.back() == layer.nonzeros());
  Require(layer.weight.size() == layer.column.size());
  for (int32_t row = 0; row < layer.rows; ++row) {
    for (int64_t k = layer.row_begin[row]; k < layer.row_begin[row + 1]; ++k) {
      Require(layer.column[k] >= 0 && layer.column[k] < layer.columns);
      Require(k == layer.row_begin[row] || layer.column[k] > layer.column[k - 1]);
      Require(std::isfinite(layer.weight[k]));
    }
  }
}

void CheckNetwork(std::vector<MatrixEntries> matrices) {
  for (const MatrixEntries& matrix : matrices) {
    if (matrix.rows > kMostNeurons || matrix.columns > kMostNeurons) return;
    for (const MatrixEntries::Entry& entry : matrix.entries) {
      if (entry.row >= kMostNeurons || entry.column >= kMostNeurons) return;
    }
  }
  const auto network = MakeNetwork(std::move(matrices));
  if (!network.ok()) {
    Require(network.status().message().size() < 2000);
    return;
  }
  for (size_t l = 0; l < network->layers.size(); ++l) {
    RequireWhole(network->layers[l]);
    Require(l == 0 || network->layers[l].columns == network->layers[l - 1].rows);
  }
  const Layer& first = network->layers[0];
  auto again = ReadTsv(WriteTsv(first), "again");
  Require(again.ok());
  again->rows = first.rows;
  again->columns = first.columns;
  const auto same = MakeNetwork({*std::move(again)});
  Require(same.ok() && same->layers[0].column == first.column &&
          same->layers[0].row_begin == first.row_begin);
}

void CheckOne(absl::StatusOr<MatrixEntries> matrix) {
  if (matrix.ok()) CheckNetwork({*std::move(matrix)});
}

}  // namespace
}  // namespace seqpoint::sparse

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace seqpoint::sparse;
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const std::string_view file = input.substr(size == 0 ? 0 : 1);
  switch (size == 0 ? 0 : bytes[0] % 6) {
    case 0:
      CheckOne(ReadTsv(file, "f"));
      break;
    case 1:
      CheckOne(ReadMatrixMarket(file, "f"));
      break;
    case 2:
      CheckOne(ReadMatrixMarket(
          "%%MatrixMarket matrix coordinate real symmetric\n" + std::string(file), "f"));
      break;
    case 3: {
      auto matrices = ReadNpz(file, "f");
      if (matrices.ok()) CheckNetwork(*std::move(matrices));
      break;
    }
    case 4: {
      const auto owners = ReadOwners(file, "f");
      if (owners.ok()) Require(*ReadOwners(WriteOwners(*owners), "f") == *owners);
      break;
    }
    case 5: {
      const RadixNetSize network{.neurons = 32, .layers = 2};
      const auto permutations = ReadPermutations(file, "f", network);
      if (permutations.ok()) RequireWhole(MakeRadixNet(network, *permutations).layers[1]);
      (void)ParseRadixNetSize(file);
      break;
    }
  }
  return 0;
}
