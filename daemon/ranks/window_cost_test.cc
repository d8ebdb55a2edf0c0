#include "daemon/ranks/window_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/rank_windows.h"

namespace seqpoint::ranks {
namespace {

constexpr size_t kCostWindows = 8;

// A job whose rank 1 is slow, against the same job without that.
struct Costs {
  double truth = 0;  // share of the run
  std::optional<Estimate> estimate;
};

std::vector<IterationProfiles> ProfilesOfRun(const SimulatedRun& run) {
  std::vector<IterationProfiles> iterations;
  for (size_t i = 1; i < run.iterations.size(); ++i) {  // the first one begins together
    const std::vector<RankWindow> windows = run.Windows(i, /*told=*/true);
    iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
  }
  return iterations;
}

Costs CostsOf(const std::vector<Programs>& slow, const std::vector<Programs>& even,
              const std::vector<int32_t>& peers,
              const std::vector<std::vector<int64_t>>& lengths = {}) {
  RankJob job(4);
  job.noise = 0.02;
  job.idle_between = true;
  const std::vector<IterationProfiles> now = ProfilesOfRun(job.Run(slow, lengths));
  const std::vector<IterationProfiles> earlier = ProfilesOfRun(job.Run(even, lengths));
  const auto estimate = CostShare({1, peers, now, earlier}, 0.95);
  job.idle_between = false;
  return {1 - job.Run(even).total_us / job.Run(slow).total_us, estimate};
}

void ExpectTrue(const Costs& costs, const std::string& job) {
  ASSERT_TRUE(costs.estimate) << job;
  // Of small costs, 0.2 % of the run.
  EXPECT_NEAR(costs.estimate->value, costs.truth, std::max(0.05 * costs.truth, 0.002)) << job;
  EXPECT_LE(costs.estimate->low, costs.truth) << job;
  EXPECT_GE(costs.estimate->high, costs.truth) << job;
}

TEST(WindowCostTest, ASlowRankCostsWhatTheOthersWait) {
  for (const double factor : {1.05, 1.2, 1.5}) {
    const std::vector<Programs> data(kCostWindows + 1, Programs(4, DataParallel({})));
    const std::vector<Programs> tensor(kCostWindows + 1, Programs(4, TensorParallel({})));
    std::vector<Programs> slow_data = data, slow_tensor = tensor;
    for (Programs& programs : slow_data) programs[1] = DataParallel({.factor = factor});
    for (Programs& programs : slow_tensor) programs[1] = TensorParallel({.factor = factor});
    ExpectTrue(CostsOf(slow_data, data, {0, 2, 3}), "data");
    ExpectTrue(CostsOf(slow_tensor, tensor, {0, 2, 3}), "tensor");
  }
}

// Its earlier iterations, and those that wait for other ranks, tell the cost.
TEST(WindowCostTest, WorkThatDiffersOverRanksTellsNothing) {
  const auto stages = [](double factor) {
    Programs programs;
    for (int r = 0; r < 4; ++r) {
      programs.push_back(Pipeline({.factor = r == 1 ? factor : 1}, r, 4, 4));
    }
    return std::vector<Programs>(kCostWindows + 1, programs);
  };
  EXPECT_FALSE(CostsOf(stages(1.3), stages(1), {}).estimate);
  std::vector<std::vector<int64_t>> lengths;
  std::vector<Programs> slow, even;
  for (int64_t i = 0; i <= 3; ++i) {
    lengths.push_back({140 + i, 70 + 5 * i, 100 + 3 * i, 95});
    even.emplace_back();
    for (const int64_t length : lengths.back())
      even.back().push_back(DataParallel({.length = length}));
    slow.push_back(even.back());
    slow.back()[1] = DataParallel({.factor = 1.2, .length = lengths.back()[1]});
  }
  EXPECT_FALSE(CostsOf(slow, even, {0, 2, 3}, lengths).estimate);
}

TEST(WindowCostTest, AFastRankCostsNothing) {
  std::vector<Programs> programs(4, Programs(4, DataParallel({})));
  for (Programs& of_iteration : programs) of_iteration[1] = DataParallel({.factor = 0.8});
  EXPECT_EQ(CostsOf(programs, programs, {0, 2, 3}).estimate->value, 0);
}

}  // namespace
}  // namespace seqpoint::ranks
