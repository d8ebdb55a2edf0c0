// Times that stand out among those of the iterations that are nearest in length: stalls, and the
// start-up of a run or an epoch.
//
// Threading: free functions without state.
#ifndef DAEMON_SEQPOINT_OUTLIERS_H_
#define DAEMON_SEQPOINT_OUTLIERS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

struct KeyTime {
  Key key;
  double time_ns = 0;
};

// A time this far from what its neighbours take is a stall, not a measurement.
inline constexpr double kOutlierShare = 0.5;
inline constexpr double kOutlierDeviations = 10;  // median absolute deviations

// Which of `times` lie beyond max(10 MAD, 50 %) of the median of the 7 nearest in length. None
// where there are fewer than 7.
std::vector<bool> FindOutliers(absl::Span<const KeyTime> times);

// Which iterations of a log are start-up rather than training: the first ones of its runs and
// epochs often wait for data, compile kernels or search for algorithms. It is the first iteration
// of each group (run, epoch) whose time is an outlier among the 7 next to it in length that are no
// group's first. One that is longer than these may take longer by the square of the ratio.
// `groups` has a number for each time, or is empty: all are of one group. Rows of a group need not
// stand together. Nothing is start-up where there are fewer than 7 to compare with.
std::vector<bool> FindStartUp(absl::Span<const KeyTime> times, absl::Span<const int32_t> groups);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_OUTLIERS_H_
