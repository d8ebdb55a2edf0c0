// CusumBank: whether the mean of a stream of values has risen, and since when.
//
// The values are standardised: under "nothing has risen" their mean is at most 0 and their
// deviation
// 1. A bank of CUSUMs (Page, Biometrika 1954), one for each of kSlopes, sums up log likelihood
// ratios slope * z - penalty(slope), and starts again where the sum is negative. The penalty is the
// logarithm of the mean of exp(slope * z) that NoiseEstimate sees on the job itself, so that each
// ratio has a mean of at most 1. exp(CUSUM) is then at most the sum over all starts of a martingale
// of mean 1 (Shiryaev-Roberts), and Doob's inequality gives, for each slope,
//
//   P(a CUSUM reaches h within n values) <= n * exp(-h)
//
// whatever the distribution: Threshold() follows from that. A bank is as fast as a test that knows
// the size of the effect, within a few values, and needs no window of values.
//
// Threading, ownership: values.
#ifndef SEQPOINT_DAEMON_RANKS_CUSUM_BANK_H_
#define SEQPOINT_DAEMON_RANKS_CUSUM_BANK_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "daemon/ranks/archive.h"

namespace seqpoint::ranks {

// Shifts, in deviations, for which one of the CUSUMs is the fastest test.
inline constexpr std::array<double, 5> kSlopes = {0.25, 0.5, 1, 1.5, 2};
using Penalties = std::array<double, kSlopes.size()>;

// A value beyond that many deviations counts as that many: stalls are no evidence of more.
inline constexpr double kClip = 4;

// A rise of less than three quarters of a deviation is lost in what the slowest of several ranks
// costs by chance.
inline constexpr double kNoiseTolerance = 0.75;

// Evidence that is worth looking at every iteration: ln 20, which one of 20 ranks reaches by chance
// in an iteration.
inline constexpr double kSuspicion = 3;

// Tests of ranks together, and tests of links together, give one false alarm in 200 jobs of so many
// observed iterations.
inline constexpr double kTestedIterations = 10000, kFalseAlarms = 0.005;

// A threshold that `tests` tests reach within `values` values each with a probability of at most
// `false_alarms`, if nothing has risen.
double Threshold(size_t tests, double values = kTestedIterations,
                 double false_alarms = kFalseAlarms);

class CusumBank {
 public:
  void Add(int64_t number, double z, const Penalties& penalties);
  void Reset() { *this = CusumBank(); }

  // The largest CUSUM.
  double evidence() const { return sums_[Largest()]; }
  // The number of the first value after the last start of a CUSUM; the earliest of those that hold
  // more evidence than kSuspicion, or else of the largest. Steep ones start again where noise was
  // overestimated, which it is while it is not known well.
  int64_t onset() const;
  // The rise may have begun with this iteration: the values from there to the onset speak against
  // it by a likelihood ratio of less than exp(kSuspicion). Of the slope with most evidence.
  int64_t earliest() const { return starts_[Largest()].earlier.number; }
  // No CUSUM holds evidence: what came so far is from before a rise, if there is one.
  bool quiet() const;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(sums_, onsets_);
    for (Starts& starts : starts_) {
      archive(starts.earlier.number, starts.earlier.fall, starts.later.number, starts.later.fall);
    }
  }

 private:
  // Where a rise may have begun. `fall`: of the sum since then, if it did not start again.
  struct Start {
    int64_t number = -1;
    double fall = 0;
  };
  struct Starts {
    Start earlier, later;  // `later` takes the place of `earlier`, whose fall is too large
    void Fall(int64_t number, double by);
  };
  size_t Largest() const;

  std::array<double, kSlopes.size()> sums_ = {};
  std::array<int64_t, kSlopes.size()> onsets_ = {};
  std::array<Starts, kSlopes.size()> starts_ = {};
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_CUSUM_BANK_H_
