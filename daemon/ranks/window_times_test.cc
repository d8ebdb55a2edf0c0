#include "daemon/ranks/window_times.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/support/rank_windows.h"

namespace seqpoint::ranks {
namespace {

struct Timed {
  SimulatedRun run;
  std::vector<RankTime> times;
};
Timed TimesOf(const Programs& programs) {
  RankJob job(static_cast<int32_t>(programs.size()));
  Timed timed = {job.Run({programs}), {}};
  const std::vector<RankWindow> windows = timed.run.Windows(0);
  timed.times = TimesOf(windows, JoinWindows(windows));
  return timed;
}
double Us(const RankTime& time, Spent spent) { return time[spent] / 1000; }

TEST(WindowTimesTest, EachMomentHasOneCause) {
  for (const auto& programs : {Programs(2, DataParallel({})), Programs(2, TensorParallel({}))}) {
    for (const RankTime& time : TimesOf(programs).times) {
      EXPECT_NEAR(std::accumulate(time.spent_ns.begin(), time.spent_ns.end(), 0.0),
                  time.iteration_ns, 1);
    }
  }
}

TEST(WindowTimesTest, ARankWaitsWhereNothingElseRuns) {
  const Program early = {{Op::kKernel, 100, "gemm"},
                         {Op::kCollective, 50, "AllReduce"},
                         {Op::kKernel, 200, "gelu"},
                         {Op::kWait},
                         {Op::kKernel, 10, "adam"}};
  Program late = early;
  late[0].us = 1100;
  const Timed timed = TimesOf(Programs{early, late});
  // The collective waits for 1000 us, and gelu runs for 200 us. Without the other rank the transfer
  // would be over before gelu is.
  EXPECT_NEAR(timed.times[0].wait_ns / 1000, 1000, 2);
  EXPECT_NEAR(Us(timed.times[0], Spent::kWaiting), 850, 2);
  EXPECT_NEAR(Us(timed.times[0], Spent::kTransfer), 0, 2);
  EXPECT_NEAR(Us(timed.times[0], Spent::kKernels), 310, 2);
  EXPECT_EQ(timed.times[1][Spent::kWaiting], 0);
  EXPECT_EQ(timed.times[1].wait_ns, 0);
}

TEST(WindowTimesTest, AHostThatLaunchesLateIsNoWaiting) {
  // The host of the first rank works for 500 us between two kernels, while its collective waits
  // for the other.
  const Program host = {{Op::kKernel, 100, "gemm"},
                        {Op::kCollective, 50, "AllReduce"},
                        {Op::kHost, 500},
                        {Op::kKernel, 10, "gelu"},
                        {Op::kWait},
                        {Op::kKernel, 10, "adam"}};
  Program late = host;
  late[0].us = 1100;
  const Timed timed = TimesOf(Programs{host, late});
  EXPECT_NEAR(Us(timed.times[0], Spent::kLaunch), 500 - 100, 20);
  EXPECT_NEAR(Us(timed.times[0], Spent::kWaiting), 1105 + 50 - 520, 5);
}

// The second bucket comes behind the first one, and both behind the other rank's. Alone, this rank
// would only have to let the second one pass.
TEST(WindowTimesTest, ATransferThatAnotherRankDelaysIsWaiting) {
  const Program early = {{Op::kKernel, 100, "gemm"},
                         {Op::kCollective, 50, "AllReduce"},
                         {Op::kKernel, 100, "gelu"},
                         {Op::kCollective, 50, "AllReduce"},
                         {Op::kWait},
                         {Op::kKernel, 10, "adam"}};
  Program late = early;
  late[0].us = 300;
  const Timed timed = TimesOf(Programs{early, late});
  EXPECT_NEAR(Us(timed.times[0], Spent::kTransfer), 50, 3);
  EXPECT_NEAR(Us(timed.times[0], Spent::kWaiting), 200, 3);
}

TEST(WindowTimesTest, TheTimeBeforeTheBatchIsTheLoaders) {
  for (const bool boundary_at_copy : {false, true}) {
    Program program = {{Op::kHost, 700},
                       {Op::kBatch, 20, "Memcpy HtoD", 1, 1 << 20},
                       {Op::kKernel, 100, "gemm"},
                       {Op::kSync},
                       {Op::kHost, 300},
                       {Op::kKernel, 100, "gelu"},
                       {Op::kSync}};
    // Where the copy starts the iteration, the batch of the next one is loaded at its end.
    if (boundary_at_copy) std::rotate(program.begin(), program.begin() + 1, program.end());
    const Timed timed = TimesOf(Programs(2, program));
    EXPECT_NEAR(Us(timed.times[0], Spent::kLoader), 700, 15) << boundary_at_copy;
    EXPECT_NEAR(Us(timed.times[0], Spent::kLaunch), 300, 15) << boundary_at_copy;
  }
}

TEST(WindowTimesTest, AHostThatWaitsForTheGpuIsNotLate) {
  const Program program = {{Op::kKernel, 100, "gemm"}, {Op::kBlocking, 400, "AllReduce"},
                           {Op::kKernel, 10, "gelu"},  {Op::kSync},
                           {Op::kKernel, 10, "adam"},  {Op::kSync}};
  const Timed timed = TimesOf(Programs(2, program));
  EXPECT_NEAR(Us(timed.times[0], Spent::kTransfer), 400, 3);
  EXPECT_LE(Us(timed.times[0], Spent::kLaunch), 20);
}

}  // namespace
}  // namespace seqpoint::ranks
