// FirstTimeScores: by how much more than expected the time outside of collectives was, in
// iterations of lengths that are new to a rank.
//
// The first time of a length takes longer, by a share that scatters more than other iterations do.
// It says little of a rank that is a little slower, and much of batches that come late. Such
// iterations are compared with each other only: with the peers' same iteration, where all have the
// same lengths, and else with what the peers took beyond what their lengths explain, the latest
// time that theirs were new.
//
// Threading: one thread. Ownership: values. Memory: bounded per role.
#ifndef SEQPOINT_DAEMON_RANKS_FIRST_TIME_SCORES_H_
#define SEQPOINT_DAEMON_RANKS_FIRST_TIME_SCORES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "daemon/ranks/collective_match.h"
#include "daemon/ranks/longest_scores.h"
#include "daemon/ranks/noise_estimate.h"
#include "daemon/ranks/rank_scores.h"
#include "daemon/ranks/roles.h"

namespace seqpoint::ranks {

class FirstTimeScores {
 public:
  // `outside` knows what the lengths explain.
  std::vector<Score> Add(const JoinedIteration& iteration, const Roles& roles,
                         const RankScores& outside);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(roles_);
  }

 private:
  struct Role {
    NoiseEstimate alike;   // where all have the same lengths
    LongestScores others;  // elsewhere

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(alike, others);
    }
  };

  std::map<int32_t, Role> roles_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_FIRST_TIME_SCORES_H_
