#include "daemon/jobs/rank_observation.h"

#include <random>

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

constexpr uint64_t kCommunicator = 0xABC;

// One iteration of a rank that reduces its gradients for `duration_ns`; 0: that was not recorded.
ranks::RankIteration IterationOf(int32_t rank, int64_t number, int64_t duration_ns) {
  ranks::RankIteration iteration = {.number = number, .rank = rank, .duration_ns = 1'000'000};
  if (duration_ns > 0) {
    iteration.collectives.push_back({.communicator = kCommunicator,
                                     .kind = 1,
                                     .sequence = static_cast<uint32_t>(number),
                                     .start_ns = 900'000 - duration_ns,
                                     .end_ns = 900'000});
  }
  return iteration;
}

// Else the time that two ranks wait for the third one would look like a transfer.
TEST(RankObservationTest, KnowsAfterARestartThatARankIsMissing) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 20);
  RankObservation before;
  for (int32_t rank = 0; rank < 3; ++rank) before.AddMember(kCommunicator, rank, rank, 3);
  before.SetRanks({0, 1, 2});
  int64_t number = 0;
  for (; number < 200; ++number) {
    for (int32_t rank = 0; rank < 3; ++rank) {
      before.Add(IterationOf(rank, number, 10'000 + static_cast<int64_t>(noise(random))));
    }
  }
  RankObservation after;
  after.Load(before.Save());
  after.SetRanks({0, 1, 2});
  for (; number < 300; ++number) {
    for (int32_t rank = 0; rank < 3; ++rank) {
      after.Add(IterationOf(rank, number, rank < 2 ? 50'000 : 0));
    }
  }
  EXPECT_TRUE(after.verdicts().links.empty());
}

}  // namespace
}  // namespace seqpoint::jobs
