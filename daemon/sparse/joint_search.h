// The joint improvement: one search over all layers of a network.
//
//   1. Rows that consume nearly the same neurons become one vertex.
//   2. A partition is annealed on these from a random start.
//   3. It is mixed with the candidates that are there, layer by layer (recombination.h).
//   4. Cycles: vertices of one part are merged further and further, the hypergraphs are annealed
//   from
//      the coarsest to the finest, and what came out is mixed with the best.
//   5. Single rows are annealed at a low temperature, mixed with the best, and from 4 again.
//
// No step makes the best worse. Sources: docs/using/partition.md, "The method". Cost: linear in the
// nonzeros and in `effort`. Threading: one thread.
#ifndef SEQPOINT_DAEMON_SPARSE_JOINT_SEARCH_H_
#define SEQPOINT_DAEMON_SPARSE_JOINT_SEARCH_H_

#include <stdint.h>

#include <functional>
#include <vector>

#include "daemon/sparse/network.h"

namespace seqpoint::sparse {

struct JointSearchOptions {
  int parts = 1;
  double imbalance = 0.01;  // share
  uint64_t seed = 1;
  double effort = 1;           // multiplies the time
  std::function<bool()> stop;  // ends the search with the best so far
  std::function<void(double share, int64_t words)> progress;  // how much of it is done; the best
};

struct JointSearchResult {
  Owners owners;
  bool stopped = false;
};

// `candidates` are partitions to start from; they need not be balanced. The result is, as far as
// its rows allow.
JointSearchResult SearchJointly(const Network& network, const std::vector<Owners>& candidates,
                                const JointSearchOptions& options);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_JOINT_SEARCH_H_
