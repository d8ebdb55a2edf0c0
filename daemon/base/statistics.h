// Order statistics of a few values.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_BASE_STATISTICS_H_
#define DAEMON_BASE_STATISTICS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
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

// Median distance from `median`, scaled so that it is the standard deviation of normal values.
inline double MedianDeviation(const std::vector<double>& values, double median) {
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::abs(value - median));
  return 1.4826 * Median(std::move(deviations));
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_STATISTICS_H_
