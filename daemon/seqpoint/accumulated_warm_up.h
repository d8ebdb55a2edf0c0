// The warm-up cost where keys are sums over micro-batches.
//
// An iteration then has several unseen lengths at once, and early in a run nearly every one has, so
// that none is left to hold the others against. But how many there are differs from iteration to
// iteration, and falls: times are fitted on the key and on the buckets of lengths
// (unseen_lengths.h) that an iteration opened, together: a cost for each new length, for each
// bucket of some size, for both and for neither are weighed by how well they agree.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_ACCUMULATED_WARM_UP_H_
#define DAEMON_SEQPOINT_ACCUMULATED_WARM_UP_H_

#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/selection.h"
#include "daemon/seqpoint/time_model.h"

namespace seqpoint {

struct AccumulatedWarmUp {
  double costly_probability = 0;        // that cold iterations cost anything
  std::vector<double> warm_up_cost_ns;  // expected of each of `cold`
  std::vector<double> excess_ns;        // what each took beyond an iteration that opens nothing
  // Standard deviation of the level of such an iteration: the cost of opening is uncertain;
  // relative.
  double doubt = 0;
  BucketCounts costs_ns = {};  // expected of each bucket that is opened, of each size
};

// Nothing (empty lists) where there are too few times. The first of the run is not looked at.
AccumulatedWarmUp EstimateAccumulatedWarmUp(absl::Span<const KeyTimes> regular,
                                            absl::Span<const ColdTime> cold);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ACCUMULATED_WARM_UP_H_
