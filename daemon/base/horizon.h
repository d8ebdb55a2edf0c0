// The length of a run, as a client describes it: its limits, and how often the lengths repeat.
//
// Threading: pure functions.
#ifndef DAEMON_BASE_HORIZON_H_
#define DAEMON_BASE_HORIZON_H_

#include <cstdint>

#include "absl/status/status.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint {

// Nothing real is beyond these, and sums stay exact in a double.
inline constexpr int64_t kMaxLength = int64_t{1} << 53;
inline constexpr int64_t kMaxRunIterations = 1'000'000'000'000'000;
inline constexpr int64_t kMaxRanks = 1 << 16;  // more is a mistake

// InvalidArgument names the field and its value.
absl::Status CheckHorizon(const v1::Horizon& horizon);

// The histogram of shuffled batches has all epochs together.
int64_t RepeatsOf(const v1::Horizon& horizon);

}  // namespace seqpoint

#endif  // DAEMON_BASE_HORIZON_H_
