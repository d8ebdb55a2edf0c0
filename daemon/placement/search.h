// Placements without the exact method: simulated annealing over the classes of a graph.
//
// Used where devices may be left and come back to (not contiguous), where a graph has too many
// ideals, and where a placement serves several lengths whose steps wait for the slowest stage
// (docs/placement.md, "Without contiguity" and "The whole run"). The value found is an upper bound
// only; whether it is the best is not known here.
//
// Moves: one class, two classes that exchange devices, two neighbours together, and a stretch of
// classes in topological order (a stage's border moves). A step is kept when it lowers the energy,
// or by lot, less often as the temperature falls (Kirkpatrick, Gelatt, Vecchi, "Optimization by
// Simulated Annealing", Science 220, 1983). The energy is the 8-norm of the loads and not their
// maximum: most moves do not touch the device with the largest load, and have to be told apart,
// too.
//
// Same input, same answer, whatever the number of threads. Memory: O(nets x devices) per thread.
#ifndef SEQPOINT_DAEMON_PLACEMENT_SEARCH_H_
#define SEQPOINT_DAEMON_PLACEMENT_SEARCH_H_

#include <stdint.h>

#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "daemon/placement/class_graph.h"
#include "daemon/placement/problem.h"

namespace seqpoint::placement {

// One length of a run. The graphs of all lengths have the same classes in the same order; their
// times differ.
struct WeightedGraph {
  double weight = 1;  // the share of the run's iterations; the weights add up to 1
  const ClassGraph* graph = nullptr;
};

struct SearchOptions {
  // The devices, in an order, are left for good: Judgement::contiguous. Needs at most 64 devices
  // and a start that is contiguous.
  bool contiguous = false;
  int restarts = 32;
  int threads = 1;
  uint64_t seed = 1;
  // Asked every few hundred steps, from every thread; true ends the search.
  std::function<bool()> stop;
  // A better value, from any thread, one call at a time.
  std::function<void(double value)> found;
};

struct SearchResult {
  std::vector<int> device;  // of each class
  double value = 0;         // sum over lengths of weight x largest load
  bool stopped = false;
};

// From `start` (a device for each class) on; the answer is never worse. `devices`: its numbers of
// devices and the memory. A start that breaks the memory limit is no answer: without a better one
// the value is infinite, and the device list is empty.
SearchResult Search(absl::Span<const WeightedGraph> lengths, const Problem& devices,
                    const std::vector<int>& start, const SearchOptions& options);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_SEARCH_H_
