// The sources from which the length of an iteration may be read, in the order of preference.
//
// Threading: free functions over constant input.
#ifndef DAEMON_ITERATIONS_LENGTH_SOURCES_H_
#define DAEMON_ITERATIONS_LENGTH_SOURCES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/iterations/launch_log.h"
#include "injection/abi/control.h"

namespace seqpoint::iterations {

// Grids are read of this many first launches of a micro-batch.
inline constexpr uint32_t kReadLaunches = 24;

// Indices of calls. `step`: the call that ends the training part, or `end`.
struct MicroBatch {
  uint32_t begin, end, step;
};

struct LengthSources {
  std::vector<abi::LengthSource> sources;
  std::vector<std::string> words;  // for each: "bytes of the 2nd host-to-device copy"
};

// Proposes the sources that the last few micro-batches all have: framework marks and features, NVTX
// payloads and numbers, bytes of host-to-device copies, grids of the first launches, numbers of
// launches. With `accumulates` values are summed over the micro-batches of an iteration.
// `micro_batches` is not empty.
LengthSources ProposeLengthSources(const LaunchLog& log,
                                   const std::vector<MicroBatch>& micro_batches, bool accumulates);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LENGTH_SOURCES_H_
