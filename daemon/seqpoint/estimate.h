// The total of a run from single measurements of its SeqPoints, with an interval.
//
//   std::vector<MeasuredPoint> points = ...;       // of SelectStratified, each measured once
//   Estimate total = EstimateSame(points, 0.95);   // the statistic whose noise is known
//   Estimate other = EstimateOther(points, 0.95);  // another machine's time, a counter
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_ESTIMATE_H_
#define DAEMON_SEQPOINT_ESTIMATE_H_

#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint {

// A SeqPoint and the mean of its measurements.
struct MeasuredPoint {
  SeqPoint point;  // with its cost and noise
  double value = 0;
};

// An estimate for a run like the one that chose the points: normal, with its noise profile. The
// measured iterations are none of the run's, whose own noise is in the interval, as is what the
// choice does not know of its points' costs. What is known of the noise is little where the run is
// short and its tails (Selection) are heavy: Student's quantile.
Estimate EstimateSame(absl::Span<const MeasuredPoint> points, double confidence, double tails = 1);

// The noise is that of the measurements about their regression on (1, cost), weighted by 1 / noise:
// Student's interval. Where the curve bends away from the line (from 16 points on) the noise is
// taken from differences of neighbouring residuals instead. With fewer than 4 points nothing is
// known of the noise, and the interval is that of EstimateSame, as if it were in proportion. So it
// is where the measurements show less noise, but not so much less that chance, with these `tails`
// (Selection), could not have left the slow iterations out.
Estimate EstimateOther(absl::Span<const MeasuredPoint> points, double confidence, double tails = 1);

// numerator / denominator of independent estimates, as their logarithms vary.
Estimate QuotientOf(const Estimate& numerator, const Estimate& denominator);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ESTIMATE_H_
