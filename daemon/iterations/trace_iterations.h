// The starts of the iterations of a recorded trace, and their lengths: by its own annotations, else
// as the learner finds them in a live job.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_ITERATIONS_TRACE_ITERATIONS_H_
#define DAEMON_ITERATIONS_TRACE_ITERATIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/trace/trace.h"

namespace seqpoint::iterations {

struct TraceIterations {
  size_t count = 0;
  // On the CPU. `count` of them, or one more that ends the last iteration: a point, or the end of a
  // window of one iteration (trace::kNotRecorded).
  std::vector<int64_t> starts_ns;
  int64_t last_end_ns = 0;                      // end of the last one's annotation; 0: not known
  int dimensions = 0;                           // numbers of a length: 0, 1 or 2
  std::vector<std::array<int64_t, 2>> lengths;  // of each iteration, or none
  std::string boundary_words, length_words;
  size_t marks_elsewhere = 0;  // marks of other threads, left out
};

// `marker`: a regular expression (RE2) that annotations match; its groups, at most two, are
// lengths. Empty: the usual annotations, else the learner. A training step gets a batch from the
// host, or two threads launch it; a trace without repeated steps is one iteration. InvalidArgument:
// no annotation matches `marker`, or a group of it is no number >= 0.
absl::StatusOr<TraceIterations> FindIterations(const trace::Trace& trace,
                                               const std::string& marker);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_TRACE_ITERATIONS_H_
