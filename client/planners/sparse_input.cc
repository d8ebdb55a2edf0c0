#include "client/planners/sparse_input.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/files/whole_file.h"
#include "daemon/sparse/matrix_text.h"
#include "daemon/sparse/npz.h"
#include "daemon/sparse/radixnet.h"
#include "proto/status_macros.h"

namespace seqpoint::client {

void AddSparseInput(CLI::App& app, SparseInputOptions* options) {
  app.add_option("MATRIX", options->files,
                 "the layers in their order: Matrix Market (.mtx), GraphChallenge (.tsv), "
                 "NumPy (.npz)");
  app.add_option("--neurons", options->neurons, "neurons of a layer; .tsv files do not say it")
      ->check(CLI::PositiveNumber);
  app.add_option("--radixnet", options->radixnet,
                 "make a RadiX-Net instead, such as 1024x120 (neurons x layers)");
  app.add_option("--permutations", options->permutations,
                 "file with the permutations of the RadiX-Net, a row for each block; default: "
                 "drawn at random");
  app.add_option("--seed", options->seed, "seed of random numbers");
  app.callback([options] {
    if (options->files.empty() != options->radixnet.empty()) return;
    throw CLI::ValidationError(
        options->files.empty() ? "no network: give files of matrices, or --radixnet 1024x120"
                               : "two networks: give files of matrices or --radixnet, not both");
  });
}

namespace {

constexpr const char* kZip = "PK\x03\x04";  // what an .npz begins with
constexpr const char* kDigits = "0123456789";

absl::StatusOr<sparse::Network> Generate(const SparseInputOptions& options,
                                         std::vector<std::string>* notes) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto size, sparse::ParseRadixNetSize(options.radixnet));
  if (options.permutations.empty()) {
    if (notes != nullptr && size.blocks() > 1) {
      notes->push_back(absl::StrCat("the permutations of the RadiX-Net were drawn with seed ",
                                    options.seed, "; the published ones need --permutations"));
    }
    return sparse::MakeRadixNet(size, sparse::DrawPermutations(size, options.seed));
  }
  SEQPOINT_ASSIGN_OR_RETURN(const auto text, ReadWhole(options.permutations));
  SEQPOINT_ASSIGN_OR_RETURN(const auto permutations,
                            sparse::ReadPermutations(text, options.permutations, size));
  return sparse::MakeRadixNet(size, permutations);
}

}  // namespace

bool OrderByNumber(std::vector<std::string>* files) {
  if (files->size() < 2) return false;
  const std::string& first = files->front();
  size_t prefix = first.size();
  size_t suffix = first.size();
  for (const std::string& file : *files) {
    const auto differ = std::mismatch(first.begin(), first.end(), file.begin(), file.end());
    prefix = std::min(prefix, static_cast<size_t>(differ.first - first.begin()));
    const auto back = std::mismatch(first.rbegin(), first.rend(), file.rbegin(), file.rend());
    suffix = std::min(suffix, static_cast<size_t>(back.first - first.rbegin()));
  }
  // Digits that are alike at both ends of the numbers belong to the numbers.
  while (prefix > 0 && absl::ascii_isdigit(first[prefix - 1])) --prefix;
  while (suffix > 0 && absl::ascii_isdigit(first[first.size() - suffix])) --suffix;
  std::vector<std::pair<int64_t, std::string>> numbered;
  for (const std::string& file : *files) {
    if (file.size() <= prefix + suffix) return false;
    const std::string middle = file.substr(prefix, file.size() - prefix - suffix);
    int64_t number = 0;
    if (middle.find_first_not_of(kDigits) != std::string::npos ||
        !absl::SimpleAtoi(middle, &number)) {
      return false;
    }
    numbered.emplace_back(number, file);
  }
  const auto less = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (std::is_sorted(numbered.begin(), numbered.end(), less)) return false;
  std::stable_sort(numbered.begin(), numbered.end(), less);
  for (size_t i = 0; i < numbered.size(); ++i) (*files)[i] = numbered[i].second;
  return true;
}

absl::StatusOr<sparse::Network> ReadSparseInput(const SparseInputOptions& options,
                                                std::vector<std::string>* notes) {
  if (!options.radixnet.empty()) return Generate(options, notes);
  std::vector<sparse::MatrixEntries> matrices;
  std::vector<std::string> files = options.files;
  if (OrderByNumber(&files) && notes != nullptr) {
    notes->push_back(absl::StrCat("layers are in the order of the numbers in their names: ",
                                  files.front(), " first, ", files.back(), " last"));
  }
  for (const std::string& file : files) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto bytes, ReadWhole(file));
    if (absl::StartsWith(bytes, kZip) || absl::EndsWith(file, ".npz")) {
      SEQPOINT_ASSIGN_OR_RETURN(auto several, sparse::ReadNpz(bytes, file));
      for (sparse::MatrixEntries& matrix : several) matrices.push_back(std::move(matrix));
      continue;
    }
    const bool market = absl::StartsWith(bytes, "%%MatrixMarket");
    SEQPOINT_ASSIGN_OR_RETURN(
        auto matrix, market ? sparse::ReadMatrixMarket(bytes, file) : sparse::ReadTsv(bytes, file));
    matrices.push_back(std::move(matrix));
  }
  return sparse::MakeNetwork(std::move(matrices), options.neurons);
}

}  // namespace seqpoint::client
