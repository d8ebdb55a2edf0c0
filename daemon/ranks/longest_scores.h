// LongestScores: by how much an iteration took longer than expected, scored for the rank whose
// lengths the others wait for.
//
// Where collectives overlap with work and each rank has its own lengths, this is what shows that
// the hidden part of a rank's work is slow: the iteration is longer than its lengths explain
// whenever the others wait for this rank, and not when they wait for another one. The excess is the
// logarithm of time / expected time, less the median of the other ranks' latest ones: common causes
// cancel. It is scored when half of the others have newer ones than at the rank's last score, so
// that a common cause that begins counts once.
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
  // `rank`: the others waited for it alone, and it took `ratio` times as long as expected. A
  // deviation of 0: no score.
  Score Add(int32_t rank, double ratio);
  // There are scores.
  bool known() const { return noise_.deviation() > 0; }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(latest_, added_, noise_);
  }

 private:
  struct Latest {
    double ratio = 0;            // logarithm
    int64_t at = 0, scored = 0;  // counts of added_

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(ratio, at, scored);
    }
  };

  std::map<int32_t, Latest> latest_;  // by rank
  int64_t added_ = 0;
  NoiseEstimate noise_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_LONGEST_SCORES_H_
