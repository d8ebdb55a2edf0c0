#include "daemon/seqpoint/unseen_lengths.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace seqpoint {

LengthHistory LengthHistory::Of(absl::Span<const int64_t> in_order) {
  LengthHistory history;
  history.sorted.assign(in_order.begin(), in_order.end());
  std::sort(history.sorted.begin(), history.sorted.end());
  int64_t step = 0;
  for (size_t i = 1; i < history.sorted.size(); ++i) {
    step = std::gcd(step, history.sorted[i] - history.sorted[i - 1]);
  }
  if (step > 0) history.step = static_cast<double>(step);
  std::set<int64_t> seen;
  for (int64_t value : in_order) {
    const auto right = seen.upper_bound(value);
    const double above =
        right == seen.end() ? INFINITY : static_cast<double>(*right) - static_cast<double>(value);
    const double below = right == seen.begin()
                             ? INFINITY
                             : static_cast<double>(value) - static_cast<double>(*std::prev(right));
    history.opened.push_back({value, {}});
    double size = history.step;
    for (double& count : history.opened.back().second) {
      count =
          (std::min(below, size) + std::min(above, size) - std::min(below + above, size)) / size;
      size *= 2;
    }
    seen.insert(value);
  }
  return history;
}

BucketCounts LengthHistory::UnseenAmong(absl::Span<const std::pair<int64_t, double>> coming) const {
  BucketCounts counts = {};
  if (coming.empty()) return counts;
  std::vector<double> times_before = {0};
  std::vector<double> values(sorted.begin(), sorted.end());
  for (const auto& [value, times] : coming) {
    times_before.push_back(times_before.back() + times);
    values.push_back(static_cast<double>(value));
  }
  std::inplace_merge(values.begin(), values.begin() + static_cast<ptrdiff_t>(sorted.size()),
                     values.end());
  double size = step;
  for (double& count : counts) {
    // A bucket that begins at x holds the values in [x, x + size): between two neighbouring places
    // where a value enters or leaves, its contents are the same.
    std::vector<double> entering, places(2 * values.size());
    for (double value : values) entering.push_back(value - size);
    std::merge(entering.begin(), entering.end(), values.begin(), values.end(), places.begin());
    size_t seen_begin = 0, seen_end = 0, begin = 0, end = 0;
    for (size_t i = 0; i + 1 < places.size(); ++i) {
      const double width = places[i + 1] - places[i];
      if (!(width > 0)) continue;
      const double low = places[i] + width / 2, high = low + size;
      const auto value = [](const auto& v, size_t at) { return static_cast<double>(v[at]); };
      while (seen_begin < sorted.size() && value(sorted, seen_begin) < low) ++seen_begin;
      while (seen_end < sorted.size() && value(sorted, seen_end) < high) ++seen_end;
      while (begin < coming.size() && static_cast<double>(coming[begin].first) < low) ++begin;
      while (end < coming.size() && static_cast<double>(coming[end].first) < high) ++end;
      if (seen_begin < seen_end) continue;
      count += width / size * -std::expm1(times_before[begin] - times_before[end]);
    }
    size *= 2;
  }
  return counts;
}

}  // namespace seqpoint
