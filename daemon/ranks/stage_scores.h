// StageScores: by how much more than usual each stage of a pipeline worked in an iteration, against
// the other stages.
//
// No stage is a peer of another one, but all work on the same batches in the same iteration, and
// meet new lengths together. A stage's work is therefore measured in units of the others' median
// of the same iteration: causes that they share cancel, so that iterations of new lengths count as
// well. The unit depends a little on the lengths (WorkModel). The excess is the logarithm of work /
// expected work; each stage is its own baseline.
//
// Threading: one thread. Ownership: values. Memory: bounded per stage.
#ifndef SEQPOINT_DAEMON_RANKS_STAGE_SCORES_H_
#define SEQPOINT_DAEMON_RANKS_STAGE_SCORES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/ranks/collective_match.h"
#include "daemon/ranks/noise_estimate.h"
#include "daemon/ranks/rank_scores.h"
#include "daemon/ranks/roles.h"
#include "daemon/ranks/work_model.h"

namespace seqpoint::ranks {

class StageScores {
 public:
  // Stages, so that one of them does not decide the others' median.
  static constexpr size_t kLeast = 4;

  // Scores of the ranks without peers, if there are enough.
  std::vector<Score> Add(const JoinedIteration& iteration, const Roles& roles);

  // As RankScores, but a young baseline goes on learning under suspicion: that of a job's first few
  // iterations may be wrong, and would be suspicious for good.
  void Settle(int32_t rank, RankScores::Finding finding);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(stages_);
  }

 private:
  struct Stage {
    std::vector<WorkSample> first;  // until there are enough for the model
    WorkModel model;                // of work, in millionths of the others' median
    WorkSums pending;               // what the model may learn later
    NoiseEstimate noise;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(first, model, pending, noise);
    }
  };
  Score ScoreOf(const RankPart& part, double work);

  std::map<int32_t, Stage> stages_;  // by rank
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_STAGE_SCORES_H_
