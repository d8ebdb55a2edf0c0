// StepClock: the time of the steps of several ranks, from the times of their iterations.
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
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_STEP_CLOCK_H_
#define DAEMON_JOBS_STEP_CLOCK_H_

#include <cstdint>
#include <map>
#include <utility>

namespace seqpoint::jobs {

class StepClock {
 public:
  // `durations_ns`: of one step, by rank, all known. Returns the time of the step, which is at
  // least that of the slowest rank so far. Other ranks than before are taken to start together.
  int64_t Advance(const std::map<int32_t, int64_t>& durations_ns);

  // A step without a time passed: it is not known any more which rank is the slowest.
  void Lose() { behind_ns_.clear(); }

  // How far the sum of each rank is behind that of the slowest, for the stored state.
  const std::map<int32_t, int64_t>& behind_ns() const { return behind_ns_; }
  void Restore(std::map<int32_t, int64_t> behind_ns) { behind_ns_ = std::move(behind_ns); }

 private:
  std::map<int32_t, int64_t> behind_ns_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_STEP_CLOCK_H_
