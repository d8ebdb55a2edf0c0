#include "daemon/seqpoint/outliers.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;

// Three epochs of 40 iterations, 1 ms per unit of length with 2 % of noise.
struct EpochLog {
  EpochLog() {
    for (int i = 0; i < 120; ++i) {
      const int64_t length = 20 + 7 * (i % 13);
      times.push_back({{length}, 1e6 * static_cast<double>(length) * (1 + 0.02 * (i % 3 - 1))});
      groups.push_back(i / 40);
    }
  }
  std::vector<size_t> Found() const {
    const std::vector<bool> start_up = FindStartUp(times, groups);
    std::vector<size_t> found;
    for (size_t i = 0; i < start_up.size(); ++i) {
      if (start_up[i]) found.push_back(i);
    }
    return found;
  }
  std::vector<KeyTime> times;
  std::vector<int32_t> groups;
};

TEST(StartUpTest, OnlyAGroupsFirstThatTookFarLongerIsStartUp) {
  EpochLog log;
  log.times[40].time_ns *= 3;    // first of the second epoch
  log.times[80].time_ns *= 1.3;  // first of the third, within the gate
  log.times[55].time_ns *= 9;    // a stall, no start-up
  EXPECT_THAT(log.Found(), ElementsAre(40));
  log.groups.clear();  // one group
  EXPECT_THAT(log.Found(), ElementsAre());
  log.times[0].time_ns *= 3;
  EXPECT_THAT(log.Found(), ElementsAre(0));
}

TEST(StartUpTest, FirstsAreNotComparedWithEachOther) {
  EpochLog log;
  // Sorted epochs: each begins with the longest, and with its start-up.
  for (const size_t first : {0, 40, 80}) log.times[first] = {{150}, 900e6};
  EXPECT_THAT(log.Found(), ElementsAre(0, 40, 80));
}

TEST(StartUpTest, AMuchLongerFirstMayTakeMuchLonger) {
  EpochLog log;
  log.times[0] = {{1000}, 1000e6};
  EXPECT_THAT(log.Found(), ElementsAre());
}

TEST(StartUpTest, NoisyTimesWidenTheGate) {
  EpochLog log;
  for (size_t i = 0; i < log.times.size(); ++i) log.times[i].time_ns *= i % 2 == 0 ? 0.8 : 1.25;
  log.times[40].time_ns *= 3;
  EXPECT_THAT(log.Found(), ElementsAre());
}

TEST(StartUpTest, TooFewToCompareWith) {
  EXPECT_TRUE(FindStartUp({}, {}).empty());
  const std::vector<KeyTime> times(7, {{5}, 1e6});
  std::vector<KeyTime> slow = times;
  slow[0].time_ns = 1e9;
  EXPECT_THAT(FindStartUp(slow, {}), Each(false));  // six others
  slow.push_back({{5}, 1e6});
  EXPECT_THAT(FindStartUp(slow, {}), Contains(true));
  std::vector<int32_t> alone(8);
  std::iota(alone.begin(), alone.end(), 0);
  EXPECT_THAT(FindStartUp(slow, alone), Each(false));  // all are firsts
}

}  // namespace
}  // namespace seqpoint
