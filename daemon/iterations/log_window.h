// The part of a launch log that an analysis looks at, with the queries that all analyses share.
//
// Threading: constant input. Ownership: refers to the log and the occurrences, which outlive it.
#ifndef DAEMON_ITERATIONS_LOG_WINDOW_H_
#define DAEMON_ITERATIONS_LOG_WINDOW_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/launch_log.h"

namespace seqpoint::iterations {

using Positions = absl::Span<const uint32_t>;  // indices of calls, ascending

struct LogWindow {
  const LaunchLog& log;
  const Occurrences& occurrences;
  uint32_t begin = 0, end = 0;  // the calls of the window

  const std::vector<abi::CallRecord>& calls() const { return log.calls(); }
  abi::Op OpAt(uint32_t call) const { return static_cast<abi::Op>(calls()[call].op); }
  uint32_t KindAt(uint32_t call) const { return log.symbols()[call].of[0]; }
  // ns; 0 where time runs backwards.
  uint64_t TimeBetween(uint32_t from, uint32_t to) const;
  // The start of the segment that leads to a launch: the first call after the launch before it.
  uint32_t SegmentOf(uint32_t launch) const;
  uint32_t CountLaunches(uint32_t first, uint32_t last) const {
    return iterations::CountLaunches(calls(), first, last);
  }
  // Number of launches that agree in name and geometry, from two calls on (direction 1) or before
  // them (-1); kMaxWalk at most.
  uint32_t SameLaunches(uint32_t a, uint32_t b, int direction) const;
};
inline constexpr uint32_t kMaxWalk = 600;

// A call with which the host does more than launch and annotate.
bool IsHostCall(const abi::CallRecord& call);
// A call that brings a batch or waits for one.
bool IsFeed(const abi::CallRecord& call);

uint32_t CountIn(Positions at, uint32_t begin, uint32_t end);
// The most frequent value and the share of entries that have it.
std::pair<uint32_t, double> Mode(const std::vector<uint32_t>& values);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LOG_WINDOW_H_
