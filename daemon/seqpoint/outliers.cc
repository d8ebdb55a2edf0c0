#include "daemon/seqpoint/outliers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "daemon/base/statistics.h"

namespace seqpoint {
namespace {

// The times whose median a time is compared with: an odd number, so that one slow iteration is
// never the middle, and few, so that their lengths are near.
constexpr size_t kNearestLengths = 7;

// An iteration on the line on which lengths are near each other.
struct Placed {
  double length = 0;  // the sum over the dimensions, each in units of its mean
  double time_ns = 0;
  size_t index = 0;
};

bool IsShorter(const Placed& a, const Placed& b) { return a.length < b.length; }

std::vector<Placed> PlacesOf(absl::Span<const KeyTime> times) {
  double mean[2] = {1e-9, 1e-9};
  const auto count = static_cast<double>(times.size());
  for (const KeyTime& t : times) {
    mean[0] += static_cast<double>(t.key.first) / count;
    mean[1] += static_cast<double>(t.key.second) / count;
  }
  std::vector<Placed> places;
  places.reserve(times.size());
  for (const KeyTime& t : times) {
    places.push_back(
        {static_cast<double>(t.key.first) / mean[0] + static_cast<double>(t.key.second) / mean[1],
         t.time_ns, places.size()});
  }
  return places;
}

// The medians of the neighbours of place `middle` in `sorted`, which has enough of them.
Placed Near(const std::vector<Placed>& sorted, size_t middle) {
  const size_t begin =
      std::min(middle - std::min(middle, kNearestLengths / 2), sorted.size() - kNearestLengths);
  std::array<double, kNearestLengths> times;
  for (size_t i = 0; i < kNearestLengths; ++i) times[i] = sorted[begin + i].time_ns;
  std::nth_element(times.begin(), times.begin() + kNearestLengths / 2, times.end());
  return {sorted[begin + kNearestLengths / 2].length, times[kNearestLengths / 2]};
}

// By how much each differs from its neighbours, relative; 0 where these took no time.
std::vector<double> Deviations(const std::vector<Placed>& sorted) {
  std::vector<double> deviations;
  deviations.reserve(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) {
    const double usual_ns = Near(sorted, i).time_ns;
    deviations.push_back(usual_ns > 0 ? std::abs(sorted[i].time_ns / usual_ns - 1) : 0);
  }
  return deviations;
}

double ThresholdAmong(std::vector<double> deviations) {
  return std::max(kOutlierShare, kOutlierDeviations * Median(std::move(deviations)));
}

}  // namespace

std::vector<bool> FindOutliers(absl::Span<const KeyTime> times) {
  std::vector<bool> outliers(times.size());
  if (times.size() < kNearestLengths) return outliers;
  std::vector<Placed> sorted = PlacesOf(times);
  std::stable_sort(sorted.begin(), sorted.end(), IsShorter);
  const std::vector<double> deviations = Deviations(sorted);
  const double threshold = ThresholdAmong(deviations);
  for (size_t i = 0; i < sorted.size(); ++i) {
    outliers[sorted[i].index] = deviations[i] > threshold;
  }
  return outliers;
}

std::vector<bool> FindStartUp(absl::Span<const KeyTime> times, absl::Span<const int32_t> groups) {
  std::vector<bool> start_up(times.size());
  std::vector<Placed> firsts, others;
  absl::flat_hash_set<int32_t> seen;
  for (const Placed& place : PlacesOf(times)) {
    const bool first = seen.insert(groups.empty() ? 0 : groups[place.index]).second;
    (first ? firsts : others).push_back(place);
  }
  if (others.size() < kNearestLengths) return start_up;
  std::stable_sort(others.begin(), others.end(), IsShorter);
  const double threshold = ThresholdAmong(Deviations(others));
  for (const Placed& first : firsts) {
    const auto [low, high] = std::equal_range(others.begin(), others.end(), first, IsShorter);
    const Placed near = Near(others, static_cast<size_t>(low - others.begin() + (high - low) / 2));
    const double longer = near.length > 0 ? std::max(1.0, first.length / near.length) : 1;
    start_up[first.index] = first.time_ns > near.time_ns * longer * longer * (1 + threshold);
  }
  return start_up;
}

}  // namespace seqpoint
