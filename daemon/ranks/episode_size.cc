#include "daemon/ranks/episode_size.h"

#include <algorithm>
#include <cmath>

namespace seqpoint::ranks {
namespace {

// Where collectives block, a rank's excess makes the iteration longer by most of it. Where the
// iteration grows by a smaller share, collectives hide a part of the work.
constexpr double kBlocking = 0.4;
// Values of LongestScores that make a mean.
constexpr double kLongestCount = 4;
// Two sizes agree when they differ by less than this share of the larger one.
constexpr double kAgree = 0.25;

// `baseline`: standard error of what the excess is measured against.
Range RangeOf(const ExcessMean& excess, double baseline = 0) {
  const double scatter =
      std::max(excess.deviation, excess.spread) / std::sqrt(std::max(excess.count, 1.0));
  const double error = kNormal95 * std::hypot(scatter, baseline);
  return {std::expm1(excess.mean), std::expm1(excess.mean - error),
          std::expm1(excess.mean + error)};
}

// The growth of the iteration's time, from its share of the grown time.
Range Growth(const Range& share) {
  const auto growth = [](double value) { return value / (1 - value); };
  return {growth(share.value), growth(share.low), growth(share.high)};
}

// Slow from the start: there is no earlier time to compare with. The whole rank is slower where
// its time outside of collectives grew as its exclusive time did.
void SizeFromStart(const EpisodeEvidence& evidence, Episode& episode) {
  const Range exclusive = RangeOf(evidence.excess[kExclusive]);
  const Range outside = RangeOf(evidence.excess[kOutside]);
  const double larger = std::max(exclusive.value, outside.value);
  episode.excess = exclusive;
  episode.cost = {};
  episode.cost_doubt = Doubt::kNoBaseline;
  if (std::abs(exclusive.value - outside.value) <= kAgree * larger) return;
  const Range& lower = exclusive.value < outside.value ? exclusive : outside;
  episode.excess = {lower.value, std::max(lower.low, 0.0), std::max(exclusive.high, outside.high)};
  episode.doubt = Doubt::kHidden;
}

}  // namespace

void SizeEpisode(const EpisodeEvidence& evidence, Episode& episode) {
  episode.doubt = Doubt::kNone;
  if (episode.from_start) return SizeFromStart(evidence, episode);
  episode.cost = evidence.cost;
  episode.cost_doubt = evidence.time_count > 0 ? Doubt::kNone : Doubt::kTooFew;
  const ExcessMean& exclusive = evidence.excess[kExclusive];
  if (!evidence.has_peers) {
    const double baseline = exclusive.deviation / std::sqrt(std::max(evidence.baseline_count, 1.0));
    episode.excess = RangeOf(exclusive, baseline);
    return;
  }
  const Range growth = Growth(episode.cost);
  const double shown = std::expm1(exclusive.mean) * evidence.exclusive_share;
  const ExcessMean& longest = evidence.excess[kLongest];
  if (evidence.equal_lengths && growth.value >= kBlocking * shown) {
    episode.excess = RangeOf(exclusive);
  } else if (evidence.equal_lengths && evidence.time_count > 0) {
    episode.excess = growth;
  } else if (longest.count >= kLongestCount && std::expm1(longest.mean) >= growth.value) {
    episode.excess = RangeOf(longest);
  } else if (longest.count >= kLongestCount) {
    episode.excess = growth;  // it delays the iterations in which others are the longest, too
  } else {
    episode.excess = RangeOf(evidence.excess[kOutside]);
    episode.doubt = Doubt::kHidden;
  }
}

}  // namespace seqpoint::ranks
