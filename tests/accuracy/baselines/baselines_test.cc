#include "tests/accuracy/baselines/baselines.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/estimates.h"

namespace seqpoint {
namespace {

struct GroupedLog {
  std::vector<Key> keys;
  std::vector<double> times;
  std::vector<KeyTimes> groups;
};

GroupedLog RandomGroupedLog(int seed, int iterations = 600, int lengths = 50) {
  std::mt19937 random(seed);
  std::geometric_distribution<int64_t> length(3.0 / lengths);
  std::normal_distribution<double> normal;
  GroupedLog log;
  for (int i = 0; i < iterations; ++i) {
    log.keys.push_back({5 + std::min<int64_t>(length(random), lengths - 1)});
    log.times.push_back((50 + 3.0 * static_cast<double>(log.keys.back().first)) *
                        std::exp(0.05 * normal(random)));
  }
  log.groups = GroupByKey(log.keys, log.times);
  return log;
}

// The lengths of all iterations, sorted: what the rules are about.
std::vector<int64_t> Lengths(const GroupedLog& log) {
  std::vector<int64_t> lengths;
  for (const Key& key : log.keys) lengths.push_back(key.first);
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

class BaselinesTest : public ::testing::TestWithParam<int> {
 protected:
  const GroupedLog log_ = RandomGroupedLog(GetParam());
};

TEST_P(BaselinesTest, WeightsAreTheIterationsAndMeasurementsAsAsked) {
  for (const int m : {1, 2, 7, 64}) {
    for (const Selection& s : {SelectFrequent(log_.groups, m), SelectMedian(log_.groups, m),
                               SelectWorst(log_.groups, m), SelectEqualMass(log_.groups, m)}) {
      EXPECT_NEAR(Weights(s), 600, 1e-9);
      EXPECT_EQ(MeasurementsOf(s), m);
      for (const SeqPoint& p : s.points) EXPECT_THAT(log_.keys, ::testing::Contains(p.key));
    }
  }
}

TEST_P(BaselinesTest, TheMostFrequentTheMedianAndTheWorst) {
  const std::vector<int64_t> lengths = Lengths(log_);
  const Selection frequent = SelectFrequent(log_.groups, 3);
  ASSERT_EQ(frequent.points.size(), 1u);
  const auto count = [&](int64_t l) { return std::count(lengths.begin(), lengths.end(), l); };
  for (const int64_t length : std::set<int64_t>(lengths.begin(), lengths.end())) {
    EXPECT_LE(count(length), count(frequent.points[0].key.first));
  }
  // The 301st of 600.
  EXPECT_EQ(SelectMedian(log_.groups, 3).points[0].key.first, lengths[300]);

  std::map<int64_t, std::vector<double>> times;
  for (size_t i = 0; i < log_.keys.size(); ++i) {
    times[log_.keys[i].first].push_back(log_.times[i]);
  }
  const auto mean = [&](int64_t length) {
    double sum = 0;
    for (const double t : times[length]) sum += t;
    return sum / static_cast<double>(times[length].size());
  };
  const int64_t worst = SelectWorst(log_.groups, 3).points[0].key.first;
  for (const auto& [length, values] : times) EXPECT_LE(mean(length), mean(worst) * (1 + 1e-12));
}

TEST_P(BaselinesTest, EqualMassTakesTheMiddleOfEachPart) {
  const std::vector<int64_t> lengths = Lengths(log_);
  for (const int m : {1, 4, 5, 12, 60}) {  // all divide 600
    std::map<int64_t, int> expected;
    const size_t part = 600 / m;
    for (int i = 0; i < m; ++i) ++expected[lengths[i * part + part / 2]];
    std::map<int64_t, int> got;
    for (const SeqPoint& p : SelectEqualMass(log_.groups, m).points) {
      got[p.key.first] += p.measurements;
      EXPECT_NEAR(p.weight, static_cast<double>(part) * p.measurements, 1e-9);
    }
    EXPECT_EQ(got, expected) << m;
  }
}

TEST_P(BaselinesTest, StemSharesAllGroupsAndAllMeasurementsOut) {
  for (const int m : {1, 2, 5, 16, 64}) {
    const std::vector<Cluster> clusters = ClusterStem(log_.groups, m);
    std::set<int> groups;
    double count = 0;
    int measurements = 0;
    size_t held = 0;
    for (const Cluster& c : clusters) {
      double here = 0;
      for (const int g : c.groups) here += log_.groups[g].count;
      EXPECT_NEAR(here, c.count, 1e-9);
      EXPECT_GE(c.measurements, 1);
      groups.insert(c.groups.begin(), c.groups.end());
      held += c.groups.size();
      count += c.count;
      measurements += c.measurements;
    }
    EXPECT_EQ(groups.size(), log_.groups.size());
    EXPECT_EQ(held, log_.groups.size());
    EXPECT_NEAR(count, 600, 1e-9);
    EXPECT_EQ(measurements, m);
  }
}

// Moving one measurement from any cluster to any other makes nothing better: for what clusters cost
// in time, the variance falls as fast everywhere.
TEST_P(BaselinesTest, StemMeasuresWhereItHelpsMost) {
  const std::vector<Cluster> clusters = ClusterStem(log_.groups, 24);
  std::vector<double> variance, cost;
  for (const Cluster& c : clusters) {
    double mean = 0, square = 0;
    for (size_t i = 0; i < log_.keys.size(); ++i) {
      const auto in = [&](int g) { return log_.groups[g].key == log_.keys[i]; };
      if (std::none_of(c.groups.begin(), c.groups.end(), in)) continue;
      mean += log_.times[i] / c.count;
      square += log_.times[i] * log_.times[i] / c.count;
    }
    variance.push_back(c.count * c.count * (square - mean * mean));
    cost.push_back(mean);
  }
  const auto gain = [&](size_t i, double n) { return variance[i] / (n * (n + 1)) / cost[i]; };
  for (size_t from = 0; from < clusters.size(); ++from) {
    if (clusters[from].measurements < 2) continue;
    for (size_t to = 0; to < clusters.size(); ++to) {
      EXPECT_GE(gain(from, clusters[from].measurements - 1) * (1 + 1e-9),
                gain(to, clusters[to].measurements));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, BaselinesTest, ::testing::Range(1, 9));

TEST(ClusterStemTest, ParsTimesThatHaveNothingInCommon) {
  std::vector<KeyTimes> log;
  for (int i = 0; i < 10; ++i) log.push_back({{i}, 50, i < 5 ? 10.0 + 0.1 * i : 1000.0 + i, 5});
  const std::vector<Cluster> clusters = ClusterStem(log, 8);
  ASSERT_GE(clusters.size(), 2u);
  for (const Cluster& c : clusters) {
    for (const int g : c.groups) EXPECT_EQ(g < 5, c.groups[0] < 5);
  }
}

TEST(BaselinesDegenerateTest, EmptyAndSingle) {
  EXPECT_TRUE(SelectFrequent({}, 4).points.empty());
  EXPECT_TRUE(SelectMedian({}, 4).points.empty());
  EXPECT_TRUE(SelectWorst({}, 4).points.empty());
  EXPECT_TRUE(SelectEqualMass({}, 4).points.empty());
  EXPECT_TRUE(ClusterStem({}, 4).empty());
  for (const KeyTimes& only : {KeyTimes{{1'000'000'000}, 1, 3, 0}, KeyTimes{{7}, 500, 3, 0}}) {
    const std::vector<KeyTimes> log = {only};
    for (const Selection& s : {SelectFrequent(log, 4), SelectMedian(log, 4), SelectWorst(log, 4),
                               SelectEqualMass(log, 4)}) {
      ASSERT_EQ(s.points.size(), 1u);
      EXPECT_EQ(s.points[0].key, only.key);
      EXPECT_NEAR(s.points[0].weight, only.count, 1e-12);
    }
    const std::vector<Cluster> clusters = ClusterStem(log, 4);
    ASSERT_EQ(clusters.size(), 1u);
    EXPECT_EQ(clusters[0].measurements, 4);
  }
}

}  // namespace
}  // namespace seqpoint
