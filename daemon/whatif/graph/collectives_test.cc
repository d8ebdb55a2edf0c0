#include "daemon/whatif/graph/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/whatif/replay.h"
#include "tests/support/small_graph.h"

namespace seqpoint::whatif {
namespace {

struct Ranks {
  std::vector<TestTrace> traces;
  std::vector<Graph> graphs;
  std::vector<Graph*> mutable_graphs;
  std::vector<const Trace*> pointers;

  MatchedCollectives Match() {
    for (const TestTrace& trace : traces) graphs.push_back(trace.Graph());
    for (Graph& graph : graphs) mutable_graphs.push_back(&graph);
    for (const TestTrace& trace : traces) pointers.push_back(&trace.trace());
    return MatchCollectives(mutable_graphs, pointers);
  }
  whatif::Timeline Timeline() const {
    const std::vector<const Graph*> all(mutable_graphs.begin(), mutable_graphs.end());
    return Replay(all);
  }
  // The task of the n-th work of a rank as it was given.
  const GpuTask& Task(size_t rank, uint32_t work) const {
    const std::vector<GpuTask>& gpu = graphs[rank].gpu;
    return *std::find_if(gpu.begin(), gpu.end(),
                         [&](const GpuTask& task) { return task.work == work; });
  }
};

void Collective(TestTrace* t, const std::string& name, double begin_us, double start_us,
                double end_us) {
  t->Api(begin_us, begin_us + 4, "cudaLaunchKernel", CallKind::kLaunch);
  t->Run(name, start_us, end_us, WorkKind::kCollective);
}

// When the n-th collective of a job ends; the steps of real training are as irregular.
double EndUs(int n) { return 2000 + 1000 * n + 100 * (n * n % 7); }

// Rank r's part in collectives [first, last): it comes the later the higher r, by a clock that is
// `ahead_us` ahead.
void Part(TestTrace* t, int rank, int first, int last, double ahead_us) {
  for (int n = first; n < last; ++n) {
    const double end_us = EndUs(n) + ahead_us + 0.5 * rank;
    const double start_us = end_us - 500 + 40 * rank;
    Collective(t, n % 3 == 0 ? "ncclAllReduce" : "ncclSendRecv", start_us - 10, start_us, end_us);
  }
}

TEST(CollectivesTest, EightRanksOfOneHostEndTogether) {
  Ranks ranks;
  ranks.traces.resize(8);
  // Each begins and ends to record at another collective.
  for (int r = 0; r < 8; ++r) Part(&ranks.traces[r], r, r % 3, 20 - r % 2, 0);
  const MatchedCollectives matched = ranks.Match();
  EXPECT_EQ(matched.clock_behind_ns, std::vector<int64_t>(8, 0));
  EXPECT_EQ(matched.count, 20u);
  EXPECT_EQ(matched.alone, 0u);
  EXPECT_NEAR(static_cast<double>(matched.spread_ns), 3500, 10);

  const whatif::Timeline timeline = ranks.Timeline();
  EXPECT_EQ(timeline.not_run, 0u);
  for (size_t r = 0; r < 8; ++r) {
    const Graph& graph = ranks.graphs[r];
    for (size_t i = 0; i < graph.gpu.size(); ++i) {
      const int64_t measured_ns = ranks.traces[r].trace().works[graph.gpu[i].work].end_ns;
      EXPECT_NEAR(static_cast<double>(timeline.ranks[r].gpu_end_ns[i] + graph.begin_ns),
                  static_cast<double>(measured_ns), 10'000)
          << "rank " << r << ", collective " << i;
    }
  }
}

TEST(CollectivesTest, ALateRankHoldsTheOthers) {
  Ranks ranks;
  ranks.traces.resize(3);
  for (int r = 0; r < 3; ++r) Part(&ranks.traces[r], r, 0, 6, 0);
  ranks.Match();
  const whatif::Timeline before = ranks.Timeline();
  // The last rank starts 600 us later.
  ranks.graphs[2].thread_begin_ns[0] += 600'000;
  const whatif::Timeline after = ranks.Timeline();
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_NEAR(static_cast<double>(after.ranks[r].gpu_end_ns[0] - before.ranks[r].gpu_end_ns[0]),
                600'000, 2);
  }
}

TEST(CollectivesTest, ClocksOfOtherHostsAreAlignedByTheEnds) {
  Ranks ranks;
  ranks.traces.resize(4);
  const double ahead_us[] = {0, 0, 5'000'000, -3'141.5};
  for (int r = 0; r < 4; ++r) Part(&ranks.traces[r], r, r == 3 ? 4 : 0, 24, ahead_us[r]);
  const MatchedCollectives matched = ranks.Match();
  EXPECT_EQ(matched.count, 24u);
  EXPECT_EQ(matched.alone, 0u);
  ASSERT_EQ(matched.clock_behind_ns.size(), 4u);
  EXPECT_EQ(matched.clock_behind_ns[1], 0);
  EXPECT_NEAR(static_cast<double>(matched.clock_behind_ns[2]), -5e9, 2000);
  EXPECT_NEAR(static_cast<double>(matched.clock_behind_ns[3]), 3'141'500, 2000);
  const whatif::Timeline timeline = ranks.Timeline();
  EXPECT_EQ(timeline.not_run, 0u);
  // The same moment is the same number on all ranks.
  EXPECT_NEAR(static_cast<double>(timeline.ranks[0].gpu_end_ns[10]),
              static_cast<double>(timeline.ranks[2].gpu_end_ns[10]), 1);
  EXPECT_NEAR(static_cast<double>(timeline.ranks[0].gpu_end_ns[10]),
              static_cast<double>(timeline.ranks[3].gpu_end_ns[6]), 1);
}

TEST(CollectivesTest, GroupsOfRanksAndTheirStreamsAreToldApart) {
  // All reduce on one stream; on another one, ranks 0, 1 and ranks 2, 3 each among themselves, with
  // kernels of the same name. Ranks number their streams as they like.
  Ranks ranks;
  ranks.traces.resize(4);
  for (int r = 0; r < 4; ++r) {
    TestTrace& t = ranks.traces[r];
    for (int n = 0; n < 10; ++n) {
      const double all_us = 2000 + 2000 * n, pair_us = all_us + (r < 2 ? 700 : 1300);
      t.Into(r % 2 == 0 ? 1 : 2);
      Collective(&t, "ncclAllReduce", all_us - 300, all_us - 200 + 10 * r, all_us);
      t.Into(r % 2 == 0 ? 3 : 1);
      Collective(&t, "ncclAllReduce", all_us + 10, pair_us - 200 + 10 * r, pair_us);
    }
  }
  const MatchedCollectives matched = ranks.Match();
  EXPECT_EQ(matched.count, 30u);
  EXPECT_EQ(matched.members, 80u);
  EXPECT_EQ(matched.alone, 0u);
  EXPECT_EQ(ranks.Task(0, 0).collective, ranks.Task(3, 0).collective);
  EXPECT_EQ(ranks.Task(0, 1).collective, ranks.Task(1, 1).collective);
  EXPECT_EQ(ranks.Task(2, 1).collective, ranks.Task(3, 1).collective);
  EXPECT_NE(ranks.Task(0, 1).collective, ranks.Task(2, 1).collective);
  EXPECT_EQ(ranks.Timeline().not_run, 0u);
}

TEST(CollectivesTest, WhatOnlyOneRankRecordedIsAKernelLikeAnyOther) {
  Ranks ranks;
  ranks.traces.resize(2);
  Part(&ranks.traces[0], 0, 0, 12, 0);
  Part(&ranks.traces[1], 1, 0, 5, 0);  // the sixth was lost
  Part(&ranks.traces[1], 1, 6, 12, 0);
  const MatchedCollectives matched = ranks.Match();
  EXPECT_EQ(matched.count, 11u);
  EXPECT_EQ(matched.alone, 1u);
  EXPECT_EQ(ranks.Task(0, 5).collective, kNone);
  EXPECT_EQ(ranks.Task(0, 6).collective, ranks.Task(1, 5).collective);
  EXPECT_EQ(ranks.Timeline().not_run, 0u);
}

TEST(CollectivesTest, RanksOfDifferentJobsShareNothing) {
  Ranks ranks;
  ranks.traces.resize(2);
  Part(&ranks.traces[0], 0, 0, 12, 0);
  for (int n = 0; n < 12; ++n) {
    Collective(&ranks.traces[1], "rcclAllGather", 900 * n, 900 * n + 20, 900 * n + 100);
  }
  const MatchedCollectives matched = ranks.Match();
  EXPECT_EQ(matched.count, 0u);
  EXPECT_EQ(matched.alone, 24u);
}

}  // namespace
}  // namespace seqpoint::whatif
