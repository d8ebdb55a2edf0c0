#include "daemon/seqpoint/outlier_filter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_runs.h"
#include "tests/support/estimates.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(OutlierFilterTest, StallsAreCountedApart) {
  Epoch run = MakeEpoch(9, 2000);
  for (size_t i : {150, 200, 333, 350}) run.times_ns[i] *= 20;
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  Feed(engine, run, 0, 400);
  EXPECT_EQ(engine.Totals().outliers, 4u);
  EXPECT_NEAR(engine.PredictTime({30}) / static_cast<double>(NormalTime({30})), 1, 0.01);
  // The past keeps them; the rest has them as often.
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_DOUBLE_EQ(p.so_far->value, run.Total() - run.Total(400));
  EXPECT_GT(p.remaining.value, 1.1 * run.Total(400));
  EXPECT_TRUE(Covers(p.remaining, run.Total(400)));
  EXPECT_THAT(p.basis, HasSubstr("4 stalls"));
}

// The times of one length are others than the curve's: beyond what counts as a stall, and as slow.
TEST(PerLengthBaselineTest, ALengthThatTheCurveMissesHasItsOwnTime) {
  for (const double factor : {1.6, 1.15, 0.45, 0.85}) {
    for (const double share : {0.006, 0.025, 0.3}) {
      Epoch run = MakeEpoch(60, 3000);
      std::mt19937 random(1);
      std::uniform_real_distribution<double> uniform;
      for (size_t i = 0; i < run.keys.size(); ++i) {
        const bool odd = uniform(random) < share;
        if (!odd && run.keys[i].first != 30) continue;
        const double noise = static_cast<double>(run.times_ns[i]) / NormalTime(run.keys[i]);
        run.keys[i] = {odd ? 30 : 17};
        run.times_ns[i] = std::llround(noise * (odd ? factor : 1) * NormalTime(run.keys[i]));
      }
      OnlineEngine engine;
      Feed(engine, run, 0, run.keys.size());
      SCOPED_TRACE(testing::Message() << factor << ", share " << share);
      EXPECT_LE(engine.Totals().outliers, 3u);
      double ordinary = 0;
      for (const KeyTimes& times : engine.OrdinaryTimes()) {
        const double truth =
            static_cast<double>(NormalTime(times.key)) * (times.key.first == 30 ? factor : 1);
        EXPECT_NEAR(times.mean / truth, 1, 0.01) << times.key.first;
        EXPECT_NEAR(engine.PredictTime(times.key) / truth, 1, 0.01) << times.key.first;
        ordinary += times.count * times.mean;
      }
      EXPECT_NEAR(ordinary / run.Total(), 1, 1e-3);
      // Whatever the points are, they stand for the run's cost.
      double points = 0;
      for (const SeqPointInfo& point : engine.SeqPoints({})) {
        points += point.weight * OrdinaryTime(engine, point.key);
      }
      EXPECT_NEAR(points / run.Total(), 1, 0.005);
      // And what is to come costs what it did.
      ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram(), 2)).ok());
      const Projection p = engine.ProjectTime(0.95);
      // Where many are far off, the time before that was known looks like a drift.
      EXPECT_NEAR(p.remaining.value / run.Total(), 1, share > 0.1 ? 0.015 : 0.003);
      EXPECT_TRUE(Covers(p.remaining, run.Total()));
      EXPECT_THAT(p.basis, Not(HasSubstr("that a length takes shifted")));
    }
  }
}

// Cycles follow time there, instructions do not.
TEST(PerLengthBaselineTest, StatisticsOfALengthThatTheCurveMisses) {
  Epoch run = MakeEpoch(66, 3000);
  double cycles = 0, instructions = 0;
  OnlineEngine engine;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    if (run.keys[i].first == 30) run.times_ns[i] = run.times_ns[i] * 8 / 5;
    const double values[] = {static_cast<double>(run.times_ns[i]) * 1.5,
                             static_cast<double>(NormalTime(run.keys[i]))};
    cycles += values[0];
    instructions += values[1];
    engine.AddIteration({.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i]});
    if (i % 40 == 30) engine.AddMeasurement(0, i, run.keys[i], values).IgnoreError();
    if (i == 700 || run.keys[i].first != 30 || i % 3 != 0) continue;
    engine.AddMeasurement(0, i, run.keys[i], values).IgnoreError();
  }
  const auto a = engine.ProjectStatistic(0, 0, 0.95, StatisticKind::kTimeLike);
  const auto b = engine.ProjectStatistic(0, 1, 0.95, StatisticKind::kAmount);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NEAR(a->so_far->value / cycles, 1, 0.003);
  EXPECT_TRUE(Covers(*a->so_far, cycles));
  EXPECT_NEAR(b->so_far->value / instructions, 1, 0.003);
  EXPECT_TRUE(Covers(*b->so_far, instructions));
}

// Short lengths cost no less than others, all the way down.
TEST(PerLengthBaselineTest, ABendThatTheCurveMissesIsNoStall) {
  Epoch run = MakeEpoch(61, 4000);
  const auto truth = [](const Key& key) {
    return 3e5 * static_cast<double>(std::max<int64_t>(key.first, 14));
  };
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    if (run.keys[i].first < 12) run.keys[i].first -= 7;
    run.times_ns[i] = std::llround(truth(run.keys[i]) * std::exp(0.005 * normal(random)));
  }
  OnlineEngine engine;
  Feed(engine, run, 0, run.keys.size());
  EXPECT_LE(engine.Totals().outliers, 5u);
  for (const KeyTimes& times : engine.OrdinaryTimes()) {
    EXPECT_NEAR(times.mean / truth(times.key), 1, 0.01) << times.key.first;
    EXPECT_NEAR(engine.PredictTime(times.key) / truth(times.key), 1, 0.02) << times.key.first;
  }
}

// Stalls are rare, of any size, at any length.
TEST(PerLengthBaselineTest, StallsStayStalls) {
  for (int seed = 0; seed < 10; ++seed) {
    Epoch run = MakeEpoch(70 + seed, 3000);
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> size(1, 4);
    double stalls = 0, excess = 0;
    for (size_t i = 200; i < run.times_ns.size(); i += 1 + random() % 200) {
      // Now and then a few iterations in a row, alike.
      const double factor = std::exp(size(random));
      for (size_t k = i; k < std::min(i + (random() % 10 == 0 ? 5 : 1), run.times_ns.size()); ++k) {
        const double time = static_cast<double>(run.times_ns[k]);
        run.times_ns[k] = std::llround(time * factor);
        excess += time * (factor - 1);
        stalls += 1;
      }
    }
    OnlineEngine engine;
    Feed(engine, run, 0, run.keys.size());
    EXPECT_EQ(static_cast<double>(engine.Totals().outliers), stalls) << seed;
    double ordinary = 0;
    for (const KeyTimes& times : engine.OrdinaryTimes()) {
      const double truth = static_cast<double>(NormalTime(times.key));
      EXPECT_NEAR(times.mean / truth, 1, 0.005) << times.key.first;
      EXPECT_NEAR(engine.PredictTime(times.key) / truth, 1, 0.005) << times.key.first;
      ordinary += times.count * times.mean;
    }
    EXPECT_NEAR(ordinary / (run.Total() - excess), 1, 1e-3);
  }
}

TEST(PerLengthBaselineTest, AMomentOfThrottlingIsNobodysLevel) {
  Epoch run = MakeEpoch(62, 2000);
  // Lengths that occur there first, and for some time only there.
  for (size_t i = 1000; i < 1007; ++i) {
    run.keys[i] = {60 + static_cast<int64_t>(i % 2)};
    run.times_ns[i] = NormalTime(run.keys[i]) * 8 / 5;
  }
  for (size_t i = 1500; i < 2000; i += 100) {
    run.keys[i] = {60};
    run.times_ns[i] = NormalTime({60});
  }
  OnlineEngine engine;
  Feed(engine, run, 0, run.keys.size());
  EXPECT_EQ(engine.Totals().outliers, 5u);
  EXPECT_NEAR(OrdinaryTime(engine, {60}) / static_cast<double>(NormalTime({60})), 1, 0.01);
  EXPECT_NEAR(engine.PredictTime({61}) / static_cast<double>(NormalTime({61})), 1, 0.01);
}

TEST(PerLengthBaselineTest, OneStallAmongFiveIterations) {
  for (size_t stall = 1; stall < 5; ++stall) {
    Epoch run = MakeEpoch(63, 2000);
    for (size_t i = 0; i < 5; ++i) {
      run.keys[400 + 300 * i] = {55};
      run.times_ns[400 + 300 * i] = NormalTime({55}) * (i == stall ? 3 : 1);
    }
    OnlineEngine engine;
    Feed(engine, run, 0, run.keys.size());
    EXPECT_EQ(engine.Totals().outliers, 1u) << stall;
    EXPECT_NEAR(OrdinaryTime(engine, {55}) / static_cast<double>(NormalTime({55})), 1, 0.005);
    EXPECT_NEAR(engine.PredictTime({55}) / static_cast<double>(NormalTime({55})), 1, 0.01);
  }
}

// The first iterations of a length were slow by chance: the others outvote them.
TEST(PerLengthBaselineTest, AWrongLevelIsUnlearned) {
  Epoch run = MakeEpoch(64, 3000);
  int seen = 0;
  for (size_t i = 500; i < 3000; i += 50) {
    run.keys[i] = {55};
    run.times_ns[i] = NormalTime({55}) * (++seen <= 5 ? 8 : 5) / 5;
  }
  OnlineEngine engine;
  Feed(engine, run, 0, 701);
  EXPECT_NEAR(OrdinaryTime(engine, {55}) / static_cast<double>(NormalTime({55})), 1.6, 0.01);
  Feed(engine, run, 701, run.keys.size());
  EXPECT_NEAR(OrdinaryTime(engine, {55}) / static_cast<double>(NormalTime({55})), 1, 0.01);
  double excess = 0;
  for (const KeyTimes& times : engine.OrdinaryTimes()) excess -= times.count * times.mean;
  EXPECT_NEAR((excess + run.Total()) / static_cast<double>(NormalTime({55})), 5 * 0.6, 1.5);
}

// A cost that grows from some iteration on at all lengths is the run's level, no key's.
TEST(PerLengthBaselineTest, WhatAllKeysDoIsDrift) {
  for (const double factor : {1.08, 2.0}) {
    Epoch run = MakeEpoch(65, 4000);
    const Epoch before = run;
    for (size_t i = 2000; i < 4000; ++i) {
      run.times_ns[i] = std::llround(factor * static_cast<double>(run.times_ns[i]));
    }
    OnlineEngine engine;
    Feed(engine, run, 0, run.keys.size());
    EXPECT_LT(engine.Totals().outliers, 20u);
    ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram(), 2)).ok());
    const double rest = factor * before.Total();
    EXPECT_TRUE(Covers(engine.ProjectTime(0.95).remaining, rest)) << factor;
  }
}

TEST(OutlierFilterTest, ANewRegimeIsNotAStall) {
  Epoch run = MakeEpoch(10, 2000);
  for (size_t i = 1000; i < 2000; ++i) run.times_ns[i] *= 2;
  OnlineEngine engine;
  Feed(engine, run, 0, 2000);
  EXPECT_LT(engine.Totals().outliers, 20u);
  EXPECT_THAT(engine.ProjectTime(0.95).basis, HasSubstr("that a length takes shifted"));
  EXPECT_GT(engine.PredictTime({30}), 1.2 * static_cast<double>(NormalTime({30})));
}

}  // namespace
}  // namespace seqpoint
