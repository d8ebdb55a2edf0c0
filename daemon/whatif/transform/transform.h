// Applies a what-if to a dependency graph (Daydream, Zhu et al., ATC 2020, section 4.3): scales,
// removes, inserts and joins tasks. The replay then says how the time changes.
//
//   Graph after = before;
//   absl::StatusOr<Applied> applied = Apply(request, {{"compute", 3}}, {}, &after);
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_TRANSFORM_TRANSFORM_H_
#define DAEMON_WHATIF_TRANSFORM_TRANSFORM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/whatif/graph.h"
#include "daemon/whatif/language/request.h"
#include "daemon/whatif/transform/kernel_bound.h"
#include "daemon/whatif/transform/selector.h"
#include "daemon/whatif/transform/step_amount.h"

namespace seqpoint::whatif {

struct Applied {
  double iterations = 1;        // as many times as before
  std::vector<uint64_t> tasks;  // selected, by step
  // Each kernel counts once, however many steps look at it.
  uint64_t measured_bounds = 0;  // kernels whose bound was looked up and measured,
  uint64_t guessed_bounds = 0;   // ... and guessed by the rule
  uint64_t without_counter = 0;  // kernels not selected as a counter was not measured for them
  int64_t captured_ns = 0;       // CPU time that captured launches no longer take
};

// InvalidArgument: a parameter is missing or makes no sense; a step that cannot be done with what
// it selects. A step that selects nothing is no error: `tasks` says so.
absl::StatusOr<Applied> Apply(const Request& request, const Parameters& parameters,
                              const Bounds& bounds, Graph* graph);

// The sum of the changes of all tasks' times, longer or shorter. A task that only one of both has
// counts with its time. `after` is `before`, changed by Apply.
int64_t ChangedNs(const Graph& before, const Graph& after);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_TRANSFORM_TRANSFORM_H_
