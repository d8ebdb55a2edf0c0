#include "tests/accuracy/baselines/baselines.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace seqpoint {
namespace {

double Iterations(absl::Span<const KeyTimes> log) {
  double count = 0;
  for (const KeyTimes& g : log) count += g.count;
  return count;
}

Selection OneForAll(absl::Span<const KeyTimes> log, const KeyTimes& chosen, int measurements) {
  Selection selection;
  selection.points.push_back({chosen.key, Iterations(log), measurements});
  selection.bins = 1;
  return selection;
}

// The group that holds the iteration at `share` of the log, in key order.
size_t GroupAt(absl::Span<const KeyTimes> log, double share) {
  double left = share * Iterations(log);
  size_t at = 0;
  while (at + 1 < log.size() && (left -= log[at].count) >= 0) ++at;
  return at;
}

struct Moments {
  double count = 0, mean = 0, m2 = 0;

  void Add(const KeyTimes& g) {
    if (!(g.count > 0)) return;
    const double delta = g.mean - mean;
    const double total = count + g.count;
    m2 += g.m2 + delta * delta * count * g.count / total;
    mean += delta * g.count / total;
    count = total;
  }
  double Spread() const { return count > 0 ? std::sqrt(m2 / count) : 0; }
  // Its part of sum_i count_i * spread_i * sqrt(cost_i), whose square is the time that has to be
  // measured for a given error.
  double Burden() const { return count * Spread() * std::sqrt(mean); }
};

Moments MomentsOf(absl::Span<const KeyTimes> log, absl::Span<const int> groups) {
  Moments moments;
  for (int g : groups) moments.Add(log[g]);
  return moments;
}

// ROOT: halve at the mean time as long as that makes the sum of burdens less.
void Halve(absl::Span<const KeyTimes> log, std::vector<int> groups, size_t most,
           std::vector<Cluster>& clusters) {
  const Moments whole = MomentsOf(log, groups);
  std::vector<int> low, high;
  for (int g : groups) (log[g].mean <= whole.mean ? low : high).push_back(g);
  const bool better =
      !low.empty() && !high.empty() && clusters.size() + 2 <= most &&
      MomentsOf(log, low).Burden() + MomentsOf(log, high).Burden() < 0.95 * whole.Burden();
  if (!better) {
    clusters.push_back({std::move(groups), whole.count, 1});
    return;
  }
  Halve(log, std::move(low), most - 1, clusters);
  Halve(log, std::move(high), most, clusters);
}

}  // namespace

Selection SelectFrequent(absl::Span<const KeyTimes> log, int measurements) {
  if (log.empty()) return {};
  return OneForAll(
      log,
      *std::max_element(log.begin(), log.end(), [](auto& a, auto& b) { return a.count < b.count; }),
      measurements);
}

Selection SelectMedian(absl::Span<const KeyTimes> log, int measurements) {
  if (log.empty()) return {};
  return OneForAll(log, log[GroupAt(log, 0.5)], measurements);
}

Selection SelectWorst(absl::Span<const KeyTimes> log, int measurements) {
  if (log.empty()) return {};
  return OneForAll(
      log,
      *std::max_element(log.begin(), log.end(), [](auto& a, auto& b) { return a.mean < b.mean; }),
      measurements);
}

Selection SelectEqualMass(absl::Span<const KeyTimes> log, int measurements) {
  Selection selection;
  if (log.empty()) return selection;
  const double weight = Iterations(log) / measurements;
  for (int m = 0; m < measurements; ++m) {
    const Key& key = log[GroupAt(log, (m + 0.5) / measurements)].key;
    if (!selection.points.empty() && selection.points.back().key == key) {
      selection.points.back().weight += weight;
      ++selection.points.back().measurements;
    } else {
      selection.points.push_back({key, weight, 1});
    }
  }
  selection.bins = measurements;
  return selection;
}

std::vector<Cluster> ClusterStem(absl::Span<const KeyTimes> log, int measurements) {
  if (log.empty() || measurements < 1) return {};
  std::vector<int> all(log.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<Cluster> clusters;
  Halve(log, std::move(all), std::max<size_t>(1, static_cast<size_t>(measurements) / 2), clusters);
  // One each, then always where it helps most: the variance count² · spread² / m falls by
  // 1 / (m · (m + 1)) of itself, for one more iteration's time.
  int left = measurements - static_cast<int>(clusters.size());
  std::vector<double> gain;
  for (const Cluster& c : clusters) {
    const Moments moments = MomentsOf(log, c.groups);
    gain.push_back(std::pow(moments.count * moments.Spread(), 2) / std::max(moments.mean, 1e-300));
  }
  for (; left > 0; --left) {
    size_t best = 0;
    const auto value = [&](size_t i) {
      return gain[i] / (clusters[i].measurements * (clusters[i].measurements + 1.0));
    };
    for (size_t i = 1; i < clusters.size(); ++i) {
      if (value(i) > value(best)) best = i;
    }
    ++clusters[best].measurements;
  }
  return clusters;
}

}  // namespace seqpoint
