// Made-up samples and weights, the same on any number of ranks: each number is a hash of where it
// stands.
//
// A sample has one of kClasses classes. An input neuron is 1 or 0, and how often it is 1 depends on
// the class; an output neuron is to be 1 where its number modulo kClasses is the class. Threading:
// free functions.
#ifndef CLIENT_SGD_DATA_H_
#define CLIENT_SGD_DATA_H_

#include <stdint.h>

#include <vector>

#include "client/sgd/training.h"
#include "daemon/sparse/network.h"

namespace seqpoint::sgd {

inline constexpr int kClasses = 10;

// The samples [first, first + samples); a row for each of `neurons`.
Batch Inputs(uint64_t seed, int64_t first, int samples, const std::vector<int32_t>& neurons);

// `loss`: for kCrossEntropy the column of each sample adds up to 1 over all `outputs`.
Batch Targets(uint64_t seed, int64_t first, int samples, const std::vector<int32_t>& neurons,
              int32_t outputs, Loss loss);

// Uniform in +-sqrt(6 / nonzeros of the row): Glorot, Bengio, AISTATS 2010, without the output
// side.
void DrawWeights(uint64_t seed, sparse::Network& network);

}  // namespace seqpoint::sgd

#endif  // CLIENT_SGD_DATA_H_
