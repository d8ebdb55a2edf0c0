#include "daemon/seqpoint/drift.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

#include "daemon/base/linear_solver.h"
#include "daemon/base/statistics.h"

namespace seqpoint {
namespace {

// The drifts of times at equal length over a run, and how often each is expected. Real logs grow by
// 0.6 to 0.8 % within an epoch, up to 1.6 % over a run; devices warm up, throttle and share their
// machine. `time` is a share of the run.
enum class Drift : uint8_t { kNone, kLine, kWarmUp, kWalk, kRough, kSmooth };
constexpr struct {
  Drift kind;
  double time, probability;
} kDrifts[] = {{Drift::kNone, 0, 0.30},      {Drift::kLine, 0, 0.08},
               {Drift::kWarmUp, 0.03, 0.06}, {Drift::kWalk, 0, 0.26},
               {Drift::kRough, 0.3, 0.08},   {Drift::kSmooth, 0.1, 0.06},
               {Drift::kSmooth, 0.3, 0.06},  {Drift::kSmooth, 0.8, 0.10}};
// Its standard deviation over the run's iterations, and how often.
constexpr struct {
  double deviation, probability;
} kSizes[] = {{0.0005, 0.12}, {0.001, 0.25}, {0.002, 0.29}, {0.004, 0.22},
              {0.008, 0.09},  {0.02, 0.02},  {0.06, 0.007}, {0.2, 0.003}};
// A line may bend: variance of the change of its slope over the run, in units of that of the slope.
constexpr double kBend = 4;
// However calm it was: a machine may start to throttle, a neighbour may come. Its rate within a
// run, and by how much the mean over the rest then changes.
constexpr double kSurpriseRate = 0.35;
constexpr struct { double deviation, probability; } kSurprises[] = {{0.003, 0.8}, {0.008, 0.2}};
// Times of a CPU, which shares its clock, caches and cores with others, drift by about as much as
// one iteration scatters (0.2 % per 0.2 % of noise), and its surprises are twice that; what a
// neighbour that comes and goes adds to the noise counts up to 5 % only.
constexpr double kHostNoise = 0.002, kMostHostSize = 25, kHostSurprise = 2;
constexpr double kLeastProbability = 3e-4;  // of the best: less probable drifts are left out
constexpr int kFuturePoints = 24;           // of the rest, over which its mean is taken
constexpr size_t kMostDriftBlocks = 32;     // as many are enough to tell one drift from another

// Covariance of the drift at two times, up to a factor and a constant.
double DriftCovariance(Drift kind, double time, double a, double b) {
  const double distance = std::abs(a - b) / time;
  const double d = std::sqrt(3.0) * distance;
  switch (kind) {
    case Drift::kNone:
      return 0;
    case Drift::kLine: {
      // Integrated random walk on top of a slope.
      const double low = std::min(a, b), high = std::max(a, b);
      return a * b + kBend * low * low * (3 * high - low) / 6;
    }
    case Drift::kWarmUp:
      return std::exp(-(a + b) / time);
    case Drift::kWalk:
      return std::min(a, b);
    case Drift::kRough:
      return std::exp(-distance);
    case Drift::kSmooth:
      return (1 + d) * std::exp(-d);
  }
  return 0;
}

// Its variance over the times of one run.
double VarianceWithinRun(Drift kind, double time) {
  constexpr int kGrid = 24;
  double variance = 0;
  for (int i = 0; i < kGrid; ++i) {
    for (int j = 0; j < kGrid; ++j) {
      const double a = (i + 0.5) / kGrid, b = (j + 0.5) / kGrid;
      variance += DriftCovariance(kind, time, a, a) - DriftCovariance(kind, time, a, b);
    }
  }
  return variance / (kGrid * kGrid);
}

// Blocks whose median is the level about an iteration. Slow iterations, and a start at which the
// profiler still learns, raise one block of these or two: in the demo the first by 0.3 %.
constexpr size_t kSmoothedBlocks = 5;
}  // namespace

std::vector<Normal> ProjectDrift(const BlockTrace& trace, const Quadratic& curve, double noise,
                                 double past, double rest, bool host_times) {
  if (!(past > 0) || !(rest > 0)) return {{1, 0, 0}};
  // Times in shares of the run: first the blocks, then the points that stand for the rest.
  const double run = past + rest;
  std::vector<double> at, level;
  double mean = 0, block_size = 0;
  const absl::Span<const BlockTrace::Block> blocks = trace.blocks;
  const size_t together = blocks.size() > kMostDriftBlocks ? 2 : 1;
  for (size_t b = 0; b + together <= blocks.size(); b += together) {
    double expected = 0, time = 0;
    for (const BlockTrace::Block& block : blocks.subspan(b, together)) {
      expected += trace.Expected(block, curve);
      time += block.time_ns;
      block_size += block.count;
    }
    level.push_back(expected > 0 ? time / expected : 1.0);
    mean += level.back();
  }
  const int n = static_cast<int>(level.size());
  for (double& l : level) l -= mean / n;
  block_size = n > 0 ? block_size / n : 1;
  const int past_points = std::max(n, 1);
  for (int b = 0; b < past_points; ++b) at.push_back((b + 0.5) / past_points * past / run);
  for (int i = 0; i < kFuturePoints; ++i) {
    at.push_back((past + (i + 0.5) / kFuturePoints * rest) / run);
  }
  // The question: mean over the rest minus mean over the past.
  std::vector<double> share(at.size(), -1.0 / past_points);
  std::fill(share.begin() + past_points, share.end(), 1.0 / kFuturePoints);
  const double block_noise = noise * noise / block_size;
  const double unit_size = host_times ? std::clamp(noise / kHostNoise, 1.0, kMostHostSize) : 1;

  std::vector<Normal> mixture;
  double best = -INFINITY;
  for (const auto& [kind, time, drift_probability] : kDrifts) {
    std::vector<double> covariances(at.size() * at.size());
    std::vector<double> cross(at.size());  // of each point with the question
    double self = 0;
    const double unit = kind == Drift::kNone ? 1 : VarianceWithinRun(kind, time);
    for (size_t i = 0; i < at.size(); ++i) {
      for (size_t j = 0; j < at.size(); ++j) {
        const double c = DriftCovariance(kind, time, at[i], at[j]) / unit;
        covariances[i * at.size() + j] = c;
        cross[i] += share[j] * c;
      }
      self += share[i] * cross[i];
    }
    for (const auto& [deviation, size_probability] : kSizes) {
      const bool none = kind == Drift::kNone;
      const double square = none ? 0 : std::pow(unit_size * deviation, 2);
      std::vector<double> factor(n * n);
      for (int i = 0; i < n; ++i) {
        // The overall level is the curve's business: here it may be anything.
        for (int j = 0; j <= i; ++j)
          factor[i * n + j] = 1 + square * covariances[i * at.size() + j];
        factor[i * n + i] += block_noise + 1e-12;
      }
      if (!Cholesky(factor, n)) continue;
      std::vector<double> residual = level;
      std::vector<double> covariance(n);
      for (int i = 0; i < n; ++i) covariance[i] = square * cross[i];
      SolveLower(factor, n, residual.data());
      SolveLower(factor, n, covariance.data());
      const double prior = drift_probability * (none ? 1 : size_probability);
      Normal answer{std::log(prior), 0, square * self};
      for (int i = 0; i < n; ++i) {
        answer.probability -= 0.5 * residual[i] * residual[i] + std::log(factor[i * n + i]);
        answer.mean += covariance[i] * residual[i];
        answer.variance -= covariance[i] * covariance[i];
      }
      answer.variance = std::max(answer.variance, 0.0);
      best = std::max(best, answer.probability);
      mixture.push_back(answer);
      if (none) break;
    }
  }
  std::erase_if(mixture, [best](const Normal& m) {
    return m.probability < best + std::log(kLeastProbability);
  });
  double total = 0;
  for (Normal& m : mixture) total += m.probability = std::exp(m.probability - best);
  for (Normal& m : mixture) m.probability /= total;
  const double surprised = kSurpriseRate * rest / run;
  std::vector<Normal> surprise = {{1 - surprised, 0, 0}};
  for (const auto& [deviation, probability] : kSurprises) {
    const double size = (host_times ? kHostSurprise : 1) * unit_size * deviation;
    surprise.push_back({surprised * probability, 0, size * size});
  }
  return AddIndependent(Condensed(mixture), surprise);
}

Level DriftAt(const BlockTrace& trace, const Quadratic& curve, uint64_t iteration) {
  const absl::Span<const BlockTrace::Block> blocks = trace.blocks;
  if (blocks.empty()) return {};
  double time = 0, expected = 0;
  for (const BlockTrace::Block& b : blocks) {
    time += b.time_ns;
    expected += trace.Expected(b, curve);
  }
  if (!(expected > 0)) return {};
  size_t at = 0;
  while (at + 1 < blocks.size() && blocks[at].last < iteration) ++at;
  // An odd number of neighbours, as many as there are at either end.
  const size_t count = (std::min(kSmoothedBlocks, blocks.size()) - 1) / 2 * 2 + 1;
  const size_t first = std::min(at - std::min(at, count / 2), blocks.size() - count);
  std::vector<double> levels;
  double iterations = 0;
  for (const BlockTrace::Block& b : blocks.subspan(first, count)) {
    const double here = trace.Expected(b, curve);
    if (!(here > 0)) return {};
    levels.push_back(b.time_ns / here * expected / time - 1);
    iterations += b.count;
  }
  // A median scatters as the mean of fewer does.
  return {Median(std::move(levels)), count > 1 ? iterations * 2 / M_PI : iterations};
}

double DriftVariance(const BlockTrace& trace, const Quadratic& curve, double noise) {
  double count = 0, time = 0, expected = 0, square = 0;
  for (const BlockTrace::Block& b : trace.blocks) {
    time += b.time_ns;
    expected += trace.Expected(b, curve);
  }
  if (!(expected > 0)) return 0;
  for (const BlockTrace::Block& b : trace.blocks) {
    const double here = trace.Expected(b, curve);
    if (!(here > 0)) continue;
    count += b.count;
    square += b.count * std::pow(b.time_ns / here * expected / time - 1, 2) - noise * noise;
  }
  return count > 0 ? std::max(0.0, square / count) : 0;
}

}  // namespace seqpoint
