#include "daemon/seqpoint/statistic_projector.h"

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

// Every length occurs once, and some of these iterations are slow: nothing else tells what slow is.
TEST(ProjectStatisticTest, SlowIterationsOfLengthsOfTheirOwnLeaveANumber) {
  OnlineEngine engine;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (uint64_t i = 0; i < 300; ++i) {
    const Key key = {static_cast<int64_t>(3'000 + i), 0};
    IterationSample sample{.iteration = i, .key = key};
    sample.time_ns = std::llround(7e6 * std::exp(0.003 * normal(random)));
    if (i % 90 == 40) sample.time_ns += 2'000'000;
    engine.AddIteration(sample);
    if (i % 12 == 5)
      engine.AddMeasurement(0, i, key, {7e6}).IgnoreError();  // the first are refused
  }
  const auto p = engine.ProjectStatistic(0, 0, 0.95, StatisticKind::kTimeLike);
  ASSERT_TRUE(p.ok()) << p.status();
  EXPECT_NEAR(p->so_far->value / (300 * 7e6), 1, 0.03);
}

TEST(ProjectStatisticTest, IntervalsShrinkWithMeasurements) {
  const Epoch run = MakeEpoch(40, 2000, /*two_dimensional=*/true);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  Feed(engine, run, 0, 2000);
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  double truth = 0;
  for (const Key& key : run.keys) truth += Counters::Bytes(key);
  double width = INFINITY;
  size_t at = 1000;
  for (size_t m : {3, 12, 64}) {
    for (; at < 1000 + m; ++at) {
      const double value = Counters::Bytes(run.keys[at]) * (1 + 0.01 * normal(random));
      ASSERT_TRUE(engine.AddMeasurement(3, at, run.keys[at], {&value, 1}).ok());
    }
    const auto p = engine.ProjectStatistic(3, 0, 0.95);
    ASSERT_TRUE(p.ok());
    EXPECT_LT(p->total->high - p->total->low, width) << m;
    EXPECT_TRUE(Covers(*p->total, truth)) << m;
    width = p->total->high - p->total->low;
  }
  EXPECT_LT(width, 0.02 * truth);
}

// One iteration in a hundred is slow, and busy cycles grow with its time; bytes do not.
TEST(ProjectStatisticTest, SlowIterationsWidenWhatTheyMayRaise) {
  for (const bool measure_slow : {false, true}) {
    Epoch run = MakeEpoch(42, 3000, /*two_dimensional=*/true);
    std::mt19937 random(3);
    double cycles = 0, bytes = 0;
    std::vector<bool> slow;
    for (size_t i = 0; i < run.keys.size(); ++i) {
      slow.push_back(random() % 100 == 0);
      if (slow[i]) run.times_ns[i] += run.times_ns[i] * 3 / 10;
      cycles += static_cast<double>(NormalTime(run.keys[i])) * (slow[i] ? 1.3 : 1);
      bytes += Counters::Bytes(run.keys[i]);
    }
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
    int measured = 0, slow_measured = 0;
    for (size_t i = 0; i < run.keys.size(); ++i) {
      const bool wanted = measure_slow && slow[i] ? slow_measured < 1 : !slow[i] && i % 40 == 11;
      const bool measure = i >= 300 && measured < 64 && wanted;
      engine.AddIteration(
          {.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i], .measured = measure});
      if (!measure) continue;
      ++measured;
      slow_measured += slow[i];
      const double values[] = {static_cast<double>(NormalTime(run.keys[i])) * (slow[i] ? 1.3 : 1),
                               Counters::Bytes(run.keys[i])};
      ASSERT_TRUE(engine.AddMeasurement(0, i, run.keys[i], values).ok());
    }
    ASSERT_EQ(slow_measured, measure_slow ? 1 : 0);
    const auto p = engine.ProjectStatistic(0, 0, 0.999);
    ASSERT_TRUE(p.ok());
    EXPECT_TRUE(Covers(*p->total, cycles)) << measure_slow;
    EXPECT_NEAR(p->total->value / cycles, 1, 0.0015);
    EXPECT_LT(p->total->high - p->total->low, 0.02 * cycles);
    EXPECT_THAT(p->basis, HasSubstr("are counted in"));
    const auto q = engine.ProjectStatistic(0, 1, 0.999, StatisticKind::kAmount);
    EXPECT_NEAR(q->total->value / bytes, 1, 0.001);
    EXPECT_TRUE(Covers(*q->total, bytes));
    EXPECT_THAT(q->basis, HasSubstr("do not raise it"));
  }
}

// Times grow by 3 % in the second half; all is measured in the first. Cycles grow with the times.
TEST(ProjectStatisticTest, WhatFollowsTimeFollowsItsDrift) {
  Epoch run = MakeEpoch(43, 3000);
  double cycles = 0, bytes = 0;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    if (i >= 1500) run.times_ns[i] += run.times_ns[i] * 3 / 100;
    cycles += static_cast<double>(NormalTime(run.keys[i])) * (i < 1500 ? 1 : 1.03);
    bytes += Counters::Bytes(run.keys[i]);
  }
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  for (size_t i = 0; i < run.keys.size(); ++i) {
    const bool measure = i >= 200 && i < 1400 && i % 20 == 11;
    engine.AddIteration(
        {.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i], .measured = measure});
    if (!measure) continue;
    const double values[] = {static_cast<double>(NormalTime(run.keys[i])),
                             Counters::Bytes(run.keys[i])};
    ASSERT_TRUE(engine.AddMeasurement(0, i, run.keys[i], values).ok());
  }
  const auto p = engine.ProjectStatistic(0, 0, 0.999);
  EXPECT_NEAR(p->total->value / cycles, 1, 0.006);
  EXPECT_TRUE(Covers(*p->total, cycles));
  // By how much it follows was never measured: no level had changed yet.
  EXPECT_LT(p->total->high - p->total->low, 0.16 * cycles);
  const auto q = engine.ProjectStatistic(0, 1, 0.999, StatisticKind::kAmount);
  EXPECT_NEAR(q->total->value / bytes, 1, 0.006);
  EXPECT_TRUE(Covers(*q->total, bytes));
}

// Slow iterations and drift are no more instructions, even where these are proportional to time.
TEST(ProjectStatisticTest, AnAmountDoesNotFollowTime) {
  Epoch run = MakeEpoch(14, 3000);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  double truth = 0;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    const double amount = static_cast<double>(NormalTime(run.keys[i]));
    truth += amount;
    int64_t time = run.times_ns[i] + run.times_ns[i] / 50 * static_cast<int64_t>(i) / 3000;
    if (i % 50 == 25) time += time / 3;
    engine.AddIteration({.iteration = i, .key = run.keys[i], .time_ns = time});
    if (i > 100 && i % 40 == 0) {
      ASSERT_TRUE(engine.AddMeasurement(1, i, run.keys[i], {&amount, 1}).ok());
    }
  }
  const auto marked = engine.ProjectStatistic(1, 0, 0.999, StatisticKind::kAmount);
  const auto unmarked = engine.ProjectStatistic(1, 0, 0.999);
  ASSERT_TRUE(marked.ok() && unmarked.ok());
  EXPECT_NEAR(marked->total->value / truth, 1, 2e-4);
  EXPECT_TRUE(Covers(*marked->total, truth));
  EXPECT_GT(unmarked->total->value / truth, 1.001);
  EXPECT_LT(marked->total->high - marked->total->low, unmarked->total->high - unmarked->total->low);
}

TEST(ProjectStatisticTest, VectorsMayGrow) {
  const Epoch run = MakeEpoch(41, 600);
  OnlineEngine engine;
  Feed(engine, run, 0, 600);
  const std::vector<double> two = {5, 7};
  for (size_t i = 500; i < 510; ++i) {
    ASSERT_TRUE(engine.AddMeasurement(0, i, run.keys[i], {two.data(), i < 505 ? 1u : 2u}).ok());
  }
  EXPECT_TRUE(engine.ProjectStatistic(0, 1, 0.95).ok());
  EXPECT_EQ(engine.ProjectStatistic(0, 2, 0.95).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(engine.ProjectStatistic(0, -1, 0.95).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_NEAR(engine.ProjectStatistic(0, 0, 0.95)->so_far->value / (5 * 600), 1, 0.2);
}

TEST(ProjectStatisticTest, FirstOccurrencesAreNotMeasurements) {
  OnlineEngine engine;
  const double one = 1;
  engine.AddIteration({.iteration = 0, .key = {5, 6}, .time_ns = 100});
  engine.AddIteration({.iteration = 1, .key = {5, 7}, .time_ns = 100});
  engine.AddIteration({.iteration = 2, .key = {5, 7}, .time_ns = 100});
  EXPECT_EQ(engine.AddMeasurement(0, 0, {5, 6}, {&one, 1}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine.AddMeasurement(0, 1, {5, 7}, {&one, 1}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(engine.AddMeasurement(0, 2, {5, 7}, {&one, 1}).ok());
  EXPECT_EQ(engine.Totals().measurements_used, 1u);
  EXPECT_EQ(engine.Totals().measurements_refused, 2u);
}

}  // namespace
}  // namespace seqpoint
