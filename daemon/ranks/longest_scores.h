// LongestScores: by how much an iteration took longer than expected, scored for the rank whose
// lengths the others wait for.
//
// Where collectives overlap with work and each rank has its own lengths, this is what shows that
// the hidden part of a rank's work is slow: the iteration is longer than its lengths explain
// whenever this rank is the longest by far, and not when another one is. The excess is the
// logarithm of time / expected time, less that of the last iteration in which another rank was the
// longest: common causes cancel. A rank that is the longest several times in a row is scored once,
// so that a common cause that begins counts once, too.
//
// Threading, ownership: values.
#ifndef SEQPOINT_DAEMON_RANKS_LONGEST_SCORES_H_
#define SEQPOINT_DAEMON_RANKS_LONGEST_SCORES_H_

#include <cstdint>

#include "daemon/ranks/noise_estimate.h"
#include "daemon/ranks/rank_scores.h"

namespace seqpoint::ranks {

class LongestScores {
 public:
  // `rank`: the longest of an iteration that took `ratio` times as long as expected. A deviation of
  // 0: no score.
  Score Add(int32_t rank, double ratio);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(rank_, own_, other_, noise_);
  }

 private:
  static constexpr double kNone = 1e9;

  int32_t rank_ = -1;               // the longest of the last iteration
  double own_ = 0, other_ = kNone;  // logarithms: its last one, and the last one of another rank
  NoiseEstimate noise_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_LONGEST_SCORES_H_
