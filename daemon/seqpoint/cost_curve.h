// Curves over keys: a quadratic for the large shape, and a smooth deviation with its uncertainty.
//
// KeyScale puts keys on a common scale, Quadratic is the plain fit, CostCurve the full one:
//
//   value(key) = scale(key) * (ratio + quadratic corrections + Gaussian process), noise ~ scale
//
// How rough the process is and (where it is not given) how large the noise is, are not fixed: a
// grid of both is weighed by the likelihood of the data, and sums over the curve come back as a
// mixture of normals.
//
// Threading: values; const functions are safe from several threads.
#ifndef DAEMON_SEQPOINT_COST_CURVE_H_
#define DAEMON_SEQPOINT_COST_CURVE_H_

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

using Point = std::array<double, 2>;

// Keys shifted to their mean and divided by their spread, per dimension.
struct KeyScale {
  Point centre = {0, 0};
  Point unit = {1, 1};
  bool two_dimensional = false;

  bool operator==(const KeyScale&) const = default;

  static KeyScale Of(absl::Span<const Key> keys, absl::Span<const double> mass);
  Point operator()(const Key& key) const {
    return {(static_cast<double>(key.first) - centre[0]) / unit[0],
            two_dimensional ? (static_cast<double>(key.second) - centre[1]) / unit[1] : 0};
  }
};

// 1, u, u^2, v, uv, v^2. The last three are zero in one dimension.
inline constexpr int kTerms = 6;
using Terms = std::array<double, kTerms>;
inline Terms QuadraticTerms(const Point& p) {
  return {1, p[0], p[0] * p[0], p[1], p[0] * p[1], p[1] * p[1]};
}

struct Quadratic {
  KeyScale scale;
  Terms coefficients = {1};
  double floor = 1;  // values are never below: a cost is positive

  bool operator==(const Quadratic&) const = default;

  double operator()(const Key& key) const {
    return std::max(floor, OfTerms(QuadraticTerms(scale(key))));
  }
  // The cost of the sum of terms over several keys; the floor does not apply.
  double OfTerms(const Terms& terms) const {
    const Terms& c = coefficients;
    return c[0] * terms[0] + c[1] * terms[1] + c[2] * terms[2] + c[3] * terms[3] + c[4] * terms[4] +
           c[5] * terms[5];
  }

  // Robust least squares of relative errors, lightly regularised. `counts` are weights; all values
  // positive. With no data, a constant 1.
  static Quadratic Fit(absl::Span<const Key> keys, absl::Span<const double> values,
                       absl::Span<const double> counts);
};

struct CurvePoint {
  Point point;
  double scale = 1;  // the value expected here, up to a factor
  double value = 0;  // mean of `count` observations
  double count = 1;
  double doubt = 0;   // standard deviation, relative to the scale, of a value nobody observed
  double shared = 0;  // likewise, of an error that all its observations share
};

// Observations of several keys together: means over the keys, and how many those are.
struct CurveSum {
  Terms terms = {};
  double scale = 1;
  double value = 0;
  double count = 1;
};

// Below the lowest key that was seen, in each dimension, a parabola through the others is no guide.
// A shorter iteration costs at most what the lowest does, and hardly less than falls with the
// square of its length: the curve, within these bounds.
double BoundedBelow(const Quadratic& curve, const Key& lowest, const Key& key);
// Where `key` is far below: a value evenly between these bounds, `doubts` times as uncertain, for a
// statistic that is `ratio` times the curve.
std::optional<CurvePoint> ExpectedBelow(const Quadratic& curve, const Key& lowest, const Key& key,
                                        double scale, double ratio, double doubts);

// A sum over keys: Σ weight · value(key). `bin` groups neighbours for the smooth part only.
struct CurveTarget {
  Point point;
  double scale = 1;
  double weight = 0;
  int bin = 0;
};

class CostCurve {
 public:
  // `scale` gave the points their places. At most a few hundred points: O(points^3) for each point
  // of the grid. With `noise` >= 0 the noise of one observation relative to its scale is known,
  // otherwise it is weighed too.
  static CostCurve Fit(std::vector<CurvePoint> points, const KeyScale& scale, double noise);

  // From sums: a quadratic, as they say nothing of a process about it. `noise` as above.
  static CostCurve FitSums(absl::Span<const CurveSum> sums, const KeyScale& scale, double noise);
  // The most probable one, where all scales were the same.
  Quadratic AsQuadratic(const KeyScale& scale) const;

  // The distribution of the sum, noise of the single iterations included.
  std::vector<Normal> Sum(absl::Span<const CurveTarget> targets) const;

  // The expected value under the most probable curve.
  double ValueAt(const Point& point, double scale) const;

  // Logarithm of the probability of the data, up to a constant for the same number of points.
  double log_evidence() const { return log_evidence_; }

 private:
  static constexpr int kColumns = kTerms + 1;
  using Row = std::array<double, kColumns>;
  struct Component {
    double probability;
    double roughness;  // standard deviation of the process, relative to the scale
    double reach;      // its correlation length, in units of the key scale
    double noise;
    std::vector<double> factor;   // Cholesky factor of the data's covariance, row-major
    std::vector<double> weights;  // its inverse times the deviations
  };

  static CostCurve Fit(std::vector<CurvePoint> points, absl::Span<const Terms> terms,
                       const KeyScale& scale, absl::Span<const double> roughness, double noise);
  Row RowOf(const Terms& terms, double scale) const;
  double Covariance(const Component& c, const Point& a, const Row& row_a, const Point& b,
                    const Row& row_b) const;

  std::vector<CurvePoint> points_;
  std::vector<Row> rows_;
  Row prior_ = {};  // standard deviations of the coefficients, relative to the value
  double mean_scale_ = 1;
  double ratio_ = 1;  // value / scale, overall
  double log_evidence_ = 0;
  double norm_ = 1;                    // |value| / scale: the unit of deviations
  std::vector<Component> components_;  // most probable first
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_COST_CURVE_H_
