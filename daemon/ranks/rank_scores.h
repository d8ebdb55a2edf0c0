// RankScores: by how much more than expected each rank worked in an iteration, against its peers.
//
// The expected work follows from the rank's own lengths (WorkModel) and, because collectives that
// overlap with work hide a part of it on ranks with shorter lengths, from its share of the longest
// expected work of all ranks (bins). Nothing hides the time outside of collectives: it has no bins.
// The excess is the logarithm of work / expected work, less the median of the other ranks': common
// causes cancel. A rank that was disturbed in an iteration has no value in it, so each rank is
// compared with the latest values that the others had since its own last one. Those of the same
// iteration are among them, where there are some. A cause that begins on all ranks at once
// therefore counts once for each, at most. docs/internals/ranks.md has the formulas.
//
// Threading: one thread. Ownership: values. Memory: bounded per rank and role.
#ifndef SEQPOINT_DAEMON_RANKS_RANK_SCORES_H_
#define SEQPOINT_DAEMON_RANKS_RANK_SCORES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
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
  Penalties penalties = {};  // of excess / deviation, where that is known
};

class RankScores {
 public:
  explicit RankScores(RankPart::Time time) : time_(time) {}

  // Scores of those ranks whose expected work is known.
  std::vector<Score> Add(const JoinedIteration& iteration, const Roles& roles);

  // What follows from the scores of the rank's iterations so far. Ordinary ones are learned.
  // Suspicious ones wait until the suspicion is over. Slow ones are forgotten, and the rank is no
  // measure of its peers until it is ordinary again.
  enum class Finding { kOrdinary, kSuspicious, kSlow };
  // `common`: of the stages of a pipeline, the worst of all stages; of others as `finding`. Stages
  // that have learned from other batches than a stage could not tell how long its batches take.
  void Settle(int32_t rank, Finding finding, Finding common);

  double Expect(int32_t role, const Lengths& lengths) const;
  // 0 where the fit is less sure than one value is: the lengths are unlike those it has learned
  // from.
  double ExpectSurely(int32_t role, const Lengths& lengths) const;
  // How many iterations the model was learned from.
  double Count(int32_t role) const;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(roles_, ranks_, noises_);
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
    std::vector<WorkSample> first;  // until there are enough for the model
    WorkModel model;
    double deviation = 0;          // of one time from the model, relative
    std::array<Bin, 8> bins = {};  // of exclusive times

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(first, model, deviation, bins);
    }
  };
  struct Rank {
    int32_t role = 0, group = 0;
    Finding finding = Finding::kOrdinary, common = Finding::kOrdinary;
    WorkSums pending;                    // what the model may learn later
    double level = 0;                    // recent mean of the excess
    double ratio = 0;                    // Row::ratio of the last value
    int64_t number = -1, compared = -1;  // iterations: of that value; of the last one with peers

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(role, group, finding, common, pending, level, ratio, number, compared);
    }
  };
  static constexpr int32_t kAlone = -1;  // it has no peers
  // One rank in the iteration that is being scored.
  struct Row {
    int32_t rank = 0, role = 0;
    int32_t group = 0;      // those that it is compared with: its role, or kAlone
    bool compared = false;  // with itself, or with a peer that is not slow
    size_t bin = 0;
    double expected = 0;  // ns
    double ratio = 0;     // logarithm of work / expected work
    double excess = 0;
  };
  std::vector<Row> Rows(const JoinedIteration& iteration, const Roles& roles);
  void Learn(const RankPart& part, double work, double expected, Rank& rank);
  size_t BinOf(double expected, double longest) const;
  std::optional<double> Common(int64_t number, const Row& row) const;
  std::optional<double> CommonOfPeers(const Row& row) const;
  std::optional<double> CommonOfStages(int64_t number, const Row& row) const;
  void Compare(int64_t number, std::vector<Row>& rows);
  Score LearnAndScore(const Row& row);
  void LearnBin(const Row& row, Bin& bin);

  RankPart::Time time_;
  std::map<int32_t, Role> roles_;  // by their numbers
  std::map<int32_t, Rank> ranks_;
  std::map<int32_t, NoiseEstimate> noises_;  // of excesses / their bin's deviation, by group; or of
                                             // excesses, by role, where there are no bins
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_RANK_SCORES_H_
