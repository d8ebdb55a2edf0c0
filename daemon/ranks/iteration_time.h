// IterationTime: what the job's iterations take at equal lengths, what a slow rank adds to that,
// and what is lost because lengths differ over ranks.
//
// An iteration takes as long as the rank with the longest lengths needs. What a rank needs is
// fitted on its lengths (WorkModel), from iterations in which no rank and no link was slow.
//
// Threading, ownership: values. Units: ns, shares of the run's time.
#ifndef SEQPOINT_DAEMON_RANKS_ITERATION_TIME_H_
#define SEQPOINT_DAEMON_RANKS_ITERATION_TIME_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/statistics.h"
#include "daemon/ranks/noise_estimate.h"
#include "daemon/ranks/verdict.h"
#include "daemon/ranks/work_model.h"

namespace seqpoint::ranks {

// How some iterations' times compare with what is expected, and what stalls add to that.
struct TimeRatio {
  double count = 0, time_ns = 0, expected_ns = 0;  // time_ns: without the excess of stalls
  double stall_ns = 0;
  double mean = 0, spread = 0;  // of single ratios

  // `deviation`: of one ratio; 0: not known.
  void Add(double time, double expected, double deviation);
  double value() const { return expected_ns > 0 ? time_ns / expected_ns : 1; }
  double stalls() const { return expected_ns > 0 ? stall_ns / expected_ns : 0; }
  double Error() const;  // standard error of value()

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(count, time_ns, expected_ns, stall_ns, mean, spread);
  }
};

// Iterations whose lengths the fit does not know yet, as these are new.
struct UnknownTime {
  double time_ns = 0;
  LengthTerms terms = {};  // sum of the longest rank's

  void Add(double ns, const Lengths& longest);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(time_ns, terms);
  }
};

// The iterations of an episode: what their lengths let expect with the slow rank as slow as it is,
// and if it were not.
struct EpisodeTime {
  TimeRatio ratio;  // to the first, of iterations that nothing disturbed
  // Sums over all iterations but those that we stopped. time_ns: that they took.
  double with_ns = 0, without_ns = 0, time_ns = 0;
  UnknownTime unknown;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(ratio, with_ns, without_ns, time_ns, unknown);
  }
};

class IterationTime {
 public:
  // `ranks`: the lengths of all ranks; `longest`: those of the rank that is expected to work
  // longest.
  void AddLengths(const Lengths& longest, const std::vector<Lengths>& ranks);
  // A rank that was not slow, nor under suspicion, needed this time for its lengths.
  void Learn(double time_ns, const Lengths& lengths);
  // A rank was slow in what was learned so far: it counts for little from now on.
  void Forget();
  // The time of an iteration in which no rank and no link was slow, or under suspicion.
  void AddOrdinary(double time_ns, double expected_ns);

  // 0: not known yet.
  double Expect(const Lengths& longest) const;
  // Standard deviation of one rank's time / expected time; 0: not known.
  double deviation() const { return noise_.deviation(); }
  // What a slow rank costs in the iterations of its episode, as a share of their time: against the
  // ordinary iterations before. `expected_error`: standard error of what is expected, relative,
  // where it is not the same before as in the episode.
  Range Cost(const EpisodeTime& episode, double expected_error) const;
  // Without any: by the factor that its work is longer by. That holds where ranks have lengths of
  // their own, so that iterations that wait for other ranks tell the expected time.
  Range CostByFactor(const EpisodeTime& episode, const Range& factor) const;
  // The share of the episode's time that is not that of first times of lengths, nor of stalls.
  double UsualShare(const EpisodeTime& episode) const;
  // Ordinary iterations that were compared with their expected time.
  double ordinary_count() const { return ordinary_.count; }
  // All ranks have equal lengths in each iteration.
  bool equal_lengths() const { return losses_.count > 0 && std::abs(losses_.Mean()) < kEqual; }

  Imbalance imbalance() const;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(first_, model_, noise_, ordinary_, longest_, mean_, iterations_, known_, ranks_,
            losses_.count, losses_.sum, losses_.squares, stalls_.count, stalls_.sum,
            stalls_.squares, ranks_that_count_.count, ranks_that_count_.sum,
            ranks_that_count_.squares);
  }

 private:
  static constexpr double kEqual = 0.001;  // share of the time

  Range ShareOfTime(const EpisodeTime& episode, double without, double error) const;
  double RanksThatCount(double longest_ns, const std::vector<Lengths>& ranks) const;

  std::vector<WorkSample> first_;  // until there are enough for the model
  WorkModel model_;
  TimeRatio ordinary_;                    // of iterations that the model learned
  NoiseEstimate noise_;                   // of time / expected time
  LengthTerms longest_ = {}, mean_ = {};  // sums: of the longest, and of the ranks' mean
  int64_t iterations_ = 0, known_ = 0;    // known_: those with lengths
  size_t ranks_ = 0;                      // of the last iteration
  Moments losses_;                        // of single iterations
  Moments stalls_;                        // their sizes, relative to the expected time
  Moments ranks_that_count_;              // those whose stall makes an iteration longer
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_ITERATION_TIME_H_
