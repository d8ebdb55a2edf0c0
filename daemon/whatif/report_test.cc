#include "daemon/whatif/report.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/small_graph.h"

namespace seqpoint::whatif {
namespace {

RankTimeline ReplayWithCauses(const Graph& graph) {
  const Graph* ranks[] = {&graph};
  return Replay(ranks, {.causes = true}).ranks[0];
}
double Us(const Shares& shares, Share share) {
  return static_cast<double>(shares[static_cast<size_t>(share)]) / 1000;
}
double SumUs(const Shares& shares) {
  return static_cast<double>(std::accumulate(shares.begin(), shares.end(), int64_t{0})) / 1000;
}

// Two iterations: loading, a launch, a long kernel that the thread waits for.
TestTrace Loading() {
  TestTrace t;
  for (const double at : {0.0, 200.0}) {
    t.Launch(at, at + 4, "a", at + 8, at + 100);
    t.Api(at + 5, at + 103, "cudaStreamSynchronize", CallKind::kStreamSync);
    t.Annotation(at + 110, at + 190, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter");
  }
  t.Launch(400, 404, "a", 408, 410);
  return t;
}

TEST(ReportTest, TheCriticalPathAddsUpToTheWholeTime) {
  const Graph graph = Loading().Graph({0});
  const RankTimeline timeline = ReplayWithCauses(graph);
  const Shares path = IterationPaths(graph, timeline)[0];
  EXPECT_NEAR(SumUs(path), static_cast<double>(timeline.end_ns) / 1000, 0.01);
  EXPECT_NEAR(Us(path, Share::kKernel), 92 + 92 + 2, 0.01);
  EXPECT_NEAR(Us(path, Share::kDataLoading), 160, 0.01);
  EXPECT_NEAR(Us(path, Share::kLaunch), 3 * 8, 0.01);
}

TEST(ReportTest, TheCriticalPathOfARankThatBeginsLaterBeginsThere) {
  Graph graph = Loading().Graph({0});
  for (int64_t& begin_ns : graph.thread_begin_ns) begin_ns += 5'000'000;
  const RankTimeline timeline = ReplayWithCauses(graph);
  EXPECT_NEAR(SumUs(IterationPaths(graph, timeline)[0]),
              static_cast<double>(timeline.end_ns) / 1000 - 5000, 0.01);
}

TEST(ReportTest, IdleTimeIsOwedToWhatTheNextLaunchWaitedFor) {
  const Graph graph = Loading().Graph({0});
  const Shares idle = IterationIdle(graph, ReplayWithCauses(graph))[0];
  EXPECT_NEAR(SumUs(idle), 2 * 108, 0.01);
  EXPECT_NEAR(Us(idle, Share::kDataLoading), 160, 0.01);
}

TEST(ReportTest, IterationsLastFromTheirFirstWorkToThatOfTheNext) {
  const TestTrace t = Loading();
  const Graph graph = t.Graph({0, 195, 395});
  const std::vector<int64_t> measured = IterationDurations(graph, Measured(t.trace(), graph));
  const std::vector<int64_t> replayed = IterationDurations(graph, ReplayWithCauses(graph));
  ASSERT_EQ(measured.size(), 3u);
  EXPECT_EQ(measured[0], 200'000);
  EXPECT_EQ(replayed[1], 200'000);
}

TEST(ReportTest, WhatWaitsForAnotherRankIsSaid) {
  TestTrace early, late;
  for (auto& [t, start_us] : {std::pair(&early, 10.0), std::pair(&late, 80.0)}) {
    t->Launch(start_us - 8, start_us - 4, "all_reduce", start_us, 100);
    t->Launch(start_us - 3, start_us - 1, "after", 101, 120);
  }
  Graph one = early.Graph(), other = late.Graph();
  one.gpu[0].collective = other.gpu[0].collective = 0;
  other.thread_begin_ns[0] = 70'000;  // one clock
  const Graph* ranks[] = {&one, &other};
  const Timeline timeline = Replay(ranks, {.causes = true});
  EXPECT_EQ(timeline.ranks[0].gpu_cause_kind[0], Cause::kRank);
  EXPECT_EQ(timeline.ranks[1].gpu_cause_kind[0], Cause::kCpuTask);
}

}  // namespace
}  // namespace seqpoint::whatif
