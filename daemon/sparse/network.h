// A sparse feed-forward network: one sparse matrix per layer.
//
// Source of the model: Demirci, Ferhatosmanoglu, "Partitioning Sparse Deep Neural Networks for
// Scalable Training and Inference", ICS 2021 (arXiv 2104.11805). docs/formats/partition-files.md
// has the formats.
//
// Values; a const object may be read by any number of threads.
#ifndef SEQPOINT_DAEMON_SPARSE_NETWORK_H_
#define SEQPOINT_DAEMON_SPARSE_NETWORK_H_

#include <stdint.h>

#include <vector>

namespace seqpoint::sparse {

// The weights of one layer, row by row: row = neuron of this layer (the consumer), column = neuron
// of the layer before (the producer). Columns of a row ascend; none twice.
struct Layer {
  int32_t rows = 0;
  int32_t columns = 0;
  std::vector<int64_t>
      row_begin;  // rows + 1 entries; row r has entries [row_begin[r], row_begin[r+1])
  std::vector<int32_t> column;
  std::vector<float> weight;  // as long as column

  int64_t nonzeros() const { return static_cast<int64_t>(column.size()); }
};

struct Network {
  std::vector<Layer> layers;  // layers[l].columns == layers[l-1].rows
};

// The part of every neuron. parts[0] are the inputs (the columns of layers[0]); parts[l] the rows
// of layers[l-1]. A part is a rank, from 0 on.
using Owners = std::vector<std::vector<int32_t>>;

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_NETWORK_H_
