// Graphs of traces, also of some that no profiler would write.
#include "daemon/whatif/graph.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "daemon/trace/correlations.h"
#include "daemon/whatif/replay.h"
#include "tests/support/small_graph.h"

namespace seqpoint::whatif {
namespace {

TEST(GraphTest, WorkBelongsToTheCallThatLaunchesIt) {
  Trace trace;
  const auto call = [&](uint64_t correlation, CallKind kind) {
    trace.calls.push_back({.correlation = correlation, .kind = kind});
  };
  call(0, CallKind::kLaunch);
  call(7, CallKind::kOther);
  call(7, CallKind::kLaunch);
  call(7, CallKind::kOther);
  call(8, CallKind::kOther);
  call(8, CallKind::kOther);
  for (const uint64_t far : {uint64_t{9}, uint64_t{1} << 60}) {
    call(far, CallKind::kCopy);
    const trace::Correlations correlations(trace);
    EXPECT_EQ(correlations.CallOf(0), kNone);
    EXPECT_EQ(correlations.CallOf(7), 2u);
    EXPECT_EQ(correlations.CallOf(8), 4u);
    EXPECT_EQ(correlations.CallOf(far), trace.calls.size() - 1);
    EXPECT_EQ(correlations.CallOf(far + 1), kNone);
  }
}

// The node that ended last before it on another branch, as the definition has it.
TEST(GraphTest, ANodeFollowsTheOneThatEndedLastBeforeIt) {
  std::mt19937 random(7);
  TestTrace t;
  t.Api(0, 10, "cudaGraphLaunch", CallKind::kGraphLaunch);
  double start_us = 20;
  for (int i = 0; i < 300; ++i) {
    start_us += static_cast<double>(random() % 12);
    t.Run("node " + std::to_string(i), start_us, start_us + static_cast<double>(random() % 60));
  }
  const Graph graph = t.Graph();
  ASSERT_EQ(graph.gpu.size(), 300u);
  const auto& works = t.trace().works;
  int followed = 0;
  for (uint32_t i = 1; i < 300; ++i) {
    const GpuTask& task = graph.gpu[i];
    uint32_t latest = kNone;
    for (uint32_t other = 0; other < i; ++other) {
      const int64_t end_ns = works[other].end_ns;
      if (graph.gpu[other].lane == task.lane || end_ns > works[i].start_ns + 2000) continue;
      if (latest == kNone || end_ns > works[latest].end_ns) latest = other;
    }
    ASSERT_EQ(task.dependency_count, latest == kNone ? 0 : 1) << i;
    if (latest == kNone) continue;
    ++followed;
    // Any of those that ended at the same time will do.
    EXPECT_EQ(works[graph.dependencies[task.first_dependency]].end_ns, works[latest].end_ns) << i;
  }
  EXPECT_GT(followed, 200);
}

TEST(GraphTest, AnnotationsWithinEachOtherTakeNoMemoryOfTheirOwnEach) {
  TestTrace t;
  for (int i = 0; i < 5000; ++i) t.Annotation(i, 20'000 - i, "layer " + std::to_string(i));
  t.Launch(10'000, 10'004, "k", 10'008, 10'020);
  const Graph graph = t.Graph();
  size_t bytes = 0;
  for (const std::string& name : graph.names) bytes += name.size();
  EXPECT_LT(bytes, size_t{1} << 20);
  EXPECT_EQ(graph.names[graph.cpu.back().label].substr(0, 16), "layer 0\nlayer 1\n");
}

TEST(GraphTest, ManyStreamsWaitingForEachOtherAreNotAllTriedInPairs) {
  TestTrace t;
  for (int i = 0; i < 400; ++i) t.trace().streams.push_back({0, 4 + i});
  for (int i = 0; i < 800; ++i) {
    t.Into(static_cast<uint32_t>(i % 400));
    t.Launch(20 * i, 20 * i + 4, "k" + std::to_string(i), 20 * i + 8, 20 * i + 12);
    t.Api(20 * i + 5, 20 * i + 6, "cudaStreamWaitEvent", CallKind::kStreamWait);
  }
  const Graph graph = t.Graph();  // of each pair it would take minutes
  EXPECT_EQ(graph.figures.waits_inferred + graph.figures.waits_unknown, 800u);
  EXPECT_EQ(Replay(std::vector<const Graph*>{&graph}).not_run, 0u);
}

TEST(GraphTest, AGraphLaunchOfManyNodesAtOnceHasFewBranches) {
  TestTrace t;
  t.Api(0, 10, "cudaGraphLaunch", CallKind::kGraphLaunch);
  for (int i = 0; i < 2000; ++i) t.Run("node", 20 + i, 5000 + i);
  const Graph graph = t.Graph();
  EXPECT_LE(graph.lanes.size(), 256u);
  EXPECT_EQ(Replay(std::vector<const Graph*>{&graph}).not_run, 0u);
}

}  // namespace
}  // namespace seqpoint::whatif
