// Runs the matcher over a recorded stream and finds the calls at which its iterations start and
// end.
//
// Threading: free functions over constant input.
#ifndef DAEMON_ITERATIONS_REPLAY_H_
#define DAEMON_ITERATIONS_REPLAY_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/launch_log.h"
#include "injection/abi/control.h"

namespace seqpoint::iterations {

inline constexpr uint32_t kNoCall = std::numeric_limits<uint32_t>::max();

struct ReplayedIteration {
  uint32_t begin = kNoCall;  // index of the call; the last candidate before the step
  uint32_t step = kNoCall;   // without a step pattern: the next iteration's start
  uint32_t end = kNoCall;    // the first candidate after the step
  uint32_t clock = kNoCall;  // the call whose GPU start is the iteration's
  uint32_t end_clock = kNoCall;
  // Starts of the micro-batches; the first is `begin`.
  std::vector<uint32_t> micro_batches;
  int64_t length[2] = {0, 0};
  uint32_t valid = 0;
};

// Complete iterations of calls [from, stream.size()). Looks only at the n calls that can match: O(n
// log n), whatever the stream's length.
std::vector<ReplayedIteration> Replay(const LaunchLog& stream, const Occurrences& occurrences,
                                      const abi::Rule& rule, uint32_t from);

// Calls at which a candidate starts when nothing confirms one: one per micro-batch.
std::vector<uint32_t> Candidates(const LaunchLog& stream, const Occurrences& occurrences,
                                 const abi::Rule& rule, uint32_t from);

// Bits of Rule::watched_ops that its patterns need.
uint32_t WatchedOps(const abi::Rule& rule);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_REPLAY_H_
