// LongestScores: by how much an iteration took longer than expected, scored for the rank whose
// lengths the others wait for.
//
// Where collectives overlap with work and each rank has its own lengths, this is what shows that
// the hidden part of a rank's work is slow: the iteration is longer than its lengths explain
// whenever this rank is the longest by far, and not when another one is. The excess is the
// logarithm of time / expected time, less the median of the other ranks' last ones: common causes
// cancel.
//
// Threading, ownership: values.
#ifndef SEQPOINT_DAEMON_RANKS_LONGEST_SCORES_H_
#define SEQPOINT_DAEMON_RANKS_LONGEST_SCORES_H_

#include <cstdint>
#include <map>

#include "daemon/ranks/noise_estimate.h"
#include "daemon/ranks/rank_scores.h"

namespace seqpoint::ranks {

class LongestScores {
 public:
  // `rank`: the longest of an iteration that took `ratio` times as long as expected.
  Score Add(int32_t rank, double ratio);

  const Penalties& penalties() const { return noise_.penalties(); }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(last_, noise_);
  }

 private:
  std::map<int32_t, double> last_;  // by rank: logarithm of its last ratio
  NoiseEstimate noise_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_LONGEST_SCORES_H_
