#include "daemon/seqpoint/slow_measurements.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "daemon/base/statistics.h"

namespace seqpoint {
namespace {

// Slow measurements are looked for from so many on, and at most this share of them is slow.
constexpr size_t kMinMeasuredForSlow = 12;
constexpr double kMostSlowMeasured = 0.1;
// At most so many statistics of a set are asked whether an iteration was slow as a whole, and this
// share of them is enough: amounts say nothing, and a length picks only few kernels.
constexpr size_t kMostWitnesses = 64;
constexpr double kAgreeing = 0.25;

// By how much each measurement's value lies above a robust curve through all of them, relative;
// empty where one is not positive.
std::vector<double> AboveCurve(absl::Span<const Measurement> measurements,
                               absl::Span<const double> values, const TimeModel& model) {
  std::vector<Key> keys;
  std::vector<double> adjusted;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] > 0)) return {};
    keys.push_back(measurements[i].key);
    adjusted.push_back(values[i]);
    // A key that the curve of times misses may be missed alike here, and is not slow for that.
    const double expected = model.Expected(keys[i]), own = model.At(keys[i]);
    if (model.BaselineBin(keys[i]).has_value() && own > 0) adjusted.back() *= expected / own;
  }
  const Quadratic fit = Quadratic::Fit(keys, adjusted, std::vector<double>(keys.size(), 1.0));
  std::vector<double> excess;
  for (size_t i = 0; i < keys.size(); ++i) excess.push_back(adjusted[i] / fit(keys[i]) - 1);
  return excess;
}

// Beyond this a measurement is of a slow iteration, or of a length that has more kernels.
double ThresholdOf(absl::Span<const double> excess, double clipping_threshold) {
  std::vector<double> misses;
  for (const double e : excess) misses.push_back(std::abs(e));
  return std::max(clipping_threshold, kOutlierDeviations * Median(std::move(misses)));
}

}  // namespace

SlowMeasurements FindSlow(absl::Span<const Measurement> measurements,
                          absl::Span<const double> values, const TimeModel& model,
                          double clipping_threshold) {
  SlowMeasurements found;
  if (measurements.size() < kMinMeasuredForSlow) return found;
  const std::vector<double> excess = AboveCurve(measurements, values, model);
  if (excess.empty()) return found;
  const double threshold = ThresholdOf(excess, clipping_threshold);
  const auto slow =
      std::count_if(excess.begin(), excess.end(), [&](double e) { return e > threshold; });
  const auto count = static_cast<double>(excess.size());
  if (slow == 0 || static_cast<double>(slow) > kMostSlowMeasured * count) return found;
  for (const double e : excess) {
    found.which.push_back(e > threshold);
    if (e > threshold) found.above += e / static_cast<double>(slow);
  }
  double witnesses = 0, agreeing = 0;
  const size_t most = std::min(kMostWitnesses, measurements.front().values.size());
  std::vector<double> other(measurements.size());
  for (size_t index = 0; index < most; ++index) {
    for (size_t i = 0; i < measurements.size(); ++i) {
      other[i] = index < measurements[i].values.size() ? measurements[i].values[index] : 0;
    }
    if (std::equal(other.begin(), other.end(), values.begin())) continue;  // itself
    const std::vector<double> others = AboveCurve(measurements, other, model);
    if (others.empty()) continue;
    for (size_t i = 0; i < others.size(); ++i) {
      if (!found.which[i]) continue;
      ++witnesses;
      agreeing += others[i] > clipping_threshold ? 1 : 0;
    }
  }
  found.certain = agreeing >= kAgreeing * witnesses;
  return found;
}

}  // namespace seqpoint
