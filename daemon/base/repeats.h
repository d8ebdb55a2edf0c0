// How many times a run has the lengths of its horizon.
#ifndef DAEMON_BASE_REPEATS_H_
#define DAEMON_BASE_REPEATS_H_

#include <algorithm>
#include <cstdint>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint {

// The histogram of shuffled batches has all epochs together.
inline int64_t RepeatsOf(const v1::Horizon& horizon) {
  return horizon.kind() == v1::Horizon::KIND_HISTOGRAM ? std::max<int64_t>(horizon.epochs(), 1) : 1;
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_REPEATS_H_
