// What-ifs for whole runs, judged by running the changed job in full on the software GPU.
// Threading: one thread. Ownership: values.
#ifndef TESTS_WHATIF_SOFTWARE_GPU_H_
#define TESTS_WHATIF_SOFTWARE_GPU_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tests/whatif/judge.h"

namespace seqpoint::whatif {

inline constexpr double kWholeRunWorst = 0.01;

// A verdict "pair" for each model and change, given to `done` as it comes. Error: of what the run
// takes in all. `only`: those whose name ("gnmt, kernels x2") it is found in; empty: all.
absl::Status JudgeSoftwareGpu(const std::string& only,
                              absl::FunctionRef<void(const Verdict&)> done);

}  // namespace seqpoint::whatif

#endif  // TESTS_WHATIF_SOFTWARE_GPU_H_
