#include "daemon/iterations/log_window.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace seqpoint::iterations {

using abi::CallRecord;
using abi::Op;

uint64_t LogWindow::TimeBetween(uint32_t from, uint32_t to) const {
  return calls()[to].api_ns > calls()[from].api_ns ? calls()[to].api_ns - calls()[from].api_ns : 0;
}

uint32_t LogWindow::SegmentOf(uint32_t launch) const {
  uint32_t segment = launch;
  while (segment > begin && !IsLaunch(calls()[segment - 1].op)) --segment;
  return segment;
}

uint32_t LogWindow::SameLaunches(uint32_t a, uint32_t b, int direction) const {
  const auto next = [&](uint32_t* call) {
    do {
      *call += static_cast<uint32_t>(direction);
    } while (*call<end&& * call> begin && !IsLaunch(calls()[*call].op));
  };
  uint32_t same = 0;
  if (direction < 0) {
    next(&a);
    next(&b);
  }
  while (same < kMaxWalk && a < end && b < end && a > begin && b > begin &&
         log.symbols()[a].of[1] == log.symbols()[b].of[1]) {
    ++same;
    next(&a);
    next(&b);
  }
  return same;
}

bool IsHostCall(const CallRecord& call) {
  const Op op = static_cast<Op>(call.op);
  return op == Op::kCopyH2D || op == Op::kCopyD2H || op == Op::kMark || BlocksHost(op);
}

bool IsFeed(const CallRecord& call) {
  const Op op = static_cast<Op>(call.op);
  return op == Op::kCopyH2D || op == Op::kStreamWait;
}

uint32_t CountIn(Positions at, uint32_t begin, uint32_t end) {
  return static_cast<uint32_t>(std::lower_bound(at.begin(), at.end(), end) -
                               std::lower_bound(at.begin(), at.end(), begin));
}

std::pair<uint32_t, double> Mode(const std::vector<uint32_t>& values) {
  absl::flat_hash_map<uint32_t, uint32_t> counts;
  std::pair<uint32_t, uint32_t> best{0, 0};
  for (uint32_t value : values) {
    const uint32_t n = ++counts[value];
    if (n > best.second) best = {value, n};
  }
  return {best.first, values.empty()
                          ? 0
                          : static_cast<double>(best.second) / static_cast<double>(values.size())};
}

}  // namespace seqpoint::iterations
