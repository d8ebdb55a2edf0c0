// What the host of a rank does while its GPU has nothing to run.
//
// Threading: constant after construction. Ownership: refers to the window, which outlives it.
#ifndef DAEMON_RANKS_LATE_HOST_H_
#define DAEMON_RANKS_LATE_HOST_H_

#include <cstdint>
#include <vector>

#include "daemon/ranks/window_join.h"
#include "daemon/trace/correlations.h"

namespace seqpoint::ranks {

struct Interval {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

class LateHost {
 public:
  explicit LateHost(const RankWindow& window);

  // The times in which no work runs that is not a collective, in order; the last one is to the end
  // of the iteration.
  std::vector<Interval> IdleTimes() const;
  // The times in which the host had not launched what the GPU could have run.
  std::vector<Interval> LateTimes() const;
  // Where the host prepared the batch: the longest time without a call before the batch's copy.
  // Over the border of the iteration where nothing was launched between that and the copy.
  std::vector<Interval> LoadingTimes() const;

  // When the rank itself was ready for a collective, a work: the launch had reached the GPU, and
  // what was launched before was done.
  int64_t ReadyNs(uint32_t work) const;

 private:
  uint32_t BatchCopy() const;
  void AddUnlessBlocked(Interval late, std::vector<Interval>* times) const;
  int64_t EndNs() const;

  const RankWindow& window_;
  const trace::Trace& trace_;
  const trace::Correlations correlations_;
  std::vector<uint32_t> works_;  // that are no collective, by their starts
  std::vector<uint32_t> calls_;  // by their starts
  std::vector<Interval> syncs_;
  std::vector<int64_t> done_ns_;  // by call: the end of what was launched before it
  int64_t latency_ns_ = 0;        // of a launch into an idle GPU
};

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_LATE_HOST_H_
