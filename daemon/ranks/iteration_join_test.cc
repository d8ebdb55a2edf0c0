#include "daemon/ranks/iteration_join.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

namespace seqpoint::ranks {
namespace {

RankIteration Report(int64_t number, int32_t rank, int collectives = 1) {
  RankIteration report;
  report.number = number;
  report.rank = rank;
  report.duration_ns = 100;
  for (int i = 0; i < collectives; ++i) {
    Collective c;
    c.communicator = 1;
    c.sequence = static_cast<uint32_t>(number * collectives + i);
    c.start_ns = 10 * i;
    c.end_ns = 10 * i + 5;
    report.collectives.push_back(c);
  }
  return report;
}

std::vector<int64_t> Numbers(const std::vector<JoinedIteration>& joined) {
  std::vector<int64_t> numbers;
  for (const JoinedIteration& iteration : joined) numbers.push_back(iteration.number);
  return numbers;
}

TEST(IterationJoin, WaitsForEachRank) {
  IterationJoin join;
  join.SetRanks({0, 1});
  join.Add(Report(0, 0));
  join.Add(Report(8, 0));
  EXPECT_TRUE(join.Take().empty());
  join.Add(Report(0, 1));
  const auto joined = join.Take();
  ASSERT_EQ(Numbers(joined), std::vector<int64_t>{0});
  EXPECT_TRUE(joined[0].complete);
  EXPECT_EQ(joined[0].ranks.size(), 2U);
}

TEST(IterationJoin, AnAwaitedRankMayBeFarBehind) {
  constexpr int64_t kIterations = 10 * IterationJoin::kPatience;
  IterationJoin join;
  join.SetRanks({0, 1});
  join.SetAwaited({0, 1});
  for (int64_t i = 0; i < kIterations; ++i) join.Add(Report(i, 0));
  EXPECT_TRUE(join.Take().empty());
  for (int64_t i = 0; i < kIterations / 2; ++i) join.Add(Report(i, 1));
  EXPECT_EQ(join.Take().size(), kIterations / 2);
  EXPECT_EQ(join.losses().incomplete, 0);
  // It does not come any more.
  join.SetAwaited({0});
  EXPECT_EQ(join.Take().size(), kIterations / 2 - IterationJoin::kPatience);
  EXPECT_EQ(join.losses().incomplete, kIterations / 2 - IterationJoin::kPatience);
}

TEST(IterationJoin, ReportsMayComeInAnyOrderOfRanks) {
  for (const std::vector<int32_t>& order :
       std::vector<std::vector<int32_t>>{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}}) {
    IterationJoin join;
    join.SetRanks({0, 1, 2, 3});
    // Two ranks are ahead before the oldest iteration is reported.
    join.Add(Report(5, order[0]));
    join.Add(Report(5, order[1]));
    join.Add(Report(2, order[2]));
    EXPECT_TRUE(join.Take().empty());
    join.Add(Report(3, order[3]));
    EXPECT_EQ(Numbers(join.Take()), std::vector<int64_t>{2});
    join.Add(Report(4, order[2]));
    EXPECT_EQ(Numbers(join.Take()), std::vector<int64_t>{3});
    join.Add(Report(5, order[3]));
    EXPECT_EQ(Numbers(join.Take()), std::vector<int64_t>{4});
    join.Add(Report(5, order[2]));
    const auto joined = join.Take();
    ASSERT_EQ(Numbers(joined), std::vector<int64_t>{5});
    EXPECT_TRUE(joined[0].complete);
  }
}

TEST(IterationJoin, ARankThatIsPastAnIterationDoesNotHoldItUp) {
  IterationJoin join;
  join.SetRanks({0, 1});
  join.Add(Report(0, 0));
  join.Add(Report(8, 1));  // its record of iteration 0 was dropped
  const auto joined = join.Take();
  ASSERT_EQ(Numbers(joined), std::vector<int64_t>{0});
  EXPECT_FALSE(joined[0].complete);
  EXPECT_EQ(join.losses().incomplete, 1);
}

TEST(IterationJoin, ARankThatNeverReportsIsWaitedForSomeIterationsOnly) {
  IterationJoin join;
  join.SetRanks({0, 1, 2});
  for (int64_t number = 0; number < IterationJoin::kPatience; ++number)
    for (const int32_t rank : {0, 1}) join.Add(Report(number, rank));
  EXPECT_TRUE(join.Take().empty());
  join.Add(Report(IterationJoin::kPatience, 0));
  ASSERT_EQ(Numbers(join.Take()), std::vector<int64_t>{0});
  join.Add(Report(0, 2));
  EXPECT_EQ(join.losses().late, 1);
}

// Rank 1 calls the half of an iteration one, which its all-reduce ends only now and then.
TEST(IterationJoin, TransfersOfRanksThatCountOtherwiseAreLeftOut) {
  IterationJoin join;
  join.SetRanks({0, 1});
  const auto report = [&](int64_t number, int32_t rank, std::optional<uint32_t> all_reduce) {
    RankIteration iteration = Report(number, rank, all_reduce ? 1 : 0);
    if (all_reduce) iteration.collectives[0].sequence = *all_reduce;
    Collective transfer = {.communicator = 1, .kind = 2, .start_ns = 20, .end_ns = 30};
    transfer.peer = 1 - rank;
    transfer.receives = rank == 1;
    iteration.collectives.push_back(transfer);
    join.Add(std::move(iteration));
  };
  const auto transfers = [&] {
    size_t count = 0;
    for (const JoinedIteration& joined : join.Take()) {
      for (const TransferPart& part : joined.transfers) count += part.from >= 0;
    }
    return count;
  };
  report(0, 0, 100);
  report(0, 1, 100);
  EXPECT_EQ(transfers(), 1u);
  report(1, 0, 101);
  report(1, 1, std::nullopt);
  EXPECT_EQ(transfers(), 0u);
  report(2, 0, std::nullopt);  // nothing in these tells more
  report(2, 1, std::nullopt);
  EXPECT_EQ(transfers(), 0u);
  report(3, 0, 103);
  report(3, 1, 103);
  EXPECT_EQ(transfers(), 1u);
}

TEST(IterationJoin, ARankThatIsGoneIsNotWaitedFor) {
  IterationJoin join;
  join.SetRanks({0, 1});
  join.Add(Report(0, 0));
  join.SetRanks({0});
  EXPECT_EQ(Numbers(join.Take()), std::vector<int64_t>{0});
}

TEST(IterationJoin, KeepsNoMoreThanItsBound) {
  IterationJoin join;
  join.SetRanks({0, 1});
  constexpr int kCollectives = 1 << 16;
  int64_t taken = 0;
  for (int64_t number = 0; number < 40; ++number) {
    join.Add(Report(number, 0, kCollectives));
    taken += static_cast<int64_t>(join.Take().size());
  }
  EXPECT_GE(taken, 40 - static_cast<int64_t>(IterationJoin::kMostCollectives / kCollectives));
}

TEST(IterationJoin, CountsWhatMakesNoSense) {
  IterationJoin join;
  join.SetRanks({0, 1});
  RankIteration report = Report(0, 0, 2);
  std::swap(report.collectives[0].start_ns, report.collectives[0].end_ns);
  join.Add(report);
  join.Add(Report(0, 0));
  EXPECT_EQ(join.losses().invalid, 1);
  EXPECT_EQ(join.losses().repeated, 1);
}

}  // namespace
}  // namespace seqpoint::ranks
