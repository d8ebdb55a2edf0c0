#include "daemon/seqpoint/analysis.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/estimates.h"

namespace seqpoint {
namespace {

using ::testing::Contains;

struct Shape {
  int iterations = 800;
  int lengths = 60;
  double noise = 0.02;
  bool two_dimensional = false;
  double base = 100, slope = 3;
};

double NormalTime(const Shape& shape, const Key& key) {
  return shape.base + shape.slope * static_cast<double>(key.first) +
         1.7 * shape.slope * static_cast<double>(key.second);
}

RunLog MakeLog(int seed, const Shape& shape = {}) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int64_t> length(5, 4 + shape.lengths);
  std::normal_distribution<double> normal;
  RunLog log;
  for (int i = 0; i < shape.iterations; ++i) {
    const Key key = {length(random), shape.two_dimensional ? length(random) : 0};
    log.keys.push_back(key);
    log.times.push_back(NormalTime(shape, key) * std::exp(shape.noise * normal(random)));
  }
  return log;
}

std::vector<KeyTimes> Grouped(const RunLog& log) { return GroupByKey(log.keys, log.times); }

void ExpectFinite(const Estimate& e) {
  EXPECT_TRUE(std::isfinite(e.value) && std::isfinite(e.low) && std::isfinite(e.high))
      << e.value << " " << e.low << " " << e.high;
  EXPECT_LE(e.low, e.value);
  EXPECT_LE(e.value, e.high);
}

// Checks that hold for any log.
void ExpectSound(const LogAnalysis& a, const RunLog& log) {
  for (const Selection* s : {&a.selection, &a.paper}) {
    if (s->points.empty()) continue;
    EXPECT_NEAR(Weights(*s) / static_cast<double>(a.clean.log.size()), 1, 1e-9);
    for (const SeqPoint& p : s->points) {
      EXPECT_THAT(log.keys, Contains(p.key));
      EXPECT_GT(p.weight, 0);
      EXPECT_GE(p.measurements, 1);
      EXPECT_TRUE(std::isfinite(p.cost) && std::isfinite(p.noise));
    }
  }
  EXPECT_EQ(a.clean.start_up + static_cast<int64_t>(a.clean.log.size()),
            static_cast<int64_t>(log.size()));
  EXPECT_NEAR((a.clean.total + a.clean.start_up_time) / Sum(log.times), 1, 1e-9);
  double count = 0;
  for (const KeyTimes& g : a.clean.by_key) count += g.count;
  EXPECT_EQ(count, static_cast<double>(a.clean.log.size()));
  ExpectFinite(a.projection);
  ExpectFinite(a.random);
  EXPECT_TRUE(std::isfinite(a.fit.explained) && std::isfinite(a.fit.robust_variation));
  EXPECT_TRUE(std::isfinite(a.stationarity.drift));
  if (a.speedup) {
    if (a.speedup->from_points) ExpectFinite(*a.speedup->from_points);
    ExpectFinite(a.speedup->all);
  }
  if (a.other_run) ExpectFinite(*a.other_run->total);
}

// ------------------------------------------------------------------- properties of any log

class AnalyzeLogTest : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<RunLog> Logs() {
    return {MakeLog(GetParam()),
            MakeLog(GetParam(), {.two_dimensional = true}),
            MakeLog(GetParam(), {.iterations = 5 + GetParam(), .lengths = 5}),
            MakeLog(GetParam(), {.noise = 0}),
            MakeLog(GetParam(), {.noise = 0.3}),
            MakeLog(GetParam(), {.lengths = 1'000'000'000})};
  }
};

TEST_P(AnalyzeLogTest, IsSound) {
  for (const RunLog& log : Logs()) {
    for (const int points : {0, 1, 5, 64}) {
      const LogAnalysis a = AnalyzeLog(log, &log, {.points = points});
      ExpectSound(a, log);
      EXPECT_LE(MeasurementsOf(a.selection),
                std::min<int>(points == 0 ? 16 : points, static_cast<int>(log.size())));
      ASSERT_TRUE(a.speedup);
      EXPECT_NEAR(a.speedup->all.value, 1, 1e-9);
      EXPECT_NEAR(a.speedup->means, 1, 1e-9);
      EXPECT_EQ(a.speedup->unknown_keys, 0);
    }
  }
}

TEST_P(AnalyzeLogTest, OrderDoesNotMatterForTheSelection) {
  std::mt19937 random(GetParam());
  for (RunLog log : Logs()) {
    const LogAnalysis before = AnalyzeLog(log, nullptr, {.points = 12});
    std::vector<size_t> order(log.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    RunLog shuffled;
    for (const size_t i : order) {
      shuffled.keys.push_back(log.keys[i]);
      shuffled.times.push_back(log.times[i]);
    }
    const LogAnalysis after = AnalyzeLog(shuffled, nullptr, {.points = 12});
    // Both have the same rows left only when none was taken for a stall or for start-up.
    if (before.clean.slow_count + before.clean.start_up + after.clean.slow_count +
            after.clean.start_up >
        0) {
      continue;
    }
    EXPECT_TRUE(Same(SelectPoints(before.clean.by_key, 12), SelectPoints(after.clean.by_key, 12)));
    EXPECT_TRUE(Same(before.paper, after.paper));
  }
}

TEST_P(AnalyzeLogTest, ScalingTimesScalesEverythingElseStays) {
  for (const RunLog& log : Logs()) {
    RunLog scaled = log;
    for (double& t : scaled.times) t *= 1e6;
    const Horizon horizon = Horizon::Iterations(5'000);
    const LogAnalysis a = AnalyzeLog(log, nullptr, {.points = 12, .horizon = horizon});
    const LogAnalysis b = AnalyzeLog(scaled, nullptr, {.points = 12, .horizon = horizon});
    EXPECT_NEAR(a.fit.explained, b.fit.explained, 1e-6);
    EXPECT_NEAR(b.random.value / a.random.value, 1e6, 1e-3);
    EXPECT_NEAR(b.other_run->total->value / a.other_run->total->value, 1e6, 1);
    if (a.selection.points.empty()) continue;
    EXPECT_NEAR(b.projection.value / a.projection.value, 1e6, 1);
    EXPECT_NEAR(HalfWidth(b.projection), 1e6 * HalfWidth(a.projection),
                1e-3 * 1e6 * HalfWidth(a.projection) + 1e-6 * b.projection.value);
  }
}

TEST_P(AnalyzeLogTest, MoreMeasurementsMakeIntervalsNarrower) {
  const RunLog log = MakeLog(GetParam(), {.iterations = 3'000});
  const std::vector<KeyTimes> groups = Grouped(log);
  double before = INFINITY;
  for (const int m : {1, 2, 4, 8, 16, 32, 64, 128, 129, 200, 256, 400, 1'000}) {
    const Selection selection = SelectPoints(groups, m);
    EXPECT_EQ(MeasurementsOf(selection), m);
    EXPECT_NEAR(Weights(selection), 3'000, 1e-6);
    EXPECT_LT(ReachOf(selection, 0.95), before) << m;
    before = ReachOf(selection, 0.95);
  }
}

TEST_P(AnalyzeLogTest, TheFewestMeasurementsThatMeetTheTarget) {
  const std::vector<KeyTimes> groups = Grouped(MakeLog(GetParam()));
  for (const double target : {0.02, 0.01, 0.005, 0.004}) {
    const Selection selection = SelectForError(groups, target, 0.95);
    EXPECT_LE(ReachOf(selection, 0.95), target);
    for (int fewer = 1; fewer < MeasurementsOf(selection); ++fewer) {
      EXPECT_GT(ReachOf(SelectPoints(groups, fewer), 0.95), target) << fewer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnalyzeLogTest, ::testing::Range(1, 7));

TEST(SelectForErrorTest, NeverAsksForMoreThanTheRunHas) {
  for (const int iterations : {1, 7, 129, 200, 300}) {
    const std::vector<KeyTimes> groups =
        Grouped(MakeLog(iterations, {.iterations = iterations, .noise = 0.2}));
    const Selection selection = SelectForError(groups, 1e-9, 0.95);
    EXPECT_LE(MeasurementsOf(selection), iterations);
    EXPECT_NEAR(Weights(selection), iterations, 1e-6);
  }
}

TEST(SelectForErrorTest, MoreConfidenceNeedsMoreMeasurements) {
  const std::vector<KeyTimes> groups = Grouped(MakeLog(3, {.iterations = 2'000}));
  int before = 0;
  for (const double confidence : {0.5, 0.8, 0.95, 0.999}) {
    const int needed = MeasurementsOf(SelectForError(groups, 0.005, confidence));
    EXPECT_GT(needed, before);
    before = needed;
  }
}

// ------------------------------------------------------------------------ start-up, stalls

TEST(CleanUpTest, SlowFirstIterationsOfGroupsAreTakenOutAndCounted) {
  RunLog log = MakeLog(11);
  double start_up = 0;
  // Rows of the groups 2, 0 and 1 do not stand together; the first of 1 is like any other.
  for (size_t i = 0; i < log.size(); ++i) {
    log.groups.push_back(i % 3 == 0 ? 2 : i % 3 == 1 ? 0 : 1);
    if (i < 2) start_up += log.times[i] *= 8;
  }
  const CleanLog clean = CleanUp(log);
  EXPECT_EQ(clean.start_up, 2);
  EXPECT_DOUBLE_EQ(clean.start_up_time, start_up);
  EXPECT_EQ(clean.slow_count, 0);
  ASSERT_EQ(clean.log.size(), log.size() - 2);
  EXPECT_EQ(clean.log.groups.size(), clean.log.size());
  EXPECT_EQ(clean.log.groups[0], 1);
  EXPECT_NEAR(clean.total, Sum(log.times) - start_up, 1e-6);
}

TEST(CleanUpTest, WithoutGroupsOnlyTheFirstIterationIsStartUp) {
  RunLog log = MakeLog(12);
  log.times[0] *= 8;
  log.times[400] *= 8;
  const CleanLog clean = CleanUp(log);
  EXPECT_EQ(clean.start_up, 1);
  EXPECT_EQ(clean.slow_count, 1);
  EXPECT_TRUE(clean.apart[399]);
}

TEST(CleanUpTest, FewIterationsHaveNoStartUp) {
  RunLog log = MakeLog(13, {.iterations = 6});
  log.times[0] *= 8;
  EXPECT_EQ(CleanUp(log).start_up, 0);
  EXPECT_EQ(CleanUp(RunLog()).log.size(), 0u);
}

TEST(CleanUpTest, StallsAreInTheTotalAndInNothingElse) {
  RunLog log = MakeLog(14);
  const LogAnalysis without = AnalyzeLog(log, nullptr, {.points = 12});
  ASSERT_EQ(without.clean.slow_count, 0);
  std::vector<LogAnalysis> with;
  for (const double times : {10, 20}) {
    RunLog stalled = log;
    for (size_t i = 50; i < log.size(); i += 100) stalled.times[i] *= times;
    with.push_back(AnalyzeLog(stalled, &log, {.points = 12}));
    const LogAnalysis& a = with.back();
    EXPECT_EQ(a.clean.slow_count, 8);
    EXPECT_DOUBLE_EQ(a.clean.total, Sum(stalled.times));
    double count = 0;
    for (const KeyTimes& g : a.clean.by_key) count += g.count;
    EXPECT_EQ(count, 800);
    EXPECT_NEAR(a.speedup->all.value, 1, 0.002);
    EXPECT_NEAR(a.speedup->from_points->value, 1, 0.01);
    // The projection is of the whole total.
    EXPECT_NEAR(a.projection.value / a.clean.total, 1, 0.01);
    ExpectSound(a, stalled);
  }
  // How long they last changes no point, no mean and no interval.
  EXPECT_TRUE(Same(with[0].selection, with[1].selection));
  EXPECT_TRUE(Same(with[0].paper, with[1].paper));
  EXPECT_NEAR(with[0].fit.explained, with[1].fit.explained, 1e-3);
  for (size_t g = 0; g < with[0].clean.by_key.size(); ++g) {
    EXPECT_EQ(with[0].clean.by_key[g].mean, with[1].clean.by_key[g].mean);
    EXPECT_EQ(with[0].clean.by_key[g].count, with[1].clean.by_key[g].count);
  }
  EXPECT_NEAR(HalfWidth(with[0].projection), HalfWidth(with[1].projection), 1e-6);
  EXPECT_NEAR(with[1].projection.value - with[0].projection.value,
              with[1].clean.total - with[0].clean.total, 1e-6);
  EXPECT_EQ(with[0].stationarity.drift, with[1].stationarity.drift);
}

TEST(CleanUpTest, ManyStallsAreTheNoiseOfTheLog) {
  RunLog log = MakeLog(15);
  for (size_t i = 5; i < log.size(); i += 10) log.times[i] *= 10;
  const CleanLog clean = CleanUp(log);
  EXPECT_EQ(clean.slow_count, 0);
  EXPECT_EQ(clean.excess, 0);
  EXPECT_NEAR(clean.total, Sum(log.times), 1e-6);
}

// A length that only a stall has counts with the next longer one.
TEST(CleanUpTest, ALengthThatOnlyAStallHas) {
  RunLog log = MakeLog(16);
  log.keys[100] = {1'000};
  log.times[100] = 1e6;
  const LogAnalysis a = AnalyzeLog(log, nullptr, {.points = 12});
  EXPECT_EQ(a.clean.slow_count, 1);
  ExpectSound(a, log);
}

// ---------------------------------------------------------------------------- stationarity

TEST(StationarityTest, DriftAndOrderAreNoticed) {
  const Shape shape{.iterations = 4'000};
  RunLog log = MakeLog(21, shape);
  const Stationarity steady = CheckStationarity(log, Grouped(log), true);
  EXPECT_EQ(steady.drift, 0);
  EXPECT_FALSE(steady.moving);

  RunLog drifting = log;
  for (size_t i = 0; i < log.size(); ++i) {
    drifting.times[i] *= 1 + 0.1 * static_cast<double>(i) / static_cast<double>(log.size());
  }
  // A ramp of 10 % has a standard deviation of 10 % / sqrt(12).
  EXPECT_NEAR(CheckStationarity(drifting, Grouped(drifting), true).drift, 0.029, 0.004);

  std::vector<size_t> order(log.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return log.keys[a] < log.keys[b]; });
  RunLog sorted;
  for (const size_t i : order) {
    sorted.keys.push_back(log.keys[i]);
    sorted.times.push_back(log.times[i]);
  }
  EXPECT_TRUE(CheckStationarity(sorted, Grouped(sorted), true).moving);
}

TEST(StationarityTest, WhereLengthsSayNothingLevelsOfTimeAreLookedAt) {
  RunLog log = MakeLog(22, {.iterations = 4'000, .noise = 0.3, .slope = 0});
  EXPECT_LT(CheckStationarity(log, Grouped(log), false).drift, 0.01);
  for (size_t i = 0; i < log.size(); ++i) log.times[i] *= i < 2'000 ? 1 : 1.3;
  EXPECT_NEAR(CheckStationarity(log, Grouped(log), false).drift, 0.13, 0.02);
}

TEST(StationarityTest, ChanceIsNoDrift) {
  for (const double noise : {0.02, 0.3}) {
    for (const int iterations : {100, 1'000}) {
      int said = 0;
      for (int seed = 1; seed <= 50; ++seed) {
        const RunLog log = MakeLog(seed, {.iterations = iterations, .noise = noise});
        said += CheckStationarity(log, Grouped(log), true).drift > 0;
        said += CheckStationarity(log, Grouped(log), false).drift > 0;
      }
      EXPECT_LE(said, 3) << noise << " " << iterations;
    }
  }
}

// -------------------------------------------------------------------------------- verdicts

TEST(AnalyzeLogVerdictTest, NoPointsWhereLengthsSayNothing) {
  const RunLog log = MakeLog(31, {.noise = 0.3, .slope = 0});
  const LogAnalysis a = AnalyzeLog(log, &log, {.target_error = 0.02});
  EXPECT_EQ(a.fit.verdict, KeyVerdict::kNotExplained);
  EXPECT_TRUE(a.selection.points.empty());
  ExpectSound(a, log);
  // As many iterations at random as the target needs, by the textbook: z^2 s^2 / e^2, less the
  // correction for a population of 800.
  EXPECT_LE(HalfWidth(a.random), 0.02 * a.random.value);
  const double mean = Sum(log.times) / 800;
  double variance = 0;
  for (const double t : log.times) variance += (t - mean) * (t - mean) / 800;
  const double infinite = 1.959964 * 1.959964 * variance / std::pow(0.02 * mean, 2);
  EXPECT_NEAR(a.random_measurements, infinite / (1 + infinite / 800), 1.01);
}

TEST(AnalyzeLogVerdictTest, HardlyVaryingAndTooFew) {
  EXPECT_EQ(AnalyzeLog(MakeLog(32, {.noise = 0.01, .slope = 0}), nullptr, {}).fit.verdict,
            KeyVerdict::kTimeHardlyVaries);
  EXPECT_EQ(AnalyzeLog(MakeLog(33, {.iterations = 63}), nullptr, {}).fit.verdict,
            KeyVerdict::kTooFew);
}

TEST(AnalyzeLogVerdictTest, Degenerate) {
  EXPECT_TRUE(AnalyzeLog({}, nullptr, {}).selection.points.empty());

  const RunLog one{{{1'000'000'000}}, {2.5}, {}};
  const LogAnalysis single = AnalyzeLog(one, &one, {});
  ExpectSound(single, one);
  ASSERT_EQ(single.selection.points.size(), 1u);
  EXPECT_NEAR(single.projection.value, 2.5, 1e-12);

  RunLog same = MakeLog(34, {.lengths = 1, .noise = 0});
  same.groups.assign(same.size(), 0);
  const LogAnalysis equal = AnalyzeLog(same, &same, {.points = 64});
  ExpectSound(equal, same);
  ASSERT_EQ(equal.selection.points.size(), 1u);
  EXPECT_NEAR(equal.projection.value / Sum(same.times), 1, 1e-12);
  EXPECT_NEAR(HalfWidth(equal.projection), 0, 1e-9 * equal.projection.value);

  const RunLog zero = MakeLog(35, {.lengths = 1, .noise = 0.1});
  RunLog zeros = zero;
  for (Key& key : zeros.keys) key = {};  // an unknown length is a length
  ExpectSound(AnalyzeLog(zeros, &zero, {}), zeros);

  // Times as far apart as a log may have them.
  RunLog far = MakeLog(36, {.iterations = 100});
  for (size_t i = 0; i < far.size(); ++i) far.times[i] = i % 2 == 0 ? 1e-18 : 1e18;
  ExpectSound(AnalyzeLog(far, &far, {.horizon = Horizon::Iterations(1'000)}), far);
}

// ------------------------------------------------------------------- the paper's rule again

// Section IV word by word, from single iterations, in whole numbers where it can be.
struct NaivePoint {
  int64_t length = 0;
  double weight = 0;
};
std::vector<NaivePoint> NaivePaper(const RunLog& log, double max_error, int* bins) {
  std::map<int64_t, std::vector<double>> by_length;
  for (size_t i = 0; i < log.size(); ++i) by_length[log.keys[i].first].push_back(log.times[i]);
  const auto mean_of = [&](int64_t length) {
    return Sum(by_length[length]) / static_cast<double>(by_length[length].size());
  };
  std::vector<NaivePoint> points;
  if (by_length.size() <= 10) {
    *bins = static_cast<int>(by_length.size());
    for (const auto& [length, times] : by_length) {
      points.push_back({length, static_cast<double>(times.size())});
    }
    return points;
  }
  const int64_t low = by_length.begin()->first, high = by_length.rbegin()->first;
  for (int64_t k = 5;; ++k) {
    *bins = static_cast<int>(k);
    points.clear();
    double projected = 0;
    for (int64_t b = 0; b < k; ++b) {
      double count = 0, time = 0;
      const auto inside = [&](int64_t length) {
        return std::min(k - 1, (length - low) * k / (high - low)) == b;
      };
      for (size_t i = 0; i < log.size(); ++i) {
        if (!inside(log.keys[i].first)) continue;
        count += 1;
        time += log.times[i];
      }
      if (count == 0) continue;
      int64_t nearest = -1;
      for (const auto& [length, times] : by_length) {
        if (!inside(length)) continue;
        if (nearest < 0 ||
            std::abs(mean_of(length) - time / count) < std::abs(mean_of(nearest) - time / count)) {
          nearest = length;
        }
      }
      points.push_back({nearest, count});
      projected += count * mean_of(nearest);
    }
    if (std::abs(projected / Sum(log.times) - 1) <= max_error) return points;
  }
}

TEST(SelectPaperTest, AsTheRuleIsWritten) {
  for (int seed = 1; seed <= 12; ++seed) {
    const int lengths = 4 + 7 * seed;
    const RunLog log = MakeLog(100 + seed, {.iterations = 300, .lengths = lengths, .noise = 0.1});
    for (const double max_error : {0.01, 0.0005}) {
      int bins = 0;
      const std::vector<NaivePoint> expected = NaivePaper(log, max_error, &bins);
      const Selection got = SelectPaper(Grouped(log), {.max_error = max_error});
      ASSERT_EQ(got.points.size(), expected.size()) << seed;
      EXPECT_EQ(got.bins, bins);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(got.points[i].key.first, expected[i].length) << seed;
        EXPECT_EQ(got.points[i].weight, expected[i].weight) << seed;
      }
    }
  }
}

TEST(SelectPaperTest, ALengthOnABorderBeginsABin) {
  RunLog log;
  for (int64_t length = 0; length <= 22; ++length) {
    log.keys.push_back({length});
    log.times.push_back(static_cast<double>(10 + length));
  }
  // 22 bins of width 1; the last one holds the longest too.
  const Selection selection = SelectPaper(Grouped(log), {.first_bins = 22, .max_error = 1});
  ASSERT_EQ(selection.points.size(), 22u);
  for (int64_t b = 0; b < 21; ++b) EXPECT_EQ(selection.points[b].key.first, b);
}

// --------------------------------------------------------------------------------- speedup

TEST(SpeedupTest, ADriftWithinTheOtherLogIsNoSpeedup) {
  const Shape shape{.iterations = 4'000, .noise = 0.005};
  RunLog log = MakeLog(5, shape);
  for (size_t i = 0; i < log.size() / 4; ++i) log.times[i] *= 0.96;  // before it is warm
  const LogAnalysis a = AnalyzeLog(log, &log, {.points = 32});
  ASSERT_TRUE(a.speedup && a.speedup->from_points);
  EXPECT_NEAR(a.speedup->all.value, 1, 1e-9);
  EXPECT_NEAR(a.speedup->from_points->value, 1, 0.008);
  EXPECT_LE(a.speedup->from_points->low, 1);
  EXPECT_GE(a.speedup->from_points->high, 1);
}

TEST(SpeedupTest, CoversTheTruth) {
  const Shape here{.iterations = 600, .lengths = 40};
  constexpr int kPairs = 200;
  int all = 0, from_points = 0;
  double error = 0;
  for (int pair = 0; pair < kPairs; ++pair) {
    const RunLog base = MakeLog(1'000 + pair, here);
    // Faster by a constant, not by a factor; other lengths; half as long.
    const Shape there{.iterations = 300, .lengths = 50, .noise = 0.03, .base = 40};
    const LogAnalysis a = AnalyzeLog(base, nullptr, {.points = 16});
    const RunLog other = MakeLog(5'000 + pair, there);
    const LogAnalysis both = AnalyzeLog(base, &other, {.points = 16});
    ASSERT_TRUE(both.speedup);
    double time_there = 0;
    for (const Key& key : base.keys) {
      // The mean of a lognormal distribution.
      time_there += NormalTime(there, key) * std::exp(there.noise * there.noise / 2);
    }
    const double truth = Sum(base.times) / time_there;
    const auto covers = [&](const Estimate& e) { return e.low <= truth && truth <= e.high; };
    all += covers(both.speedup->all);
    from_points += covers(both.speedup->from_points.value());
    error += std::abs(both.speedup->all.value / truth - 1) / kPairs;
    EXPECT_GT(std::abs(both.speedup->means / truth - 1), error);
  }
  EXPECT_LT(error, 0.002);
  EXPECT_GE(all, 0.92 * kPairs);
  EXPECT_LE(all, 0.99 * kPairs);
  EXPECT_GE(from_points, 0.9 * kPairs);
}

TEST(SpeedupTest, LengthsThatTheOtherLogLacksChangeAsTheNearestDoes) {
  RunLog base, other;
  for (int i = 0; i < 400; ++i) {
    const int64_t length = 10 + i % 40;
    base.keys.push_back({length});
    base.times.push_back(static_cast<double>(100 + length));
    if (length % 2 == 1) continue;
    other.keys.push_back({length});
    other.times.push_back(base.times.back() / 2);
  }
  const LogAnalysis a = AnalyzeLog(base, &other, {});
  ASSERT_TRUE(a.speedup);
  EXPECT_EQ(a.speedup->unknown_keys, 20);
  EXPECT_NEAR(a.speedup->all.value, 2, 1e-9);
  EXPECT_NEAR(a.speedup->from_points->value, 2, 0.01);
}

TEST(SpeedupTest, TheNearestIsNearInBothDimensions) {
  RunLog base, other;
  for (int64_t a = 1; a <= 8; ++a) {
    for (int64_t b = 1; b <= 8; ++b) {
      for (int i = 0; i < 10; ++i) {
        base.keys.push_back({10 * a, 10 * b});
        base.times.push_back(static_cast<double>(100 + a + 10 * b));
        // Twice as fast where the second length is small, ten times where it is large. What is
        // missing has a neighbour one step of the first length away.
        if (a == 3 || a == 6) continue;
        other.keys.push_back({10 * a + (a % 2), 10 * b});
        if (a % 2 == 1) other.keys.back().first = 10 * a;
        other.times.push_back(base.times.back() / (b <= 4 ? 2 : 10));
      }
    }
  }
  double truth = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    truth += base.times[i] / (base.keys[i].second <= 40 ? 2 : 10);
  }
  const LogAnalysis a = AnalyzeLog(base, &other, {});
  ASSERT_TRUE(a.speedup);
  EXPECT_EQ(a.speedup->unknown_keys, 16);
  EXPECT_NEAR(a.speedup->all.value, Sum(base.times) / truth, 1e-9);
}

TEST(SpeedupTest, LogsWithoutACommonLengthAreNotCompared) {
  const RunLog base = MakeLog(41);
  RunLog other = base;
  for (Key& key : other.keys) key.first += 1'000;
  EXPECT_FALSE(AnalyzeLog(base, &other, {}).speedup);
}

TEST(SpeedupTest, TheNearestOfManyIsFoundInAnyDirection) {
  std::mt19937 random(9);
  for (const int64_t spread : {3, 40, 1'000'000}) {
    RunLog base, other;
    std::uniform_int_distribution<int64_t> length(1, spread);
    std::map<Key, double> ratios;  // of those that both have
    for (int i = 0; i < 600; ++i) {
      const Key key = {length(random), length(random)};
      base.keys.push_back(key);
      base.times.push_back(100);
      if (key.second % 3 == 1) continue;
      const double ratio = 0.4 + 0.001 * static_cast<double>((key.first * 7 + key.second) % 97);
      ratios[key] = ratio;
      other.keys.push_back(key);
      other.times.push_back(100 * ratio);
    }
    double there = 0;
    for (const Key& key : base.keys) {
      int64_t best = INT64_MAX;
      double ratio = 0;
      for (const auto& [known, its] : ratios) {
        const int64_t apart =
            std::abs(known.first - key.first) + std::abs(known.second - key.second);
        if (apart < best) ratio = its;
        best = std::min(best, apart);
      }
      there += 100 * ratio;
    }
    const LogAnalysis a = AnalyzeLog(base, &other, {});
    ASSERT_TRUE(a.speedup);
    EXPECT_NEAR(a.speedup->all.value, 60'000 / there, 1e-9) << spread;
  }
}

TEST(SpeedupTest, ManyLengthsThatTheOtherLogLacks) {
  // All differ in the first dimension, in the second, or in both, far from those that both have.
  for (const auto& [first, second] : {std::pair(1, 0), {0, 1}, {1, 1}}) {
    for (const bool apart : {false, true}) {
      RunLog base, other;
      for (int i = 0; i < 120'000; ++i) {
        const bool both = apart ? i < 60'000 : i % 2 == 1;
        const int64_t at = i + (apart && !both ? 1'000'000'000 : 0);
        base.keys.push_back({5 + first * at, 5 + second * at});
        base.times.push_back(100 + 0.001 * i);
        if (!both) continue;
        other.keys.push_back(base.keys.back());
        other.times.push_back(base.times.back() / 3);
      }
      const LogAnalysis a = AnalyzeLog(base, &other, {});
      ASSERT_TRUE(a.speedup);
      EXPECT_EQ(a.speedup->unknown_keys, 60'000);
      EXPECT_NEAR(a.speedup->all.value, 3, 1e-6);
    }
  }
}

// ------------------------------------------------------------------------------ another run

TEST(OtherRunTest, AHistogramOfLengthsIsEnough) {
  const Shape shape{.iterations = 2'000};
  int covered = 0;
  constexpr int kLogs = 40;
  for (int seed = 0; seed < kLogs; ++seed) {
    const RunLog log = MakeLog(200 + seed, shape);
    double truth = 0;
    std::vector<KeyCount> lengths;
    for (int64_t length = 5; length < 65; length += 3) {
      lengths.push_back({{length}, 10 * length});
      truth += 3 * 10 * static_cast<double>(length) * NormalTime(shape, {length}) *
               std::exp(shape.noise * shape.noise / 2);
    }
    const LogAnalysis a =
        AnalyzeLog(log, nullptr, {.horizon = Horizon::Histogram(std::move(lengths), 3)});
    ASSERT_TRUE(a.other_run && a.other_run->total);
    EXPECT_NEAR(a.other_run->total->value / truth, 1, 0.005);
    covered += a.other_run->total->low <= truth && truth <= a.other_run->total->high;
  }
  EXPECT_GE(covered, 0.9 * kLogs);
}

// --------------------------------------------------------------------- first occurrences

RunLog WithCostlyFirsts(double surcharge) {
  std::mt19937 random(5);
  std::uniform_int_distribution<int64_t> length(10, 129);
  std::normal_distribution<double> normal;
  RunLog log;
  std::set<int64_t> seen;
  for (int i = 0; i < 1500; ++i) {
    const int64_t l = length(random);
    double time = (50 + 2.0 * static_cast<double>(l)) * std::exp(0.01 * normal(random));
    if (seen.insert(l).second) time += surcharge;
    log.keys.push_back({l});
    log.times.push_back(time);
  }
  return log;
}

TEST(FirstOccurrencesTest, CostlyOnesAreInTheTotalAndInNoPoint) {
  const LogAnalysis with = AnalyzeLog(WithCostlyFirsts(60), nullptr, {.points = 16});
  EXPECT_EQ(with.clean.first_count + with.clean.slow_count, 120);  // the shortest as stalls
  EXPECT_GT(with.clean.first_share, 0.2);
  double total = 0, count = 0;
  for (const KeyTimes& g : with.clean.by_key) {
    total += g.count * g.mean;
    count += g.count;
    // 1,380 others at 1 % noise, 6 to 20 of each length.
    EXPECT_NEAR(g.mean / (50 + 2.0 * static_cast<double>(g.key.first)), 1, 0.03);
  }
  EXPECT_EQ(count, 1500);
  EXPECT_NEAR((total + with.clean.excess) / with.clean.total, 1, 1e-9);
  EXPECT_NEAR(with.projection.value / with.clean.total, 1, 2e-3);
}

TEST(FirstOccurrencesTest, OrdinaryOnesStay) {
  const LogAnalysis without = AnalyzeLog(WithCostlyFirsts(0), nullptr, {.points = 16});
  EXPECT_EQ(without.clean.first_count, 0);
  EXPECT_EQ(without.clean.excess, 0);
}

}  // namespace
}  // namespace seqpoint
