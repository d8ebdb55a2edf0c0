// RankEvidence: everything about an iteration that speaks for or against a rank.
//
// Threading: one thread. Ownership: values. Units: ns.
#ifndef SEQPOINT_DAEMON_RANKS_RANK_EVIDENCE_H_
#define SEQPOINT_DAEMON_RANKS_RANK_EVIDENCE_H_

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/ranks/collective_match.h"
#include "daemon/ranks/iteration_time.h"
#include "daemon/ranks/leverage.h"
#include "daemon/ranks/longest_scores.h"
#include "daemon/ranks/rank_scores.h"
#include "daemon/ranks/roles.h"
#include "daemon/ranks/straggler_detector.h"

namespace seqpoint::ranks {

class RankEvidence {
 public:
  // One iteration as the ranks together saw it.
  struct Iteration {
    std::map<int32_t, Evidences> ranks;
    double time_ns = 0;      // mean of the ranks' durations; 0: not known
    double expected_ns = 0;  // 0: not known
    double wait_ns = 0;      // mean of the ranks'; 0 where collectives are not known
    int32_t longest = -1;    // rank that is expected to work longest
    double second = 1;       // expected work of the next one, as a share of it
    std::vector<Lengths> lengths;
    Lengths longest_lengths = {};
  };
  Iteration Add(const JoinedIteration& joined);

  // As RankScores.
  void Settle(int32_t rank, RankScores::Finding finding, RankScores::Finding common);
  // After the tests: `slow` where a rank or link was slow in it.
  void LearnTime(const Iteration& iteration, bool slow);

  const IterationTime& time() const { return time_; }
  double leverage() const { return leverage_.value(); }
  // Iterations that the rank's expected work was learned from.
  double Count(int32_t rank) const { return exclusive_.Count(roles_.RoleOf(rank)); }
  bool HasPeers(int32_t rank) const { return roles_.HasPeers(rank); }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(roles_, exclusive_, outside_, longest_, time_, leverage_);
  }

 private:
  double Work(const RankPart& part) const;
  void Summarize(const JoinedIteration& joined, Iteration& iteration) const;

  Roles roles_;
  RankScores exclusive_{RankScores::Part::kExclusive}, outside_{RankScores::Part::kOutside};
  LongestScores longest_;
  IterationTime time_;
  Leverage leverage_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_RANK_EVIDENCE_H_
