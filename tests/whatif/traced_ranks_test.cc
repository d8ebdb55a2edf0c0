// The price of tracing is taken off the iterations that several ranks traced together: computed
// jobs whose calls take longer while they are traced.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "daemon/ranks/rank_recording.h"
#include "daemon/whatif/recording.h"
#include "tests/support/rank_windows.h"

namespace seqpoint::ranks {
namespace {

using whatif::Untraced;

constexpr double kPriceUs = 2;

RankJob TestJob() {
  RankJob job(4);
  job.clock_us = {0, 1e6, -3e6, 77};
  job.noise = 0.02;
  return job;
}

// The time of an iteration within a run of many that is not traced.
double UsualUs(const Programs& programs) {
  const auto run_us = [&](size_t count) {
    return TestJob().Run(std::vector<Programs>(count, programs)).total_us;
  };
  return (run_us(40) - run_us(20)) / 20;
}

std::deque<RankRecording> Trace(const Programs& programs) {
  RankJob job = TestJob();
  job.launch_us += kPriceUs;
  job.idle_between = true;
  const SimulatedRun run = job.Run(std::vector<Programs>(5, programs));
  std::deque<RankRecording> recordings;
  for (size_t i = 1; i < 5; ++i) {
    const std::vector<RankWindow> windows = run.Windows(i);
    recordings.push_back(RecordRanks(windows, JoinWindows(windows)));
  }
  return recordings;
}

std::vector<Untraced> Usually(double us, std::deque<RankRecording>* recordings) {
  std::vector<Untraced> untraced;
  for (RankRecording& recorded : *recordings) {
    untraced.push_back({&recorded.recording, recorded.counted, 1000 * us});
  }
  return untraced;
}

double MeanUs(const std::deque<RankRecording>& recordings) {
  double sum_us = 0;
  for (const RankRecording& recorded : recordings) {
    sum_us += recorded.IterationNs(recorded.recording.graphs) / 1000;
  }
  return sum_us / static_cast<double>(recordings.size());
}

// The hosts are late, and the last rank's the latest: the first one waits for it.
TEST(TracedRanksTest, ThePriceOfTheSlowestRankIsTakenOffAll) {
  Programs programs(4, DataParallel({.kernel_us = 10, .host_us = 25}));
  programs[3] = DataParallel({.kernel_us = 10, .host_us = 35});
  const double usual_us = UsualUs(programs);
  std::deque<RankRecording> calls = Trace(programs), gaps = calls;
  ASSERT_GT(MeanUs(calls), 1.03 * usual_us);
  const double price_ns =
      whatif::TakeTracingOff(Usually(usual_us, &calls), Usually(usual_us, &gaps));
  EXPECT_NEAR(price_ns, 1000 * kPriceUs, 100 * kPriceUs);
  EXPECT_NEAR(MeanUs(calls), usual_us, 0.002 * usual_us);
  EXPECT_NEAR(MeanUs(gaps), usual_us, 0.002 * usual_us);
}

// The GPUs are busy all the time.
TEST(TracedRanksTest, WhatTheTimesDoNotTellIsNotTakenOffTheCalls) {
  const Programs programs(4, DataParallel({.kernel_us = 400}));
  std::deque<RankRecording> calls = Trace(programs), gaps = calls;
  const double before_us = MeanUs(calls);
  EXPECT_EQ(whatif::TakeTracingOff(Usually(before_us, &calls), Usually(before_us, &gaps)), 0);
  EXPECT_EQ(MeanUs(calls), before_us);
}

}  // namespace
}  // namespace seqpoint::ranks
