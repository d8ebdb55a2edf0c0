// Cuts a set of keys into bins of about equal mass, each an axis-parallel box.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_BINS_H_
#define DAEMON_SEQPOINT_BINS_H_

#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

// The bin of each key, 0 to at most max_bins - 1. Equal keys share a bin. In one dimension bins
// are intervals, numbered upwards; in two, boxes from repeated cuts across the wider side.
// `mass` is non-negative and has the size of `keys`. O(n log n log max_bins).
std::vector<int> CutIntoBins(absl::Span<const Key> keys, absl::Span<const double> mass,
                             int max_bins);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_BINS_H_
