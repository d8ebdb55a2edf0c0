// The iterations that the learner finds in a recorded trace. It sees calls only, no annotations.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_ITERATIONS_TRACE_BOUNDARIES_H_
#define DAEMON_ITERATIONS_TRACE_BOUNDARIES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/iterations/learner.h"
#include "daemon/trace/trace.h"

namespace seqpoint::iterations {

struct TraceBoundaries {
  std::unique_ptr<IterationLearner> learner;
  std::optional<LearnedRule> rule;  // none: no loop found
  std::vector<uint64_t> starts_ns;  // of all iterations found, a last incomplete one included
};

TraceBoundaries FindBoundaries(const trace::Trace& trace);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_TRACE_BOUNDARIES_H_
