// Applies a what-if to a dependency graph (Daydream, Zhu et al., ATC 2020, section 4.3): scales,
// removes, inserts and joins tasks; the replay then tells what becomes of the time.
//
//   Graph after = before;
//   absl::StatusOr<Applied> applied = Apply(request, {{"compute", 3}}, {}, &after);
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_TRANSFORM_H_
#define DAEMON_WHATIF_TRANSFORM_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/whatif/graph.h"
#include "daemon/whatif/language/request.h"

namespace seqpoint::whatif {

// What limits a kernel.
enum class Bound : uint8_t { kCompute, kMemory, kLatency };

// Of kernels whose position on the roofline was measured, by name; the others by a rule of thumb:
// matrix products and convolutions are bound by compute, the rest by memory (Daydream,
// section 5.1), and what lasts no longer than an empty kernel by latency.
//
// Metrics that were measured for a kernel, by its name, stand beside it.
struct Bounds : std::map<std::string, Bound> {
  using std::map<std::string, Bound>::map;
  std::map<std::string, std::map<std::string, double>> counters;  // kernel, metric
};
Bound BoundByRule(const std::string& kernel, int64_t duration_ns);

// What a selection finds: how many tasks, and what they take together.
struct SelectedTime {
  uint64_t tasks = 0;
  int64_t time_ns = 0;
};
SelectedTime TimeOf(const Selection& selection, const Bounds& bounds, const Graph& graph);

struct Applied {
  double iterations = 1;        // as many times as before
  std::vector<uint64_t> tasks;  // selected, by step
  // Each kernel counts once, however many steps look at it.
  uint64_t measured_bounds = 0;  // kernels whose bound was looked up and measured,
  uint64_t guessed_bounds = 0;   // ... and guessed by the rule
  uint64_t without_counter = 0;  // kernels not selected as a counter was not measured for them
  int64_t captured_ns = 0;       // of the CPU, in launches that `capture` took and between them
};

// InvalidArgument: a parameter is missing or makes no sense; a step that cannot be done with what
// it selects. A step that selects nothing is no error: `tasks` says so.
absl::StatusOr<Applied> Apply(const Request& request,
                              const std::map<std::string, double>& parameters, const Bounds& bounds,
                              Graph* graph);

// By how much the times of tasks changed, longer or shorter, all together; of a task that only one
// of both has, its time. `after` is `before`, changed by Apply.
int64_t ChangedNs(const Graph& before, const Graph& after);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_TRANSFORM_H_
