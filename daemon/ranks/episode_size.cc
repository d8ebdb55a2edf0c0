#include "daemon/ranks/episode_size.h"

#include <algorithm>
#include <cmath>

namespace seqpoint::ranks {
namespace {

// Where collectives block, a rank's excess makes the iteration longer by most of it, less what the
// slowest rank by chance cost before (a share of the iteration). Where the iteration grows by less,
// the excess is counted several times: collectives overlap with work.
constexpr double kBlocking = 0.75, kChance = 0.01;
// A share of the iteration's time.
constexpr double kMaterial = 0.005;
// With 25 buckets an excess shows 13 times at most.
constexpr double kLeastLeverage = 0.08;
// Iterations whose mean time tells nothing yet.
constexpr double kFewTimes = 8;
// Two sizes agree when they differ by less than this share of the larger one.
constexpr double kAgree = 0.25;

// A factor of 1.2 is an excess of 0.2.
Range Excess(const ExcessMean& excess, double baseline = 0) {
  const Range factor = excess.Factor(baseline);
  return {factor.value - 1, factor.low - 1, factor.high - 1};
}

// The growth of the iteration's time, from its share of the grown time.
Range Growth(const Range& share) {
  const auto growth = [](double value) { return value / (1 - value); };
  return {growth(share.value), growth(share.low), growth(share.high)};
}

// Where nothing shows that it was ordinary before, iterations that wait for other ranks tell what
// is ordinary, where lengths differ.
void SetCost(const EpisodeEvidence& evidence, Episode& episode) {
  const bool others_tell = evidence.has_peers && evidence.excess[kLongest].count >= kLongestCount;
  episode.cost = {};
  episode.usual_share = evidence.usual_share;
  episode.cost_doubt = Doubt::kNone;
  if (evidence.time_count < kFewTimes) episode.cost_doubt = Doubt::kTooFew;
  if (evidence.no_baseline && !others_tell) episode.cost_doubt = Doubt::kNoBaseline;
  if (episode.cost_doubt == Doubt::kNone) episode.cost = evidence.cost;
}

// Maybe slow from the start: there is no earlier time to compare with. The whole rank is slower
// where its time outside of collectives grew as its exclusive time did.
void SizeFromStart(const EpisodeEvidence& evidence, Episode& episode) {
  const Range exclusive = Excess(evidence.excess[kExclusive]);
  const Range outside = Excess(evidence.excess[kOutside]);
  const double larger = std::max(exclusive.value, outside.value);
  episode.excess = exclusive;
  if (std::abs(exclusive.value - outside.value) <= kAgree * larger) return;
  const Range& lower = exclusive.value < outside.value ? exclusive : outside;
  episode.excess = {lower.value, std::max(lower.low, 0.0), std::max(exclusive.high, outside.high)};
  episode.doubt = Doubt::kHidden;
}

}  // namespace

std::optional<bool> Matters(const EpisodeEvidence& evidence, size_t part) {
  // Its own baseline says nothing of what was before.
  if (!evidence.has_peers) return !evidence.no_baseline;
  if (!evidence.equal_lengths || (part != kExclusive && part != kPace)) return true;
  const double shown = std::expm1(evidence.excess[part].mean) * evidence.exclusive_share;
  if (evidence.no_baseline) return evidence.leverage * shown > kMaterial;
  if (kLeastLeverage * shown > kMaterial) return true;
  if (evidence.time_count < kFewTimes) return std::nullopt;
  return evidence.cost.high > kMaterial;
}

void SizeEpisode(const EpisodeEvidence& evidence, Episode& episode) {
  episode.doubt = Doubt::kNone;
  SetCost(evidence, episode);
  if (evidence.no_baseline) return SizeFromStart(evidence, episode);
  const ExcessMean& exclusive = evidence.excess[kExclusive];
  if (!evidence.has_peers) {
    const double baseline = exclusive.deviation / std::sqrt(std::max(evidence.baseline_count, 1.0));
    episode.excess = Excess(exclusive, baseline);
    return;
  }
  const Range growth = Growth(episode.cost);
  const double shown = std::expm1(exclusive.mean) * evidence.exclusive_share;
  const ExcessMean& longest = evidence.excess[kLongest];
  if (evidence.equal_lengths && growth.value >= kBlocking * shown - kChance) {
    episode.excess = Excess(exclusive);
  } else if (evidence.equal_lengths && evidence.time_count > 0) {
    episode.excess = growth;
  } else if (longest.count >= kLongestCount && std::expm1(longest.mean) >= growth.value) {
    episode.excess = Excess(longest);
  } else if (longest.count >= kLongestCount) {
    episode.excess = growth;  // it delays the iterations in which others are the longest, too
  } else {
    episode.excess = Excess(evidence.excess[kOutside]);
    episode.doubt = Doubt::kHidden;
  }
}

}  // namespace seqpoint::ranks
