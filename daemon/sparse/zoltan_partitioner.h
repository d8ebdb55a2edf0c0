// Zoltan's parallel hypergraph partitioner (PHG), in this one process.
//
// Source: Devine, Boman, Heaphy, Bisseling, Catalyurek, "Parallel Hypergraph Partitioning for
// Scientific Computing", IPDPS 2006; Zoltan User's Guide, "Hypergraph Partitioning". It needs MPI,
// which is started here without mpirun, without a helper process and without a network.
#ifndef SEQPOINT_DAEMON_SPARSE_ZOLTAN_PARTITIONER_H_
#define SEQPOINT_DAEMON_SPARSE_ZOLTAN_PARTITIONER_H_

#include "absl/status/statusor.h"
#include "daemon/sparse/hypergraph_partitioner.h"

namespace seqpoint::sparse {

// Starts MPI where the process has not done so, and ends it with the process. Call it before other
// threads start.
absl::StatusOr<HypergraphPartitioner> MakeZoltanPartitioner();

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_ZOLTAN_PARTITIONER_H_
