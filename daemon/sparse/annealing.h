// Simulated annealing of a partition, over all layers at once.
//
// A vertex of a random layer wants into the part of one of its neighbours; it goes alone, or in
// exchange for a vertex of that part. Balance is soft: a part that is not as full as the mean costs
// words, by the square of how far it is off, at first little, at the end much. Where it is hard
// from the start, the border between two parts cannot travel along a chain of equal rows, because
// the step is never balanced; on RadiX-Net that costs 2 % of the words (1,024 x 60, 8 parts: 51,123
// in 18 s, and 50,346 in 4 s).
//
// Source: Kirkpatrick, Gelatt, Vecchi, "Optimization by Simulated Annealing", Science 220 (1983).
// Threading: one thread.
#ifndef SEQPOINT_DAEMON_SPARSE_ANNEALING_H_
#define SEQPOINT_DAEMON_SPARSE_ANNEALING_H_

#include <functional>
#include <random>
#include <vector>

#include "daemon/sparse/partition_state.h"

namespace seqpoint::sparse {

struct AnnealingOptions {
  double first_temperature = 0;  // words
  double last_temperature = 0;
  // The cost of one unit of nonzeros too many or too few, in words to send, for each layer's unit.
  double first_stiffness = 0;
  double last_stiffness = 0;
  std::vector<double> unit;  // nonzeros
  int sweeps = 0;            // a sweep is as many steps as there are vertices
  std::function<bool()> stop;
};

void Anneal(const AnnealingOptions& options, std::mt19937_64* random, PartitionState* state);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_ANNEALING_H_
