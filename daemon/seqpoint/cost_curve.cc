#include "daemon/seqpoint/cost_curve.h"

#include <algorithm>
#include <cmath>

#include "daemon/base/linear_solver.h"

namespace seqpoint {
namespace {

// How far the corrections go a priori, relative to the value: of a factor and a constant, per unit
// of length, per unit squared. Wide enough to leave all to the data from a handful of points on,
// and the reason why fewer points give a wide interval.
constexpr double kFactorDeviation = 1, kLinearDeviation = 1, kSquareDeviation = 0.5;
// A unit counts as at least this share of the length: where only a narrow range was seen, a curve
// is still not expected to double within it.
constexpr double kLeastUnit = 0.25;

constexpr double kRoughness[] = {0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3};
// In units of length. The longest is what the curve may do beyond the lengths seen, where a bend of
// those must not go on as a parabola for certain.
constexpr double kReach[] = {0.4, 5};
constexpr double kNoiseLow = 0.0005;
constexpr double kNoiseStep = 1.6;
constexpr double kNoiseHigh = 0.23;  // or what deviates most

// Only so far below the lowest key seen is anything assumed.
constexpr double kFarBelow = 0.5;

// Times at equal length drift by as much within an epoch of real logs (0.6 to 0.8 %, docs of the
// engine): long sums are no more alike, however many iterations they have.
constexpr double kSharedDrift = 0.005;

constexpr int kRounds = 6;
constexpr double kHuber = 2;  // standard deviations beyond which a value loses weight

// Matérn 3/2: once differentiable, so a kink costs little and a line stays a line.
double Correlation(const Point& a, const Point& b, double reach) {
  const double d = std::sqrt(3.0) * std::hypot(a[0] - b[0], a[1] - b[1]) / reach;
  return (1 + d) * std::exp(-d);
}

// The least value up to which at least half of `total` weight is, of pairs of value and weight. As
// a sort would find it, in linear time.
double WeightedMedian(std::vector<std::pair<double, double>>& values, double total) {
  auto begin = values.begin(), end = values.end();
  double below = 0;  // weight before `begin`
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end);
    double weight = 0;
    for (auto i = begin; i != middle; ++i) weight += i->second;
    if (below + weight >= total / 2) {
      end = middle;
    } else {
      below += weight;
      begin = middle;
    }
  }
  return begin != end ? begin->first : 0;
}

// The least share of the lowest key's cost that `key` has; 1 where it is not below.
double LeastShareBelow(const Key& lowest, const Key& key) {
  double ratio = 1;
  const auto shorten = [&](int64_t low, int64_t value) {
    if (value < low) ratio = std::min(ratio, static_cast<double>(value) / static_cast<double>(low));
  };
  shorten(lowest.first, key.first);
  shorten(lowest.second, key.second);
  return ratio * ratio;
}

}  // namespace

KeyScale KeyScale::Of(absl::Span<const Key> keys, absl::Span<const double> mass) {
  KeyScale scale;
  for (int d = 0; d < 2; ++d) {
    double weight = 0, mean = 0, m2 = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!(mass[i] > 0)) continue;
      const double x = static_cast<double>(d == 0 ? keys[i].first : keys[i].second);
      weight += mass[i];
      const double delta = x - mean;
      mean += delta * (mass[i] / weight);
      m2 += mass[i] * delta * (x - mean);
      if (d == 1 && x != 0) scale.two_dimensional = true;
    }
    scale.centre[d] = mean;
    const double spread = weight > 0 ? std::sqrt(m2 / weight) : 0;
    // Keys that hardly differ: other lengths are then many units away, and widely uncertain.
    scale.unit[d] = std::max({spread, 0.01 * std::abs(mean), 1e-3});
  }
  return scale;
}

Quadratic Quadratic::Fit(absl::Span<const Key> keys, absl::Span<const double> values,
                         absl::Span<const double> counts) {
  Quadratic fit;
  fit.scale = KeyScale::Of(keys, counts);
  double total = 0, count = 0, smallest = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!(counts[i] > 0)) continue;
    total += counts[i] * values[i];
    count += counts[i];
    smallest = smallest == 0 ? values[i] : std::min(smallest, values[i]);
  }
  if (!(count > 0)) return fit;
  const double mean = total / count;
  fit.coefficients = {mean};
  fit.floor = smallest / 2;
  std::vector<Terms> terms(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) terms[i] = QuadraticTerms(fit.scale(keys[i]));
  const int used = fit.scale.two_dimensional ? kTerms : kTerms / 2;  // the others are 0
  // A relative error needs the value that is being fitted, and what is slow is only seen against a
  // fit: a few rounds settle both (Huber's weights).
  std::vector<double> trust(keys.size(), 1.0);
  std::vector<std::pair<double, double>> misses;  // and their counts
  misses.reserve(keys.size());
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> normal(used * used, 0.0);
    std::vector<double> right(used, 0.0);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!(counts[i] > 0)) continue;
      const double expected = std::max(fit.floor, fit.OfTerms(terms[i]));
      const double w = trust[i] * counts[i] * mean * mean / (expected * expected);
      for (int a = 0; a < used; ++a) {
        right[a] += w * terms[i][a] * (values[i] - mean);
        for (int b = 0; b <= a; ++b) normal[a * used + b] += w * terms[i][a] * terms[i][b];
      }
    }
    for (int a = 0; a < used; ++a) normal[a * used + a] += 1e-3;
    if (!Cholesky(normal, used)) break;
    SolveLower(normal, used, right.data());
    SolveUpper(normal, used, right.data());
    std::copy(right.begin(), right.end(), fit.coefficients.begin());
    fit.coefficients[0] += mean;

    misses.clear();
    for (size_t i = 0; i < keys.size(); ++i) {
      const double expected = std::max(fit.floor, fit.OfTerms(terms[i]));
      trust[i] = std::abs(values[i] / expected - 1);
      if (counts[i] > 0) misses.push_back({trust[i], counts[i]});
    }
    const double spread = WeightedMedian(misses, count);
    const double bound = kHuber * 1.4826 * spread + 1e-6;
    for (double& t : trust) t = t > bound ? bound / t : 1;
  }
  return fit;
}

double BoundedBelow(const Quadratic& curve, const Key& lowest, const Key& key) {
  const double share = LeastShareBelow(lowest, key);
  if (share == 1) return curve(key);
  const double most =
      curve({std::max(lowest.first, key.first), std::max(lowest.second, key.second)});
  return std::clamp(curve(key), share * most, most);
}

std::optional<CurvePoint> ExpectedBelow(const Quadratic& curve, const Key& lowest, const Key& key,
                                        double scale, double ratio, double doubts) {
  const double share = LeastShareBelow(lowest, key);
  if (share > kFarBelow) return std::nullopt;
  const double most =
      ratio * curve({std::max(lowest.first, key.first), std::max(lowest.second, key.second)});
  const double deviation = doubts * (1 - share) / std::sqrt(12.0) * std::abs(most);
  return CurvePoint{curve.scale(key), scale, most * (1 + share) / 2, 1, deviation / scale};
}

CostCurve::Row CostCurve::RowOf(const Terms& terms, double scale) const {
  Row row;
  row[0] = prior_[0];
  for (int t = 0; t < kTerms; ++t) row[t + 1] = prior_[t + 1] * terms[t] * mean_scale_ / scale;
  return row;
}

double CostCurve::Covariance(const Component& c, const Point& a, const Row& row_a, const Point& b,
                             const Row& row_b) const {
  double sum = c.roughness * c.roughness * Correlation(a, b, c.reach);
  for (int k = 0; k < kColumns; ++k) sum += row_a[k] * row_b[k];
  return sum;
}

CostCurve CostCurve::Fit(std::vector<CurvePoint> points, const KeyScale& key_scale, double noise) {
  std::vector<Terms> terms;
  for (const CurvePoint& p : points) terms.push_back(QuadraticTerms(p.point));
  return Fit(std::move(points), terms, key_scale, kRoughness, noise);
}

CostCurve CostCurve::FitSums(absl::Span<const CurveSum> sums, const KeyScale& key_scale,
                             double noise) {
  std::vector<CurvePoint> points;
  std::vector<Terms> terms;
  for (const CurveSum& sum : sums) {
    points.push_back({.point = {sum.terms[1], sum.terms[3]},
                      .scale = sum.scale,
                      .value = sum.value,
                      .count = sum.count,
                      .shared = kSharedDrift});
    terms.push_back(sum.terms);
  }
  return Fit(std::move(points), terms, key_scale, {0}, noise);
}

Quadratic CostCurve::AsQuadratic(const KeyScale& key_scale) const {
  Quadratic quadratic;
  quadratic.scale = key_scale;
  quadratic.coefficients = {ratio_ * mean_scale_};
  if (components_.empty()) return quadratic;
  Row weights = {};
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (int k = 0; k < kColumns; ++k) {
      weights[k] += components_.front().weights[i] * rows_[i][k];
    }
  }
  const double unit = norm_ * mean_scale_;
  quadratic.coefficients[0] += unit * prior_[0] * weights[0];
  for (int t = 0; t < kTerms; ++t) {
    quadratic.coefficients[t] += unit * prior_[t + 1] * weights[t + 1];
  }
  return quadratic;
}

CostCurve CostCurve::Fit(std::vector<CurvePoint> points, absl::Span<const Terms> terms,
                         const KeyScale& key_scale, absl::Span<const double> roughnesses,
                         double noise) {
  CostCurve curve;
  double narrow[2];
  for (int d = 0; d < 2; ++d) {
    narrow[d] = std::min(1.0, key_scale.unit[d] / (kLeastUnit * std::abs(key_scale.centre[d])));
  }
  curve.prior_ = {kFactorDeviation,
                  kFactorDeviation,
                  kLinearDeviation * narrow[0],
                  kSquareDeviation * narrow[0] * narrow[0],
                  kLinearDeviation * narrow[1],
                  kSquareDeviation * narrow[0] * narrow[1],
                  kSquareDeviation * narrow[1] * narrow[1]};
  curve.points_ = std::move(points);
  const std::vector<CurvePoint>& data = curve.points_;
  const int n = static_cast<int>(data.size());
  double count = 0, scale = 0, value = 0, magnitude = 0;
  for (const CurvePoint& p : data) {
    if (p.doubt > 0) continue;
    count += p.count;
    scale += p.count * p.scale;
    value += p.count * p.value;
    magnitude += p.count * std::abs(p.value);
  }
  if (!(count > 0)) return curve;
  curve.mean_scale_ = scale / count;
  curve.ratio_ = value / scale;
  curve.norm_ = magnitude / scale;
  if (!(curve.norm_ > 0)) return curve;  // all zero: nothing deviates

  std::vector<double> deviations(n);
  for (int i = 0; i < n; ++i) {
    curve.rows_.push_back(curve.RowOf(terms[i], data[i].scale));
    deviations[i] = (data[i].value / data[i].scale - curve.ratio_) / curve.norm_;
  }
  std::vector<double> noises;
  if (noise >= 0) {
    noises.push_back(noise / curve.norm_);
  } else {
    double most = kNoiseHigh;
    for (const double d : deviations) most = std::max(most, std::abs(d));
    for (double sigma = kNoiseLow; sigma <= most; sigma *= kNoiseStep) noises.push_back(sigma);
  }

  std::vector<double> linear(n * n);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) {
      double sum = 0;
      for (int k = 0; k < kColumns; ++k) sum += curve.rows_[i][k] * curve.rows_[j][k];
      linear[i * n + j] = sum;
    }
  }
  double best = -INFINITY;
  std::vector<double> log_likelihoods;
  for (double reach : kReach) {
    std::vector<double> correlation(n * n);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j <= i; ++j) {
        correlation[i * n + j] = Correlation(data[i].point, data[j].point, reach);
      }
    }
    for (double roughness : roughnesses) {
      for (double sigma : noises) {
        Component c{0, roughness, reach, sigma, std::vector<double>(n * n), deviations};
        for (int i = 0; i < n; ++i) {
          for (int j = 0; j <= i; ++j) {
            c.factor[i * n + j] =
                linear[i * n + j] + roughness * roughness * correlation[i * n + j];
          }
          // The last summand keeps equal keys apart where the noise is known to be nothing.
          const double doubt = data[i].doubt / curve.norm_;
          const double shared = data[i].shared / curve.norm_;
          c.factor[i * n + i] +=
              sigma * sigma / data[i].count + doubt * doubt + shared * shared + 1e-10;
        }
        if (!Cholesky(c.factor, n)) continue;
        SolveLower(c.factor, n, c.weights.data());
        double log_likelihood = 0;
        for (int i = 0; i < n; ++i) {
          log_likelihood -= 0.5 * c.weights[i] * c.weights[i] + std::log(c.factor[i * n + i]);
        }
        if (log_likelihood < best - 12) continue;
        best = std::max(best, log_likelihood);
        SolveUpper(c.factor, n, c.weights.data());
        c.probability = log_likelihood;
        curve.components_.push_back(std::move(c));
      }
    }
  }
  double total = 0;
  for (Component& c : curve.components_) {
    c.probability = std::exp(c.probability - best);
    total += c.probability;
  }
  if (total > 0) curve.log_evidence_ = best + std::log(total);
  std::erase_if(curve.components_, [](const Component& c) { return c.probability < 1e-5; });
  for (Component& c : curve.components_) c.probability /= total;
  std::stable_sort(
      curve.components_.begin(), curve.components_.end(),
      [](const Component& a, const Component& b) { return a.probability > b.probability; });
  return curve;
}

std::vector<Normal> CostCurve::Sum(absl::Span<const CurveTarget> targets) const {
  // Σ w·s·(ratio + norm·h): the linear part of h needs Σ w·s·row, the process the mass and centre
  // of each bin.
  struct Bin {
    double mass = 0;
    Point centre = {0, 0};
  };
  std::vector<Bin> bins;
  Row row_sum = {};
  double mass = 0, square_mass = 0;
  for (const CurveTarget& t : targets) {
    const double m = t.weight * t.scale;
    if (!(m > 0)) continue;
    mass += m;
    square_mass += m * t.scale;
    const Row row = RowOf(QuadraticTerms(t.point), t.scale);
    for (int k = 0; k < kColumns; ++k) row_sum[k] += m * row[k];
    if (t.bin >= static_cast<int>(bins.size())) bins.resize(t.bin + 1);
    Bin& bin = bins[t.bin];
    bin.mass += m;
    for (int d = 0; d < 2; ++d) bin.centre[d] += m * t.point[d];
  }
  std::erase_if(bins, [](const Bin& bin) { return !(bin.mass > 0); });
  for (Bin& bin : bins) {
    for (int d = 0; d < 2; ++d) bin.centre[d] /= bin.mass;
  }
  const double expected = ratio_ * mass;
  if (components_.empty()) return {{1, expected, 0}};

  const int n = static_cast<int>(points_.size());
  double linear_variance = 0;
  for (int k = 0; k < kColumns; ++k) linear_variance += row_sum[k] * row_sum[k];
  std::vector<Normal> mixture;
  double reach = 0, self = 0;
  std::vector<double> cross(n);
  // Components of one reach share the costly sums.
  for (double r : kReach) {
    bool prepared = false;
    for (const Component& c : components_) {
      if (c.reach != r) continue;
      if (!prepared) {
        prepared = true;
        reach = r;
        self = 0;
        for (size_t a = 0; a < bins.size(); ++a) {
          for (size_t b = 0; b < a; ++b) {
            self += 2 * bins[a].mass * bins[b].mass *
                    Correlation(bins[a].centre, bins[b].centre, reach);
          }
          self += bins[a].mass * bins[a].mass;
        }
        for (int i = 0; i < n; ++i) {
          cross[i] = 0;
          for (const Bin& bin : bins) {
            cross[i] += bin.mass * Correlation(points_[i].point, bin.centre, reach);
          }
        }
      }
      const double square = c.roughness * c.roughness;
      std::vector<double> covariance(n);
      double mean = 0;
      for (int i = 0; i < n; ++i) {
        covariance[i] = square * cross[i];
        for (int k = 0; k < kColumns; ++k) covariance[i] += row_sum[k] * rows_[i][k];
        mean += covariance[i] * c.weights[i];
      }
      SolveLower(c.factor, n, covariance.data());
      double variance = linear_variance + square * self;
      for (double x : covariance) variance -= x * x;
      variance = std::max(variance, 0.0) + c.noise * c.noise * square_mass;
      mixture.push_back({c.probability, expected + norm_ * mean, norm_ * norm_ * variance});
    }
  }
  return mixture;
}

double CostCurve::ValueAt(const Point& point, double scale) const {
  if (components_.empty()) return ratio_ * scale;
  const Component& c = components_.front();
  const Row row = RowOf(QuadraticTerms(point), scale);
  double h = 0;
  for (size_t i = 0; i < points_.size(); ++i) {
    h += c.weights[i] * Covariance(c, point, row, points_[i].point, rows_[i]);
  }
  return scale * (ratio_ + norm_ * h);
}

}  // namespace seqpoint
