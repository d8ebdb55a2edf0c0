#include "daemon/seqpoint/cold_iterations.h"

#include "gtest/gtest.h"

namespace seqpoint {
namespace {

ColdIterations::Noted Add(const IterationSample& sample, IterationLog& log, ColdIterations& cold) {
  const SampleUse use(sample);
  return cold.Add(sample, use, *log.Add(sample, use));
}

TEST(ColdIterationsTest, AnIterationIsColdWhereEitherLengthIsNew) {
  IterationLog log;
  ColdIterations cold;
  EXPECT_TRUE(Add({.iteration = 0, .key = {5, 7}, .time_ns = 10}, log, cold).cold);
  EXPECT_TRUE(Add({.iteration = 1, .key = {5, 8}, .time_ns = 10}, log, cold).cold);
  EXPECT_FALSE(Add({.iteration = 2, .key = {5, 7}, .time_ns = 10}, log, cold).cold);
  EXPECT_TRUE(cold.IsCold(1));
  EXPECT_FALSE(cold.IsCold(2));
  EXPECT_EQ(cold.count, 2u);
}

TEST(ColdIterationsTest, ALengthThatIsNewToAProcessOnlyIsARecurrence) {
  IterationLog log;
  ColdIterations cold;
  EXPECT_TRUE(Add({.iteration = 0, .key = {5}, .time_ns = 30, .cold = true}, log, cold).cold);
  const auto noted = Add({.iteration = 1, .key = {5}, .time_ns = 20, .cold = true}, log, cold);
  EXPECT_FALSE(noted.cold);
  EXPECT_TRUE(noted.recurrence);
  EXPECT_EQ(cold.recurrence_ns, 20);
  EXPECT_EQ(log.keys.At({5}).recurrences, 1);
  EXPECT_FALSE(cold.IsCold(1));
  Add({.iteration = 2, .key = {5}, .time_ns = 20, .measured = true, .cold = true}, log, cold);
  EXPECT_TRUE(cold.IsCold(2));
  EXPECT_EQ(cold.count, 3u);
}

TEST(ColdIterationsTest, OfSumsTheMicroBatchesHaveTheLengths) {
  IterationLog log;
  ColdIterations cold;
  EXPECT_TRUE(Add({.iteration = 0,
                   .key = {9},
                   .time_ns = 10,
                   .combined = true,
                   .micro_batches = {{{4}}, {{5}}}},
                  log, cold)
                  .cold);
  EXPECT_FALSE(Add({.iteration = 1,
                    .key = {8},
                    .time_ns = 10,
                    .combined = true,
                    .micro_batches = {{{4}}, {{4}}}},
                   log, cold)
                   .cold);
  EXPECT_EQ(cold.MicroBatchesOf(LengthList(0, MicroBatch::Kind::kAny)), 4);
  // A graph of its own has kernels of its own.
  EXPECT_TRUE(Add({.iteration = 2,
                   .key = {9},
                   .time_ns = 10,
                   .combined = true,
                   .micro_batches = {{{4}, MicroBatch::Kind::kFirst}, {{5}}}},
                  log, cold)
                  .cold);
}

TEST(ColdIterationsTest, TheFirstIterationOfTheRunIsKnownAsSuch) {
  IterationLog log;
  ColdIterations cold;
  Add({.iteration = 0, .key = {5}, .time_ns = 10}, log, cold);
  Add({.iteration = 1, .key = {6}, .time_ns = 10}, log, cold);
  Add({.iteration = 2, .key = {7}, .time_ns = 10, .distorted = true}, log, cold);
  const ColdIterations::Costs costs = cold.CostsOf(log.keys);
  ASSERT_EQ(costs.times.size(), 2u);
  EXPECT_TRUE(costs.times[0].of_run);
  EXPECT_FALSE(costs.times[1].of_run);
  EXPECT_EQ(costs.times[1].opened[0], 1);
  EXPECT_EQ(costs.opened_untimed[0], 1);
}

}  // namespace
}  // namespace seqpoint
