// Placements by annealing, for the largest load.
//
// Used where devices may be left and come back to (not contiguous), where a graph has too many
// ideals for the exact method, and where a placement serves several lengths whose steps wait for
// the slowest stage (docs/using/placement.md). The value found is an upper bound only; whether it
// is the best is not known here.
#ifndef SEQPOINT_DAEMON_PLACEMENT_SEARCH_H_
#define SEQPOINT_DAEMON_PLACEMENT_SEARCH_H_

#include <vector>

#include "absl/types/span.h"
#include "daemon/placement/annealing.h"
#include "daemon/placement/class_graph.h"
#include "daemon/placement/problem.h"

namespace seqpoint::placement {

// One length of a run. The graphs of all lengths have the same classes in the same order; their
// times differ.
struct WeightedGraph {
  double weight = 1;  // the share of the run's iterations; the weights add up to 1
  const ClassGraph* graph = nullptr;
};

// From `start` (a device for each class) on. The value is the sum over lengths of weight x largest
// load. `devices`: their numbers, and the memory. `contiguous`: as in Judgement; then the start is,
// too. There are at most 64 devices for that, or the start is the answer. Memory: 4 bytes for each
// net and device per thread; nothing is searched, and the answer is empty, where that is more than
// 400 MB.
SearchResult Search(absl::Span<const WeightedGraph> lengths, const Problem& devices,
                    const std::vector<int>& start, bool contiguous, const SearchOptions& options);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_SEARCH_H_
