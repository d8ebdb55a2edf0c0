// The three workloads on three software GPUs: choose on one, predict the others.
// Threading: one call per process, as it starts programs with an environment.
#ifndef TESTS_ACCURACY_GPUS_H_
#define TESTS_ACCURACY_GPUS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/accuracy/data_set.h"

namespace seqpoint::accuracy {

struct GpuPair {
  DataSet base;    // times on the GPU that chose
  DataSet target;  // the same iterations: times on another, or a counter
};

// Runs `seqpoint_workload` beside this program, without the profiler. Unavailable where it was not
// built.
absl::StatusOr<std::vector<GpuPair>> RunWorkloads();

}  // namespace seqpoint::accuracy

#endif  // TESTS_ACCURACY_GPUS_H_
