#include "daemon/seqpoint/estimate.h"

#include <algorithm>
#include <cmath>

namespace seqpoint {
namespace {

constexpr size_t kFewestForNoise = 4;
constexpr size_t kEnoughForDifferences = 16;
// With so little of the expected variance it is another kind of statistic.
constexpr double kOtherKind = 0.05;
constexpr double kLeastFreedom = 3;
constexpr double kBent = 1.5;  // the line misses by so much more than neighbours differ

double Total(absl::Span<const MeasuredPoint> points) {
  double total = 0;
  for (const MeasuredPoint& p : points) total += p.point.weight * p.value;
  return total;
}

// Variance of the sum of a run's iterations, for noise 1 where the profile says `noise`.
double Variance(absl::Span<const MeasuredPoint> points) {
  double variance = 0;
  for (const MeasuredPoint& p : points) {
    const double one = p.point.noise * p.point.noise;
    const double per_square = 1.0 / p.point.measurements + 1 / p.point.known_from;
    variance += one * p.point.weight * (p.point.weight * per_square + 1);
  }
  return variance;
}

Estimate Around(double value, double half_width) {
  return {value, value - half_width, value + half_width};
}

}  // namespace

Estimate EstimateSame(absl::Span<const MeasuredPoint> points, double confidence, double tails) {
  double iterations = 0;
  for (const MeasuredPoint& p : points) iterations += p.point.weight;
  const double freedom = std::max(kLeastFreedom, iterations / tails);
  return Around(Total(points), StudentQuantile(confidence, freedom) * std::sqrt(Variance(points)));
}

Estimate EstimateOther(absl::Span<const MeasuredPoint> points, double confidence, double tails) {
  const double total = Total(points);
  double expected = 0;
  for (const MeasuredPoint& p : points) expected += p.point.weight * p.point.cost;
  const double scale = expected > 0 ? total / expected : 1;
  if (points.size() < kFewestForNoise) {
    return Around(total, scale * NormalQuantile(confidence) * std::sqrt(Variance(points)));
  }
  std::vector<MeasuredPoint> sorted(points.begin(), points.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.point.cost < b.point.cost; });
  // A log whose times do not vary (a simulator's) says nothing of how they vary elsewhere.
  for (MeasuredPoint& p : sorted) p.point.noise = std::max(p.point.noise, 1e-9 * p.point.cost);
  // Weighted least squares of value on (1, cost), each row divided by the noise of its mean.
  const auto row_noise = [](const MeasuredPoint& p) {
    return p.point.noise / std::sqrt(p.point.measurements);
  };
  double s = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const MeasuredPoint& p : sorted) {
    const double w = std::pow(row_noise(p), -2);
    s += w;
    sx += w * p.point.cost;
    sy += w * p.value;
    sxx += w * p.point.cost * p.point.cost;
    sxy += w * p.point.cost * p.value;
  }
  const double determinant = s * sxx - sx * sx;
  const bool level = !(determinant > 1e-12 * s * sxx);
  const double slope = level ? 0 : (s * sxy - sx * sy) / determinant;
  const double base = (sy - slope * sx) / s;
  double square = 0, difference = 0, previous = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const MeasuredPoint& p = sorted[i];
    const double residual = (p.value - base - slope * p.point.cost) / row_noise(p);
    square += residual * residual;
    if (i > 0) difference += (residual - previous) * (residual - previous);
    previous = residual;
  }
  const auto m = static_cast<double>(sorted.size());
  double freedom = m - (level ? 1 : 2);
  double noise = square / freedom;
  const double of_neighbours = difference / (2 * (m - 1));
  if (sorted.size() >= kEnoughForDifferences && noise > kBent * of_neighbours) {
    noise = of_neighbours;
    freedom = 2 * (m - 1) * (m - 1) / (3 * (m - 1) - 1);
  }
  // In units of the noise that is expected in proportion to time.
  const double share = noise / (scale * scale);
  const double least = std::max(kOtherKind, 1 - 2 * std::sqrt(2 * tails / m));
  if (share < 1 && share > least) {
    return Around(total, scale * NormalQuantile(confidence) * std::sqrt(Variance(points)));
  }
  const double t = StudentQuantile(confidence, freedom);
  return Around(total, t * std::sqrt(noise * Variance(sorted)));
}

Estimate QuotientOf(const Estimate& numerator, const Estimate& denominator) {
  const double value = numerator.value / denominator.value;
  const auto share = [](const Estimate& e) { return (e.high - e.low) / 2 / e.value; };
  const double reach = std::hypot(share(numerator), share(denominator));
  return {value, value * std::exp(-reach), value * std::exp(reach)};
}

}  // namespace seqpoint
