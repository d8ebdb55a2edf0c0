#include "daemon/seqpoint/interval.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <map>
#include <utility>

#include <boost/math/distributions/students_t.hpp>

namespace seqpoint {
namespace {

double NormalCdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }

double MixtureCdf(absl::Span<const Normal> mixture, double x) {
  double cdf = 0;
  for (const Normal& n : mixture) {
    if (n.variance > 0) {
      cdf += n.probability * NormalCdf((x - n.mean) / std::sqrt(n.variance));
    } else if (x >= n.mean) {
      cdf += n.probability;
    }
  }
  return cdf;
}

double MixtureQuantile(absl::Span<const Normal> mixture, double probability) {
  double low = mixture[0].mean;
  double high = low;
  for (const Normal& n : mixture) {
    const double reach = 12 * std::sqrt(n.variance);
    low = std::min(low, n.mean - reach);
    high = std::max(high, n.mean + reach);
  }
  for (int step = 0; step < 60 && high > low; ++step) {
    const double middle = low + (high - low) / 2;
    (MixtureCdf(mixture, middle) < probability ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

}  // namespace

std::vector<Normal> AddIndependent(absl::Span<const Normal> a, absl::Span<const Normal> b) {
  std::vector<Normal> sum;
  sum.reserve(a.size() * b.size());
  for (const Normal& x : a) {
    for (const Normal& y : b) {
      sum.push_back({x.probability * y.probability, x.mean + y.mean, x.variance + y.variance});
    }
  }
  return sum;
}

std::vector<Normal> Condensed(absl::Span<const Normal> mixture) {
  std::map<int, std::vector<Normal>> similar;  // by the binary exponent of the variance
  for (const Normal& n : mixture) {
    similar[n.variance > 0 ? std::ilogb(n.variance) : INT_MIN].push_back(n);
  }
  std::vector<Normal> condensed;
  for (std::pair<const int, std::vector<Normal>>& group : similar) {
    Normal merged{0, 0, 0};
    for (const Normal& n : group.second) merged.probability += n.probability;
    if (!(merged.probability > 0)) continue;
    for (Normal& n : group.second) n.probability /= merged.probability;
    merged.mean = MixtureMean(group.second);
    merged.variance = MixtureVariance(group.second);
    condensed.push_back(merged);
  }
  return condensed;
}

double MixtureMean(absl::Span<const Normal> mixture) {
  double mean = 0;
  for (const Normal& n : mixture) mean += n.probability * n.mean;
  return mean;
}

double MixtureVariance(absl::Span<const Normal> mixture) {
  const double mean = MixtureMean(mixture);
  double variance = 0;
  for (const Normal& n : mixture) {
    variance += n.probability * (n.variance + (n.mean - mean) * (n.mean - mean));
  }
  return variance;
}

Estimate MixtureEstimate(absl::Span<const Normal> mixture, double confidence) {
  if (mixture.empty()) return {};
  const double tail = (1 - std::clamp(confidence, 1e-6, 1 - 1e-9)) / 2;
  return {MixtureMean(mixture), MixtureQuantile(mixture, tail), MixtureQuantile(mixture, 1 - tail)};
}

double NormalQuantile(double confidence) {
  const Normal standard{1, 0, 1};
  const double tail = (1 - std::clamp(confidence, 1e-6, 1 - 1e-9)) / 2;
  return -MixtureQuantile({&standard, 1}, tail);
}

double StudentQuantile(double confidence, double freedom) {
  const double tail = (1 - std::clamp(confidence, 1e-6, 1 - 1e-9)) / 2;
  return boost::math::quantile(boost::math::complement(boost::math::students_t(freedom), tail));
}

}  // namespace seqpoint
