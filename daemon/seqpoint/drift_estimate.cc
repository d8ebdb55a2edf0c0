#include "daemon/seqpoint/drift_estimate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace seqpoint {
namespace {

struct Difference {
  double value;      // right half minus left half
  double half_size;  // iterations in one half
  bool coarse;       // spans at least half of the trace
};

// Differences of neighbouring halves at every scale, finest first, grouped by scale.
std::vector<std::vector<Difference>> HaarDifferences(
    absl::Span<const BlockTrace::Block> blocks,
    const std::function<double(const BlockTrace::Block&)>& level) {
  std::vector<std::vector<Difference>> scales;
  for (size_t half = 1; 2 * half <= blocks.size(); half *= 2) {
    std::vector<Difference> scale;
    for (size_t at = 0; at + 2 * half <= blocks.size(); at += 2 * half) {
      BlockTrace::Block sides[2];
      for (size_t i = 0; i < 2 * half; ++i) {
        sides[i / half].Add(blocks[at + i]);
      }
      scale.push_back(
          {level(sides[1]) - level(sides[0]), sides[0].count, 4 * half >= blocks.size()});
    }
    scales.push_back(std::move(scale));
  }
  return scales;
}

constexpr size_t kTraceParts = 8;  // of a trace, at least, for a trend
constexpr double kOneWay = 0.95;   // share of the neighbours that differ alike

// 99 % quantile of chi²/n, by Wilson and Hilferty.
double SignificantRatio(size_t n) {
  const double c = 2.0 / (9.0 * static_cast<double>(n));
  return std::pow(1 - c + 2.326 * std::sqrt(c), 3);
}

DriftEstimate EstimateOf(absl::Span<const BlockTrace::Block> blocks,
                         const std::function<double(const BlockTrace::Block&)>& level,
                         double variance) {
  DriftEstimate drift;
  if (!(variance > 0)) return drift;
  const auto scales = HaarDifferences(blocks, level);
  for (const auto& scale : scales) {
    double square = 0;
    for (const Difference& d : scale) square += d.value * d.value;
    square /= static_cast<double>(scale.size());
    const double half = scale.front().half_size;
    const double independent = 2 * variance / half;
    if (square < SignificantRatio(scale.size()) * independent) continue;
    if (scale.front().coarse) {
      drift.walk_variance = std::max(drift.walk_variance, (square - independent) / (half * 2 / 3));
    } else {
      drift.inflation = std::max(drift.inflation, square / independent);
    }
  }
  // One way all the time: nearly all of at least 8 parts differ from their neighbour alike.
  if (!drift.moving()) return drift;
  for (const auto& scale : scales) {
    if (scale.size() < kTraceParts / 2 || scale.size() >= kTraceParts) continue;
    double sum = 0, same = 0;
    for (const Difference& d : scale) sum += d.value;
    for (const Difference& d : scale) same += d.value * sum > 0;
    if (same < kOneWay * static_cast<double>(scale.size())) continue;
    drift.trend = sum / static_cast<double>(scale.size()) / scale.front().half_size;
  }
  return drift;
}

}  // namespace

DriftEstimate EstimateKeyDrift(const BlockTrace& trace, const Quadratic& curve, double variance) {
  return EstimateOf(
      trace.blocks, [&](const BlockTrace::Block& b) { return trace.Expected(b, curve) / b.count; },
      variance);
}

DriftEstimate EstimateTimeDrift(const BlockTrace& trace, double variance) {
  return EstimateOf(
      trace.blocks, [](const BlockTrace::Block& b) { return b.time_ns / b.count; }, variance);
}

}  // namespace seqpoint
