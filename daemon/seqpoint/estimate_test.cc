#include "daemon/seqpoint/estimate.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/support/estimates.h"

namespace seqpoint {
namespace {

// A machine: what an iteration of a length takes there, and how much that varies.
struct Machine {
  double base = 100, slope = 3, bend = 0, noise = 0.02;

  double Mean(const Key& key) const {
    const auto length = static_cast<double>(key.first);
    return base + slope * length + bend * length * length;
  }
  double Draw(const Key& key, std::mt19937& random) const {
    return Mean(key) * (1 + noise * std::normal_distribution<double>()(random));
  }
};

struct Job {
  std::vector<KeyTimes> log;
};

Job MakeRun(const Machine& machine, int iterations, std::mt19937& random) {
  std::gamma_distribution<double> length(4, 8);
  std::vector<Key> keys;
  std::vector<double> times;
  Job run;
  for (int i = 0; i < iterations; ++i) {
    keys.push_back({10 + std::llround(length(random))});
    times.push_back(machine.Draw(keys.back(), random));
  }
  run.log = GroupByKey(keys, times);
  return run;
}

// The total of another run of the same lengths.
double TotalOf(const Job& run, const Machine& machine, std::mt19937& random) {
  double total = 0;
  for (const KeyTimes& g : run.log) {
    total += g.count * machine.Mean(g.key);
    total += std::sqrt(g.count) * machine.noise * machine.Mean(g.key) *
             std::normal_distribution<double>()(random);
  }
  return total;
}

std::vector<MeasuredPoint> RandomPoints(int seed, int count) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0.5, 1.5);
  std::normal_distribution<double> normal;
  std::vector<MeasuredPoint> points;
  for (int i = 0; i < count; ++i) {
    SeqPoint p{{i}, 100 * uniform(random), 1 + i % 3, 50 + 100 * uniform(random), 0};
    p.noise = 0.03 * p.cost * uniform(random);
    const double one = p.noise / std::sqrt(p.measurements);
    points.push_back({p, 20 + 0.7 * p.cost + 1.6 * one * normal(random)});
  }
  return points;
}

// ---------------------------------------------------------------------------- EstimateSame

TEST(EstimateSameTest, IsTheSumOfIndependentErrors) {
  std::vector<MeasuredPoint> points = {{{{1}, 100, 4, 10, 2}, 11}, {{{2}, 50, 1, 20, 3}, 19}};
  const Estimate e = EstimateSame(points, 0.95);
  EXPECT_DOUBLE_EQ(e.value, 100 * 11 + 50 * 19);
  // The mean of 4 (of 1) stands for 100 (50) others, each of which varies. Their noise is that of
  // 150 iterations, for which 1.975905 is Student's quantile.
  const double variance = 100 * 100 * 4 / 4.0 + 100 * 4 + 50 * 50 * 9 + 50 * 9;
  EXPECT_NEAR(HalfWidth(e), 1.975905 * std::sqrt(variance), 1e-3);
  // The choice knows the second cost from 25 iterations only.
  points[1].point.known_from = 25;
  EXPECT_NEAR(HalfWidth(EstimateSame(points, 0.95)),
              1.975905 * std::sqrt(variance + 50 * 50 * 9 / 25.0), 1e-3);
  // With heavy tails as that of fewer: 10, 2.228139.
  points[1].point.known_from = INFINITY;
  EXPECT_NEAR(HalfWidth(EstimateSame(points, 0.95, 15)), 2.228139 * std::sqrt(variance), 1e-3);
}

TEST(EstimateSameTest, CoversTheTotal) {
  std::mt19937 random(1);
  const Machine machine;
  constexpr int kRuns = 100, kDraws = 20;
  for (const int m : {8, 16}) {
    int covered = 0;
    for (int i = 0; i < kRuns; ++i) {
      const Job run = MakeRun({}, 800, random);
      const Selection selection = SelectStratified(run.log, m);
      for (int draw = 0; draw < kDraws; ++draw) {
        std::vector<MeasuredPoint> points;
        for (const SeqPoint& p : selection.points) {
          double sum = 0;
          for (int k = 0; k < p.measurements; ++k) sum += machine.Draw(p.key, random);
          points.push_back({p, sum / p.measurements});
        }
        covered += Covers(EstimateSame(points, 0.95), TotalOf(run, machine, random));
      }
    }
    EXPECT_GE(covered, 0.92 * kRuns * kDraws) << m;
    EXPECT_LE(covered, 0.99 * kRuns * kDraws) << m;
  }
}

// --------------------------------------------------------------------------- EstimateOther

// Weighted least squares by its normal equations about the weighted mean, in long double.
struct Line {
  long double spread = 0;       // residual mean square, in units of each row's noise
  long double differences = 0;  // the same from neighbours in cost order
};
Line FitLine(std::vector<MeasuredPoint> points) {
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.point.cost < b.point.cost; });
  const auto weight = [](const MeasuredPoint& p) {
    return static_cast<long double>(p.point.measurements) / (p.point.noise * p.point.noise);
  };
  long double sum = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const MeasuredPoint& p : points) {
    sum += weight(p);
    x += weight(p) * p.point.cost;
    y += weight(p) * p.value;
  }
  x /= sum, y /= sum;
  for (const MeasuredPoint& p : points) {
    xx += weight(p) * (p.point.cost - x) * (p.point.cost - x);
    xy += weight(p) * (p.point.cost - x) * (p.value - y);
  }
  std::vector<long double> residuals;
  for (const MeasuredPoint& p : points) {
    residuals.push_back((p.value - y - xy / xx * (p.point.cost - x)) * std::sqrt(weight(p)));
  }
  Line line;
  for (const long double r : residuals) {
    line.spread += r * r / static_cast<long double>(residuals.size() - 2);
  }
  for (size_t i = 1; i < residuals.size(); ++i) {
    line.differences += std::pow(residuals[i] - residuals[i - 1], 2.0L) / 2 /
                        static_cast<long double>(residuals.size() - 1);
  }
  return line;
}

double SumOfSquares(const std::vector<MeasuredPoint>& points) {
  double sum = 0;
  for (const MeasuredPoint& p : points) {
    sum += std::pow(p.point.weight * p.point.noise, 2) / p.point.measurements +
           p.point.weight * std::pow(p.point.noise, 2);
  }
  return sum;
}

TEST(EstimateOtherTest, IsTheRegressionOfTheTextbook) {
  // The 97.5 % quantiles of Student's distribution, as tables have them.
  constexpr std::pair<int, double> kStudent[] = {
      {2, 4.302653}, {3, 3.182446}, {6, 2.446912}, {10, 2.228139}, {18, 2.100922}};
  for (const auto& [freedom, t] : kStudent) {
    for (int seed = 1; seed <= 10; ++seed) {
      const std::vector<MeasuredPoint> points = RandomPoints(seed, freedom + 2);
      const Line line = FitLine(points);
      if (freedom + 2 >= 16 && line.spread > 1.5L * line.differences) continue;  // as if bent
      double total = 0, cost = 0;
      for (const MeasuredPoint& p : points) {
        total += p.point.weight * p.value;
        cost += p.point.weight * p.point.cost;
      }
      // Less noise than expected is not believed at once.
      if (line.spread < (total / cost) * (total / cost)) continue;
      const Estimate e = EstimateOther(points, 0.95);
      EXPECT_NEAR(e.value / total, 1, 1e-12);
      const double expected =
          t * std::sqrt(static_cast<double>(line.spread) * SumOfSquares(points));
      EXPECT_NEAR(HalfWidth(e) / expected, 1, 1e-6) << freedom << " " << seed;
    }
  }
}

TEST(EstimateOtherTest, WhereTheCurveBendsNeighboursTellTheNoise) {
  std::vector<MeasuredPoint> points = RandomPoints(3, 21);
  for (MeasuredPoint& p : points) p.value += 0.02 * std::pow(p.point.cost - 150, 2);
  const Line line = FitLine(points);
  ASSERT_GT(line.spread, 3 * line.differences);
  // 2 * 20^2 / (3 * 20 - 1) = 13.56 degrees of freedom, between 13 (2.1604) and 14 (2.1448).
  const double width = HalfWidth(EstimateOther(points, 0.95)) /
                       std::sqrt(static_cast<double>(line.differences) * SumOfSquares(points));
  EXPECT_GT(width, 2.1448);
  EXPECT_LT(width, 2.1604);
}

TEST(EstimateOtherTest, ScalingTimesScalesTheInterval) {
  for (const int m : {3, 8, 20}) {
    std::vector<MeasuredPoint> points = RandomPoints(m, m);
    const Estimate a = EstimateOther(points, 0.95);
    for (MeasuredPoint& p : points) p.value *= 1e9;
    const Estimate b = EstimateOther(points, 0.95);
    EXPECT_NEAR(b.value / a.value, 1e9, 1);
    EXPECT_NEAR(HalfWidth(b) / HalfWidth(a), 1e9, 1e3);
  }
}

TEST(EstimateOtherTest, CoversTheTotalThere) {
  std::mt19937 random(2);
  constexpr int kRuns = 100, kDraws = 20;
  for (const Machine& other : {Machine{40, 1.2, 0, 0.03}, Machine{90, 0.5, 0.004, 0.01}}) {
    for (const int m : {8, 16, 32}) {
      int covered = 0;
      for (int i = 0; i < kRuns; ++i) {
        const Job run = MakeRun({}, 800, random);
        const Selection selection = SelectStratified(run.log, m);
        for (int draw = 0; draw < kDraws; ++draw) {
          std::vector<MeasuredPoint> points;
          for (const SeqPoint& p : selection.points) {
            double sum = 0;
            for (int k = 0; k < p.measurements; ++k) sum += other.Draw(p.key, random);
            points.push_back({p, sum / p.measurements});
          }
          covered += Covers(EstimateOther(points, 0.95), TotalOf(run, other, random));
        }
      }
      EXPECT_GE(covered, 0.92 * kRuns * kDraws) << m << " " << other.bend;
      // A bend counts as noise where points are few.
      if (other.bend == 0 || m >= 16) {
        EXPECT_LE(covered, 0.99 * kRuns * kDraws) << m << " " << other.bend;
      }
    }
  }
}

// A simulator's clock does not vary; the machine that its points are measured on does.
TEST(EstimateOtherTest, ALogWithoutNoiseMakesNoMachineExact) {
  std::mt19937 random(3);
  std::vector<KeyTimes> log;
  for (int length = 10; length < 40; ++length) {
    log.push_back({{length}, 30, Machine().Mean({length}), 0});
  }
  const Machine other{40, 1.2, 0, 0.03};
  double truth = 0;
  for (const KeyTimes& g : log) truth += g.count * other.Mean(g.key);
  int covered = 0;
  for (int draw = 0; draw < 500; ++draw) {
    std::vector<MeasuredPoint> points;
    for (const SeqPoint& p : SelectStratified(log, 8).points) {
      points.push_back({p, other.Draw(p.key, random)});
    }
    covered += Covers(EstimateOther(points, 0.95), truth);
  }
  EXPECT_GE(covered, 460);
}

// Points measured as often as the run has them are no part of the run that is asked about.
TEST(EstimateOtherTest, ManyMeasurementsElsewhereLeaveSomeDoubt) {
  std::vector<MeasuredPoint> points = RandomPoints(5, 8);
  double before = INFINITY;
  for (const int n : {1, 10, 100, 1'000}) {
    for (MeasuredPoint& p : points) p.point.measurements = n;
    const double here = SumOfSquares(points);
    EXPECT_LT(here, before);
    EXPECT_GT(HalfWidth(EstimateOther(points, 0.95)), 0);
    before = here;
  }
}

TEST(EstimateOtherTest, AnyConfidenceHasAFiniteInterval) {
  for (const int m : {1, 3, 4, 20}) {
    const std::vector<MeasuredPoint> points = RandomPoints(m, m);
    double before = -1;
    for (const double confidence : {1e-300, 0.5, 0.95, 0.999, std::nextafter(1.0, 0.0)}) {
      const Estimate e = EstimateOther(points, confidence);
      EXPECT_TRUE(std::isfinite(e.low) && std::isfinite(e.high)) << m << " " << confidence;
      EXPECT_GT(HalfWidth(e), before);
      before = HalfWidth(e);
    }
  }
}

TEST(EstimateOtherTest, OneLengthHasNoSlope) {
  std::vector<MeasuredPoint> points;
  for (int i = 0; i < 6; ++i) points.push_back({{{7}, 10, 1, 3, 0.1}, 6.0 + 0.01 * i});
  const Estimate e = EstimateOther(points, 0.95);
  EXPECT_NEAR(e.value, 60 * 6.025, 1e-9);
  // The standard deviation of 0 ... 5 is sqrt(3.5); 2.570582 is Student's quantile for 5.
  EXPECT_NEAR(HalfWidth(e), 2.570582 * 0.01 * std::sqrt(3.5) * std::sqrt(6 * (10 * 10 + 10)), 1e-5);
}

// ------------------------------------------------------------------------------ QuotientOf

TEST(QuotientOfTest, IsWiderThanBothAndSymmetricInRatio) {
  const Estimate a{100, 98, 102}, b{50, 48, 52};
  const Estimate q = QuotientOf(a, b);
  EXPECT_DOUBLE_EQ(q.value, 2);
  EXPECT_NEAR(std::log(q.high / q.value), std::hypot(0.02, 0.04), 1e-12);
  EXPECT_NEAR(q.high / q.value, q.value / q.low, 1e-12);
  const Estimate inverse = QuotientOf(b, a);
  EXPECT_NEAR(inverse.low, 1 / q.high, 1e-12);
  const Estimate exact = QuotientOf({3, 3, 3}, {2, 2, 2});
  EXPECT_EQ(exact.low, 1.5);
  EXPECT_EQ(exact.high, 1.5);
}

}  // namespace
}  // namespace seqpoint
