#include "daemon/ranks/noise_estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
namespace {

// The share of stalls that are expected before any was seen: one in 200 iterations of a rank. It
// bounds what one value may add to a CUSUM, at ln 200 = 5.3.
constexpr double kStalls = 0.005;
// Estimates are renewed after so many values, and a sixteenth more than there are.
constexpr uint64_t kRefresh = 16;
// Differences from which on it can be told how alike neighbours are: of 12 the estimate is wrong by
// its whole range in one of six cases.
constexpr size_t kCorrelated = 64;

double RobustDeviation(const std::vector<double>& values) { return MedianDeviation(values, 0); }

// The logarithm of the mean of exp(slope * value), of values that are clipped on both sides. The
// distribution of a difference is symmetric, and so is what is computed here.
double Penalty(double slope, const std::vector<double>& values, double deviation) {
  double sum = 0;
  for (const double value : values)
    sum += std::cosh(slope * std::min(std::abs(value) / deviation, kClip));
  const double seen =
      std::max(sum / static_cast<double>(values.size()), std::exp(slope * slope / 2));
  return std::log((1 - kStalls) * seen + kStalls * std::exp(slope * kClip));
}

}  // namespace

void NoiseEstimate::Add(int32_t rank, double value) {
  constexpr double kNone = std::numeric_limits<double>::max();
  const auto [at, is_new] = last_.try_emplace(rank, kNone, kNone);
  auto& [one_before, two_before] = at->second;
  if (one_before != kNone) near_.Add((value - one_before) / std::sqrt(2.0));
  if (two_before != kNone) far_.Add((value - two_before) / std::sqrt(2.0));
  if (one_before != kNone && near_.added % kRefresh == 0) Refresh();
  two_before = one_before;
  one_before = value;
}

void NoiseEstimate::Refresh() {
  const double near = RobustDeviation(near_.values), far = RobustDeviation(far_.values);
  if (!(near > 0)) return;
  // The correlation of neighbours, if it falls geometrically (AR(1)): far² / near² = 1 + r. What a
  // sample of this size shows by chance is no correlation.
  const double chance = 3 / std::sqrt(static_cast<double>(far_.values.size()));
  const bool enough = far_.values.size() >= kCorrelated;
  const double r = enough ? std::clamp(far * far / (near * near) - 1 - chance, 0.0, 0.9) : 0;
  // near² = (1 - r) variance; sums of correlated values vary by (1 + r) / (1 - r) more.
  deviation_ = near / (1 - r) * std::sqrt(1 + r);
  for (size_t i = 0; i < kSlopes.size(); ++i)
    penalties_[i] = Penalty(kSlopes[i], near_.values, near);
}

}  // namespace seqpoint::ranks
