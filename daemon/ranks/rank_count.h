// How much longer a job's steps take with another number of ranks, or with equal lengths, because
// each step waits for the last rank: for the one with the longest batch, and for one that is late
// by chance.
//
// A step is over when its last rank is. Where ranks are late independently of each other, its time
// with n ranks is below t with the probability F(t)^n, F being one rank's; so with N ranks it is
// that with n to the power N/n. The job's own steps are drawn so: nothing is assumed of the form of
// the noise, and seldom stalls, which matter most, are in it as often as they were seen.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_RANKS_RANK_COUNT_H_
#define DAEMON_RANKS_RANK_COUNT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/seqpoint/interval.h"

namespace seqpoint::ranks {

struct StepOfRanks {
  int64_t number = 0;
  double time_ns = 0;               // 0: not known, or not that of an ordinary step
  std::vector<double> expected_ns;  // of a step as long as each rank's batch needs

  double Longest() const { return *std::max_element(expected_ns.begin(), expected_ns.end()); }
  double Mean() const;
};

// Factors of the steps' time.
struct LastRank {
  double lengths = 1;  // because the longest batch is another one
  // Because the ranks' delays are others. The interval reaches from where all ranks are late
  // together, which is 1, to where each one is by itself: the steps do not tell which.
  Estimate chance = {1, 1, 1};
  double lengths_error = 0;  // of `lengths`, half of the interval
  bool equal_lengths = false;
};

// With `count` ranks. `run_steps`: how many steps the run has, which draws lengths and delays anew.
// FailedPrecondition: there are too few steps, or more ranks would draw lengths in a way that is
// not known.
absl::StatusOr<LastRank> WithOtherCount(absl::Span<const StepOfRanks> steps, size_t count,
                                        double run_steps, double confidence);
// With the same batches, dealt so that all ranks of a step have equal lengths. The lengths are then
// those of the run, so that `lengths` has no error.
absl::StatusOr<LastRank> WithEqualLengths(absl::Span<const StepOfRanks> steps, double run_steps,
                                          double confidence);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_RANK_COUNT_H_
