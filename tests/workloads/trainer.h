// The training loop: every option of the command line acts here.
//
// Threading: Train runs on the calling thread; with --backward-thread a second one launches the
// backward pass while the first waits, as an autograd engine does.
#ifndef SEQPOINT_TESTS_WORKLOADS_TRAINER_H_
#define SEQPOINT_TESTS_WORKLOADS_TRAINER_H_

#include "tests/workloads/lengths.h"
#include "tests/workloads/options.h"

namespace seqpoint::workload {

// Trains on `table` as `options` say and returns the process' exit status. The same options give
// the same GPU work in the same order, whatever watches.
int Train(const Options& options, const LengthTable& table);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_TRAINER_H_
