#include "daemon/seqpoint/cost_curve.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "daemon/seqpoint/bins.h"
#include "daemon/seqpoint/interval.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint {
namespace {

TEST(IntervalTest, NormalQuantiles) {
  EXPECT_NEAR(NormalQuantile(0.95), 1.959964, 1e-5);
  EXPECT_NEAR(NormalQuantile(0.999), 3.290527, 1e-5);
}

TEST(IntervalTest, MixtureHasItsMeanAndItsTails) {
  const std::vector<Normal> two = {{0.5, -10, 1}, {0.5, 10, 1}};
  const Estimate e = MixtureEstimate(two, 0.9);
  EXPECT_NEAR(e.value, 0, 1e-9);
  // 5 % of the whole are 10 % of either half.
  EXPECT_NEAR(e.low, -10 - 1.281552, 1e-4);
  EXPECT_NEAR(e.high, 10 + 1.281552, 1e-4);
}

TEST(IntervalTest, SumOfIndependentQuantities) {
  const std::vector<Normal> a = {{0.3, 1, 4}, {0.7, 2, 1}}, b = {{0.6, 5, 9}, {0.4, 7, 0}};
  const std::vector<Normal> sum = AddIndependent(a, b);
  EXPECT_NEAR(MixtureMean(sum), MixtureMean(a) + MixtureMean(b), 1e-12);
  EXPECT_NEAR(MixtureVariance(sum), MixtureVariance(a) + MixtureVariance(b), 1e-12);
}

TEST(IntervalTest, CertainValue) {
  const std::vector<Normal> certain = {{1, 42, 0}};
  const Estimate e = MixtureEstimate(certain, 0.95);
  EXPECT_EQ(e.low, 42);
  EXPECT_EQ(e.high, 42);
}

TEST(BinsTest, EqualMassIntervalsInOrder) {
  std::vector<Key> keys;
  for (int i = 0; i < 1000; ++i) keys.push_back({i});
  const std::vector<double> mass(1000, 1.0);
  const std::vector<int> bins = CutIntoBins(keys, mass, 10);
  EXPECT_TRUE(std::is_sorted(bins.begin(), bins.end()));
  std::vector<int> sizes(10, 0);
  for (int bin : bins) ++sizes[bin];
  EXPECT_THAT(sizes, ::testing::Each(::testing::AllOf(::testing::Ge(90), ::testing::Le(110))));
}

TEST(BinsTest, EqualKeysStayTogether) {
  const std::vector<Key> keys = {{1, 2}, {3, 4}, {1, 2}, {3, 4}, {1, 2}};
  const std::vector<int> bins = CutIntoBins(keys, std::vector<double>(5, 1.0), 5);
  EXPECT_EQ(bins[0], bins[2]);
  EXPECT_EQ(bins[0], bins[4]);
  EXPECT_EQ(bins[1], bins[3]);
  EXPECT_NE(bins[0], bins[1]);
}

TEST(BinsTest, BoxesDoNotOverlap) {
  std::mt19937 random(1);
  std::vector<Key> keys;
  for (int i = 0; i < 2000; ++i) {
    keys.push_back({static_cast<int64_t>(random() % 60), static_cast<int64_t>(random() % 60)});
  }
  const std::vector<int> bins = CutIntoBins(keys, std::vector<double>(2000, 1.0), 32);
  struct Box {
    int64_t low[2] = {INT64_MAX, INT64_MAX}, high[2] = {-1, -1};
  };
  std::vector<Box> boxes(32);
  for (size_t i = 0; i < keys.size(); ++i) {
    Box& b = boxes[bins[i]];
    const int64_t value[] = {keys[i].first, keys[i].second};
    for (int d = 0; d < 2; ++d) {
      b.low[d] = std::min(b.low[d], value[d]);
      b.high[d] = std::max(b.high[d], value[d]);
    }
  }
  for (int a = 0; a < 32; ++a) {
    for (int b = 0; b < a; ++b) {
      const bool apart = boxes[a].high[0] < boxes[b].low[0] || boxes[b].high[0] < boxes[a].low[0] ||
                         boxes[a].high[1] < boxes[b].low[1] || boxes[b].high[1] < boxes[a].low[1];
      EXPECT_TRUE(apart) << a << " and " << b;
    }
  }
}

TEST(QuadraticTest, RecoversAQuadratic) {
  std::vector<Key> keys;
  std::vector<double> values;
  const auto cost = [](double x, double y) {
    return 100 + 3 * x + 0.1 * x * x + 5 * y + 0.2 * x * y;
  };
  for (int x = 1; x < 20; ++x) {
    for (int y = 1; y < 20; ++y) {
      keys.push_back({x, y});
      values.push_back(cost(x, y));
    }
  }
  const Quadratic fit = Quadratic::Fit(keys, values, std::vector<double>(keys.size(), 1.0));
  EXPECT_NEAR(fit({10, 10}) / cost(10, 10), 1, 1e-3);
  EXPECT_NEAR(fit({30, 30}) / cost(30, 30), 1, 1e-2);
}

TEST(QuadraticTest, AFewSlowOnesDoNotBendIt) {
  std::vector<Key> keys;
  std::vector<double> values;
  for (int x = 1; x <= 100; ++x) {
    keys.push_back({x});
    values.push_back((100.0 + x) * (x == 98 || x == 3 ? 1.4 : 1.0));
  }
  const Quadratic fit = Quadratic::Fit(keys, values, std::vector<double>(100, 1.0));
  EXPECT_NEAR(fit({98}) / 198, 1, 0.01);
}

TEST(QuadraticTest, NoDataIsAConstant) { EXPECT_EQ(Quadratic::Fit({}, {}, {})({5}), 1); }

// The interval for a sum over the curve, from m noisy points of a curve that is not quadratic.
class CurveCoverage : public ::testing::TestWithParam<int> {};

TEST_P(CurveCoverage, IntervalsCoverAsOftenAsTheySay) {
  const int m = GetParam();
  std::mt19937 random(m);
  std::uniform_int_distribution<int64_t> length(5, 100);
  std::normal_distribution<double> normal;
  const auto cost = [](int64_t x) {
    return 50 + static_cast<double>(x) + 0.01 * static_cast<double>(x * x) +
           3 * std::sin(static_cast<double>(x) / 8);
  };
  int covered = 0;
  double narrowest = INFINITY, widest = 0;
  constexpr int kRuns = 150;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<Key> all;
    double truth = 0;
    for (int i = 0; i < 300; ++i) {
      all.push_back({length(random)});
      truth += cost(all[i].first);
    }
    const KeyScale scale = KeyScale::Of(all, std::vector<double>(300, 1.0));
    std::vector<CurvePoint> points;
    for (int i = 0; i < m; ++i) {
      const Key key = {length(random)};
      points.push_back({scale(key), 80, cost(key.first) * (1 + 0.01 * normal(random)), 1});
    }
    std::vector<CurveTarget> targets;
    for (int i = 0; i < 300; ++i) targets.push_back({scale(all[i]), 80, 1, i});
    const Estimate e = MixtureEstimate(CostCurve::Fit(points, scale, -1).Sum(targets), 0.95);
    covered += e.low <= truth && truth <= e.high;
    narrowest = std::min(narrowest, (e.high - e.low) / truth);
    widest = std::max(widest, (e.high - e.low) / truth);
  }
  EXPECT_GE(covered, 0.88 * kRuns);
  EXPECT_GT(narrowest, 0.001);
  EXPECT_LT(widest, m >= 16 ? 0.3 : 3.0);
}

INSTANTIATE_TEST_SUITE_P(Measurements, CurveCoverage, ::testing::Values(6, 16, 48));

TEST(CostCurveTest, AllZeroStaysZero) {
  const CostCurve curve = CostCurve::Fit({{{0, 0}, 1, 0, 1}, {{1, 0}, 1, 0, 1}}, {}, -1);
  const std::vector<CurveTarget> target = {{{2, 0}, 1, 10, 0}};
  EXPECT_EQ(MixtureMean(curve.Sum(target)), 0);
  EXPECT_EQ(curve.ValueAt({0, 0}, 1), 0);
}

}  // namespace
}  // namespace seqpoint
