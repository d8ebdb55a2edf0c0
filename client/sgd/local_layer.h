// The rows of one layer that one rank owns, and whom it exchanges neurons with.
//
// Source: Demirci, Ferhatosmanoglu, ICS 2021, section 4 (row-wise partition; point-to-point
// exchange of activations and of partial sums). docs/using/partition.md has the model.
//
// Values. The lists are made from the matrix and the owners alone, not from what a planner says of
// them, so that what is counted while a step runs is a check of its prediction.
#ifndef CLIENT_SGD_LOCAL_LAYER_H_
#define CLIENT_SGD_LOCAL_LAYER_H_

#include <stdint.h>

#include <vector>

#include "client/sgd/local_product.h"
#include "daemon/sparse/network.h"

namespace seqpoint::sgd {

// Neurons that travel between this rank and another one: forwards their activations, backwards the
// partial sums of their gradients.
struct Peer {
  int rank = 0;
  std::vector<int32_t> send;  // forwards: index among this rank's neurons of the layer before
  int32_t receive_begin = 0;  // forwards: the first of its neurons among all that are received
  int32_t receive_count = 0;
};

struct LocalLayer {
  std::vector<int32_t> rows;      // owned, as in the whole layer, ascending
  std::vector<int32_t> columns;   // owned, of the layer before
  std::vector<int32_t> received;  // of the layer before, of other ranks: by rank, then ascending
  Weights own;                    // rows x columns
  Weights remote;                 // rows x received
  std::vector<Peer> peers;        // by rank; none with nothing to exchange
};

// The neurons that `rank` owns, ascending.
std::vector<int32_t> Owned(const std::vector<int32_t>& owners, int rank);

// `before` and `owners`: the owner of each column and of each row.
LocalLayer MakeLocalLayer(const sparse::Layer& layer, const std::vector<int32_t>& before,
                          const std::vector<int32_t>& owners, int rank);

// The weights of the rows, as the whole layer has them: row by row, columns ascending.
std::vector<float> RowWeights(const LocalLayer& layer);

}  // namespace seqpoint::sgd

#endif  // CLIENT_SGD_LOCAL_LAYER_H_
