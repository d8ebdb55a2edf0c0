// The time of the steps of several ranks, from the times of their iterations.
//
// Ranks that wait for each other start and end a step at times that differ by the jitter of the
// machine. Their sums of times stay together, but the sum of the longest time of each step is too
// long by the jitter of every step. The time of the run is the sum of its slowest rank, and a step
// takes what it adds to that:
//
//   step       0    1    2    3          sum
//   rank 0   100   90  110  100          400
//   rank 1    95  105   92  108          400
//   step     100   95  107   98          400     (the longest of each: 423)
//
// Where ranks do not wait for each other, the sum is that of the slowest rank, too.
//
// Threading: a free function. Ownership: values.
#ifndef DAEMON_JOBS_STEP_CLOCK_H_
#define DAEMON_JOBS_STEP_CLOCK_H_

#include <cstdint>

#include "google/protobuf/map.h"

namespace seqpoint::jobs {

// Returns the time of a step. `durations_ns`: of its iterations, by rank, all known. `behind_ns`:
// how far the sum of each rank is behind that of the slowest. It is empty when that is not known,
// as after a step without a time. Other ranks than before are taken to start together.
int64_t AdvanceClock(const google::protobuf::Map<int32_t, int64_t>& durations_ns,
                     google::protobuf::Map<int32_t, int64_t>& behind_ns);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_STEP_CLOCK_H_
