// The GNMT of the software GPU, at each length a placement problem whose times were measured: the
// program runs under `seqpoint run` with all GPU work traced, and the job's trace is exported and
// read, as a user would do it.
//
// Threading: one thread.
#ifndef SEQPOINT_TESTS_PLACEMENT_TRACED_GNMT_H_
#define SEQPOINT_TESTS_PLACEMENT_TRACED_GNMT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/placement/traced_model.h"
#include "tests/whatif/software_runs.h"

namespace seqpoint::placement {

// A source and a target length.
using Lengths = std::vector<int>;

struct GnmtRun {
  int batch = 128;
  std::vector<std::string> options;  // of the program, without batch and lengths
  std::string settings;              // of the software GPU
  double bytes_per_second = 50e9;    // its copies (gpu.h2d_gbps, docs/internals/software-gpu.md)
};

// In the order of `lengths`, in which none comes twice.
absl::StatusOr<std::vector<TracedProblem>> TraceGnmt(whatif::SoftwareRuns& runs, const GnmtRun& run,
                                                     const std::vector<Lengths>& lengths);

// The iterations of one epoch of this program on these examples.
struct Epoch {
  struct Share {
    Lengths lengths;
    double iterations = 0;
  };
  std::vector<Share> all;        // every pair of lengths that came
  std::vector<Share> seqpoints;  // those that stand for all, chosen from its log
  double mean_ms = 0;            // an iteration, without the profiler
};
// `examples`: options that say which, and how they are batched.
absl::StatusOr<Epoch> TrainGnmt(whatif::SoftwareRuns& runs, const GnmtRun& run,
                                const std::vector<std::string>& examples, int points);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_TESTS_PLACEMENT_TRACED_GNMT_H_
