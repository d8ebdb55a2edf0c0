// The exact truth about communication: sums for swgpu_nccl_totals and SWGPU_TRUTH, and a line per
// operation in nccl.truth_file. Thread-safe.
#ifndef SEQPOINT_TESTS_SOFTGPU_NCCL_TRUTH_H_
#define SEQPOINT_TESTS_SOFTGPU_NCCL_TRUTH_H_

#include <cstdint>
#include <vector>

#include "tests/softgpu/nccl_law.h"

namespace seqpoint::softgpu {

struct NcclTruthOfKernel {
  struct Operation {
    NcclFunction function;
    uint64_t sequence;
    uint64_t bytes;
  };
  uint64_t communicator;
  uint64_t kernel;
  int rank;
  int world_rank;
  uint64_t arrival_ns;  // of this rank
  uint64_t start_ns;    // the last arrival
  uint64_t end_ns;
  int last_rank;
  std::vector<Operation> operations;
};

void NoteNcclKernel(const NcclTruthOfKernel& kernel);

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NCCL_TRUTH_H_
