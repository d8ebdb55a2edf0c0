#include "daemon/jobs/process_table.h"

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

class ProcessTableTest : public testing::Test {
 protected:
  Process& Start(int64_t id, int32_t rank, int64_t start_ns = 0) {
    auto process =
        std::make_unique<Process>(ProcessRow{.process_id = id, .rank = rank, .start_ns = start_ns});
    process->learning = std::make_unique<Learning>();
    processes_.Place(*process, ranks_, {});
    ranks_.Add(rank, 1);
    return processes_.Add(std::move(process));
  }
  void Train(Process& process, int64_t iterations) {
    process.state.set_iterations(static_cast<uint64_t>(iterations));
    ranks_.Advance(process.row.rank, process.state.first_number() + iterations);
  }

  ProcessTable processes_;
  RankTable ranks_;
};

TEST_F(ProcessTableTest, AResumedRankGoesOnWhereItWas) {
  Process& first = Start(1, 0);
  EXPECT_FALSE(first.state.aligning());
  Train(first, 100);
  first.row.end_ns = 50;
  Process& second = Start(2, 0, 60);
  EXPECT_EQ(second.state.first_number(), 100);
  EXPECT_EQ(second.state.rank_next(), 100);
  EXPECT_TRUE(second.state.aligning()) << "it may do some again";
  EXPECT_EQ(processes_.RoleOf(second), Role::kCounted);
}

TEST_F(ProcessTableTest, RanksThatStartTogetherHaveTheSameFirstNumber) {
  Train(Start(1, 0), 100);
  Train(Start(2, 1), 90);
  processes_.at(1).row.end_ns = processes_.at(2).row.end_ns = 50;
  EXPECT_EQ(Start(3, 1, 60).state.first_number(), 100);
  EXPECT_EQ(Start(4, 0, 61).state.first_number(), 100);
  EXPECT_FALSE(processes_.one_rank());
}

TEST_F(ProcessTableTest, OfTwoThatRunAtTheSameTimeTheFirstThatTrainsIsCounted) {
  Process& first = Start(1, 0);
  Process& second = Start(2, 0);
  EXPECT_EQ(processes_.RoleOf(second), Role::kOpen) << "the first may be a helper";
  Train(first, 1);
  EXPECT_EQ(processes_.RoleOf(second), Role::kConcurrent);
  EXPECT_EQ(processes_.RoleOf(first), Role::kCounted);
  EXPECT_EQ(processes_.LiveRanks(), std::set<int32_t>{0});
}

TEST_F(ProcessTableTest, AHelperThatEndsLeavesTheRankToTheOther) {
  Process& helper = Start(1, 0);
  Process& training = Start(2, 0);
  helper.row.end_ns = 50;
  EXPECT_EQ(processes_.RoleOf(training), Role::kCounted);
}

TEST_F(ProcessTableTest, WhoWaitedOnlyForAProcessOfAnotherRankIsFree) {
  Process& moves = Start(1, 0);
  Process& waits = Start(2, 0);
  EXPECT_TRUE(waits.state.aligning());
  const std::vector<Process*> free = processes_.Move(moves, 1);
  EXPECT_TRUE(processes_.HasLive(1));
  EXPECT_FALSE(processes_.one_rank());
  EXPECT_EQ(processes_.NextIncarnation(1), moves.row.incarnation + 1);
  ASSERT_EQ(free.size(), 1u);
  EXPECT_EQ(free[0], &waits);
}

TEST_F(ProcessTableTest, TheLastOfARankIsTheLastThatCountsWhereAnyDoes) {
  Train(Start(1, 0), 10);
  processes_.at(1).row.end_ns = 50;
  Start(2, 0, 60);
  const auto counts = [](const Process& process) { return process.counts(); };
  EXPECT_EQ(processes_.LastOfRanks(counts).at(0)->row.process_id, 1);
  Train(processes_.at(2), 1);
  EXPECT_EQ(processes_.LastOfRanks(counts).at(0)->row.process_id, 2);
}

TEST(RankTable, RanksThatNeverHadAnIterationDoNotWork) {
  RankTable ranks;
  ranks.Start();
  ranks.Add(0, 4);
  ranks.Add(1, 4);
  EXPECT_EQ(ranks.working(), 1);
  ranks.Advance(0, 5);
  ranks.Advance(1, 3);
  EXPECT_EQ(ranks.working(), 2);
  EXPECT_EQ(ranks.world_size(), 4);
  RanksState state;
  ranks.Save(&state);
  RankTable restored;
  restored.Load(state);
  EXPECT_EQ(restored.next_numbers(), ranks.next_numbers());
  EXPECT_EQ(restored.working(), 2);
  EXPECT_EQ(restored.world_size(), 4);
}

FinishedIteration Iteration(uint64_t number, int64_t length) {
  FinishedIteration iteration;
  iteration.set_number(number);
  iteration.set_first_length(length);
  iteration.set_valid(1);
  return iteration;
}

TEST(ResumeAlignment, WhatIsBufferedIsComparedOnceTheLogIsThere) {
  std::vector<KnownLengths> log;
  for (int64_t i = 0; i < 40; ++i) log.emplace_back(std::pair(i * i % 97, int64_t{0}));
  ResumeAlignment alignment;
  for (int64_t i = 0; i < 3; ++i) {
    alignment.Add(Iteration(40 + static_cast<uint64_t>(i), (30 + i) * (30 + i) % 97), 1);
  }
  EXPECT_FALSE(alignment.decided());
  EXPECT_FALSE(alignment.Repeated());
  alignment.SetLog(0, log, 1);
  for (int64_t i = 3; !alignment.decided() && i < 10; ++i) {
    alignment.Add(Iteration(40 + static_cast<uint64_t>(i), (30 + i) * (30 + i) % 97), 1);
  }
  ASSERT_TRUE(alignment.decided());
  EXPECT_EQ(alignment.Repeated(), 10) << "number 40 is number 30 again";
  EXPECT_GE(alignment.End().size(), 3u);
  EXPECT_FALSE(alignment.buffers());
}

}  // namespace
}  // namespace seqpoint::jobs
