// Which iterations of a log are start-up rather than training: the first ones of its runs and
// epochs often wait for data, compile kernels or search for algorithms.
//
// Threading: a free function without state.
#ifndef DAEMON_SEQPOINT_START_UP_H_
#define DAEMON_SEQPOINT_START_UP_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/time_model.h"

namespace seqpoint {

// The first iteration of each group (run, epoch) whose time is a stall's (kOutlierShare,
// kOutlierDeviations) when it is compared with the median of the 7 next to it in length that are no
// group's first. One that is longer than these may take longer by the square of the ratio.
// `groups` has a number for each time, or is empty: all are of one group. Rows of a group need not
// stand together. Nothing is start-up where there are fewer than 7 to compare with.
std::vector<bool> FindStartUp(absl::Span<const KeyTime> times, absl::Span<const int32_t> groups);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_START_UP_H_
