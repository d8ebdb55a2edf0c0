// The features that can be read early in each iteration, and how long the iteration took.
//
// Candidates can be read before most of the iteration is launched: bytes of each host-to-device
// copy, in this iteration or (prefetch) in the one before, NVTX payloads and numbers, grid
// dimensions of the first launches; and, last, call counts. Times come from GPU stamps, since the
// CPU may run far before the GPU; without stamps, from an interval between calls that waited for
// the GPU.
//
// Threading: free functions over constant input. Ownership: values.
#ifndef DAEMON_ITERATIONS_LENGTH_FEATURES_H_
#define DAEMON_ITERATIONS_LENGTH_FEATURES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/iterations/launch_log.h"
#include "daemon/iterations/replay.h"
#include "injection/abi/control.h"

namespace seqpoint::iterations {

// GPU start of the work of a call, by correlation id, in ns of the process' CUPTI clock.
using GpuStarts = absl::flat_hash_map<uint32_t, uint64_t>;

// The values of each candidate source in each iteration.
struct FeatureTable {
  std::vector<abi::LengthSource> sources;  // in the order of preference
  std::vector<std::string> words;          // "bytes of the 2nd host-to-device copy"
  std::vector<int64_t> values;             // row-major, rows() x sources.size(); -1: not read
  std::vector<double> time_ns;             // per row; 0: unknown
  std::vector<double> launched_threads;    // per row
  std::vector<double> launches;            // per row
  std::string time_source;                 // "GPU stamps", "host waits" or empty
  size_t rows() const { return time_ns.size(); }
  int64_t value(size_t row, size_t source) const { return values[row * sources.size() + source]; }
};

FeatureTable MakeFeatures(const LaunchLog& stream, const std::vector<ReplayedIteration>& iterations,
                          uint32_t micro_batches_per_step, const GpuStarts& gpu_starts);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LENGTH_FEATURES_H_
