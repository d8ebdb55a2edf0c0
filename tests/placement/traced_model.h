// Placement problems of a training program on the software GPU: operators and who needs whom from
// its operations file (docs/internals/workloads.md), times from kernel records of traced
// iterations.
//
// An operator is an operation of the program's tape: a layer, over all time steps, as the weights
// of a recurrent layer sit on one device. Its backward operator has its color. Pure but for
// ReadOperations; values.
#ifndef SEQPOINT_TESTS_PLACEMENT_TRACED_MODEL_H_
#define SEQPOINT_TESTS_PLACEMENT_TRACED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/placement/problem.h"
#include "daemon/trace/trace.h"

namespace seqpoint::placement {

struct Pass {
  int64_t works = 0;  // kernels and memsets
  double bytes = 0;
};
struct Operation {
  std::string name;
  std::vector<int> inputs;      // other operations
  std::vector<int> parameters;  // of ModelOperations::parameter_bytes
  double out_bytes = 0;
  Pass forward, backward;
};
// A line of an operations file.
struct ModelOperations {
  std::vector<int> lengths;
  std::vector<double> parameter_bytes;
  std::vector<Operation> operations;
};
// Errors name the file.
absl::StatusOr<std::vector<ModelOperations>> ReadOperations(const std::string& path);

// A traced iteration: its work on the GPU in the order in which it ran.
struct TracedStep {
  int64_t number = 0;  // of the job's iterations
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::vector<trace::Work> works;
};
// The iterations of an exported job whose work is in the trace, by number.
std::vector<TracedStep> StepsOf(const trace::Trace& trace);

struct TracedProblem {
  Problem problem;          // times in ms; devices and their memory are left to the caller
  double iteration_ms = 0;  // as the profiler has it
  double loads_ms = 0;      // what the operators add up to
  double kernels_ms = 0;    // kernels and memsets alone, without the gaps between them
};
// A work takes from the end of the one before to its own end, as the device is taken as long: with
// the gap between kernels, and what it waits for the host. The batch's copies belong to the first
// operation, the loss' copy to the last one. A parameter's update belongs to the operator that
// makes its gradient; norm and clipping factor of the gradients are shared out by bytes. A
// parameter takes four times its bytes: value, gradient and Adam's two moments. An output crosses a
// border in its bytes / `bytes_per_second`.
//
// FailedPrecondition: the works are not those of these operations and an optimizer with a launch
// for each parameter.
absl::StatusOr<TracedProblem> MakeProblem(const ModelOperations& model, const TracedStep& step,
                                          const std::vector<std::string>& names,
                                          double bytes_per_second);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_TESTS_PLACEMENT_TRACED_MODEL_H_
