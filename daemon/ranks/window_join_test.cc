#include "daemon/ranks/window_join.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/rank_windows.h"

namespace seqpoint::ranks {
namespace {

// Clocks of four GPUs, microseconds apart.
RankJob FourClocks() {
  RankJob job(4);
  job.clock_us = {0, 7'654'321, -12, 3e9};
  job.noise = 0.02;
  return job;
}

std::vector<Programs> SlowRank(int32_t slow) {
  std::vector<Programs> programs(1, Programs(4, DataParallel({})));
  programs[0][static_cast<size_t>(slow)] = DataParallel({.factor = 1.1});
  return programs;
}

void ExpectTruth(const SimulatedIteration& truth, const WindowJoin& join,
                 const std::vector<RankWindow>& windows) {
  ASSERT_EQ(join.collectives.size(), truth.collectives.size());
  EXPECT_TRUE(join.mismatches.empty()) << join.mismatches[0];
  EXPECT_EQ(join.alone, 0u);
  // Both in an order of ends; collectives of different ranks may end in any order.
  auto key = [](const auto& ranks, double transfer_us) {
    return std::make_pair(ranks, std::llround(transfer_us));
  };
  std::vector<std::pair<decltype(key(truth.collectives[0].ranks, 0.0)), int32_t>> expected, actual;
  for (const auto& one : truth.collectives) {
    expected.emplace_back(key(one.ranks, one.transfer_us), one.last);
  }
  for (const WindowCollective& one : join.collectives) {
    actual.emplace_back(key(one.RanksOf(windows), static_cast<double>(one.transfer_ns) / 1000),
                        windows[one.parts[one.last].window].rank);
  }
  std::sort(expected.begin(), expected.end());
  std::sort(actual.begin(), actual.end());
  EXPECT_EQ(expected, actual);
}

TEST(WindowJoinTest, ClocksOfGpusDoNotMatter) {
  const RankJob job = FourClocks();
  const SimulatedRun run = job.Run(SlowRank(2));
  for (const bool told : {false, true}) {
    const std::vector<RankWindow> windows = run.Windows(0, told);
    const WindowJoin join = JoinWindows(windows);
    EXPECT_EQ(join.told, told);
    ExpectTruth(run.iterations[0], join, windows);
    EXPECT_LE(join.spread_ns, 2);
    for (const WindowCollective& collective : join.collectives) {
      EXPECT_EQ(windows[collective.parts[collective.last].window].rank, 2);
      EXPECT_EQ(collective.function, "AllReduce");
      EXPECT_EQ(collective.bytes, told ? uint64_t{24} << 20 : 0);
    }
    EXPECT_NEAR(static_cast<double>(join.clock_behind_ns[1]), -7'654'321'000.0, 2);
  }
}

TEST(WindowJoinTest, AWaitIsTheTimeBeforeTheLastRankCame) {
  const RankJob job = FourClocks();
  const SimulatedRun run = job.Run(SlowRank(1));
  const std::vector<RankWindow> windows = run.Windows(0);
  const WindowJoin join = JoinWindows(windows);
  ASSERT_EQ(join.collectives.size(), run.iterations[0].collectives.size());
  for (size_t i = 0; i < join.collectives.size(); ++i) {
    const auto& truth = run.iterations[0].collectives[i];
    ASSERT_EQ(join.collectives[i].parts.size(), 4u);
    for (size_t p = 0; p < 4; ++p) {
      EXPECT_NEAR(static_cast<double>(join.collectives[i].parts[p].wait_ns) / 1000,
                  truth.wait_us[p], 0.01);
    }
  }
}

// Two groups do the same, each for itself, and all of them reduce together: kernels of the same
// names on all ranks.
TEST(WindowJoinTest, GroupsOfRanksAreKeptApart) {
  const RankJob job = FourClocks();
  std::vector<Programs> programs(1);
  for (int r = 0; r < 4; ++r) {
    programs[0].push_back(
        TensorParallel({}, r < 2 ? std::vector<int32_t>{0, 1} : std::vector<int32_t>{2, 3}));
    for (int i = 0; i < 2; ++i) {
      programs[0].back().push_back({Op::kBlocking, 100, "AllReduce", 1, 1 << 20, {}, -1, 2});
    }
  }
  const SimulatedRun run = job.Run(programs);
  for (const bool told : {false, true}) {
    const std::vector<RankWindow> windows = run.Windows(0, told);
    ExpectTruth(run.iterations[0], JoinWindows(windows), windows);
  }
}

TEST(WindowJoinTest, SendsAndReceivesAreJoinedInPairs) {
  const RankJob job = FourClocks();
  std::vector<Programs> programs(1);
  for (int r = 0; r < 4; ++r) programs[0].push_back(Pipeline({}, r, 4, 4));
  const SimulatedRun run = job.Run(programs);
  for (const bool told : {false, true}) {
    const std::vector<RankWindow> windows = run.Windows(0, told);
    ExpectTruth(run.iterations[0], JoinWindows(windows), windows);
  }
}

TEST(WindowJoinTest, AKernelThatARankLacksIsSaidAndLeftOut) {
  const RankJob job = FourClocks();
  SimulatedRun run = job.Run(SlowRank(2));
  trace::Trace& trace = run.iterations[0].traces[3];
  const auto second = std::find_if(trace.works.begin(), trace.works.end(), [](const auto& work) {
    return work.kind == trace::WorkKind::kCollective;
  });
  trace.works.erase(second);
  const WindowJoin join = JoinWindows(run.Windows(0));
  ASSERT_EQ(join.mismatches.size(), 1u);
  EXPECT_EQ(join.mismatches[0], "rank 3: 1 of 4 collectives of others are not in its window");
  ASSERT_EQ(join.collectives.size(), 4u);
  EXPECT_EQ(join.collectives[0].parts.size(), 3u);
  EXPECT_EQ(join.collectives[1].parts.size(), 4u);
}

TEST(WindowJoinTest, RecordsThatFitNoKernelAreSaidAndNotUsed) {
  const RankJob job = FourClocks();
  const SimulatedRun run = job.Run(SlowRank(2));
  std::vector<RankWindow> windows = run.Windows(0, /*told=*/true);
  for (CollectiveRecord& record : windows[1].records) record.start_ns = record.end_ns = 0;
  windows[1].records.pop_back();
  const WindowJoin join = JoinWindows(windows);
  EXPECT_FALSE(join.told);
  ASSERT_EQ(join.mismatches.size(), 1u);
  EXPECT_EQ(join.mismatches[0],
            "rank 1: NCCL told 3 collectives without times, the window has 4 kernels of NCCL");
  EXPECT_EQ(join.collectives.size(), 4u);
}

}  // namespace
}  // namespace seqpoint::ranks
