// Who this process is: the "key=value" lines of Hello.
// Threading: called once, from InitializeInjection.
#ifndef SEQPOINT_INJECTION_IDENTITY_H_
#define SEQPOINT_INJECTION_IDENTITY_H_

#include <stdint.h>

#include "injection/abi/hello.h"
#include "injection/system.h"

namespace seqpoint::inject {

using HelloText = Text<abi::kMaxHelloText>;

// job: SEQPOINT_JOB, else the program's name (for an interpreter: its script's).
// run_id: SEQPOINT_RUN_ID, TORCHELASTIC_RUN_ID, SLURM_JOB_ID with its restart count, else
// pid and start time, so that runs without a launcher never mix.
// rank, local_rank, world_size: as torchrun, Slurm or Open MPI set them, else 0, 0, 1.
void BuildHelloText(uint32_t cupti_version, int driver_version, HelloText* text);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_IDENTITY_H_
