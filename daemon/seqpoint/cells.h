// Cuts a set of keys into cells of about equal mass, each an axis-parallel box.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_CELLS_H_
#define DAEMON_SEQPOINT_CELLS_H_

#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

// The cell of each key, 0 to at most max_cells - 1. Equal keys share a cell. In one dimension cells
// are intervals, numbered upwards; in two, boxes from repeated cuts across the wider side.
// `mass` is non-negative and has the size of `keys`. O(n log n log max_cells).
std::vector<int> CutIntoCells(absl::Span<const Key> keys, absl::Span<const double> mass,
                              int max_cells);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_CELLS_H_
