#include "daemon/seqpoint/key.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "daemon/base/statistics.h"
#include "daemon/seqpoint/bins.h"
#include "daemon/seqpoint/cost_curve.h"

namespace seqpoint {
namespace {

constexpr size_t kMinIterations = 64;
constexpr double kMinExplained = 0.5;
constexpr double kHardlyVaries = 0.03;
constexpr double kCut = 0.02;
constexpr double kCutDeviations = 4;
constexpr int kFolds = 5;
constexpr double kPerBin = 8;
constexpr int kMaxBins = 128;
double RobustVariation(absl::Span<const double> times) {
  const std::vector<double> values(times.begin(), times.end());
  const double median = Median(values);
  return MedianDeviation(values, median) / median;
}

// Folds of equal size in an order that has nothing to do with time.
std::vector<int> Folds(size_t n) {
  std::vector<int> folds(n);
  for (size_t i = 0; i < n; ++i) folds[i] = static_cast<int>(i % kFolds);
  std::minstd_rand random(1);
  std::shuffle(folds.begin(), folds.end(), random);
  return folds;
}

// Where absolute deviations are cut: beyond four of their robust standard deviations, but never
// more than the largest 2 %. Normal noise is thus not cut at all.
double BoundOf(const std::vector<double>& deviations) {
  return std::max(Quantile(deviations, 1 - kCut), kCutDeviations * 1.4826 * Median(deviations));
}

// The time of the iterations with positive weights, by key: a robust quadratic plus means of bins,
// shrunken by how much they differ beyond chance (one-way random effects).
class Predictor {
 public:
  Predictor(absl::Span<const Key> keys, absl::Span<const double> times,
            absl::Span<const double> weights, absl::Span<const int> bins)
      : curve_(Quadratic::Fit(keys, times, weights)), effects_(kMaxBins, 0.0) {
    std::vector<double> residuals(keys.size()), misses;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (weights[i] == 0) continue;
      low_ = std::min(low_, times[i]);
      high_ = std::max(high_, times[i]);
      residuals[i] = times[i] / curve_(keys[i]) - 1;
      misses.push_back(std::abs(residuals[i]));
    }
    const double bound = BoundOf(misses);
    std::vector<double> sum(kMaxBins), count(kMaxBins);
    double square = 0, total = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (weights[i] == 0) continue;
      const double residual = std::clamp(residuals[i], -bound, bound);
      sum[bins[i]] += residual;
      count[bins[i]] += 1;
      square += residual * residual;
      total += 1;
    }
    double between = 0;
    int used = 0;
    for (int c = 0; c < kMaxBins; ++c) {
      if (count[c] == 0) continue;
      between += sum[c] * sum[c] / count[c];
      ++used;
    }
    const double within = (square - between) / std::max(1.0, total - used);
    const double effect = std::max(0.0, (between - used * within) / total);
    if (!(effect > 0)) return;
    for (int c = 0; c < kMaxBins; ++c) effects_[c] = sum[c] / (count[c] + within / effect);
  }

  double operator()(const Key& key, int bin) const {
    return std::clamp(curve_(key) * (1 + effects_[bin]), low_, high_);
  }

 private:
  Quadratic curve_;
  std::vector<double> effects_;  // relative, by bin
  double low_ = INFINITY, high_ = 0;
};

// The cross-validated share of the variance of `times` that `keys` explain. The largest deviations
// from what the other folds predict are cut, in the error as in the variance.
double ExplainedShare(absl::Span<const Key> keys, absl::Span<const double> times) {
  const size_t n = keys.size();
  const int bin_count = std::clamp(static_cast<int>(static_cast<double>(n) / kPerBin), 4, kMaxBins);
  const std::vector<double> ones(n, 1.0);
  const std::vector<int> bins = CutIntoBins(keys, ones, bin_count);
  const std::vector<int> folds = Folds(n);
  std::vector<double> predicted(n), deviations(n);
  for (int fold = 0; fold < kFolds; ++fold) {
    std::vector<double> weights(n);
    for (size_t i = 0; i < n; ++i) weights[i] = folds[i] == fold ? 0 : 1;
    if (std::count(weights.begin(), weights.end(), 1.0) == 0) return 0;
    const Predictor predictor(keys, times, weights, bins);
    for (size_t i = 0; i < n; ++i) {
      if (folds[i] != fold) continue;
      predicted[i] = predictor(keys[i], bins[i]);
      deviations[i] = std::abs(times[i] / predicted[i] - 1);
    }
  }
  const double bound = BoundOf(deviations);
  double error = 0, mean = 0, variance = 0;
  for (size_t i = 0; i < n; ++i) {
    const double time = predicted[i] * (1 + std::clamp(times[i] / predicted[i] - 1, -bound, bound));
    error += (time - predicted[i]) * (time - predicted[i]);
    const double delta = time - mean;
    mean += delta / static_cast<double>(i + 1);
    variance += delta * (time - mean);
  }
  return variance > 0 ? std::clamp(1 - error / variance, 0.0, 1.0) : 0.0;
}

KeyVerdict Judge(size_t n, double explained, double robust_variation) {
  if (n < kMinIterations) return KeyVerdict::kTooFew;
  if (explained >= kMinExplained) return KeyVerdict::kExplained;
  return robust_variation < kHardlyVaries ? KeyVerdict::kTimeHardlyVaries
                                          : KeyVerdict::kNotExplained;
}

}  // namespace

KeyFit FitKey(absl::Span<const Key> keys, absl::Span<const double> times_ns) {
  if (times_ns.size() < 2) return {};
  KeyFit fit;
  fit.robust_variation = RobustVariation(times_ns);
  fit.explained = ExplainedShare(keys, times_ns);
  fit.verdict = Judge(keys.size(), fit.explained, fit.robust_variation);
  return fit;
}

}  // namespace seqpoint
