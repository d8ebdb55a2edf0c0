#include "daemon/jobs/length_scale.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>

#include "daemon/base/horizon.h"

namespace seqpoint::jobs {
namespace {

constexpr size_t kMostUnits = 64;

// The number of smaller batches that `total` iterations may have.
int64_t MostOthers(int64_t total) { return total < 20 ? 0 : std::max<int64_t>(1, total / 50); }

double Distance(const Histogram1& observed, int64_t factor, const Histogram1& expected) {
  const double observed_total = static_cast<double>(Total(observed));
  const double expected_total = static_cast<double>(Total(expected));
  double observed_sum = 0, expected_sum = 0, largest = 0;
  auto it = observed.begin();
  for (const auto& [length, count] : expected) {
    const int64_t scaled = ScaledLength(length, factor).value_or(kMaxLength);
    for (; it != observed.end() && it->first <= scaled; ++it) {
      observed_sum += static_cast<double>(it->second);
    }
    expected_sum += static_cast<double>(count);
    largest =
        std::max(largest, std::abs(observed_sum / observed_total - expected_sum / expected_total));
  }
  return largest;
}

}  // namespace

int64_t Total(const Histogram1& histogram) {
  int64_t total = 0;
  for (const auto& [value, count] : histogram) total += count;
  return total;
}

std::optional<int64_t> ScaledLength(int64_t length, int64_t factor) {
  if (length < 0 || factor < 0) return std::nullopt;
  if (factor > 0 && length > kMaxLength / factor) return std::nullopt;
  return length * factor;
}

std::optional<LengthScale> FindScale(const Histogram1& observed, const Histogram1& expected) {
  if (observed.empty() || expected.empty()) return std::nullopt;
  // Too few different values fit too many factors.
  if (observed.size() < std::min(kManyValues, expected.size())) return std::nullopt;
  const int64_t total = Total(observed);

  // The most frequent observed value is some expected length times the factor.
  const auto top =
      std::max_element(observed.begin(), observed.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  std::set<int64_t> factors;
  for (const auto& [length, count] : expected) {
    if (length > 0 && top->first > 0 && top->first % length == 0)
      factors.insert(top->first / length);
  }
  std::optional<LengthScale> best;
  for (const int64_t factor : factors) {
    if (!ScaledLength(expected.rbegin()->first, factor)) continue;
    int64_t matched = 0;
    for (const auto& [value, count] : observed) {
      if (value % factor == 0 && expected.contains(value / factor)) matched += count;
    }
    if (total - matched > MostOthers(total)) continue;
    const LengthScale scale{.factor = factor, .distance = Distance(observed, factor, expected)};
    // Only the true factor and its divisors fit many different values, and factors come in rising
    // order. Distributions do not help: the first lengths of a sorted data set are all short.
    best = scale;
  }
  return best;
}

std::optional<LengthScale> FindScaleOfSums(const Histogram1& observed, const Histogram1& expected) {
  constexpr double kMostOff = 0.1;
  constexpr int64_t kMostTried = 1 << 20;  // a hostile process has any unit
  const auto mean = [](const Histogram1& histogram) {
    double sum = 0;
    for (const auto& [value, count] : histogram) {
      sum += static_cast<double>(value) * static_cast<double>(count);
    }
    return sum / static_cast<double>(Total(histogram));
  };
  if (observed.size() < kManyValues || expected.empty() || !(mean(expected) > 0)) {
    return std::nullopt;
  }
  const double ratio = mean(observed) / mean(expected);
  const int64_t unit = NaturalUnit(observed);
  std::optional<LengthScale> best;
  for (int64_t divisor = 1; divisor <= unit / divisor && divisor < kMostTried; ++divisor) {
    if (unit % divisor != 0) continue;
    for (const int64_t factor : {divisor, unit / divisor}) {
      if (!ScaledLength(expected.rbegin()->first, factor)) continue;
      const double off = std::abs(ratio / static_cast<double>(factor) - 1);
      if (off > kMostOff || (best && off >= best->distance)) continue;
      best = LengthScale{.factor = factor, .distance = off};
    }
  }
  return best;
}

int64_t NaturalUnit(const Histogram1& observed) {
  // A damaged feature may have any value; of the smallest number there is no divisor.
  const auto value_of = [](const auto& entry) { return std::max<int64_t>(entry.first, 0); };
  int64_t exact = 0;
  std::set<int64_t, std::greater<>> units;  // of neighbours: nearly all pairs have the true one
  for (auto it = observed.begin(); it != observed.end(); ++it) {
    exact = std::gcd(exact, value_of(*it));
    if (it == observed.begin() || units.size() == kMostUnits) continue;
    units.insert(std::gcd(value_of(*std::prev(it)), value_of(*it)));
  }
  const int64_t total = Total(observed);
  for (const int64_t unit : units) {
    if (unit <= exact) break;
    int64_t others = 0;
    for (const auto& entry : observed) others += value_of(entry) % unit == 0 ? 0 : entry.second;
    if (others <= MostOthers(total)) return unit;
  }
  return std::max<int64_t>(exact, 1);
}

}  // namespace seqpoint::jobs
