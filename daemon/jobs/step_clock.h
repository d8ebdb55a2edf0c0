// StepClock: the time of the steps of several ranks from the times of their iterations.
//
// Ranks that wait for each other begin and end a step at times that differ by the jitter of the
// machine. Their sums of times stay together; the longest time of each step, summed, is too long by
// the jitter of every step. So the run is where its slowest rank is, and a step takes what that
// moves it on:
//
//   step       0    1    2    3          sum
//   rank 0   100   90  110  100          400
//   rank 1    95  105   92  108          400
//   step     100   95  107   98          400     (the longest of each: 423)
//
// Where ranks do not wait for each other, the sum is the slowest rank's, too.
//
// Threading: one thread. Ownership: values only.
#ifndef DAEMON_JOBS_STEP_CLOCK_H_
#define DAEMON_JOBS_STEP_CLOCK_H_

#include <cstdint>
#include <map>
#include <utility>

namespace seqpoint::jobs {

class StepClock {
 public:
  // The times of one step, by rank, all known. Returns the step's, at least that of the rank which
  // was the slowest so far. With other ranks than before all are taken to begin together.
  int64_t Advance(const std::map<int32_t, int64_t>& durations_ns);

  // A step without a time passed: where the ranks are is not known any more.
  void Lose() { behind_ns_.clear(); }

  // By how much each rank's sum is behind the slowest one's, for the stored state.
  const std::map<int32_t, int64_t>& behind_ns() const { return behind_ns_; }
  void Restore(std::map<int32_t, int64_t> behind_ns) { behind_ns_ = std::move(behind_ns); }

 private:
  std::map<int32_t, int64_t> behind_ns_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_STEP_CLOCK_H_
