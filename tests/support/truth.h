// A workload's truth file, and how a profiler's findings compare with it. For the demo and for
// tests; the profiler never sees the file. Threading: free functions.
#ifndef SEQPOINT_TESTS_SUPPORT_TRUTH_H_
#define SEQPOINT_TESTS_SUPPORT_TRUTH_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint {

struct TrueIteration {
  std::vector<int64_t> lengths;
  int64_t begin_ns = 0;    // host clock of the software GPU (or CLOCK_REALTIME) at its first call
  int64_t forward_ns = 0;  // ... before its first forward launch
  int64_t launches_before_forward = 0;
  int64_t kernels = 0;                     // run, those in graphs included
  std::map<std::string, double> counters;  // CUPTI's metric name -> value
  double gpu_time_ns = 0;
};

// The file that `seqpoint_workload --truth` writes (docs/internals/workloads.md).
struct Truth {
  std::vector<TrueIteration> iterations;
  double epoch_time_ns = 0;                   // training iterations; evaluation is apart
  std::map<std::string, double> counters;     // CUPTI's metric name -> whole epoch
  std::map<std::string, double> kernel_time;  // name -> ns, whole epoch
  std::string digest;
};

// Nothing when the file cannot be read or has no iteration.
std::optional<Truth> ReadTruth(const std::filesystem::path& path);

// The epoch's time without the stops that measuring makes, which no projection holds: iterations
// that were measured, and those beside them, count with their time in the run without us, scaled as
// the others differ between the two runs.
double UndisturbedTimeNs(const Truth& truth, const Truth& alone,
                         const std::vector<v1::Iteration>& iterations);

// Boundaries in the true iterations: exact where just one falls between an iteration's first call
// and its first forward launch, and none elsewhere.
struct Boundaries {
  int64_t detected = 0;
  double exact_share = 0;      // from iteration 31 on
  double recovered_share = 0;  // of the first 30
  int64_t launch_offset = 0;   // at most; of the boundary behind the iteration's first call
};

Boundaries MatchBoundaries(const Truth& truth, const std::vector<v1::Iteration>& iterations);

// "_ZN8seqpoint8workload7kernels4gemmILi64EEEvPKf" -> "gemm": the workload's own name of a kernel.
std::string FunctionName(const std::string& symbol);

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_SUPPORT_TRUTH_H_
