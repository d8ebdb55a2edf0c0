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
// The unit is so many of its parts, which WorkModel takes for nanoseconds.
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
  double unit = 0;
  for (const RankPart* part : parts)
    unit += std::log(static_cast<double>(part->exclusive_ns)) / static_cast<double>(parts.size());
  const std::vector<Score> shared = Compare(parts, &Stage::shared, std::exp(unit) / kMillion);
  std::vector<Score> scores = Compare(parts, &Stage::alone, 1);
  for (size_t i = 0; i < parts.size(); ++i) {
    const double deviation = shared[i].deviation;
    if (deviation > 0 && (scores[i].deviation == 0 || deviation < scores[i].deviation))
      scores[i] = shared[i];
  }
  return scores;
}

// By one of the two baselines. The deviations are 0 until that of each stage is known.
std::vector<Score> StageScores::Compare(const std::vector<const RankPart*>& parts,
                                        Baseline Stage::*kind, double unit) {
  std::vector<Residual> residuals;
  for (const RankPart* part : parts) {
    Baseline& baseline = stages_[part->rank].*kind;
    const double work = static_cast<double>(part->exclusive_ns) / unit;
    if (const auto residual = baseline.Add(part->lengths, work)) residuals.push_back(*residual);
  }
  std::vector<Score> scores;
  for (const RankPart* part : parts) scores.push_back({.rank = part->rank});
  if (residuals.size() < parts.size()) return scores;
  for (size_t i = 0; i < scores.size(); ++i) {
    const NoiseEstimate& noise = (stages_[scores[i].rank].*kind).noise;
    scores[i].deviation = residuals[i].scale * noise.deviation();
    scores[i].penalties = noise.penalties();
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    const double own = residuals[i].excess;
    std::vector<double> others;
    bool largest = true;
    for (size_t j = 0; j < scores.size(); ++j) {
      if (j == i) continue;
      const double other = residuals[j].excess, deviation = scores[j].deviation;
      others.push_back(kind == &Stage::shared ? other : std::max(other - deviation, 0.0));
      largest &= other - kClip * deviation <= own;
    }
    const double excess = own - MiddleOf(std::move(others));
    // Another one rose by more for sure: that this one seems longer than the rest is no sign.
    scores[i].excess = largest ? excess : std::min(excess, 0.0);
    // The unit is longer where another stage stalled, which is none of this one's doing.
    const double learned = kind == &Stage::shared ? excess : own;
    (stages_[scores[i].rank].*kind).Learn(*parts[i], learned, excess, residuals[i]);
  }
  return scores;
}

std::optional<StageScores::Residual> StageScores::Baseline::Add(const Lengths& lengths,
                                                                double work) {
  if (model.count() == 0) {
    first.push_back({lengths, work});
    if (first.size() < kFirstCount) return std::nullopt;
    model.Start(first);
    first.clear();
    return std::nullopt;
  }
  const double expected = model.Expect(lengths);
  if (!(expected > 0)) return std::nullopt;
  Residual residual = {.expected = expected, .excess = std::log(work / expected)};
  // The fit's own error counts, too.
  residual.scale = std::sqrt(1 + model.Variance(TermsOf(lengths)) / (expected * expected));
  return residual;
}

// `learned`: the logarithm of what the model may learn / expected work.
void StageScores::Baseline::Learn(const RankPart& part, double learned, double excess,
                                  const Residual& residual) {
  // A stall is none of the lengths' doing.
  const double limit = noise.deviation() > 0 ? kClip * residual.scale * noise.deviation() : 1;
  pending.Add(part.lengths, residual.expected * std::exp(std::clamp(learned, -limit, limit)));
  noise.Add(part.rank, excess / residual.scale);
}

void StageScores::Settle(int32_t rank, RankScores::Finding finding) {
  const auto at = stages_.find(rank);
  if (at == stages_.end()) return;
  at->second.shared.Settle(finding);
  at->second.alone.Settle(finding);
}

void StageScores::Baseline::Settle(RankScores::Finding finding) {
  const bool young = model.count() < kYoung;
  if (finding == RankScores::Finding::kSuspicious && !young) return;
  if (finding != RankScores::Finding::kSlow) model.Learn(pending);
  pending = {};
}

}  // namespace seqpoint::ranks
