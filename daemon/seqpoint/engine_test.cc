#include "daemon/seqpoint/engine.h"

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
using ::testing::IsEmpty;
using ::testing::Not;

TEST(OrdinaryTimesTest, CountsAreAllIterationsAndMeansThoseOfOrdinaryOnes) {
  const Epoch run = MakeEpoch(1, 4'000);
  OnlineEngine engine;
  EXPECT_THAT(engine.OrdinaryTimes(), IsEmpty());
  std::set<Key> seen;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    IterationSample sample{.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i]};
    if (seen.insert(sample.key).second) sample.time_ns += 20'000'000;  // algorithm search
    if (i % 500 == 499) sample.time_ns *= 10;                          // a stall
    if (i % 7 == 3) sample.time_ns = 0;                                // unknown
    if (i % 7 == 4) sample.distorted = true, sample.time_ns *= 2;
    if (i % 100 == 50) sample.key = {}, sample.time_ns = 0;  // its records were lost
    engine.AddIteration(sample);
  }
  // No repeated iteration of this length has a time.
  engine.AddIteration({.iteration = 4'000, .key = {30, 0}, .redone = true});
  engine.AddIteration({.iteration = 4'001, .key = {55, 0}});
  double count = 0;
  Key before = {-1, 0};
  for (const KeyTimes& times : engine.OrdinaryTimes()) {
    count += times.count;
    EXPECT_LT(before, times.key);
    before = times.key;
    const double normal = static_cast<double>(NormalTime(times.key));
    EXPECT_NEAR(times.mean / normal, 1, times.key.first == 55 ? 0.01 : 0.003) << times.key.first;
    if (times.count < 2) continue;
    const double deviation = std::sqrt(times.m2 / (times.count - 1)) / normal;
    EXPECT_GT(deviation, 0.003);
    EXPECT_LT(deviation, 0.007);
  }
  EXPECT_EQ(before, (Key{55, 0}));
  EXPECT_NEAR(count, 4'001, 1e-6);
}

TEST(SeqPointsTest, IterationsOfUnknownLengthAreSharedOutOverTheOthers) {
  OnlineEngine engine;
  const PlanOptions options{.budget = 40, .sets = {1}};
  for (uint64_t i = 0; i < 300; ++i) {
    IterationSample sample{.iteration = i};
    if (i % 3 != 0) {  // records of the others were lost
      sample.key.first = 10 + static_cast<int64_t>(i % 20);
      sample.time_ns = 1000 * sample.key.first;
    }
    engine.AddIteration(sample);
  }
  double iterations = 0;
  for (const SeqPointInfo& point : engine.SeqPoints(options)) {
    EXPECT_NE(point.key, Key{});
    iterations += point.weight;
  }
  EXPECT_NEAR(iterations, 300, 1e-6);
}

TEST(DegenerateTest, NothingYet) {
  OnlineEngine engine;
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_FALSE(p.total.has_value());
  EXPECT_EQ(p.so_far->value, 0);
  EXPECT_THAT(engine.SeqPoints({}), IsEmpty());
  EXPECT_THAT(engine.MakePlan({}).entries, IsEmpty());
  EXPECT_EQ(engine.PredictTime({5}), 0);
  EXPECT_EQ(engine.ProjectStatistic(0, 0, 0.95).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(100)).ok());
  EXPECT_FALSE(engine.ProjectTime(0.95).total.has_value());
}

TEST(DegenerateTest, OneIteration) {
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(100)).ok());
  engine.AddIteration({.iteration = 0, .key = {7}, .time_ns = 1000});
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_NEAR(p.total->value, 100'000, 1);
  EXPECT_GT(p.total->high - p.total->low, 0.2 * p.total->value);
  const std::vector<SeqPointInfo> points = engine.SeqPoints({});
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].key, Key{7});
  EXPECT_NEAR(points[0].weight, 100, 1e-9);
}

TEST(DegenerateTest, OneLengthAndEqualTimes) {
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(1000)).ok());
  for (uint64_t i = 0; i < 500; ++i) {
    engine.AddIteration({.iteration = i, .key = {7}, .time_ns = 1'000'000});
  }
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_NEAR(p.total->value, 1e9, 1);
  EXPECT_THAT(p.basis, HasSubstr("time hardly varies"));
  for (const PlanEntry& e : engine.MakePlan({}).entries) {
    EXPECT_EQ(e.low, Key{7});
    EXPECT_EQ(e.high, Key{7});
  }
}

TEST(DegenerateTest, NoTimesButMeasurements) {
  const Epoch run = MakeEpoch(16, 500);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  double truth = 0;
  for (size_t i = 0; i < 500; ++i) {
    engine.AddIteration({.iteration = i, .key = run.keys[i]});
    truth += static_cast<double>(run.keys[i].first);
  }
  EXPECT_FALSE(engine.ProjectTime(0.95).total.has_value());
  EXPECT_THAT(engine.ProjectTime(0.95).basis, HasSubstr("no iteration has a usable time"));
  for (size_t i = 400; i < 430; ++i) {
    const double value = static_cast<double>(run.keys[i].first);
    ASSERT_TRUE(engine.AddMeasurement(1, i, run.keys[i], {&value, 1}).ok());
  }
  const auto p = engine.ProjectStatistic(1, 0, 0.95);
  ASSERT_TRUE(p.ok());
  EXPECT_NEAR(p->total->value / truth, 1, 0.01);
}

TEST(DegenerateTest, HugeAndRefusedInput) {
  OnlineEngine engine;
  engine.AddIteration({.iteration = 0, .key = {-1}, .time_ns = 10});
  engine.AddIteration({.iteration = 1, .key = {1, -5}, .time_ns = 10});
  engine.AddIteration({.iteration = 2, .key = {1}, .time_ns = -10});
  EXPECT_EQ(engine.Totals().rejected, 3u);
  EXPECT_EQ(engine.Totals().iterations, 0u);
  for (uint64_t i = 0; i < 200; ++i) {
    engine.AddIteration({.iteration = i,
                         .key = {static_cast<int64_t>(1'000'000'000 + i % 9), INT64_MAX},
                         .time_ns = static_cast<int64_t>(1'000'000 + i % 9)});
  }
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_TRUE(std::isfinite(p.per_1000->low) && std::isfinite(p.per_1000->high));
  EXPECT_NEAR(p.per_1000->value, 1e9, 1e6);
  EXPECT_THAT(engine.MakePlan({}).entries, Not(IsEmpty()));

  const double nan = NAN;
  EXPECT_EQ(engine.AddMeasurement(0, 100, {1'000'000'000 + 1, INT64_MAX}, {&nan, 1}).code(),
            absl::StatusCode::kInvalidArgument);
  const double one = 1;
  EXPECT_EQ(engine.AddMeasurement(0, 100, {12345}, {&one, 1}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine.Totals().measurements_refused, 2u);

  EXPECT_FALSE(engine.SetHorizon(Horizon::Iterations(-5)).ok());
  EXPECT_FALSE(engine.SetHorizon(Horizon::Histogram({{{-3}, 10}})).ok());
  EXPECT_FALSE(engine.SetHorizon(Horizon::Histogram({{{3}, -10}})).ok());
  EXPECT_FALSE(engine.SetHorizon(Horizon::Histogram({{{3}, INT64_MAX}}, 100)).ok());
}

TEST(DegenerateTest, EveryIterationANewLength) {
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(4000)).ok());
  double past = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const int64_t length = static_cast<int64_t>((i * 7919) % 100'003);
    engine.AddIteration({.iteration = i, .key = {length}, .time_ns = 1'000'000 + 10 * length});
    past += static_cast<double>(1'000'000 + 10 * length);
  }
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_DOUBLE_EQ(p.so_far->value, past);
  EXPECT_TRUE(Covers(*p.total, 4 * past));
  EXPECT_GT(engine.Explained().explained, 0.99);
}

}  // namespace
}  // namespace seqpoint
