#include "daemon/jobs/length_matching.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "injection/abi/records.h"

namespace seqpoint::jobs {
namespace {

// One length, told by a copy of 4 bytes for each token of 32 examples.
constexpr int64_t kFactor = 128;

class LengthMatchingTest : public testing::Test {
 protected:
  LengthMatchingTest() {
    rule_.rule.length_count = 1;
    rule_.rule.micro_batches = 1;
    rule_.length_words = "bytes of a copy";
    shape_.rule = &rule_;
  }
  v1::Horizon Given(int64_t epochs = 2) {
    v1::Horizon horizon;
    horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
    horizon.set_epochs(epochs);
    for (int64_t length = 10; length < 40; ++length) {
      v1::LengthCount& entry = *horizon.add_histogram();
      entry.add_lengths(length);
      entry.set_count(5);
    }
    return horizon;
  }
  LengthMatching::Outcome See(int64_t iterations) {
    for (; seen_ < iterations; ++seen_) observed_.Add(0, kFactor * (10 + seen_ * 7 % 30));
    observed_.RefreshUnits();
    return matching_.Match(shape_, observed_, {.iterations = seen_});
  }

  iterations::LearnedRule rule_ = {};
  RunShape shape_;
  ObservedLengths observed_;
  LengthMatching matching_;
  int64_t seen_ = 0;
};

TEST_F(LengthMatchingTest, TheNumberIsKnownAtOnceAndTheLengthsOnceTheyAreMatched) {
  matching_.SetHorizon(Given());
  LengthMatching::Outcome outcome = See(1);
  ASSERT_TRUE(outcome.horizons);
  EXPECT_EQ(outcome.horizons->steps.iterations, 300);
  EXPECT_TRUE(outcome.horizons->steps.histogram.empty());
  EXPECT_FALSE(See(20).horizons) << "too few to match, and the number is applied";
  outcome = See(60);
  ASSERT_TRUE(outcome.horizons);
  EXPECT_EQ(outcome.horizons->steps.histogram.size(), 30u);
  EXPECT_EQ(matching_.message(), "");
  const int64_t feature[2] = {37 * kFactor, 0};
  EXPECT_EQ(matching_.Units(shape_, observed_).Of(feature, 1), std::vector<int64_t>{37});
}

TEST_F(LengthMatchingTest, ItIsLookedForAgainWhenWhatItRestsOnChanges) {
  matching_.SetHorizon(Given());
  See(60);
  EXPECT_FALSE(See(61).horizons);
  shape_.world_size = 2;
  ASSERT_TRUE(See(62).horizons);
  EXPECT_EQ(DataParallel(matching_.horizon(), shape_), 2);
  EXPECT_EQ(RunIterations(matching_.horizon(), shape_), 150);
}

TEST_F(LengthMatchingTest, WithoutAMatchTheNumberIsUsedAndTheMessageSaysSo) {
  rule_.rule.length_count = 0;
  matching_.SetHorizon(Given());
  const LengthMatching::Outcome outcome = See(60);
  ASSERT_TRUE(outcome.horizons);
  EXPECT_EQ(outcome.horizons->steps.iterations, 300);
  EXPECT_THAT(matching_.message(), testing::HasSubstr("only their number is used"));
}

TEST_F(LengthMatchingTest, WhereItIsNotKnownHowManyBatchesAnIterationTakesThereIsNoTotal) {
  shape_.batches = abi::kBatchUnknown;
  shape_.batches_message = "its own loop";
  matching_.SetHorizon(Given());
  const LengthMatching::Outcome outcome = See(60);
  ASSERT_TRUE(outcome.horizons);
  EXPECT_EQ(outcome.horizons->steps.kind, Horizon::Kind::kUnknown);
  EXPECT_THAT(matching_.message(), testing::HasSubstr("its own loop"));
}

TEST_F(LengthMatchingTest, AnotherRunHasTheFactorsOfItsOwnLengths) {
  See(60);
  const auto other = matching_.OtherRun(Given(4), shape_, observed_);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->steps.iterations, 600);
  EXPECT_TRUE(other->steps.another);
  v1::Horizon wrong = Given();
  wrong.mutable_histogram(0)->set_count(-1);
  EXPECT_FALSE(matching_.OtherRun(wrong, shape_, observed_).ok());
}

TEST(RunSchedule, LengthsOfAStepAreSumsOverMicroBatchesAndTheLargestOfTheRanks) {
  v1::Horizon horizon;
  v1::LengthCount& entry = *horizon.add_histogram();
  entry.add_lengths(10);
  entry.set_count(24);
  const std::map<Lengths, int64_t> steps = IterationLengths(horizon, 3, 2);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps.begin()->first[0], 30);
  EXPECT_EQ(steps.begin()->second, 4);
}

TEST(MicroBatches, OneUnusualIterationOfEachEpochIsNoChange) {
  MicroBatches batches;
  for (int i = 0; i < 40; ++i) batches.Add(i % 20 == 0 ? 2 : 4, 4);
  EXPECT_FALSE(batches.vary());
  for (int i = 0; i < 40; ++i) batches.Add(3, 4);
  EXPECT_TRUE(batches.vary());
  EXPECT_NEAR(batches.mean(), 3.45, 1e-9);
}

TEST(ObservedLengths, WhatComesIsAppendedAndComesBack) {
  ObservedLengths observed;
  observed.Add(0, 37, 2);
  observed.Add(1, 5);
  WriteBatch batch;
  observed.Store(1, 1, batch.states);
  observed.Add(0, 74);
  observed.Store(1, 1, batch.states);
  std::map<std::string, StateRow> stored;  // as the store: the last of each part
  for (const StateRow& row : batch.states) stored[row.part] = row;
  std::vector<StateRow> rows;
  for (const auto& [part, row] : stored) rows.push_back(row);
  ObservedLengths restored;
  ASSERT_TRUE(restored.Load(rows));
  EXPECT_EQ(restored.histogram(0), observed.histogram(0));
  EXPECT_EQ(restored.histogram(1), observed.histogram(1));
  EXPECT_EQ(restored.unit(0), 37);
}

}  // namespace
}  // namespace seqpoint::jobs
