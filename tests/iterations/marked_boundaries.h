// The iterations that the learner finds in a recorded trace, compared with the marks in that trace,
// which the learner does not see: it should find one boundary in each marked step.
//
// Threading: free functions. Ownership: values.
#ifndef TESTS_ITERATIONS_MARKED_BOUNDARIES_H_
#define TESTS_ITERATIONS_MARKED_BOUNDARIES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "daemon/iterations/trace_boundaries.h"
#include "daemon/trace/trace.h"

namespace seqpoint::iterations {

struct MarkedBoundaries {
  TraceBoundaries found;
  struct Mark {
    uint64_t begin_ns = 0, end_ns = 0;
  };
  std::vector<Mark> marks;  // begin ascending
  bool points = false;      // marks cover little of the time between them: the last one ends a step
  std::vector<int> per_step;  // boundaries in each step
  int outside = 0;            // boundaries before the first step

  // Steps with exactly one boundary.
  size_t exact() const;
  // Fewer than three marks tell nothing.
  bool judged() const { return marks.size() >= 3; }
  bool good() const { return found.rule.has_value() && exact() == per_step.size() && outside == 0; }
};

// `prefix`: the names of the marks begin with it.
MarkedBoundaries FindMarkedBoundaries(const trace::Trace& trace, std::string_view prefix);

}  // namespace seqpoint::iterations

#endif  // TESTS_ITERATIONS_MARKED_BOUNDARIES_H_
