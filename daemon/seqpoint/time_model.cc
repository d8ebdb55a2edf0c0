#include "daemon/seqpoint/time_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "daemon/seqpoint/cells.h"

namespace seqpoint {
namespace {

constexpr int kMaxCells = 48;
constexpr int kNeighbours = 7;
// Below this many repeated iterations first occurrences are all there is to go by.
constexpr double kMinRepeated = 8;
// A difference below this is not worth a stratum of its own.
constexpr double kMinFirstEffect = 0.02;
// What is assumed of the noise before anything is known, and the weight of that in iterations.
constexpr double kPriorNoise = 0.02;
constexpr double kPriorWeight = 6;

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Columns {
  std::vector<Key> keys;
  std::vector<double> means, counts;
};

Columns ColumnsOf(absl::Span<const KeyTimes> groups) {
  Columns c;
  for (const KeyTimes& g : groups) {
    c.keys.push_back(g.key);
    c.means.push_back(g.mean);
    c.counts.push_back(g.count);
  }
  return c;
}

bool FirstsDiffer(absl::Span<const KeyTimes> regular, absl::Span<const KeyTime> first) {
  double repeated = 0;
  for (const KeyTimes& g : regular) repeated += g.count;
  if (repeated < kMinRepeated || first.size() < 2) return false;
  const Columns c = ColumnsOf(regular);
  const Quadratic curve = Quadratic::Fit(c.keys, c.means, c.counts);
  double square = 0;
  for (const KeyTimes& g : regular) {
    const double expected = curve(g.key);
    square += g.m2 / (expected * expected) + g.count * std::pow(g.mean / expected - 1, 2);
  }
  std::vector<double> ratios;
  for (const KeyTime& f : first) ratios.push_back(f.time_ns / curve(f.key));
  const double median = MedianOf(ratios);
  for (double& r : ratios) r = std::abs(r - median);
  const double spread = 1.4826 * MedianOf(std::move(ratios));
  const double error = std::sqrt(1.57 * spread * spread / static_cast<double>(first.size()) +
                                 square / repeated / repeated);
  return std::abs(median - 1) > std::max(kMinFirstEffect, 3 * error);
}

}  // namespace

std::vector<bool> FindOutliers(absl::Span<const KeyTime> times) {
  const int n = static_cast<int>(times.size());
  std::vector<bool> outliers(n, false);
  if (n < kNeighbours) return outliers;
  Point mean = {1e-9, 1e-9};
  for (const KeyTime& t : times) {
    mean[0] += static_cast<double>(t.key.first) / n;
    mean[1] += static_cast<double>(t.key.second) / n;
  }
  std::vector<std::pair<double, int>> order;
  for (int i = 0; i < n; ++i) {
    order.push_back({static_cast<double>(times[i].key.first) / mean[0] +
                         static_cast<double>(times[i].key.second) / mean[1],
                     i});
  }
  std::sort(order.begin(), order.end());
  std::vector<double> deviations(n);
  for (int i = 0; i < n; ++i) {
    const int begin = std::clamp(i - kNeighbours / 2, 0, n - kNeighbours);
    std::vector<double> near;
    for (int k = begin; k < begin + kNeighbours; ++k)
      near.push_back(times[order[k].second].time_ns);
    const double time = times[order[i].second].time_ns;
    const double median = MedianOf(std::move(near));
    deviations[i] = median > 0 ? std::abs(time / median - 1) : 0;
  }
  const double gate = std::max(kOutlierShare, kOutlierDeviations * MedianOf(deviations));
  for (int i = 0; i < n; ++i) outliers[order[i].second] = deviations[i] > gate;
  return outliers;
}

// First occurrences are the only ones of the rarest lengths, so they are not thrown away: less what
// they cost on top, and weighed down by how much that varies, they still hold the curve's ends.
void TimeModel::TakeFirsts(absl::Span<const KeyTime> first, std::vector<KeyTimes>& regular) {
  const Columns c = ColumnsOf(regular);
  const Quadratic curve = Quadratic::Fit(c.keys, c.means, c.counts);
  Key low = c.keys[0], high = c.keys[0];
  for (const Key& key : c.keys) {
    low = {std::min(low.first, key.first), std::min(low.second, key.second)};
    high = {std::max(high.first, key.first), std::max(high.second, key.second)};
  }
  // The surcharge is read off where the curve does not extrapolate.
  double sum = 0, squares = 0, noise = 0, repeated = 0;
  for (const KeyTime& f : first) {
    const bool inside = low.first <= f.key.first && f.key.first <= high.first &&
                        low.second <= f.key.second && f.key.second <= high.second;
    if (!inside) continue;
    const double excess = f.time_ns - curve(f.key);
    firsts += 1;
    sum += excess;
    squares += excess * excess;
  }
  if (firsts < 2) {
    firsts_differ = false;
    return;
  }
  first_excess_ns = sum / firsts;
  first_excess_variance = std::max(0.0, squares - sum * sum / firsts) / (firsts - 1);
  for (const KeyTimes& g : regular) {
    noise += g.m2 + g.count * std::pow(g.mean - curve(g.key), 2);
    repeated += g.count;
  }
  noise /= repeated;
  const double weight = noise / (noise + first_excess_variance * (1 + 1 / firsts));
  for (const KeyTime& f : first) {
    const double time = f.time_ns - first_excess_ns;
    if (time > 0 && weight > 1e-6) regular.push_back({f.key, weight, time, 0});
  }
}

TimeModel TimeModel::Fit(std::vector<KeyTimes> regular, std::vector<KeyTime> single,
                         absl::Span<const KeyTime> first, double correlation) {
  TimeModel model;
  std::vector<KeyTimes> repeated = regular;
  for (const KeyTime& t : single) repeated.push_back({t.key, 1, t.time_ns, 0});
  model.firsts_differ = FirstsDiffer(repeated, first);
  // Where first occurrences are nothing special they are times like any other.
  if (!model.firsts_differ) single.insert(single.end(), first.begin(), first.end());
  model.singles = static_cast<double>(single.size());
  std::vector<KeyTime> stalls;
  const std::vector<bool> outlier = FindOutliers(single);
  for (size_t i = 0; i < single.size(); ++i) {
    if (outlier[i]) {
      stalls.push_back(single[i]);
    } else {
      regular.push_back({single[i].key, 1, single[i].time_ns, 0});
    }
  }
  if (model.firsts_differ) model.TakeFirsts(first, regular);
  if (regular.empty()) return model;
  model.known = true;
  const Columns c = ColumnsOf(regular);
  model.curve = Quadratic::Fit(c.keys, c.means, c.counts);

  // Cells: their means are what the smooth curve sees, what remains within them is noise.
  const double count = std::accumulate(c.counts.begin(), c.counts.end(), 0.0);
  const int max_cells = std::clamp(static_cast<int>(count / 4), 1, kMaxCells);
  const std::vector<int> cell_of = CutIntoCells(c.keys, c.counts, max_cells);
  struct Cell {
    double count = 0, time = 0, expected = 0;
    Point centre = {0, 0};
  };
  std::vector<Cell> cells(1 + *std::max_element(cell_of.begin(), cell_of.end()));
  for (size_t i = 0; i < regular.size(); ++i) {
    Cell& cell = cells[cell_of[i]];
    const Point p = model.curve.scale(c.keys[i]);
    cell.count += c.counts[i];
    cell.time += c.counts[i] * c.means[i];
    cell.expected += c.counts[i] * model.curve(c.keys[i]);
    for (int d = 0; d < 2; ++d) cell.centre[d] += c.counts[i] * p[d];
  }
  double square = kPriorWeight * kPriorNoise * kPriorNoise;
  for (size_t i = 0; i < regular.size(); ++i) {
    const Cell& cell = cells[cell_of[i]];
    const double expected = model.curve(c.keys[i]) * cell.time / cell.expected;
    square += regular[i].m2 / (expected * expected) +
              c.counts[i] * std::pow(c.means[i] / expected - 1, 2);
  }
  const double degrees = kPriorWeight + std::max(0.0, count - static_cast<double>(cells.size()));
  model.noise = std::sqrt(square / degrees * correlation);

  std::vector<CurvePoint> points;
  for (const Cell& cell : cells) {
    points.push_back({{cell.centre[0] / cell.count, cell.centre[1] / cell.count},
                      cell.expected / cell.count,
                      cell.time / cell.count,
                      cell.count});
  }
  model.smooth = CostCurve::Fit(std::move(points), model.curve.scale, model.noise);
  for (const KeyTime& t : stalls) {
    const double excess = t.time_ns - model.At(t.key);
    model.stall_excess_ns += excess;
    model.stall_excess_square += excess * excess;
  }
  return model;
}

}  // namespace seqpoint
