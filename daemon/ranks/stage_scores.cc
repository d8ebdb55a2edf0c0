#include "daemon/ranks/stage_scores.h"

#include <algorithm>
#include <cmath>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
namespace {

// Iterations of a stage before its model is used: two for each of the model's terms.
constexpr size_t kFirstCount = 2 * WorkSums::kTerms;
// Iterations in which a baseline is young: its mean then has a tenth of one iteration's error.
constexpr double kYoung = 100;
// A median is so many units, which WorkModel takes for nanoseconds.
constexpr double kMillion = 1e6;

}  // namespace

std::vector<Score> StageScores::Add(const JoinedIteration& iteration, const Roles& roles) {
  std::vector<const RankPart*> parts;
  for (const RankPart& part : iteration.ranks)
    if (part.observed() && part.missed == 0 && !part.distorted && part.exclusive_ns > 0 &&
        !roles.HasPeers(part.rank))
      parts.push_back(&part);
  const bool alike = std::all_of(parts.begin(), parts.end(), [&](const RankPart* part) {
    return part->new_length == parts.front()->new_length;
  });
  if (parts.size() < kLeast || !alike) return {};
  std::vector<Score> scores;
  for (const RankPart* part : parts) {
    std::vector<double> others;
    for (const RankPart* other : parts)
      if (other != part) others.push_back(static_cast<double>(other->exclusive_ns));
    const double unit = MiddleOf(std::move(others));
    scores.push_back(ScoreOf(*part, kMillion * static_cast<double>(part->exclusive_ns) / unit));
  }
  return scores;
}

Score StageScores::ScoreOf(const RankPart& part, double work) {
  Stage& stage = stages_[part.rank];
  Score score = {.rank = part.rank};
  if (stage.model.count() == 0) {
    stage.first.push_back({part.lengths, work});
    if (stage.first.size() < kFirstCount) return score;
    stage.model.Start(stage.first);
    stage.first.clear();
    return score;
  }
  const double expected = stage.model.Expect(part.lengths);
  if (!(expected > 0)) return score;
  // The fit's own error counts, too.
  const double scale =
      std::sqrt(1 + stage.model.Variance(TermsOf(part.lengths)) / (expected * expected));
  score.excess = std::log(work / expected);
  score.deviation = scale * stage.noise.deviation();
  score.penalties = stage.noise.penalties();
  stage.noise.Add(part.rank, score.excess / scale);
  // A stall is none of the lengths' doing.
  const double limit = score.deviation > 0 ? kClip * score.deviation : 1;
  stage.pending.Add(part.lengths, expected * std::exp(std::clamp(score.excess, -limit, limit)));
  return score;
}

void StageScores::Settle(int32_t rank, RankScores::Finding finding) {
  const auto at = stages_.find(rank);
  if (at == stages_.end()) return;
  Stage& stage = at->second;
  const bool young = stage.model.count() < kYoung;
  if (finding == RankScores::Finding::kSuspicious && !young) return;
  if (finding != RankScores::Finding::kSlow) stage.model.Learn(stage.pending);
  stage.pending = {};
}

}  // namespace seqpoint::ranks
