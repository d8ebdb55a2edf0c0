#include "daemon/ranks/window_cost.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/rank_windows.h"

namespace seqpoint::ranks {
namespace {

// A job whose rank 1 is so many times as slow, against the same job without that.
struct Costs {
  double truth = 0;  // share of the run
  Estimate estimate;
};
Costs CostsOf(const std::vector<Programs>& slow, const std::vector<Programs>& even) {
  RankJob job(4);
  job.noise = 0.02;
  job.idle_between = true;
  const SimulatedRun with = job.Run(slow), without = job.Run(even);
  std::vector<Iteration> iterations;
  for (size_t i = 0; i < slow.size(); ++i) {
    const std::vector<RankWindow> windows = with.Windows(i);
    iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
  }
  return {1 - without.total_us / with.total_us, CostShare(iterations, 1, 0.95)};
}

TEST(WindowCostTest, ASlowRankCostsWhatTheOthersWait) {
  for (const double factor : {1.05, 1.2, 1.5}) {
    std::vector<Programs> slow, even;
    for (int i = 0; i < 8; ++i) {
      even.emplace_back(4, DataParallel({}));
      slow.push_back(even.back());
      slow.back()[1] = DataParallel({.factor = factor});
    }
    const Costs costs = CostsOf(slow, even);
    EXPECT_NEAR(costs.estimate.value, costs.truth, 0.05 * costs.truth) << factor;
    EXPECT_LE(costs.estimate.low, costs.truth) << factor;
    EXPECT_GE(costs.estimate.high, costs.truth) << factor;
  }
}

TEST(WindowCostTest, AFastRankCostsNothing) {
  std::vector<Programs> even(4, Programs(4, DataParallel({})));
  for (auto& programs : even) programs[1] = DataParallel({.factor = 0.8});
  EXPECT_EQ(CostsOf(even, even).estimate.value, 0);
}

}  // namespace
}  // namespace seqpoint::ranks
