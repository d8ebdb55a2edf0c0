// StragglerDetector: when one rank becomes slow and when it recovers, by its scores.
//
// Five kinds of evidence are tested, each by a CusumBank of (excess - tolerance) / deviation.
// The tolerance is 1 % of the rank's work, because chips of one model differ by as much, and at
// least three quarters of a deviation: less than that is lost in what the slowest rank of an
// iteration costs by chance. A slow rank has recovered when a test of (half its excess - excess) /
// deviation says so.
//
// Threading, ownership: values.
#ifndef SEQPOINT_DAEMON_RANKS_STRAGGLER_DETECTOR_H_
#define SEQPOINT_DAEMON_RANKS_STRAGGLER_DETECTOR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/ranks/cusum_bank.h"
#include "daemon/ranks/rank_scores.h"
#include "daemon/ranks/verdict.h"

namespace seqpoint::ranks {

// What is tested of a rank in an iteration: its exclusive time, its time outside of collectives
// (both RankScores), the iteration's time when it is the longest (LongestScores), the usual piece
// of its work when the others wait for it (PaceScores), and its time outside of collectives when
// its lengths are new (FirstTimeScores).
enum Part : size_t { kExclusive, kOutside, kLongest, kPace, kFirstTime, kParts };
struct Evidence {
  double excess = 0;         // logarithm of time / expected time
  double deviation = 0;      // 0: not known, and no evidence
  double weight = 1;         // excess * weight is a share of the rank's work, 1 at most
  Penalties penalties = {};  // as Score
};
using Evidences = std::array<Evidence, kParts>;

// As a share of a rank's work: chips of one model differ by as much.
inline constexpr double kTolerance = 0.01;
// Every eighth iteration is observed while nothing is suspicious.
inline constexpr int64_t kObservedPeriod = 8;
// Iterations after an alarm that measure its size, each one.
inline constexpr double kSizeCount = 16;
// Times of iterations that waited for a slow rank, which make a mean.
inline constexpr double kLongestCount = 4;

// The mean excess of one part over an episode.
struct ExcessMean {
  double count = 0, mean = 0;
  double deviation = 0;  // of one value: as its evidence says
  double spread = 0;     // of the values about the mean

  void Add(const Evidence& evidence);
  // exp(mean) with its 95 % interval. `baseline`: standard error of what it is measured against.
  Range Factor(double baseline = 0) const;
  // Standardised, so that it is positive when the excess is over: more than half of it is gone.
  double Fall(const Evidence& evidence) const;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(count, mean, deviation, spread);
  }
};

// The mean of the latest few values.
struct RecentMean {
  double count = 0, mean = 0;

  void Add(double value);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(count, mean);
  }
};

class StragglerDetector {
 public:
  enum class Event { kNone, kBecameSlow, kRecovered };

  Event Add(int64_t number, const Evidences& evidence, double threshold);

  // The alarm is of no account: it has begun to be slow by too little.
  void Dismiss();

  RankScores::Finding finding() const;
  bool slow() const { return slow_; }
  // It is slow, and nothing speaks for its recovery.
  bool steady() const { return slow_ && fall_.quiet(); }
  // The rank is slow since, or it was slow until before, this iteration; after an event.
  int64_t since() const { return since_; }
  // Nothing shows that it was ordinary before since().
  bool no_baseline() const { return no_baseline_; }
  // ... or it was, but not that it still was so just before.
  bool maybe_before() const { return no_baseline_ || maybe_before_; }
  const std::array<ExcessMean, kParts>& excess() const { return excess_; }
  // By how much its work is longer: by the times of iterations that waited for it, where those are
  // known, as nothing hides a part of these or shows it several times; else as it was shown.
  Range Factor() const;
  // The evidence that showed it.
  size_t part() const { return part_; }
  // More observed iterations would tell soon: something may have begun or ended, or its size is not
  // known.
  bool wants_more() const;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(before_, rises_, fall_, slow_, no_baseline_, maybe_before_, part_, since_, excess_,
            recent_, recent_count_);
    part_ = std::min<size_t>(part_, kParts - 1);
  }

 private:
  struct Value {
    int64_t number = -1;
    Evidences evidence;
    template <typename Archive>
    void Visit(Archive& archive) {
      for (Evidence& part : evidence) archive(part.excess, part.deviation, part.weight);
      archive(number);
    }
  };
  void Begin(size_t part);

  std::array<RecentMean, kParts> before_;  // excesses that were no evidence
  std::array<CusumBank, kParts> rises_;
  CusumBank fall_;
  bool slow_ = false, no_baseline_ = false, maybe_before_ = false;
  size_t part_ = 0;
  int64_t since_ = -1;
  std::array<ExcessMean, kParts> excess_;
  std::array<Value, 16> recent_;  // a ring by count of values; the first estimate after an alarm
  size_t recent_count_ = 0;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_STRAGGLER_DETECTOR_H_
