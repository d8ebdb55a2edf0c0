#include "daemon/jobs/step_clock.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

struct StepClock {
  int64_t Advance(std::initializer_list<std::pair<int32_t, int64_t>> durations_ns) {
    google::protobuf::Map<int32_t, int64_t> durations;
    for (const auto& [rank, duration_ns] : durations_ns) durations[rank] = duration_ns;
    return AdvanceClock(durations, behind_ns);
  }
  google::protobuf::Map<int32_t, int64_t> behind_ns;
};

TEST(StepClock, StepsOfRanksThatWaitForEachOtherSumToTheRun) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int64_t> work(900, 1'100), jitter(0, 60);
  StepClock clock;
  int64_t run = 0, sum = 0, longest = 0, begun[2] = {};
  for (int i = 0; i < 10'000; ++i) {
    run += work(random);
    int64_t times[2];
    for (int rank = 0; rank < 2; ++rank) {
      const int64_t next = run + jitter(random);  // it goes on a little after all are done
      times[rank] = next - begun[rank];
      begun[rank] = next;
    }
    sum += clock.Advance({{0, times[0]}, {1, times[1]}});
    longest += std::max(times[0], times[1]);
  }
  EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(run), 60);
  EXPECT_GT(longest, run + 100'000);  // what the longest of each step would say
}

TEST(StepClock, WithoutWaitingTheRunIsItsSlowestRanks) {
  StepClock clock;
  int64_t sum = 0;
  for (int i = 0; i < 100; ++i)
    sum += clock.Advance({{0, 100}, {1, 130}, {2, i % 2 == 0 ? 250 : 1}});
  EXPECT_EQ(sum, 13'000);  // rank 1's
}

TEST(StepClock, OtherRanksBeginTogether) {
  StepClock clock;
  EXPECT_EQ(clock.Advance({{0, 100}, {1, 40}}), 100);
  EXPECT_EQ(clock.Advance({{0, 10}, {1, 60}}), 10);
  EXPECT_EQ(clock.Advance({{0, 10}, {1, 60}, {2, 50}}), 60);
  clock.behind_ns.clear();
  EXPECT_EQ(clock.Advance({{0, 10}, {1, 60}, {2, 50}}), 60);
}

}  // namespace
}  // namespace seqpoint::jobs
