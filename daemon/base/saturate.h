// Counts and durations from a process that may be hostile: they stop growing at a limit, and never
// become negative. Threading: pure functions.
#ifndef DAEMON_BASE_SATURATE_H_
#define DAEMON_BASE_SATURATE_H_

#include <algorithm>
#include <cstdint>

namespace seqpoint {

inline constexpr int64_t kMostCount = int64_t{1} << 62;

inline int64_t Saturate(uint64_t count) {
  return static_cast<int64_t>(std::min(count, static_cast<uint64_t>(kMostCount)));
}

// The sum of two counts, none of which is negative.
inline int64_t SaturatedSum(int64_t a, int64_t b) {
  return b >= kMostCount - std::min(a, kMostCount) ? kMostCount : a + b;
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_SATURATE_H_
