// Order statistics of a few values, and moments of many.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_BASE_STATISTICS_H_
#define DAEMON_BASE_STATISTICS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace seqpoint {

// The value at index share * n of the n sorted values, the last one at most. O(n). `values` is not
// empty; 0 <= share <= 1.
template <typename T>
T Quantile(std::vector<T> values, double share) {
  const size_t at =
      std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

// The middle value, or the upper of the middle two; `otherwise` without values.
template <typename T>
T Median(std::vector<T> values, T otherwise = T{}) {
  return values.empty() ? otherwise : Quantile(std::move(values), 0.5);
}

// The middle value, or the mean of the middle two; 0 without values.
inline double MiddleOf(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// For each value, MiddleOf of the others. O(n log n).
inline std::vector<double> MiddlesOfOthers(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> middles(values.size(), 0);
  for (size_t place = 0; place < order.size() && order.size() > 1; ++place) {
    const auto other = [&](size_t at) { return values[order[at + (at >= place)]]; };
    middles[order[place]] = (other((order.size() - 2) / 2) + other((order.size() - 1) / 2)) / 2;
  }
  return middles;
}

// The median of normal values is so many times as uncertain as their mean.
inline constexpr double kOfMedian = 1.2533;

// Median distance from `median`, scaled so that it is the standard deviation of normal values.
inline double MedianDeviation(const std::vector<double>& values, double median) {
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::abs(value - median));
  return 1.4826 * Median(std::move(deviations));
}

// Mean and variance of values that come one by one; 0 without any.
struct Moments {
  double count = 0, sum = 0, squares = 0;

  void Add(double value) {
    count += 1;
    sum += value;
    squares += value * value;
  }
  double Mean() const { return count > 0 ? sum / count : 0; }
  double Variance() const {
    return count > 0 ? std::max(0.0, squares / count - Mean() * Mean()) : 0;
  }
};

}  // namespace seqpoint

#endif  // DAEMON_BASE_STATISTICS_H_
