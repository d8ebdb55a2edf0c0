// StageScores: by how much more than usual each stage of a pipeline worked in an iteration, against
// the other stages.
//
// No stage is a peer of another one, but all work on the same batches in the same iteration, and
// meet new lengths together. A stage's work is therefore measured in units of the geometric mean
// of all stages in the same iteration: causes that they share cancel, so that iterations of new
// lengths count as well. What a stage needs of it depends a little on the lengths (WorkModel); each
// stage is its own baseline. The excess is the logarithm of work / expected work, less the others'
// median.
//
// Where stages wait for their hosts, each one's work scatters by itself, and the unit by more than
// the work. There, the work in ns tells more: less what others rose by for sure. Of both, the one
// that scatters less is taken. When one host is late, the others wait in other places, so that
// their work seems shorter, each by another share. A stage does not become slower because others
// become faster: an iteration in which another one rose by more for sure does not speak against it.
//
// Threading: one thread. Ownership: values. Memory: bounded per stage.
#ifndef SEQPOINT_DAEMON_RANKS_STAGE_SCORES_H_
#define SEQPOINT_DAEMON_RANKS_STAGE_SCORES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
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
  // Of one stage in one iteration.
  struct Residual {
    double expected = 0;  // work
    double excess = 0;    // logarithm of work / expected work
    double scale = 1;     // by which the fit's own error makes it less sure
  };
  struct Baseline {
    std::vector<WorkSample> first;  // until there are enough for the model
    WorkModel model;
    WorkSums pending;  // what the model may learn later
    NoiseEstimate noise;

    std::optional<Residual> Add(const Lengths& lengths, double work);
    void Learn(const RankPart& part, double learned, double excess, const Residual& residual);
    void Settle(RankScores::Finding finding);
    template <typename Archive>
    void Visit(Archive& archive) {
      archive(first, model, pending, noise);
    }
  };
  struct Stage {
    Baseline shared;  // of work in millionths of the stages' geometric mean
    Baseline alone;   // of work in ns

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(shared, alone);
    }
  };
  std::vector<Score> Compare(const std::vector<const RankPart*>& parts, Baseline Stage::*kind,
                             double unit);

  std::map<int32_t, Stage> stages_;  // by rank
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_STAGE_SCORES_H_
