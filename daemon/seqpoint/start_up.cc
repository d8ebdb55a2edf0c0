#include "daemon/seqpoint/start_up.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "daemon/base/statistics.h"

namespace seqpoint {
namespace {

constexpr size_t kNearestLengths = 7;

// An iteration on the line on which lengths are near each other.
struct Placed {
  double length = 0;  // the sum over the dimensions, each in units of its mean
  double time_ns = 0;
};

bool IsShorter(const Placed& a, const Placed& b) { return a.length < b.length; }

// The medians of the neighbours of place `middle` in `sorted`, which has enough of them.
Placed Near(const std::vector<Placed>& sorted, size_t middle) {
  const size_t begin =
      std::min(middle - std::min(middle, kNearestLengths / 2), sorted.size() - kNearestLengths);
  std::array<double, kNearestLengths> times;
  for (size_t i = 0; i < kNearestLengths; ++i) times[i] = sorted[begin + i].time_ns;
  std::nth_element(times.begin(), times.begin() + kNearestLengths / 2, times.end());
  return {sorted[begin + kNearestLengths / 2].length, times[kNearestLengths / 2]};
}

}  // namespace

std::vector<bool> FindStartUp(absl::Span<const KeyTime> times, absl::Span<const int32_t> groups) {
  std::vector<bool> start_up(times.size());
  double mean[2] = {1e-9, 1e-9};
  for (const KeyTime& t : times) {
    mean[0] += static_cast<double>(t.key.first) / static_cast<double>(times.size());
    mean[1] += static_cast<double>(t.key.second) / static_cast<double>(times.size());
  }
  std::vector<size_t> firsts;
  std::vector<Placed> others;
  const auto place = [&](const KeyTime& t) -> Placed {
    return {
        static_cast<double>(t.key.first) / mean[0] + static_cast<double>(t.key.second) / mean[1],
        t.time_ns};
  };
  absl::flat_hash_set<int32_t> seen;
  for (size_t i = 0; i < times.size(); ++i) {
    if (seen.insert(groups.empty() ? 0 : groups[i]).second) {
      firsts.push_back(i);
    } else {
      others.push_back(place(times[i]));
    }
  }
  if (others.size() < kNearestLengths) return start_up;
  std::stable_sort(others.begin(), others.end(), IsShorter);
  std::vector<double> deviations;
  for (size_t i = 0; i < others.size(); ++i) {
    const double usual_ns = Near(others, i).time_ns;
    if (usual_ns > 0) deviations.push_back(std::abs(others[i].time_ns / usual_ns - 1));
  }
  const double threshold =
      std::max(kOutlierShare, kOutlierDeviations * Median(std::move(deviations)));
  for (const size_t i : firsts) {
    const Placed first = place(times[i]);
    const auto [low, high] = std::equal_range(others.begin(), others.end(), first, IsShorter);
    const Placed near = Near(others, static_cast<size_t>(low - others.begin() + (high - low) / 2));
    const double longer = near.length > 0 ? std::max(1.0, first.length / near.length) : 1;
    start_up[i] = first.time_ns > near.time_ns * longer * longer * (1 + threshold);
  }
  return start_up;
}

}  // namespace seqpoint
