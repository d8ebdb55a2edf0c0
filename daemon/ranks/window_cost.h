// What a slow rank costs the job: how much earlier its iterations would end if it worked as its
// peers do.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_RANKS_WINDOW_COST_H_
#define DAEMON_RANKS_WINDOW_COST_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/ranks/window_profile.h"
#include "daemon/seqpoint/interval.h"

namespace seqpoint::ranks {

// The profiles of all ranks at one iteration.
using Iteration = std::vector<RankProfile>;

// In one iteration, nanoseconds: the least exposed wait of the other ranks, at most the rank's
// excess, which is its work beyond what its peers' work says for its lengths. `excess_ns`: known
// otherwise, or below 0: the rank's work beyond the median of all others.
double CostNs(const Iteration& iteration, int32_t rank, double excess_ns = -1);

// As a share of the run, from several iterations: 0.05 is 5 % of all GPU hours of the job. The
// interval is that of the mean of few values (Student); one iteration has none: low is 0, high is
// the least exposed wait.
Estimate CostShare(absl::Span<const Iteration> iterations, int32_t rank, double confidence);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_WINDOW_COST_H_
