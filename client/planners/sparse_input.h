// The sparse network that a command works on: files of matrices, or a generated RadiX-Net.
//
// For the programs that link neither the client nor gRPC. Threading: free functions.
#ifndef CLIENT_PLANNERS_SPARSE_INPUT_H_
#define CLIENT_PLANNERS_SPARSE_INPUT_H_

#include <stdint.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/sparse/network.h"

namespace seqpoint::client {

struct SparseInputOptions {
  std::vector<std::string> files;  // one or more layers each, in order
  int32_t neurons = 0;             // of layers whose file does not say it
  std::string radixnet;            // "1024x120"
  std::string permutations;        // a file; empty: drawn with `seed`
  uint64_t seed = 1;
};

// `options` must outlive `app`. Wrong usage: no network, or two.
void AddSparseInput(CLI::App& app, SparseInputOptions* options);

// Files whose names differ in one number alone get the order of that number: a shell puts l10
// before l2. True where that is another order.
bool OrderByNumber(std::vector<std::string>* files);

// InvalidArgument: one sentence with the file, and the line where there is one. `notes` gets a
// sentence for what was not as asked for: an order by numbers, permutations that were drawn.
absl::StatusOr<sparse::Network> ReadSparseInput(const SparseInputOptions& options,
                                                std::vector<std::string>* notes = nullptr);

}  // namespace seqpoint::client

#endif  // CLIENT_PLANNERS_SPARSE_INPUT_H_
