#include "daemon/queries/rank_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.h"

namespace seqpoint::queries {
namespace {

constexpr int64_t kStepsJob = 1;

class RankStepsTest : public ::testing::Test {
 protected:
  RankStepsTest() : store_(*Store::Open((folder_.path() / "db").string(), {})) {
    data_.job_id = kStepsJob;
    data_.ranks = {0, 1};
    data_.started_ranks = {0, 1};
  }

  void Add(std::initializer_list<int32_t> ranks, int64_t first, int64_t end,
           int32_t incarnation = 0) {
    for (int64_t number = first; number < end; ++number) {
      for (const int32_t rank : ranks) {
        batch_.iterations.push_back({.job_id = kStepsJob,
                                     .rank = rank,
                                     .number = number,
                                     .incarnation = incarnation,
                                     .duration_ns = 5'000'000});
        if (rank >= 0) ++data_.iterations_per_rank[rank];
      }
    }
    data_.next_number = std::max(data_.next_number, end);
  }
  std::vector<ranks::StepOfRanks> Read() {
    EXPECT_TRUE(store_->Write(batch_).ok());
    const jobs::Snapshot snapshot(std::move(data_));
    auto steps = ReadRankSteps(*store_, snapshot, [] { return false; });
    EXPECT_TRUE(steps.ok()) << steps.status();
    return steps.ok() ? *std::move(steps) : std::vector<ranks::StepOfRanks>();
  }

  const TempFolder folder_;
  std::unique_ptr<Store> store_;
  jobs::SnapshotData data_;
  WriteBatch batch_;
};

TEST_F(RankStepsTest, TheNewestStepsOfALongRun) {
  Add({kStepsRank, 0, 1}, 0, 10'000);
  const auto steps = Read();
  ASSERT_EQ(steps.size(), 8192u);
  EXPECT_EQ(steps.front().number, 10'000 - 8192);
  EXPECT_EQ(steps.back().number, 9'999);
}

// A resumed start does iterations again, which have the same numbers.
TEST_F(RankStepsTest, IterationsThatWereRedoneAreNoneBeyondTheEnd) {
  Add({kStepsRank, 0, 1}, 0, 9'900);
  Add({0, 1}, 100, 9'900, 1);
  Add({kStepsRank, 0, 1}, 9'900, 10'000, 1);
  const auto steps = Read();
  ASSERT_EQ(steps.size(), 8192u);
  EXPECT_EQ(steps.back().number, 9'999);
}

TEST_F(RankStepsTest, StepsOfOtherRanksThanTheLastStartsDoNotCount) {
  data_.ranks = {0, 1, 2};
  Add({kStepsRank, 0, 1, 2}, 0, 300);
  Add({kStepsRank, 0, 1}, 300, 400, 1);
  const auto steps = Read();
  ASSERT_EQ(steps.size(), 100u);
  EXPECT_EQ(steps.front().number, 300);
}

}  // namespace
}  // namespace seqpoint::queries
