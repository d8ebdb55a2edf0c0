// RankEvidence: everything about an iteration that speaks for or against a rank.
//
// Where collectives were observed, the rank that hardly waited in them is the one that the others
// waited for: its time is its own work, whatever happened on the others. Where they were not, it is
// the rank whose lengths are the longest by far, if nothing disturbed any rank.
//
// Threading: one thread. Ownership: values. Units: ns.
#ifndef SEQPOINT_DAEMON_RANKS_RANK_EVIDENCE_H_
#define SEQPOINT_DAEMON_RANKS_RANK_EVIDENCE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/ranks/collective_match.h"
#include "daemon/ranks/first_time_scores.h"
#include "daemon/ranks/iteration_time.h"
#include "daemon/ranks/leverage.h"
#include "daemon/ranks/longest_scores.h"
#include "daemon/ranks/pace_scores.h"
#include "daemon/ranks/rank_scores.h"
#include "daemon/ranks/roles.h"
#include "daemon/ranks/stage_scores.h"
#include "daemon/ranks/straggler_detector.h"

namespace seqpoint::ranks {

class RankEvidence {
 public:
  // The time that one rank needed for its lengths, without waiting for others.
  struct OwnTime {
    int32_t rank = 0;
    Lengths lengths = {};
    double time_ns = 0;
    bool alone = true;  // for sure: no other one needed nearly as long
  };
  // One iteration as the ranks together saw it.
  struct Iteration {
    std::map<int32_t, Evidences> ranks;
    double time_ns = 0;      // mean of the ranks' durations; 0: not known, or disturbed
    double expected_ns = 0;  // 0: not known
    double elapsed_ns = 0;   // as time_ns, first times of lengths included
    std::vector<std::pair<int32_t, double>> works_ns;  // as expected_ns, of each rank
    double wait_ns = 0;  // mean of the ranks'; 0 where collectives are not known
    std::vector<Lengths> lengths;
    Lengths longest_lengths = {};  // of the rank that is expected to work longest
    std::optional<OwnTime> own;

    bool equal_lengths() const {
      return std::all_of(lengths.begin(), lengths.end(),
                         [&](const Lengths& of_rank) { return of_rank == lengths.front(); });
    }
  };
  Iteration Add(const JoinedIteration& joined);

  // As RankScores. `factor`: of the work of a slow rank, by how much it is longer.
  void Settle(int32_t rank, RankScores::Finding finding, RankScores::Finding common, double factor);
  // After the tests: `slow` where a rank or link was slow in it; `own_tells` where the rank that
  // the others waited for was not.
  void LearnTime(const Iteration& iteration, bool slow, bool own_tells);
  // A rank was slow in all iterations so far.
  void ForgetTimes() { time_.Forget(); }
  // Of an iteration in which `rank` was slow.
  void AddTo(EpisodeTime& episode, const Iteration& iteration, int32_t rank) const;

  const IterationTime& time() const { return time_; }
  double leverage() const { return leverage_.value(); }
  // Iterations that the rank's expected work was learned from.
  double Count(int32_t rank) const { return exclusive_.Count(roles_.RoleOf(rank)); }
  // Ranks have lengths of their own, and too little is known of iterations that wait for one rank.
  bool wants_more() const { return !time_.equal_lengths() && !longest_.known(); }
  bool HasPeers(int32_t rank) const { return roles_.HasPeers(rank); }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(roles_, exclusive_, outside_, longest_, pace_, first_time_, stages_, time_, leverage_,
            slow_);
  }

 private:
  double Work(const RankPart& part) const;
  std::vector<double> Works(const JoinedIteration& joined) const;
  void Summarize(const JoinedIteration& joined, Iteration& iteration) const;
  void SumUp(const JoinedIteration& joined, const Lengths& longest, Iteration& iteration) const;
  double BatchOf(const JoinedIteration& joined) const;
  void ScoreOwnTime(Iteration& iteration);

  Roles roles_;
  RankScores exclusive_{RankPart::Time::kExclusive}, outside_{RankPart::Time::kOutside};
  StageScores stages_;
  LongestScores longest_;
  PaceScores pace_;
  FirstTimeScores first_time_;
  IterationTime time_;
  Leverage leverage_;
  std::map<int32_t, double> slow_;  // factors
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_RANK_EVIDENCE_H_
