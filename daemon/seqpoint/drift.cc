#include "daemon/seqpoint/drift.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace seqpoint {
namespace {

// A drift over the whole run as real logs have it, and how sure that is beforehand.
constexpr double kUsualDrift = 0.007;
constexpr struct {
  double factor, probability;
} kDriftPrior[] = {{1.0 / 16, 0.03}, {0.25, 0.12}, {1, 0.50},  {4, 0.20},
                   {16, 0.10},       {64, 0.04},   {256, 0.01}};

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
        BlockTrace::Block& side = sides[i / half];
        side.count += blocks[at + i].count;
        side.time_ns += blocks[at + i].time_ns;
        for (int t = 0; t < kTerms; ++t) side.terms[t] += blocks[at + i].terms[t];
      }
      scale.push_back(
          {level(sides[1]) - level(sides[0]), sides[0].count, 4 * half >= blocks.size()});
    }
    scales.push_back(std::move(scale));
  }
  return scales;
}

// 99 % quantile of chi²/n, by Wilson and Hilferty.
double SignificantRatio(size_t n) {
  const double c = 2.0 / (9.0 * static_cast<double>(n));
  return std::pow(1 - c + 2.326 * std::sqrt(c), 3);
}

}  // namespace

void BlockTrace::Add(const Key& key, double time_ns) {
  if (open_.count == 0 && blocks_.empty()) origin_ = key;
  const double x = static_cast<double>(key.first) - static_cast<double>(origin_.first);
  const double y = static_cast<double>(key.second) - static_cast<double>(origin_.second);
  const Terms terms = QuadraticTerms({x, y});
  open_.count += 1;
  open_.time_ns += time_ns;
  for (int t = 0; t < kTerms; ++t) open_.terms[t] += terms[t];
  if (open_.count < block_size_) return;
  blocks_.push_back(open_);
  open_ = {};
  if (blocks_.size() < kMaxBlocks) return;
  for (int b = 0; b < kMaxBlocks / 2; ++b) {
    Block merged = blocks_[2 * b];
    const Block& other = blocks_[2 * b + 1];
    merged.count += other.count;
    merged.time_ns += other.time_ns;
    for (int t = 0; t < kTerms; ++t) merged.terms[t] += other.terms[t];
    blocks_[b] = merged;
  }
  blocks_.resize(kMaxBlocks / 2);
  block_size_ *= 2;
}

double BlockTrace::Expected(const Block& block, const Quadratic& curve) const {
  // Terms of the shifted and scaled key from those of the key relative to the origin.
  const KeyScale& s = curve.scale;
  const double dx = static_cast<double>(origin_.first) - s.centre[0];
  const double dy = s.two_dimensional ? static_cast<double>(origin_.second) - s.centre[1] : 0;
  const double ux = s.unit[0], uy = s.unit[1];
  const Terms& b = block.terms;
  const double n = b[0], x = b[1], xx = b[2];
  const double y = s.two_dimensional ? b[3] : 0;
  const double xy = s.two_dimensional ? b[4] : 0;
  const double yy = s.two_dimensional ? b[5] : 0;
  return curve.OfTerms({n, (x + n * dx) / ux, (xx + 2 * dx * x + n * dx * dx) / (ux * ux),
                        (y + n * dy) / uy, (xy + dx * y + dy * x + n * dx * dy) / (ux * uy),
                        (yy + 2 * dy * y + n * dy * dy) / (uy * uy)});
}

void BlockTrace::Restore(const Key& origin, double block_size, const Block& open,
                         std::vector<Block> blocks) {
  origin_ = origin;
  block_size_ = block_size;
  open_ = open;
  blocks_ = std::move(blocks);
}

std::vector<DriftRate> WeighDrift(const BlockTrace& trace, const Quadratic& curve, double noise,
                                  double run_iterations) {
  const auto scales = HaarDifferences(trace.blocks(), [&](const BlockTrace::Block& b) {
    const double expected = trace.Expected(b, curve);
    return expected > 0 ? b.time_ns / expected : 1.0;
  });
  std::vector<DriftRate> rates;
  double best = -INFINITY;
  for (const auto& [factor, probability] : kDriftPrior) {
    const double rate = factor * kUsualDrift * kUsualDrift / std::max(run_iterations, 1.0);
    double log_likelihood = std::log(probability);
    for (const auto& scale : scales) {
      for (const Difference& d : scale) {
        const double variance = 2 * noise * noise / d.half_size + rate * d.half_size * 2 / 3;
        log_likelihood -= 0.5 * (std::log(variance) + d.value * d.value / variance);
      }
    }
    best = std::max(best, log_likelihood);
    rates.push_back({log_likelihood, rate});
  }
  double total = 0;
  for (DriftRate& r : rates) total += r.probability = std::exp(r.probability - best);
  for (DriftRate& r : rates) r.probability /= total;
  std::erase_if(rates, [](const DriftRate& r) { return r.probability < 1e-6; });
  return rates;
}

Movement KeyMovement(const BlockTrace& trace, const Quadratic& curve, double variance) {
  Movement movement;
  if (!(variance > 0)) return movement;
  const auto scales = HaarDifferences(trace.blocks(), [&](const BlockTrace::Block& b) {
    return trace.Expected(b, curve) / b.count;
  });
  for (const auto& scale : scales) {
    double square = 0;
    for (const Difference& d : scale) square += d.value * d.value;
    square /= static_cast<double>(scale.size());
    const double half = scale.front().half_size;
    const double independent = 2 * variance / half;
    if (square < SignificantRatio(scale.size()) * independent) continue;
    if (scale.front().coarse) {
      movement.walk_variance =
          std::max(movement.walk_variance, (square - independent) / (half * 2 / 3));
    } else {
      movement.inflation = std::max(movement.inflation, square / independent);
    }
  }
  return movement;
}

}  // namespace seqpoint
