#include "daemon/jobs/rank_observation.h"

#include <cmath>
#include <random>
#include <vector>

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

// A restart of the daemon must not make a healthy link look slow: what was learned of an operation
// stays with it.
TEST(RankObservationTest, KnowsAfterARestartHowLongEachOperationTakes) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int64_t> size(1, 40'000);
  std::normal_distribution<double> noise(0, 0.02);
  RankObservation before, after;
  const auto add = [&](RankObservation& to, int64_t number) {
    std::vector<ranks::Collective> collectives;
    int64_t at_ns = 0;
    for (int i = 0; i < 20; ++i) {
      const bool scatters = i < 15;
      const int64_t elements = size(random) * 256;
      const int64_t ns =
          std::llround((8'000 + static_cast<double>(elements) * (scatters ? 0.02 : 0.01)) *
                       std::exp(noise(random)));
      collectives.push_back(
          {.communicator = kCommunicator,
           .kind = to.KindId(scatters ? "ReduceScatter ncclFloat32" : "AllGather ncclFloat32",
                             static_cast<uint64_t>(elements)),
           .sequence = static_cast<uint32_t>(number * 20 + i),
           .start_ns = at_ns + 10'000,
           .end_ns = at_ns + 10'000 + ns});
      at_ns = collectives.back().end_ns;
    }
    for (int32_t rank = 0; rank < 2; ++rank) {
      to.Add({.number = number, .rank = rank, .duration_ns = at_ns, .collectives = collectives});
    }
  };
  for (RankObservation* const observation : {&before, &after}) {
    if (observation == &after) after.Load(before.Save());
    for (int32_t rank = 0; rank < 2; ++rank) observation->AddMember(kCommunicator, rank, rank, 2);
    observation->SetRanks({0, 1});
    const int64_t first = observation == &before ? 0 : 400;
    for (int64_t i = 0; i < 400; ++i) add(*observation, first + i);
    EXPECT_TRUE(observation->verdicts().links.empty()) << first;
  }
}

}  // namespace
}  // namespace seqpoint::jobs
