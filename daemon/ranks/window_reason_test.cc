#include "daemon/ranks/window_reason.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "tests/support/rank_windows.h"

namespace seqpoint::ranks {
namespace {

constexpr size_t kWindows = 3;

// Windows of a data parallel job of four ranks, of which rank 1 has `fault`.
std::vector<IterationProfiles> WindowsOf(const StepShape& fault, uint64_t seed = 1,
                                         const StepShape& usual = {}) {
  RankJob job(4);
  job.noise = 0.02;
  job.seed = seed;
  job.idle_between = true;
  std::vector<Programs> programs(kWindows, Programs(4, DataParallel(usual)));
  for (Programs& of_iteration : programs) of_iteration[1] = DataParallel(fault);
  const SimulatedRun run = job.Run(programs);
  std::vector<IterationProfiles> iterations;
  for (size_t i = 0; i < kWindows; ++i) {
    const std::vector<RankWindow> windows = run.Windows(i, /*told=*/true);
    iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
  }
  return iterations;
}

ReasonVerdict ReasonOf(const std::vector<IterationProfiles>& iterations,
                       const std::vector<IterationProfiles>& earlier = {}) {
  return FindReason({1, {0, 2, 3}, iterations, earlier});
}

TEST(WindowReasonTest, NoFaultNoReason) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(ReasonOf(WindowsOf({}, seed)).reason, Reason::kUnknown) << seed;
  }
}

TEST(WindowReasonTest, AllKernelsSlowerByOneFactorAreClocks) {
  for (const double factor : {1.03, 1.2, 1.5}) {
    const ReasonVerdict verdict = ReasonOf(WindowsOf({.factor = factor}));
    EXPECT_EQ(verdict.reason, Reason::kClocks) << verdict.text;
    EXPECT_LE(verdict.factor.low, factor);
    EXPECT_GE(verdict.factor.high, factor);
    EXPECT_NEAR(verdict.factor.value, factor, 0.01);
  }
  EXPECT_EQ(ReasonOf(WindowsOf({.factor = 1.2})).text,
            "108 kernels of 11 names are 1.20 times as long as on ranks 0, 2, 3: clocks, heat or "
            "power");
}

TEST(WindowReasonTest, FewSlowKernelsAreNamed) {
  for (const char* name : {"gemm_128x64_backward", "gelu_forward"}) {
    const ReasonVerdict verdict = ReasonOf(WindowsOf({.slow = name, .slow_factor = 1.5}));
    EXPECT_EQ(verdict.reason, Reason::kKernels) << verdict.text;
    ASSERT_EQ(verdict.kernels.size(), 1u) << name;
    EXPECT_EQ(verdict.kernels[0].name, name);
    EXPECT_NEAR(verdict.kernels[0].factor, 1.5, 0.03);
  }
}

TEST(WindowReasonTest, AHostThatLaunchesLate) {
  // Bound by launches: kernels are shorter than what the host takes for each.
  const StepShape usual = {.kernel_us = 10, .loader_us = 100, .host_us = 20};
  StepShape late = usual;
  late.host_us = 26;
  const ReasonVerdict verdict = ReasonOf(WindowsOf(late, 1, usual));
  EXPECT_EQ(verdict.reason, Reason::kHost) << verdict.text;
}

TEST(WindowReasonTest, ABatchThatComesLate) {
  const ReasonVerdict verdict = ReasonOf(WindowsOf({.loader_us = 1500}));
  EXPECT_EQ(verdict.reason, Reason::kLoader) << verdict.text;
  EXPECT_NEAR(verdict.explained_ns, 1.4e6, 0.1e6);
}

TEST(WindowReasonTest, MoreKernelsAreMoreWork) {
  const ReasonVerdict verdict = ReasonOf(WindowsOf({.more_layers = 3}));
  EXPECT_EQ(verdict.reason, Reason::kMoreWork) << verdict.text;
}

TEST(WindowReasonTest, LongerSequencesAreNoFaultOfTheRank) {
  RankJob job(4);
  job.noise = 0.02;
  job.idle_between = true;
  const std::vector<std::vector<int64_t>> lengths = {
      {80, 150, 90, 100}, {110, 140, 70, 120}, {95, 160, 105, 85}, {75, 155, 115, 100}};
  std::vector<Programs> programs;
  for (const std::vector<int64_t>& of_ranks : lengths) {
    Programs& programs_of = programs.emplace_back();
    for (const int64_t length : of_ranks) programs_of.push_back(DataParallel({.length = length}));
  }
  const SimulatedRun run = job.Run(programs, lengths);
  std::vector<IterationProfiles> iterations;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const std::vector<RankWindow> windows = run.Windows(i);
    iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
  }
  const ReasonVerdict verdict = ReasonOf(iterations);
  EXPECT_EQ(verdict.reason, Reason::kImbalance) << verdict.text;
}

TEST(WindowReasonTest, ALinkIsSlowAgainstEarlierTransfers) {
  const std::vector<IterationProfiles> earlier = WindowsOf({});
  const StepShape slow_link = {.link = 2};
  const ReasonVerdict verdict = ReasonOf(WindowsOf(slow_link, 2, slow_link), earlier);
  EXPECT_EQ(verdict.reason, Reason::kLink) << verdict.text;
  EXPECT_EQ(verdict.link, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_NEAR(verdict.factor.value, 2, 0.1);
}

// A stage of a pipeline has no peer.
TEST(WindowReasonTest, AStageIsComparedWithItsOwnEarlierWindows) {
  const auto windows_of = [](double factor, uint64_t seed) {
    RankJob job(4);
    job.noise = 0.02;
    job.seed = seed;
    job.idle_between = true;
    std::vector<Programs> programs(kWindows);
    for (auto& of_iteration : programs) {
      for (int r = 0; r < 4; ++r) {
        of_iteration.push_back(Pipeline({.factor = r == 1 ? factor : 1}, r, 4, 4));
      }
    }
    const SimulatedRun run = job.Run(programs);
    std::vector<IterationProfiles> iterations;
    for (size_t i = 0; i < kWindows; ++i) {
      const std::vector<RankWindow> windows = run.Windows(i, /*told=*/true);
      iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
    }
    return iterations;
  };
  const std::vector<IterationProfiles> earlier = windows_of(1, 1), now = windows_of(1.2, 2);
  const ReasonVerdict verdict = FindReason({1, {}, now, earlier});
  EXPECT_EQ(verdict.reason, Reason::kClocks) << verdict.text;
  EXPECT_EQ(FindReason({2, {}, now, earlier}).reason, Reason::kUnknown);
  EXPECT_EQ(FindReason({1, {}, now, {}}).text,
            "no other rank does the same work, and no earlier window is there");
}

// Rank 1's host is late in the first windows.
std::vector<IterationProfiles> WithLateHost(size_t late, const StepShape& fault, bool disturbed) {
  RankJob job(4);
  job.noise = 0.02;
  job.idle_between = true;
  std::vector<Programs> programs;
  for (size_t i = 0; i < 2 * kWindows; ++i) {
    Programs& of_iteration = programs.emplace_back(4, DataParallel({}));
    of_iteration[1] = DataParallel(fault);
    if (i >= late) continue;
    of_iteration[1].insert(of_iteration[1].begin() + 20, {.kind = Op::kHost, .us = 6000});
  }
  const SimulatedRun run = job.Run(programs);
  std::vector<IterationProfiles> iterations;
  for (size_t i = 0; i < programs.size(); ++i) {
    std::vector<RankWindow> windows = run.Windows(i, /*told=*/true);
    windows[1].disturbed = disturbed && i < late;
    iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
  }
  return iterations;
}

TEST(WindowReasonTest, AHostThatIsLateOnceIsNoReason) {
  EXPECT_EQ(ReasonOf(WithLateHost(6, {}, false)).reason, Reason::kHost);
  for (const size_t late : {1u, 2u}) {
    EXPECT_EQ(ReasonOf(WithLateHost(late, {}, false)).reason, Reason::kUnknown) << late;
    const ReasonVerdict slow = ReasonOf(WithLateHost(late, {.factor = 1.05}, false));
    EXPECT_EQ(slow.reason, Reason::kClocks) << slow.text;
  }
}

// The first time of a length: libraries choose algorithms.
TEST(WindowReasonTest, IterationsWhoseLengthsAreNewToTheRankDoNotTell) {
  const ReasonVerdict verdict = ReasonOf(WithLateHost(4, {.factor = 1.05}, true));
  EXPECT_EQ(verdict.reason, Reason::kClocks) << verdict.text;
  EXPECT_EQ(ReasonOf(WithLateHost(6, {}, true)).text, "no window has this rank and a peer of it");
}

TEST(WindowReasonTest, AStallOfAllKernelsDoesNotHideFewSlowOnes) {
  StepShape slow = {.slow = "gelu_forward", .slow_factor = 1.5};
  RankJob job(4);
  job.noise = 0.02;
  job.idle_between = true;
  std::vector<Programs> programs(kWindows, Programs(4, DataParallel({})));
  for (Programs& of_iteration : programs) of_iteration[1] = DataParallel(slow);
  slow.factor = 1.4;
  programs[0][1] = DataParallel(slow);
  const SimulatedRun run = job.Run(programs);
  std::vector<IterationProfiles> iterations;
  for (size_t i = 0; i < kWindows; ++i) {
    const std::vector<RankWindow> windows = run.Windows(i, /*told=*/true);
    iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
  }
  const ReasonVerdict verdict = ReasonOf(iterations);
  EXPECT_EQ(verdict.reason, Reason::kKernels) << verdict.text;
}

// Stages have the same batch, and each iteration another one than earlier.
std::vector<IterationProfiles> StagesAt(const std::vector<int64_t>& lengths,
                                        const StepShape& second, uint64_t seed) {
  RankJob job(4);
  job.noise = 0.02;
  job.seed = seed;
  job.idle_between = true;
  std::vector<Programs> programs;
  std::vector<std::vector<int64_t>> of_ranks;
  for (const int64_t length : lengths) {
    Programs& of_iteration = programs.emplace_back();
    for (int r = 0; r < 4; ++r) {
      StepShape shape = r == 1 ? second : StepShape{};
      shape.length = length;
      of_iteration.push_back(Pipeline(shape, r, 4, 4));
    }
    of_ranks.emplace_back(4, length);
  }
  const SimulatedRun run = job.Run(programs, of_ranks);
  std::vector<IterationProfiles> iterations;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const std::vector<RankWindow> windows = run.Windows(i, /*told=*/true);
    iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
  }
  return iterations;
}

TEST(WindowReasonTest, AStageIsComparedWithWhatTheBatchMeansToTheOthers) {
  const std::vector<IterationProfiles> earlier = StagesAt({90, 105}, {}, 1);
  const std::vector<int64_t> longer = {130, 150, 120, 140};
  EXPECT_EQ(FindReason({1, {}, StagesAt(longer, {}, 2), earlier}).reason, Reason::kUnknown);
  const ReasonVerdict clocks = FindReason({1, {}, StagesAt(longer, {.factor = 1.2}, 2), earlier});
  EXPECT_EQ(clocks.reason, Reason::kClocks) << clocks.text;
  EXPECT_NEAR(clocks.factor.value, 1.2, 0.02);
  const ReasonVerdict kernels = FindReason(
      {1, {}, StagesAt(longer, {.slow = "gelu_forward", .slow_factor = 1.5}, 2), earlier});
  EXPECT_EQ(kernels.reason, Reason::kKernels) << kernels.text;
}

// As windows of iterations whose lengths were new to all ranks.
std::vector<IterationProfiles> FirstTimes() {
  std::vector<IterationProfiles> windows = StagesAt({90, 105, 98}, {}, 1);
  for (IterationProfiles& window : windows) {
    for (RankProfile& profile : window) profile.disturbed = true;
  }
  return windows;
}

TEST(WindowReasonTest, FirstIterationsOfLengthsTellOfAStageWithoutOtherEarlierOnes) {
  const std::vector<IterationProfiles> first_times = FirstTimes();
  const auto reason_of = [&](const StepShape& fault) {
    const std::vector<IterationProfiles> now = StagesAt({130, 150, 120, 140}, fault, 2);
    return FindReason(
        {.rank = 1, .peers = {}, .iterations = now, .earlier = {}, .first_times = first_times});
  };
  EXPECT_EQ(reason_of({}).reason, Reason::kUnknown);
  const ReasonVerdict clocks = reason_of({.factor = 1.2});
  EXPECT_EQ(clocks.reason, Reason::kClocks) << clocks.text;
  EXPECT_TRUE(clocks.first_times);
  const ReasonVerdict kernels = reason_of({.slow = "gelu_forward", .slow_factor = 1.5});
  EXPECT_EQ(kernels.reason, Reason::kKernels) << kernels.text;
  const ReasonVerdict host = reason_of({.host_us = 400});
  EXPECT_EQ(host.reason, Reason::kHost) << host.text;
}

// The others tried the kernel three times when the length was new.
TEST(WindowReasonTest, AKernelThatLibrariesTriedTellsNothing) {
  std::vector<IterationProfiles> first_times = FirstTimes();
  for (IterationProfiles& window : first_times) {
    for (RankProfile& profile : window) {
      if (profile.rank == 1) continue;
      for (auto& [key, use] : profile.kernels) {
        if (key.name != "gelu_forward") continue;
        use.count *= 3;
        use.sum_ns *= 3;
      }
    }
  }
  const std::vector<IterationProfiles> now = StagesAt({130, 150, 120, 140}, {}, 2);
  const ReasonVerdict verdict = FindReason(
      {.rank = 1, .peers = {}, .iterations = now, .earlier = {}, .first_times = first_times});
  EXPECT_EQ(verdict.reason, Reason::kUnknown) << verdict.text;
}

TEST(WindowReasonTest, RanksOfOtherLengthsTellHowSlowKernelsAre) {
  for (const double factor : {1.0, 1.1}) {
    RankJob job(4);
    job.noise = 0.02;
    job.idle_between = true;
    std::vector<Programs> programs;
    const std::vector<std::vector<int64_t>> lengths = {
        {80, 100, 120, 90}, {110, 95, 70, 120}, {95, 105, 85, 115}, {75, 90, 115, 100}};
    for (const std::vector<int64_t>& of_ranks : lengths) {
      Programs& of_iteration = programs.emplace_back();
      for (size_t r = 0; r < of_ranks.size(); ++r) {
        of_iteration.push_back(
            DataParallel({.factor = r == 1 ? factor : 1, .length = of_ranks[r]}));
      }
    }
    SimulatedRun run = job.Run(programs, lengths);
    std::vector<IterationProfiles> iterations;
    for (size_t i = 0; i < lengths.size(); ++i) {
      // Grids follow from the lengths.
      for (size_t r = 0; r < lengths[i].size(); ++r) {
        for (trace::Work& work : run.iterations[i].traces[r].works) {
          work.grid[0] = static_cast<uint32_t>(lengths[i][r]);
        }
      }
      const std::vector<RankWindow> windows = run.Windows(i, /*told=*/true);
      iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
    }
    const ReasonVerdict verdict = ReasonOf(iterations);
    EXPECT_EQ(verdict.reason, factor > 1 ? Reason::kClocks : Reason::kUnknown) << verdict.text;
  }
}

// Few transfers of an iteration that are longer once are no slow link.
TEST(WindowReasonTest, TransfersThatAreLongerOnceAreNoSlowLink) {
  std::vector<IterationProfiles> earlier = WindowsOf({}), now = WindowsOf({}, 2);
  for (RankProfile& profile : now[0]) {
    for (auto& [key, use] : profile.transfers) use.median_ns *= 1.5;
  }
  EXPECT_EQ(ReasonOf(now, earlier).reason, Reason::kUnknown);
}

TEST(WindowReasonTest, LongerSequencesThanEarlierAreNoReason) {
  const auto windows_of = [](int64_t more, uint64_t seed) {
    RankJob job(2);
    job.noise = 0.02;
    job.seed = seed;
    job.idle_between = true;
    std::vector<Programs> programs;
    std::vector<std::vector<int64_t>> lengths;
    for (const int64_t length : {80, 95, 100, 120, 140}) {
      programs.emplace_back(2, DataParallel({.length = length + more}));
      lengths.emplace_back(2, length + more);
    }
    const SimulatedRun run = job.Run(programs, lengths);
    std::vector<IterationProfiles> iterations;
    for (size_t i = 0; i < programs.size(); ++i) {
      const std::vector<RankWindow> windows = run.Windows(i);
      iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
    }
    return iterations;
  };
  const std::vector<IterationProfiles> earlier = windows_of(0, 1), now = windows_of(15, 2);
  EXPECT_EQ(FindReason({1, {}, now, earlier}).reason, Reason::kUnknown);
}

}  // namespace
}  // namespace seqpoint::ranks
