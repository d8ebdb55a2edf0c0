// This process among the ranks of a job, and how the ranks of a job tell each other something
// before they have a communicator.
//
// Threading: any thread.
#ifndef SEQPOINT_TESTS_WORKLOADS_RANKS_H_
#define SEQPOINT_TESTS_WORKLOADS_RANKS_H_

#include <string>

#include "absl/status/statusor.h"

namespace seqpoint::workload {

struct Ranks {
  int rank = 0;
  int count = 1;
  int local_rank = 0;  // on this machine: the GPU to take
};

// As torchrun (RANK, WORLD_SIZE, LOCAL_RANK), Slurm or Open MPI set the variables; one rank
// otherwise. Error: a rank that is not below the number of ranks.
absl::StatusOr<Ranks> RanksFromEnvironment();

// Returns rank 0's `bytes` on every rank; all ranks call it, with as many bytes. They meet at
// MASTER_ADDR:MASTER_PORT, where rank 0 listens; without these variables, as under mpirun, at a
// unix socket that is named after the job (PMIX_NAMESPACE), on one machine. Waits for the others
// for at most a minute; an error says who was missing.
absl::StatusOr<std::string> ShareBytes(const Ranks& ranks, const std::string& bytes);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_RANKS_H_
