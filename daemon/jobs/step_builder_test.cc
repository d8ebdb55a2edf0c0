#include "daemon/jobs/step_builder.h"

#include <vector>

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

Step Did(int64_t number, int64_t length, int64_t duration_ns) {
  Step step;
  step.set_number(static_cast<uint64_t>(number));
  step.set_first_length(length);
  step.set_valid(1);
  step.set_duration_ns(duration_ns);
  step.set_boundary_ns(number * kSecond);
  return step;
}

StepsState Saved(const StepBuilder& steps) {
  StepsState state;
  steps.Save(&state);
  return state;
}

TEST(StepBuilder, AStepIsAsLongAsItsSlowestRankAndHasTheLongestLength) {
  StepBuilder steps;
  steps.Add(0, Did(0, 30, 300));
  EXPECT_TRUE(steps.TakeSteps({0, 1, 2}).empty());
  steps.Add(1, Did(0, 50, 310));
  steps.Add(2, Did(0, 40, 290));
  const std::vector<Step> taken = steps.TakeSteps({0, 1, 2});
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].number(), 0u);
  EXPECT_EQ(taken[0].first_length(), 50);
  EXPECT_EQ(taken[0].duration_ns(), 310);
  EXPECT_EQ(taken[0].config_id(), 0u);
}

TEST(StepBuilder, WhatHappensToOneRankHappensToTheStep) {
  StepBuilder steps;
  Step measured = Did(0, 30, 300);
  measured.set_config_id(1);
  Step unknown = Did(0, 0, 0);
  unknown.set_valid(0);
  steps.Add(0, Did(0, 30, 300));
  steps.Add(1, measured);
  steps.Add(2, unknown);
  const std::vector<Step> taken = steps.TakeSteps({0, 1, 2});
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_NE(taken[0].config_id(), 0u);
  EXPECT_EQ(taken[0].valid(), 0u);
  EXPECT_EQ(taken[0].first_length(), 0);
  EXPECT_EQ(taken[0].second_length(), 0);
  EXPECT_EQ(taken[0].duration_ns(), 0);
}

TEST(StepBuilder, TheLastStepIsKnownUntilThoseOfAllRanks) {
  StepBuilder steps;
  Step last = Did(0, 30, 300);
  last.set_rest_ns(7);
  steps.Add(0, last);
  last.set_rest_ns(9);
  last.set_duration_ns(310);
  steps.Add(1, last);
  StepBuilder loaded;
  loaded.Load(Saved(steps));
  for (StepBuilder* builder : {&steps, &loaded}) {
    const std::vector<Step> taken = builder->TakeSteps({});
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(taken[0].duration_ns(), 310);
    EXPECT_EQ(taken[0].rest_ns(), 9);
  }
}

TEST(StepBuilder, ARankWhoseRecordWasLostIsNotWaitedForOnceItIsFurther) {
  StepBuilder steps;
  steps.Add(0, Did(0, 30, 300));
  steps.Add(0, Did(1, 31, 301));
  steps.Add(1, Did(1, 32, 302));
  const std::vector<Step> taken = steps.TakeSteps({0, 1});
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].duration_ns(), 0);  // how long the other one took, nobody knows
  EXPECT_EQ(taken[1].duration_ns(), 302);
  EXPECT_EQ(taken[1].first_length(), 32);
}

TEST(StepBuilder, StepsThatNoRankReportedHappenedAllTheSame) {
  StepBuilder steps;
  for (const int64_t number : {4, 7}) {
    steps.Add(0, Did(number, 30, 300));
    steps.Add(1, Did(number, 30, 300));
  }
  const std::vector<Step> taken = steps.TakeSteps({0, 1});
  ASSERT_EQ(taken.size(), 4u);
  EXPECT_EQ(taken[1].number(), 5u);
  EXPECT_EQ(taken[1].duration_ns(), 0);
  EXPECT_EQ(taken[3].number(), 7u);
}

TEST(StepBuilder, ARankThatIsGoneIsNotWaitedFor) {
  StepBuilder steps;
  for (int64_t i = 0; i < 10; ++i) steps.Add(0, Did(i, 30, 300));
  for (int64_t i = 0; i < 6; ++i) steps.Add(1, Did(i, 30, 300));
  EXPECT_EQ(steps.TakeSteps({0, 1}).size(), 6u);
  EXPECT_EQ(steps.TakeSteps({0}).size(), 4u);
}

TEST(StepBuilder, ARankThatNeverIteratesIsWaitedForAWhileOnly) {
  StepBuilder steps;
  size_t taken = 0;
  for (int64_t i = 0; i < StepBuilder::kPatienceSteps; ++i) {
    steps.Add(0, Did(i, 30, 300));
    taken += steps.TakeSteps({0, 9}).size();
  }
  EXPECT_EQ(taken, 0u);
  for (int64_t i = StepBuilder::kPatienceSteps; i < 200; ++i) {
    steps.Add(0, Did(i, 30, 300));
    taken += steps.TakeSteps({0, 9}).size();
  }
  EXPECT_EQ(taken, 200u);
  // It comes after all: from then on it counts.
  steps.Add(9, Did(199, 60, 600));
  EXPECT_EQ(steps.late(), 1);
  steps.Add(0, Did(200, 30, 300));
  steps.Add(9, Did(200, 60, 600));
  const std::vector<Step> last = steps.TakeSteps({0, 9});
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].duration_ns(), 600);
}

TEST(StepBuilder, ManyShortStepsAheadAreNoReasonToLeaveARankBehind) {
  StepBuilder steps;
  for (int64_t i = 0; i < 1000; ++i) {
    Step step = Did(i, 30, 300);
    step.set_boundary_ns(i * 1'000'000);  // one second in all: its records are still under way
    steps.Add(0, step);
  }
  EXPECT_TRUE(steps.TakeSteps({0, 1}).empty());
}

TEST(StepBuilder, BeginsWhereTheRanksWere) {
  StepBuilder steps({{0, 100}, {1, 99}});
  steps.Add(1, Did(99, 30, 300));  // step 99 is in the job's figures already
  EXPECT_EQ(steps.late(), 1);
  steps.Add(0, Did(100, 30, 300));
  EXPECT_TRUE(steps.TakeSteps({0, 1}).empty());
  steps.Add(1, Did(100, 31, 300));
  EXPECT_EQ(steps.TakeSteps({0, 1}).size(), 1u);
}

TEST(StepBuilder, SaysWhenRanksHaveTheSameLengthsAllTheTime) {
  StepBuilder same, other, fixed;
  for (int64_t i = 0; i < 100; ++i) {
    for (const int32_t rank : {0, 1}) {
      same.Add(rank, Did(i, i % 7, 300));
      other.Add(rank, Did(i, rank == 1 && i == 50 ? 9 : i % 7, 300));
      fixed.Add(rank, Did(i, 7, 300));
    }
    for (StepBuilder* steps : {&same, &other, &fixed}) steps->TakeSteps({0, 1});
  }
  EXPECT_TRUE(same.same_lengths());
  EXPECT_FALSE(other.same_lengths());
  EXPECT_FALSE(fixed.same_lengths());
}

TEST(StepBuilder, AStepThatLacksARankSaysNothingOfTime) {
  StepBuilder steps;
  std::vector<Step> taken;
  for (int64_t i = 0; i < 300; ++i) {
    steps.Add(0, Did(i, 30, 300));
    if (i < 10) steps.Add(1, Did(i, 50, 500));
    for (const Step& step : steps.TakeSteps({0, 1})) taken.push_back(step);
  }
  ASSERT_EQ(taken.size(), 300u);
  EXPECT_EQ(taken[9].duration_ns(), 500);
  EXPECT_EQ(taken[10].duration_ns(), 0);
  EXPECT_EQ(taken[10].valid(), 0u);
  steps.Add(1, Did(10, 50, 500));
  EXPECT_EQ(steps.late(), 1);
}

TEST(StepBuilder, ARankThatHangsHoldsNobodyUpThoughTheFastestHasEnded) {
  StepBuilder steps;
  size_t taken = 0;
  for (int64_t i = 0; i < 100; ++i) steps.Add(0, Did(i, 30, 300));
  for (int64_t i = 0; i < 1000; ++i) {
    steps.Add(1, Did(i, 30, 300));
    if (i < 50) steps.Add(2, Did(i, 30, 300));
    taken += steps.TakeSteps({1, 2}).size();
  }
  EXPECT_EQ(taken, 1000u);
}

TEST(StepBuilder, NoRankIsGivenUpBeforeAllWereHeardAgain) {
  StepBuilder steps;
  for (int64_t i = 0; i < 1000; ++i) steps.Add(0, Did(i, 30, 300));
  EXPECT_TRUE(steps.TakeSteps({0, 1}, /*all_heard=*/false).empty());
  for (int64_t i = 0; i < 1000; ++i) steps.Add(1, Did(i, 40, 400));
  const std::vector<Step> taken = steps.TakeSteps({0, 1});
  ASSERT_EQ(taken.size(), 1000u);
  EXPECT_EQ(taken[0].duration_ns(), 400);
  EXPECT_EQ(steps.late(), 0);
}

TEST(StepBuilder, GoesOnFromItsState) {
  StepBuilder steps;
  for (int64_t i = 0; i < 8; ++i) steps.Add(0, Did(i, 30 + i, 300 + i));
  for (int64_t i = 0; i < 5; ++i) steps.Add(1, Did(i, 40, 310));
  steps.TakeSteps({0, 1});
  StepBuilder other;
  other.Load(Saved(steps));
  EXPECT_EQ(Saved(other).DebugString(), Saved(steps).DebugString());
  for (int64_t i = 5; i < 8; ++i) other.Add(1, Did(i, 33, 250));
  const std::vector<Step> taken = other.TakeSteps({0, 1});
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken[0].first_length(), 35);
  EXPECT_EQ(taken[2].duration_ns(), 307);
  EXPECT_EQ(taken[2].first_length(), 37);
}

}  // namespace
}  // namespace seqpoint::jobs
