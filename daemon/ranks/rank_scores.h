// RankScores: by how much more than expected each rank worked in an iteration, against its peers.
//
// The expected work follows from the rank's own lengths (WorkModel) and, because collectives that
// overlap with work hide a part of it on ranks with shorter lengths, from its share of the longest
// expected work of all ranks (bins). The excess is the logarithm of work / expected work, less the
// median of the other ranks': common causes cancel. docs/internals/ranks.md has the formulas.
//
// Threading: one thread. Ownership: values. Memory: bounded per rank and role.
#ifndef SEQPOINT_DAEMON_RANKS_RANK_SCORES_H_
#define SEQPOINT_DAEMON_RANKS_RANK_SCORES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/ranks/collective_match.h"
#include "daemon/ranks/noise_estimate.h"
#include "daemon/ranks/roles.h"
#include "daemon/ranks/work_model.h"

namespace seqpoint::ranks {

// One rank in one iteration.
struct Score {
  int32_t rank = 0;
  double excess = 0;     // logarithm of work / expected work, against the peers
  double deviation = 0;  // standard deviation of `excess` while nothing changes; 0: not known yet
};

class RankScores {
 public:
  // Which part of a rank's time is looked at.
  enum class Part {
    kExclusive,  // JoinedIteration: RankPart::exclusive_ns
    kOutside,    // RankPart::outside_ns
  };
  explicit RankScores(Part part) : part_(part) {}

  // Scores of those ranks whose expected work is known.
  std::vector<Score> Add(const JoinedIteration& iteration, const Roles& roles);

  // What follows from the scores of the rank's iterations so far. Ordinary ones are learned.
  // Suspicious ones wait until the suspicion is over. Slow ones are forgotten, and the rank is no
  // measure of its peers until it is ordinary again.
  enum class Finding { kOrdinary, kSuspicious, kSlow };
  void Settle(int32_t rank, Finding finding);

  double Expect(int32_t role, const Lengths& lengths) const;
  // How many iterations the model was learned from.
  double Count(int32_t role) const;
  const Penalties& penalties() const { return noise_.penalties(); }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(roles_, pending_, levels_, slow_, noise_);
  }

 private:
  // Of ranks whose expected work is about the same share of the longest.
  struct Bin {
    double count = 0, mean = 0, deviation = 0;  // of ratios; of excesses

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(count, mean, deviation);
    }
  };
  struct Role {
    WorkModel model;
    std::array<Bin, 8> bins = {};

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(model, bins);
    }
  };
  struct Pending {
    int32_t role = 0;
    WorkSums sums;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(role, sums);
    }
  };
  // One rank in the iteration that is being scored.
  struct Row {
    int32_t rank = 0, role = 0;
    bool alone = false;  // it has no peers
    bool slow = false;
    bool compared = false;  // with itself, or with a peer that is not slow
    size_t bin = 0;
    double expected = 0;  // ns
    double ratio = 0;     // logarithm of work / expected work
    double excess = 0;
  };
  std::vector<Row> Rows(const JoinedIteration& iteration, const Roles& roles);
  void Compare(std::vector<Row>& rows) const;
  Score LearnAndScore(const Row& row);

  Part part_;
  std::map<int32_t, Role> roles_;       // by their numbers
  std::map<int32_t, Pending> pending_;  // by rank
  std::map<int32_t, double> levels_;    // by rank: recent mean of its excess
  std::vector<int32_t> slow_;           // ranks
  NoiseEstimate noise_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_RANK_SCORES_H_
