// Who this process is: the "key=value" lines of Hello.
// Threading: SetRank and WorldSize from any thread; BuildHelloText once, from the helper thread.
#ifndef SEQPOINT_INJECTION_BASE_IDENTITY_H_
#define SEQPOINT_INJECTION_BASE_IDENTITY_H_

#include <stdint.h>

#include "injection/abi/hello.h"
#include "injection/base/system.h"

namespace seqpoint::inject {

using HelloText = Text<abi::kMaxHelloText>;

// job: SEQPOINT_JOB, else the program's name (for an interpreter: its script's).
// run_id: SEQPOINT_RUN_ID, TORCHELASTIC_RUN_ID, SLURM_JOB_ID, else pid and start time, so that
// runs without a launcher never mix.
// rank, world_size: as SetRank said; else, and local_rank, as torchrun, Slurm, Open MPI, MPICH or
// an indexed job of Kubernetes set them, else 0, 1, 0.
void BuildHelloText(uint32_t cupti_version, int driver_version, HelloText* text);

// The rank and the number of ranks, where the program itself knows them. Negative: it does not.
void SetRank(int rank, int world_size);
// As SetRank said, else as BuildHelloText found it; 1 before.
int WorldSize();

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_BASE_IDENTITY_H_
