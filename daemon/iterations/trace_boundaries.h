// The iterations that the learner finds in a recorded trace whose own marks are hidden from it,
// beside those marks: as many boundaries as marks, and one in each step, is what it should find.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_ITERATIONS_TRACE_BOUNDARIES_H_
#define DAEMON_ITERATIONS_TRACE_BOUNDARIES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "daemon/iterations/learner.h"
#include "daemon/trace/trace.h"
#include "daemon/traces/call_records.h"

namespace seqpoint::iterations {

struct TraceBoundaries {
  size_t calls = 0;
  std::vector<traces::Marker> markers;  // hidden from the learner
  bool points = false;  // markers cover little of the time between them: the last one ends a step
  std::unique_ptr<IterationLearner> learner;
  std::optional<LearnedRule> rule;  // none: no loop found
  std::vector<uint64_t> begins_ns;  // of all iterations found, a last incomplete one included
  // Boundaries in each step.
  std::vector<int> per_step;
  int outside = 0;  // boundaries before the first step

  // Steps with exactly one boundary.
  size_t exact() const;
  // Fewer than three markers tell nothing.
  bool judged() const { return markers.size() >= 3; }
  bool good() const { return rule.has_value() && exact() == per_step.size() && outside == 0; }
};

// `marker`: what the names of the markers begin with.
TraceBoundaries FindBoundaries(const trace::Trace& trace, std::string_view marker);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_TRACE_BOUNDARIES_H_
