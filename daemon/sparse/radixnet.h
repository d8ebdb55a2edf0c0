// RadiX-Net, the generator of the networks of GraphChallenge's sparse deep neural network.
//
// Sources: Robinett, Kepner, "RadiX-Net: Structured Sparse Matrices for Deep Neural Networks",
// IPDPSW 2019 (arXiv 1905.00416); graphchallenge.mit.edu for sizes and the permuted blocks. With
// the published permutations as a table the published matrices come out:
// docs/formats/partition-files.md.
//
// Threading: free functions. Ownership: values.
#ifndef SEQPOINT_DAEMON_SPARSE_RADIXNET_H_
#define SEQPOINT_DAEMON_SPARSE_RADIXNET_H_

#include <stdint.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/sparse/network.h"

namespace seqpoint::sparse {

struct RadixNetSize {
  int32_t neurons = 0;
  int layers = 0;

  int block_layers() const;  // log2(neurons / 16): layers that share a permutation
  int32_t residues() const { return neurons / 16; }
  int blocks() const { return (layers + block_layers() - 1) / block_layers(); }
};

// A row for each block, an entry for each neuron: the residue class that it feeds. Each of the
// neurons / 16 values is there 16 times in a row.
using Permutations = std::vector<std::vector<int32_t>>;

// "1024x120". InvalidArgument: no such text; neurons that are not 16 times a power of two; more
// than 2^31 nonzeros.
absl::StatusOr<RadixNetSize> ParseRadixNetSize(std::string_view text);

// A row for each block, numbers separated by blanks. InvalidArgument names `file` and the line.
absl::StatusOr<Permutations> ReadPermutations(std::string_view text, const std::string& file,
                                              const RadixNetSize& size);

// Block 0 as RadiX-Net has it; the neurons of the others at random.
Permutations DrawPermutations(const RadixNetSize& size, uint64_t seed);

// Neuron i of the layer before feeds neuron j where (permutations[block][i] - j) mod residues() is
// 0 or 2^d, d = layer mod block_layers(). All weights are 1/16.
Network MakeRadixNet(const RadixNetSize& size, const Permutations& permutations);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_RADIXNET_H_
