#include "daemon/ranks/straggler_detector.h"

#include <algorithm>
#include <cmath>

namespace seqpoint::ranks {
namespace {

// Iterations that the size of an episode is computed from.
constexpr double kSizeMemory = 512;
// Values of RecentMean: a few, so that an older level of the rank is forgotten.
constexpr double kRecent = 8;

double Tolerance(const Evidence& evidence) {
  return std::max(kTolerance / evidence.weight, kNoiseTolerance * evidence.deviation);
}

}  // namespace

void ExcessMean::Add(const Evidence& evidence) {
  if (!(evidence.deviation > 0)) return;
  count = std::min(count + 1, kSizeMemory);
  const double limit = count > 4 ? kClip * std::max(evidence.deviation, spread) : 1e9;
  const double distance = std::clamp(evidence.excess - mean, -limit, limit);
  mean += distance / count;
  deviation += (evidence.deviation - deviation) / count;
  // 1.25: from the mean distance to the standard deviation of normal values.
  if (count > 1) spread += (1.25 * std::abs(distance) - spread) / (count - 1);
}

Range ExcessMean::Factor(double baseline) const {
  const double scatter = std::max(deviation, spread) / std::sqrt(std::max(count, 1.0));
  const double error = kNormal95 * std::hypot(scatter, baseline);
  return {std::exp(mean), std::exp(mean - error), std::exp(mean + error)};
}

// A delay of fixed length is a smaller share of a long iteration: it varies more than noise does.
double ExcessMean::Fall(const Evidence& evidence) const {
  const double scale = std::max({evidence.deviation, spread, mean / 4});
  return (mean / 2 - evidence.excess) / scale;
}

StragglerDetector::Event StragglerDetector::Add(int64_t number, const Evidences& evidence,
                                                double threshold) {
  recent_[recent_count_++ % recent_.size()] = {number, evidence};
  if (slow_) {
    for (size_t i = 0; i < excess_.size(); ++i)
      if (fall_.quiet() || excess_[i].count < kSizeCount) excess_[i].Add(evidence[i]);
    const Evidence& shown = evidence[part_];
    if (!(shown.deviation > 0)) return Event::kNone;
    fall_.Add(number, (excess_[part_].mean / 2 - shown.excess) / shown.deviation, shown.penalties);
    if (fall_.evidence() < threshold) return Event::kNone;
    since_ = fall_.onset();
    slow_ = false;
    for (CusumBank& rise : rises_) rise.Reset();
    return Event::kRecovered;
  }
  for (size_t i = 0; i < rises_.size(); ++i) {
    if (!(evidence[i].deviation > 0 && evidence[i].weight > 0)) continue;
    const double z = (evidence[i].excess - Tolerance(evidence[i])) / evidence[i].deviation;
    rises_[i].Add(number, z, evidence[i].penalties);
    if (rises_[i].quiet()) before_[i].Add(evidence[i].excess);
    if (rises_[i].evidence() < threshold) continue;
    Begin(i);
    return Event::kBecameSlow;
  }
  return Event::kNone;
}

void StragglerDetector::Begin(size_t part) {
  slow_ = true;
  part_ = part;
  since_ = rises_[part].onset();
  fall_.Reset();
  excess_ = {};
  for (const Value& value : recent_)
    for (size_t i = 0; i < excess_.size(); ++i)
      if (value.number >= since_) excess_[i].Add(value.evidence[i]);
  const RecentMean& before = before_[part];
  const double error = kNormal95 * excess_[part].deviation / std::sqrt(std::max(before.count, 1.0));
  no_baseline_ = before.count == 0 || before.mean + error > excess_[part].mean / 2;
  maybe_before_ = since_ - rises_[part].earliest() > kObservedPeriod;
}

void RecentMean::Add(double value) {
  count = std::min(count + 1, kRecent);
  mean += (value - mean) / count;
}

Range StragglerDetector::Factor() const {
  return excess_[excess_[kLongest].count >= kLongestCount ? size_t{kLongest} : part_].Factor();
}

void StragglerDetector::Dismiss() {
  slow_ = false;
  for (CusumBank& rise : rises_) rise.Reset();
}

RankScores::Finding StragglerDetector::finding() const {
  if (slow_) return RankScores::Finding::kSlow;
  const bool quiet =
      std::all_of(rises_.begin(), rises_.end(), [](const CusumBank& rise) { return rise.quiet(); });
  return quiet ? RankScores::Finding::kOrdinary : RankScores::Finding::kSuspicious;
}

bool StragglerDetector::wants_more() const {
  if (slow_) return fall_.evidence() > kSuspicion || excess_[part_].count < kSizeCount;
  return std::any_of(rises_.begin(), rises_.end(),
                     [](const CusumBank& rise) { return rise.evidence() > kSuspicion; });
}

}  // namespace seqpoint::ranks
