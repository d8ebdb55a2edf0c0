#include "client/sparse_input.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/sparse/matrix_text.h"
#include "daemon/sparse/npz.h"
#include "daemon/sparse/radixnet.h"

namespace seqpoint::client {

void AddSparseInput(CLI::App& app, SparseInputOptions* options) {
  app.add_option("MATRIX", options->files,
                 "the layers, first one first: Matrix Market (.mtx), GraphChallenge (.tsv), "
                 "NumPy (.npz)");
  app.add_option("--neurons", options->neurons, "of layers of .tsv files, which do not say it")
      ->check(CLI::PositiveNumber);
  app.add_option("--radixnet", options->radixnet,
                 "make a RadiX-Net instead, such as 1024x120 (neurons x layers)");
  app.add_option("--permutations", options->permutations,
                 "of the RadiX-Net: a row for each block; without it they are drawn");
  app.add_option("--seed", options->seed, "of what is drawn");
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  const std::unique_ptr<FILE, decltype(&fclose)> file(fopen(path.c_str(), "rb"), &fclose);
  std::string text;
  char piece[1 << 16];
  while (file != nullptr) {
    const size_t size = fread(piece, 1, sizeof piece, file.get());
    if (size == 0) break;
    text.append(piece, size);
  }
  if (file == nullptr || ferror(file.get()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  }
  return text;
}

namespace {

absl::StatusOr<sparse::Network> Generate(const SparseInputOptions& options) {
  const auto size = sparse::ParseRadixNetSize(options.radixnet);
  if (!size.ok()) return size.status();
  if (options.permutations.empty()) {
    return sparse::MakeRadixNet(*size, sparse::DrawPermutations(*size, options.seed));
  }
  const auto text = ReadWhole(options.permutations);
  if (!text.ok()) return text.status();
  const auto permutations = sparse::ReadPermutations(*text, options.permutations, *size);
  if (!permutations.ok()) return permutations.status();
  return sparse::MakeRadixNet(*size, *permutations);
}

}  // namespace

absl::StatusOr<sparse::Network> ReadSparseInput(const SparseInputOptions& options) {
  if (options.files.empty() == options.radixnet.empty()) {
    return absl::InvalidArgumentError(
        options.files.empty() ? "no network: give files of matrices, or --radixnet 1024x120"
                              : "two networks: give files of matrices or --radixnet, not both");
  }
  if (!options.radixnet.empty()) return Generate(options);
  std::vector<sparse::MatrixEntries> matrices;
  for (const std::string& file : options.files) {
    const auto bytes = ReadWhole(file);
    if (!bytes.ok()) return bytes.status();
    if (absl::EndsWith(file, ".npz")) {
      auto several = sparse::ReadNpz(*bytes, file);
      if (!several.ok()) return several.status();
      for (sparse::MatrixEntries& matrix : *several) matrices.push_back(std::move(matrix));
      continue;
    }
    const bool market = absl::StartsWith(*bytes, "%%MatrixMarket");
    auto matrix = market ? sparse::ReadMatrixMarket(*bytes, file) : sparse::ReadTsv(*bytes, file);
    if (!matrix.ok()) return matrix.status();
    matrices.push_back(*std::move(matrix));
  }
  return sparse::MakeNetwork(std::move(matrices), options.neurons);
}

}  // namespace seqpoint::client
