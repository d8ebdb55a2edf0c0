#include "daemon/seqpoint/selection.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/estimates.h"

namespace seqpoint {
namespace {

struct UniformLog {
  std::vector<Key> keys;
  std::vector<double> times;
};

UniformLog RandomUniformLog(int seed, int iterations, int lengths, bool two_dimensional = false) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int64_t> length(5, 5 + lengths - 1);
  std::normal_distribution<double> normal;
  UniformLog log;
  for (int i = 0; i < iterations; ++i) {
    Key key = {length(random), two_dimensional ? length(random) : 0};
    log.keys.push_back(key);
    log.times.push_back(
        (100 + 3.0 * static_cast<double>(key.first) + 5.0 * static_cast<double>(key.second)) *
        std::exp(0.02 * normal(random)));
  }
  return log;
}

double Project(const Selection& selection, absl::Span<const KeyTimes> log) {
  double sum = 0;
  for (const SeqPoint& p : selection.points) {
    const auto group =
        std::find_if(log.begin(), log.end(), [&](const KeyTimes& g) { return g.key == p.key; });
    sum += p.weight * group->mean;
  }
  return sum;
}

class BothSelections : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<Selection> Select(absl::Span<const KeyTimes> log, int m = 8) {
    return {SelectPaper(log, {}), SelectStratified(log, m)};
  }
};

TEST_P(BothSelections, WeightsSumToTheIterationsAndKeysExist) {
  const UniformLog log = RandomUniformLog(GetParam(), 700, 90);
  const std::vector<KeyTimes> groups = GroupByKey(log.keys, log.times);
  for (const Selection& selection : Select(groups)) {
    EXPECT_NEAR(Weights(selection), 700, 1e-6);
    for (const SeqPoint& p : selection.points) {
      EXPECT_THAT(log.keys, ::testing::Contains(p.key));
      EXPECT_GT(p.weight, 0);
    }
  }
}

TEST_P(BothSelections, OrderOfTheLogDoesNotMatter) {
  UniformLog log = RandomUniformLog(GetParam(), 500, 60);
  const std::vector<Selection> before = Select(GroupByKey(log.keys, log.times));
  std::mt19937 random(GetParam());
  for (size_t i = log.keys.size() - 1; i > 0; --i) {
    const size_t j = random() % (i + 1);
    std::swap(log.keys[i], log.keys[j]);
    std::swap(log.times[i], log.times[j]);
  }
  const std::vector<Selection> after = Select(GroupByKey(log.keys, log.times));
  EXPECT_TRUE(Same(before[0], after[0]));
  EXPECT_TRUE(Same(before[1], after[1]));
}

TEST_P(BothSelections, ScalingTimesScalesTheProjection) {
  UniformLog log = RandomUniformLog(GetParam(), 500, 60);
  const std::vector<KeyTimes> groups = GroupByKey(log.keys, log.times);
  for (double& t : log.times) t *= 1000;
  const std::vector<KeyTimes> scaled = GroupByKey(log.keys, log.times);
  const std::vector<Selection> a = Select(groups), b = Select(scaled);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR(Project(b[i], scaled) / Project(a[i], groups), 1000, 0.1);
  }
}

TEST_P(BothSelections, ProjectTheLogThatChoseThem) {
  const UniformLog log = RandomUniformLog(GetParam(), 2000, 90);
  const std::vector<KeyTimes> groups = GroupByKey(log.keys, log.times);
  const double total = Sum(log.times);
  const std::vector<Selection> selections = Select(groups, 16);
  EXPECT_NEAR(Project(selections[0], groups) / total, 1, PaperOptions().max_error + 1e-9);
  EXPECT_NEAR(Project(selections[1], groups) / total, 1, 0.01);
}

INSTANTIATE_TEST_SUITE_P(Seeds, BothSelections, ::testing::Range(1, 6));

TEST(SelectPaperTest, FewLengthsAreAllSeqPoints) {
  const UniformLog log = RandomUniformLog(3, 300, 10);
  const Selection selection = SelectPaper(GroupByKey(log.keys, log.times), {});
  EXPECT_EQ(selection.points.size(), 10u);
  EXPECT_EQ(selection.error, 0);
}

TEST(SelectPaperTest, MoreBinsUntilTheErrorIsMet) {
  const UniformLog log = RandomUniformLog(4, 3000, 90);
  const std::vector<KeyTimes> groups = GroupByKey(log.keys, log.times);
  const Selection coarse = SelectPaper(groups, {.max_error = 1});
  EXPECT_EQ(coarse.bins, PaperOptions().first_bins);
  const Selection fine = SelectPaper(groups, {.max_error = coarse.error / 2});
  EXPECT_GT(fine.bins, coarse.bins);
  EXPECT_LE(fine.error, coarse.error / 2);
}

TEST(SelectPaperTest, ABinIsStoodForByTheKeyNearestToItsMean) {
  // Two clusters of lengths; bins of equal width leave the middle empty.
  std::vector<KeyTimes> log;
  for (int i = 0; i < 6; ++i) log.push_back({{i}, 1, 10.0 + i, 0});
  for (int i = 0; i < 6; ++i) log.push_back({{100 + i}, 2, 110.0 + 2 * i, 0});
  const Selection selection = SelectPaper(log, {.max_error = 1});
  ASSERT_EQ(selection.points.size(), 2u);
  EXPECT_EQ(selection.points[0].key.first, 2);  // mean 12.5: 12 and 13 are equally near
  EXPECT_EQ(selection.points[0].weight, 6);
  EXPECT_EQ(selection.points[1].key.first, 102);
  EXPECT_EQ(selection.points[1].weight, 12);
}

// ------------------------------------------------- the dynamic program against all possibilities

double VarianceOfTotal(absl::Span<const LengthGroup> groups, int begin, int end) {
  double count = 0, cost = 0, variance = 0;
  for (int a = begin; a < end; ++a) {
    count += groups[a].count;
    cost += groups[a].count * groups[a].cost;
  }
  for (int a = begin; a < end; ++a) {
    variance += groups[a].count *
                (std::pow(groups[a].cost - cost / count, 2) + groups[a].noise * groups[a].noise);
  }
  return count * variance;
}

// The least variance of groups from `begin` on with at most `m` measurements, one or more for each
// stratum, by trying everything.
double BestByTrying(absl::Span<const LengthGroup> groups, int begin, int m) {
  if (begin == static_cast<int>(groups.size())) return 0;
  double best = std::numeric_limits<double>::infinity();
  double count = 0;
  for (int end = begin + 1; end <= static_cast<int>(groups.size()); ++end) {
    count += groups[end - 1].count;
    for (int h = 1; h <= m; ++h) {
      const double here = VarianceOfTotal(groups, begin, end) * std::max(0.0, 1.0 / h - 1 / count);
      best = std::min(best, here + BestByTrying(groups, end, m - h));
    }
  }
  return best;
}

class StrataTest : public ::testing::TestWithParam<int> {};

TEST_P(StrataTest, AsGoodAsTryingEverything) {
  std::mt19937 random(GetParam());
  std::uniform_real_distribution<double> uniform;
  std::vector<LengthGroup> groups;
  double cost = 10, total = 0;
  for (int a = 0; a < 6; ++a) {
    cost += 20 * uniform(random);
    groups.push_back(
        {{a}, 1 + std::floor(30 * uniform(random)), cost, cost * 0.2 * uniform(random)});
    total += groups.back().count * cost;
  }
  const StratumSelection selection = SelectStratumSamples(groups, 5);
  ASSERT_EQ(selection.error_at.size(), 5u);
  for (int m = 1; m <= 5; ++m) {
    EXPECT_NEAR(selection.error_at[m - 1], std::sqrt(BestByTrying(groups, 0, m)) / total, 1e-9);
  }
  // The samples realise the promised number of measurements and all of the iterations.
  EXPECT_LE(selection.samples.size(), 5u);
  double count = 0, weight = 0;
  for (const LengthGroup& a : groups) count += a.count;
  for (const StratumSample& s : selection.samples) weight += s.weight;
  EXPECT_NEAR(weight, count, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StrataTest, ::testing::Range(1, 21));

TEST(SelectStratifiedTest, MoreMeasurementsMeanLessError) {
  const UniformLog log = RandomUniformLog(5, 2000, 90);
  const std::vector<KeyTimes> groups = GroupByKey(log.keys, log.times);
  double error = INFINITY;
  for (int m : {1, 2, 4, 8, 16, 32, 64}) {
    const Selection selection = SelectStratified(groups, m);
    EXPECT_LT(selection.error, error);
    error = selection.error;
    int measurements = 0;
    for (const SeqPoint& p : selection.points) measurements += p.measurements;
    EXPECT_EQ(measurements, m);
  }
}

// From a log to its SeqPoints nothing is lost: the error is the least that any strata give.
TEST(SelectStratifiedTest, NoOtherStrataAreBetter) {
  for (int seed = 1; seed <= 10; ++seed) {
    const UniformLog log = RandomUniformLog(seed, 80, 6);
    const std::vector<KeyTimes> by_key = GroupByKey(log.keys, log.times);
    const std::vector<LengthGroup> groups = BuildLengthGroups(by_key, 128);
    ASSERT_EQ(groups.size(), by_key.size());
    double total = 0;
    for (const LengthGroup& a : groups) total += a.count * a.cost;
    for (int m = 1; m <= 5; ++m) {
      EXPECT_NEAR(SelectStratified(by_key, m).error, std::sqrt(BestByTrying(groups, 0, m)) / total,
                  1e-9);
    }
  }
}

// A single measurement per point has 2 % noise; sixteen of them leave a quarter of it.
TEST(SelectStratifiedTest, ProjectsFromSingleMeasurements) {
  double square = 0;
  constexpr int kLogs = 8;
  for (int seed = 0; seed < kLogs; ++seed) {
    const UniformLog log = RandomUniformLog(100 + seed, 4000, 60, /*two_dimensional=*/true);
    const Selection selection = SelectStratified(GroupByKey(log.keys, log.times), 16);
    double projected = 0;
    for (const SeqPoint& p : selection.points) {
      const auto first = std::find(log.keys.begin(), log.keys.end(), p.key);
      projected += p.weight * log.times[first - log.keys.begin()];
    }
    square += std::pow(projected / Sum(log.times) - 1, 2);
  }
  EXPECT_LT(std::sqrt(square / kLogs), 0.01);
}

TEST(SelectionTest, Degenerate) {
  EXPECT_TRUE(SelectPaper({}, {}).points.empty());
  EXPECT_TRUE(SelectStratified({}, 8).points.empty());

  const std::vector<KeyTimes> one = {{{7}, 1, 3.0, 0}};
  for (const Selection& s : {SelectPaper(one, {}), SelectStratified(one, 8)}) {
    ASSERT_EQ(s.points.size(), 1u);
    EXPECT_EQ(s.points[0].key.first, 7);
    EXPECT_DOUBLE_EQ(s.points[0].weight, 1);
  }

  // One length, and all times equal.
  const std::vector<KeyTimes> same = {{{7}, 500, 3.0, 0}};
  EXPECT_NEAR(Weights(SelectStratified(same, 8)), 500, 1e-9);
  std::vector<KeyTimes> equal;
  for (int i = 0; i < 40; ++i) equal.push_back({{i}, 3, 2.0, 0});
  EXPECT_NEAR(Weights(SelectStratified(equal, 8)), 120, 1e-9);
  EXPECT_NEAR(Weights(SelectPaper(equal, {})), 120, 1e-9);
  EXPECT_EQ(SelectStratified(equal, 8).error, 0);
}

TEST(BuildAtomsTest, MergesNeighboursBeyondTheLimit) {
  std::vector<KeyTimes> log;
  for (int i = 0; i < 5000; ++i) log.push_back({{10 * i}, 1.0 + i % 3, 100.0 + i, 0});
  std::vector<int> group_of;
  const std::vector<LengthGroup> groups = BuildLengthGroups(log, 128, &group_of);
  EXPECT_LE(groups.size(), 128u);
  EXPECT_GE(groups.size(), 100u);
  EXPECT_TRUE(std::is_sorted(group_of.begin(), group_of.end()));
  double count = 0, logged = 0;
  for (const LengthGroup& a : groups) count += a.count;
  for (const KeyTimes& g : log) logged += g.count;
  EXPECT_DOUBLE_EQ(count, logged);
}

TEST(BuildAtomsTest, TwoDimensionsAreOrderedByCost) {
  const UniformLog log = RandomUniformLog(8, 3000, 40, /*two_dimensional=*/true);
  const std::vector<LengthGroup> groups = BuildLengthGroups(GroupByKey(log.keys, log.times), 48);
  for (size_t a = 1; a < groups.size(); ++a) EXPECT_LE(groups[a - 1].cost, groups[a].cost);
}

}  // namespace
}  // namespace seqpoint
