// PaceScores: by how much longer than expected the usual piece of a rank's work took, where the
// others waited for this rank.
//
// Collectives cut an iteration in pieces: the time outside of them, and each gap between two. The
// first time of a length costs time once, in the first layer that runs its operations; the others
// find them ready. A rank that is slow is slow in all of its pieces. The median piece therefore
// tells of a slow rank in iterations of new lengths, too. Each piece has a fit of its own on the
// lengths, shared by peers. Pieces are a rank's own work where it hardly waited; where it waited,
// work that overlaps with collectives hides in them.
//
// Threading: one thread. Ownership: values. Memory: bounded per role.
#ifndef SEQPOINT_DAEMON_RANKS_PACE_SCORES_H_
#define SEQPOINT_DAEMON_RANKS_PACE_SCORES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/ranks/collective_match.h"
#include "daemon/ranks/longest_scores.h"
#include "daemon/ranks/noise_estimate.h"
#include "daemon/ranks/rank_scores.h"
#include "daemon/ranks/roles.h"
#include "daemon/ranks/work_model.h"

namespace seqpoint::ranks {

class PaceScores {
 public:
  // Scores of ranks that have peers: of all, where their lengths are equal, and else of those that
  // hardly waited.
  std::vector<Score> Add(const JoinedIteration& iteration, const Roles& roles);
  // Learns from the iterations since the last call, unless a rank was slow in them, or is under
  // suspicion.
  void Settle(bool slow);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(roles_);
  }

 private:
  using Pieces = std::vector<double>;  // ns
  struct Piece {
    std::vector<WorkSample> first;  // until there are enough for the model
    WorkModel model;
    double deviation = 0;  // of one time from the model, relative
    WorkSums pending;      // what the model may learn

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(first, model, deviation, pending);
    }
  };
  struct Role {
    std::vector<Piece> pieces;
    int64_t unlike = 0;  // iterations in a row with another number of pieces
    LongestScores scores;
    NoiseEstimate alike;  // of scores in iterations in which all have equal lengths

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(pieces, unlike, scores, alike);
    }
  };

  static void CompareAlike(const std::vector<const RankPart*>& parts, Role& role,
                           std::vector<Score>& scores);
  static void CompareWithModel(const RankPart& part, Role& role, std::vector<Score>& scores);
  static Pieces ExpectSurely(const Lengths& lengths, const Role& role);
  static void Learn(const Lengths& lengths, double time_ns, Piece& piece);

  std::map<int32_t, Role> roles_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_PACE_SCORES_H_
