// The time that slow iterations, stalls and cold iterations add to that of normal ones.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_SLOW_ITERATIONS_H_
#define DAEMON_SEQPOINT_SLOW_ITERATIONS_H_

#include "absl/types/span.h"
#include "daemon/seqpoint/fitted_model.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/measurements.h"
#include "daemon/seqpoint/outlier_filter.h"

namespace seqpoint {

// Slow iterations that nobody has seen yet: as if half a one of 30 % had been.
inline constexpr double kUnseenSlow = 0.5;
inline constexpr double kUnseenSlowExcess = 0.3;

// The excess of slow iterations and stalls among `count` others, which normally take `expected_ns`
// altogether, in ns: they come as often as they did (a compound Poisson process).
Normal SlowExcess(const OutlierFilter& filter, const TimeModel& model, double count,
                  double expected_ns);

// Shares of the time of normal iterations that are added over the whole run.
struct ExtraShares {
  Normal slow, warm_up;
};
ExtraShares ExtraSharesOf(const OutlierFilter& filter, const FittedModel& fitted);

// By how much a slow iteration of the measured lengths takes longer, relative, as times show it; 0:
// they show none.
double UsualSlow(const OutlierFilter& filter, const TimeModel& model,
                 absl::Span<const Measurement> measurements);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_SLOW_ITERATIONS_H_
