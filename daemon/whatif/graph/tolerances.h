// How exact the times of a trace are taken.
//
// Threading: constants.
#ifndef DAEMON_WHATIF_GRAPH_TOLERANCES_H_
#define DAEMON_WHATIF_GRAPH_TOLERANCES_H_

#include <cstdint>
#include <limits>

namespace seqpoint::whatif {

inline constexpr int64_t kMicro = 1000;
// Old traces have whole microseconds: times that differ by no more are the same.
inline constexpr int64_t kTickNs = 2 * kMicro;
// A task starts within this time after the end of the task that it waited for.
inline constexpr int64_t kSoonNs = 15 * kMicro;
inline constexpr int64_t kLateNs = 5 * kMicro;
inline constexpr int64_t kPast = std::numeric_limits<int64_t>::min() / 4;

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_TOLERANCES_H_
