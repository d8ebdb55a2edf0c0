// Own metric sets, from a file of the user's (docs/using/counters.md):
//
//   [l2]
//   description = bytes through the L2 cache, beside device memory
//   config = gpu__time_duration.sum, lts__t_bytes.sum, dram__bytes.sum
//   ratio = L2 traffic (GB/s): lts__t_bytes.sum / gpu__time_duration.sum
//
// Threading: pure functions.
#ifndef DAEMON_COUNTERS_METRIC_FILE_H_
#define DAEMON_COUNTERS_METRIC_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/counters/metric_sets.h"

namespace seqpoint::counters {

inline constexpr size_t kMaxMetricFileBytes = 64 << 10;

// "L2 traffic (GB/s): a / b", of metrics a and b. Error: InvalidArgument.
absl::StatusOr<Ratio> ParseRatio(absl::string_view text);

// Error: InvalidArgument, "NAME:LINE: the mistake, and the way out".
absl::StatusOr<std::vector<OwnSet>> ParseMetricFile(std::string_view text, std::string_view name);

}  // namespace seqpoint::counters

#endif  // DAEMON_COUNTERS_METRIC_FILE_H_
