#include "daemon/whatif/replay.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/whatif/graph.h"
#include "tests/support/small_graph.h"

namespace seqpoint::whatif {
namespace {

void Lengthen(Graph* graph, const std::string& name, double us) {
  graph->gpu[TaskNamed(*graph, name)].duration_ns += TestTrace::Ns(us);
}

// Every task where it was measured.
void ExpectAsMeasured(const TestTrace& built, const Graph& graph, double within_us = 0.001) {
  const std::vector<Work>& works = built.trace().works;
  const RankTimeline timeline = ReplayOne(graph);
  for (size_t i = 0; i < graph.gpu.size(); ++i) {
    const Work& work = works[graph.gpu[i].work];
    EXPECT_NEAR(static_cast<double>(timeline.gpu_begin_ns[i]),
                static_cast<double>(work.start_ns - graph.begin_ns), within_us * 1000)
        << graph.names[work.name];
  }
}

// Kernels one behind the other, with the CPU ahead from the second on.
TestTrace CpuAhead() {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 100);
  t.Launch(10, 14, "b", 102, 200);
  t.Launch(20, 24, "c", 202, 300);
  return t;
}

TEST(ReplayTest, AnEmptyTraceHasNothingToReplay) {
  const Graph graph = BuildGraph({}, {});
  EXPECT_EQ(ReplayOne(graph).end_ns, 0);
}

TEST(ReplayTest, WhatWasMeasuredComesOut) {
  const TestTrace t = CpuAhead();
  ExpectAsMeasured(t, t.Graph(), 2);
  EXPECT_NEAR(EndUs(t.Graph()), 300, 2);
}

TEST(ReplayTest, ALanePassesOnWhatItsTasksTake) {
  Graph graph = CpuAhead().Graph();
  const double before_us = StartUs(graph, "c");
  Lengthen(&graph, "a", 50);
  EXPECT_EQ(StartUs(graph, "c"), before_us + 50);
}

TEST(ReplayTest, AShorterKernelHelpsNothingWhereTheLaunchIsLate) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 20);
  t.Launch(100, 104, "b", 108, 120);
  Graph graph = t.Graph();
  Lengthen(&graph, "a", -10);
  EXPECT_EQ(StartUs(graph, "b"), 108);
  Lengthen(&graph, "a", 110);  // now it holds the next one
  EXPECT_GT(StartUs(graph, "b"), 118);
}

TEST(ReplayTest, FasterLaunchesHelpWhereTheLaneIsIdle) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 20);
  t.Launch(100, 104, "b", 108, 120);
  Graph graph = t.Graph();
  for (CpuTask& task : graph.cpu) {
    if (task.kind == CpuKind::kGap) task.duration_ns /= 2;  // 96 between the calls
  }
  EXPECT_EQ(StartUs(graph, "b"), 60);
}

TEST(ReplayTest, AStreamSynchroniseWaitsForWhatIsThenInTheStream) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 50);
  t.Into(1).Launch(5, 9, "other", 12, 90);
  t.Api(10, 52, "cudaStreamSynchronize", CallKind::kStreamSync);
  t.Into(0).Launch(60, 64, "b", 68, 80);
  Graph graph = t.Graph();
  ExpectAsMeasured(t, graph);
  Lengthen(&graph, "a", 30);
  EXPECT_EQ(StartUs(graph, "b"), 98);
  Lengthen(&graph, "other", 500);
  EXPECT_EQ(StartUs(graph, "b"), 98);
}

TEST(ReplayTest, AWaitThatWasForNothingWaitsWhenTheWorkTakesLonger) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 20);
  t.Api(40, 43, "cudaDeviceSynchronize", CallKind::kContextSync);
  t.Launch(50, 54, "b", 58, 70);
  Graph graph = t.Graph();
  ExpectAsMeasured(t, graph);
  Lengthen(&graph, "a", 100);
  EXPECT_NEAR(StartUs(graph, "b"), 120 + 2 + 7 + 8, 0.1);
}

TEST(ReplayTest, APageableCopyHoldsItsCallBehindTheLane) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 50);
  t.Api(100, 132, "cudaMemcpyAsync", CallKind::kCopy);
  t.Run("Memcpy HtoD (Pageable -> Device)", 106, 130, WorkKind::kCopyH2D, /*pageable=*/true);
  t.Launch(140, 144, "b", 148, 160);
  Graph graph = t.Graph();
  ExpectAsMeasured(t, graph);
  // Earlier than the kernel is over, the copy lanes up, and so does the thread.
  for (CpuTask& task : graph.cpu) {
    if (task.kind == CpuKind::kGap && task.duration_ns == 96'000) task.duration_ns = 0;
  }
  const double copy_us = StartUs(graph, "Memcpy HtoD (Pageable -> Device)");
  EXPECT_NEAR(copy_us, 51, 1.5);
  EXPECT_NEAR(StartUs(graph, "b"), copy_us + 24 + 2 + 8 + 8, 0.1);
}

TEST(ReplayTest, ACopyFromPinnedMemoryDoesNotHoldItsCall) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 50);
  t.Api(100, 132, "cudaMemcpyAsync", CallKind::kCopy);
  t.Run("Memcpy HtoD (Pinned -> Device)", 106, 130, WorkKind::kCopyH2D);
  t.Launch(140, 144, "b", 148, 160);
  Graph graph = t.Graph();
  Lengthen(&graph, "Memcpy HtoD (Pinned -> Device)", 8);
  EXPECT_EQ(StartUs(graph, "b"), 148);
}

// Stream 1 waits for an event that stream 0 recorded after "a".
TestTrace WithEvent(bool recorded) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 100);
  const uint64_t record = t.Api(5, 6, "cudaEventRecord", CallKind::kEventRecord);
  const uint64_t wait = t.Api(7, 8, "cudaStreamWaitEvent", CallKind::kStreamWait);
  if (recorded) t.Wait(wait, record, 1, 0);
  t.Into(1).Launch(9, 12, "b", 102, 150);
  t.Into(0).Launch(20, 24, "c", 102, 140);
  return t;
}

TEST(ReplayTest, AStreamWaitsForTheEventOfAnother) {
  for (const bool recorded : {true, false}) {
    SCOPED_TRACE(recorded);
    const TestTrace t = WithEvent(recorded);
    Graph graph = t.Graph();
    EXPECT_EQ(graph.figures.waits_recorded, recorded ? 1u : 0u);
    EXPECT_EQ(graph.figures.waits_inferred, recorded ? 0u : 1u);
    ExpectAsMeasured(t, graph, 1);
    Lengthen(&graph, "a", 40);
    EXPECT_NEAR(StartUs(graph, "b"), 142, 1);
  }
}

TEST(ReplayTest, WaitingForAnotherLaneIsNoGapOfTheOwn) {
  // A copy, its all-reduce on another stream, the next copy: 1 us from lane to lane, all launched
  // long before. As gaps of one lane they would be 10 us and more, and add up.
  TestTrace t;
  constexpr int kPairs = 20;
  for (int i = 0; i < kPairs; ++i) {
    const double call_us = 20 * i, start_us = 1000 + 20 * i;
    const uint64_t record = t.Api(call_us, call_us + 1, "cudaEventRecord", CallKind::kEventRecord);
    const uint64_t wait =
        t.Api(call_us + 2, call_us + 3, "cudaStreamWaitEvent", CallKind::kStreamWait);
    t.Wait(wait, record, 0, 1);
    t.Into(0).Launch(call_us + 4, call_us + 6, "copy", start_us, start_us + 9);
    const uint64_t done =
        t.Api(call_us + 7, call_us + 8, "cudaEventRecord", CallKind::kEventRecord);
    const uint64_t then =
        t.Api(call_us + 9, call_us + 10, "cudaStreamWaitEvent", CallKind::kStreamWait);
    t.Wait(then, done, 1, 0);
    t.Into(1).Launch(call_us + 11, call_us + 13, "reduce", start_us + 10, start_us + 19);
  }
  // Both streams are held until then.
  t.trace().works[0].start_ns = TestTrace::Ns(6);
  const Graph graph = t.Graph();
  ExpectAsMeasured(t, graph, 1);
}

TEST(ReplayTest, WorkWhoseCallTakesLongStartsWhenThatIsDone) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 100);
  for (int i = 0; i < 10; ++i) t.Launch(5 + i, 6 + i, "k", 101 + 10 * i, 110 + 10 * i);
  t.Launch(20, 9000, "lazily loaded", 8998, 9100);
  t.Launch(9010, 9014, "b", 9101, 9200);
  const Graph graph = t.Graph();
  ExpectAsMeasured(t, graph, 1.5);
  EXPECT_EQ(graph.figures.unexplained, 0u);
}

TEST(ReplayTest, AnEventOfAStreamWithoutWorkIsNotWaitedFor) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 100);
  const uint64_t record = t.Api(5, 6, "cudaEventRecord", CallKind::kEventRecord);
  const uint64_t wait = t.Api(7, 8, "cudaStreamWaitEvent", CallKind::kStreamWait);
  t.Wait(wait, record, 0, 3);  // nothing runs on stream 3
  t.Launch(9, 12, "b", 101, 150);
  Graph graph = t.Graph();
  ExpectAsMeasured(t, graph, 1);
  EXPECT_EQ(Replay({&graph}).not_run, 0u);
}

TEST(ReplayTest, AWaitThatTheTimesContradictIsLeftOut) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 100);
  t.Api(7, 8, "cudaStreamWaitEvent", CallKind::kStreamWait);
  t.Into(1).Launch(9, 12, "b", 17, 50);
  Graph graph = t.Graph();
  EXPECT_EQ(graph.figures.waits_inferred, 0u);
  EXPECT_EQ(graph.figures.waits_unknown, 1u);
  Lengthen(&graph, "a", 40);
  EXPECT_EQ(StartUs(graph, "b"), 17);
}

TEST(ReplayTest, AKernelThatStartsWhenAnotherStreamsEndsWaitedForRoom) {
  TestTrace t;
  t.Launch(0, 4, "big", 8, 200);
  t.Into(1).Launch(10, 14, "b", 203, 250);
  Graph graph = t.Graph();
  EXPECT_EQ(graph.figures.shared, 1u);
  Lengthen(&graph, "big", 100);
  EXPECT_NEAR(StartUs(graph, "b"), 301, 1.1);
}

// Such a start does not stay where it was: it follows the task before it.
TEST(ReplayTest, ALateStartThatNothingExplainsIsCountedAndKept) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 100);
  t.Launch(10, 14, "b", 400, 450);
  Graph graph = t.Graph();
  EXPECT_EQ(graph.figures.unexplained, 1u);
  EXPECT_NEAR(static_cast<double>(graph.figures.unexplained_ns) / 1000, 299, 2);
  ExpectAsMeasured(t, graph);
  Lengthen(&graph, "a", -50);
  EXPECT_EQ(StartUs(graph, "b"), 350);
}

// A profiler that starts while the GPU is behind: two streams have work whose launches it did not
// see, one waits for the other, and the thread waits for both.
TEST(ReplayTest, WorkInFlightAtTheBeginRunsOnItsStreams) {
  TestTrace t;
  t.Run("old", 5, 100);
  t.Run("next old", 102, 200);
  t.Into(1).Run("old reduce", 20, 301);
  t.Into(0).Api(6, 8, "cudaStreamWaitEvent", CallKind::kStreamWait);
  t.Launch(10, 14, "b", 302, 400);
  t.Launch(16, 18, "c", 402, 500);
  t.Api(20, 505, "cudaDeviceSynchronize", CallKind::kContextSync);
  t.Launch(515, 520, "d", 525, 600);
  Graph graph = t.Graph();  // begins at 6
  EXPECT_EQ(graph.figures.works_before, 3u);
  EXPECT_EQ(graph.figures.unexplained, 0u);
  ExpectAsMeasured(t, graph, 2);
  Graph faster = graph;
  Lengthen(&faster, "old reduce", -150);  // now the first stream is what "b" comes after
  EXPECT_NEAR(StartUs(faster, "b") + 6, 202, 3);
  EXPECT_NEAR(StartUs(faster, "d") + 6, 425, 4);
  faster = graph;
  Lengthen(&faster, "old", -50);
  EXPECT_NEAR(StartUs(faster, "next old") + 6, 52, 2);
  EXPECT_NEAR(StartUs(faster, "b") + 6, 302, 2);
}

TEST(ReplayTest, AWaitForAnEventFromBeforeTheTraceIsForWhatWasInFlight) {
  TestTrace t;
  for (uint64_t call = 0; call < 50; ++call) t.Api(0, 0, "skipped", CallKind::kOther);
  t.trace().calls.clear();
  const uint64_t record = 20;
  t.Into(1);
  for (int i = 0; i < 2; ++i) {
    t.Run("old", 100 * i, 100 * i + 99);
    t.trace().works.back().correlation = 10 + static_cast<uint64_t>(i);
  }
  const uint64_t wait = t.Api(5, 6, "cudaStreamWaitEvent", CallKind::kStreamWait);
  t.Wait(wait, record, 0, 1);
  t.Into(0).Launch(7, 9, "b", 101, 150);  // after the first of them, not after both
  Graph graph = t.Graph();
  ExpectAsMeasured(t, graph, 2);
  Lengthen(&graph, "old", -40);
  EXPECT_NEAR(StartUs(graph, "b") + 5, 61, 2);
}

// Its stream goes on in the order in which it ran.
TEST(ReplayTest, WorkWhoseLaunchWasLostComesAfterWhatWasBeforeIt) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 100);
  t.Launch(10, 14, "b", 102, 200);
  t.Launch(20, 24, "c", 202, 300);
  t.Launch(30, 34, "d", 302, 400);
  std::erase_if(t.trace().calls, [](const Call& call) { return call.correlation == 3; });
  Graph graph = t.Graph();
  EXPECT_EQ(graph.figures.works_before, 0u);
  EXPECT_EQ(graph.figures.launches_lost, 1u);
  ExpectAsMeasured(t, graph, 3);
  Lengthen(&graph, "a", 50);
  EXPECT_NEAR(StartUs(graph, "b"), 152, 2);
  EXPECT_NEAR(StartUs(graph, "c"), 252, 3);
  EXPECT_NEAR(StartUs(graph, "d"), 352, 3);
}

// Two turns of each of two threads: forward on one, backward on the other.
TestTrace TwoThreads() {
  TestTrace t;
  double at = 0;
  for (int turn = 0; turn < 4; ++turn) {
    t.On(turn % 2 == 0 ? 0 : 1);
    for (int i = 0; i < 6; ++i, at += 20) {
      t.Launch(at, at + 5, turn % 2 == 0 ? "forward" : "backward", at + 8, at + 15);
    }
    if (turn != 2) continue;
    t.Launch(at, at + 5, "last", at + 8, at + 15);
    at += 20;
  }
  return t;
}

TEST(ReplayTest, AThreadThatTakesOverWaitsForTheOther) {
  const TestTrace t = TwoThreads();
  Graph graph = t.Graph();
  EXPECT_EQ(graph.figures.cross_thread_dependencies, 3u);
  ExpectAsMeasured(t, graph);
  // Twice as much time between the calls of the forward thread moves the backward thread.
  const double before_us = StartUs(graph, "backward");
  for (CpuTask& task : graph.cpu) {
    if (task.thread == 0 && task.kind == CpuKind::kGap) task.duration_ns += 15'000;
  }
  EXPECT_EQ(StartUs(graph, "backward"), before_us + 5 * 15);
  EXPECT_EQ(StartUs(graph, "last") - StartUs(t.Graph(), "last"),
            12 * 15);  // 5, and 7 with the hand-over
}

TEST(ReplayTest, AThreadThatOnlyPollsTakesNoTurn) {
  TestTrace t;
  for (int i = 0; i < 40; ++i) {
    t.On(0).Launch(i * 20, i * 20 + 5, "a", i * 20 + 8, i * 20 + 15);
    if (i % 10 == 5) t.On(2).Api(i * 20 + 10, i * 20 + 11, "cudaEventQuery", CallKind::kOther);
  }
  EXPECT_EQ(t.Graph().figures.cross_thread_dependencies, 0u);
}

TEST(ReplayTest, GapsAreCutWhereAnnotationsBeginAndEnd) {
  TestTrace t;
  t.Launch(0, 5, "a", 8, 15);
  t.Annotation(20, 70, "enumerate(DataLoader)#next");
  t.Launch(100, 105, "b", 108, 120);
  const Graph graph = t.Graph();
  std::vector<std::string> gaps;
  for (const CpuTask& task : graph.cpu) {
    if (task.kind != CpuKind::kGap) continue;
    gaps.push_back(graph.names[task.label] + " " + std::to_string(task.duration_ns / 1000));
  }
  EXPECT_EQ(gaps, (std::vector<std::string>{" 15", "enumerate(DataLoader)#next 50", " 30"}));
}

TEST(ReplayTest, ADriverCallInsideARuntimeCallIsPartOfIt) {
  TestTrace t;
  t.Api(0, 10, "cudaLaunchKernel", CallKind::kLaunch);
  t.Api(2, 8, "cuLaunchKernel", CallKind::kLaunch);
  t.Run("a", 12, 20);
  t.Launch(30, 34, "b", 38, 50);
  const Graph graph = t.Graph();
  EXPECT_EQ(graph.cpu.size(), 3u);  // call, gap, call
  ExpectAsMeasured(t, graph);
}

TEST(ReplayTest, NodesOfAGraphLaunchRunOnBranches) {
  TestTrace t;
  t.Api(0, 10, "cudaGraphLaunch", CallKind::kGraphLaunch);
  t.Run("root", 15, 50);
  t.Run("left", 51, 100);
  t.Run("right", 51, 80);
  t.Run("join", 101, 120);
  Graph graph = t.Graph();
  ExpectAsMeasured(t, graph);
  Lengthen(&graph, "left", 20);
  EXPECT_EQ(StartUs(graph, "join"), 121);
  Lengthen(&graph, "root", 10);
  EXPECT_EQ(StartUs(graph, "right"), 61);
}

TEST(ReplayTest, WorkFromBeforeTheTraceHoldsItsLane) {
  TestTrace t;
  t.Launch(0, 4, "b", 60, 80);
  t.trace().works.push_back(t.trace().works[0]);
  t.trace().works.back().correlation = 0;
  t.trace().works.back().start_ns = TestTrace::Ns(2);
  t.trace().works.back().end_ns = TestTrace::Ns(59);
  const Graph graph = t.Graph();
  EXPECT_EQ(graph.figures.works_before, 1u);
  EXPECT_NEAR(EndUs(graph), 80, 1);
}

// A rank whose all-reduce begins at `start_us` and ends at 100, as that of all ranks.
Graph Rank(double start_us, const std::string& before) {
  TestTrace t;
  t.Launch(0, 4, before, 8, start_us - 2);
  t.Launch(5, 9, "ncclAllReduce", start_us, 100);
  t.trace().works.back().kind = WorkKind::kCollective;
  t.Launch(12, 16, "after", 102, 150);
  Graph graph = t.Graph();
  graph.gpu[1].collective = 0;
  return graph;
}

TEST(ReplayTest, ACollectiveEndsOnAllRanksWhenTheLastOneHasComeAndTheDataAreThere) {
  Graph early = Rank(30, "early");
  Graph late = Rank(80, "late");
  const Graph* ranks[] = {&early, &late};
  Timeline timeline = Replay(ranks);
  EXPECT_EQ(timeline.not_run, 0u);
  for (const RankTimeline& rank : timeline.ranks) {
    EXPECT_NEAR(static_cast<double>(rank.gpu_end_ns[1]), 100'000, 1000);
    EXPECT_NEAR(static_cast<double>(rank.gpu_begin_ns[2]), 102'000, 2100);
  }
  // The early rank may take longer without harm, the late one not.
  Lengthen(&early, "early", 40);
  timeline = Replay(ranks);
  EXPECT_NEAR(static_cast<double>(timeline.ranks[1].gpu_end_ns[1]), 100'000, 1000);
  Lengthen(&late, "late", 40);
  timeline = Replay(ranks);
  EXPECT_NEAR(static_cast<double>(timeline.ranks[0].gpu_end_ns[1]), 140'000, 1000);
}

// Collectives start when gradients are there, long after their launches: that is not how long a
// launch takes to reach the GPU.
TEST(ReplayTest, ACollectiveThatWaitsForGradientsTellsNoLatency) {
  TestTrace t;
  for (int i = 0; i < 8; ++i) {
    t.Into(0).Launch(10 * i, 10 * i + 3, "gemm", 5 + 101 * i, 105 + 101 * i);
    if (i % 2 == 0) continue;
    const uint64_t record =
        t.Api(10 * i + 4, 10 * i + 5, "cudaEventRecord", CallKind::kEventRecord);
    const uint64_t wait =
        t.Api(10 * i + 5, 10 * i + 6, "cudaStreamWaitEvent", CallKind::kStreamWait);
    t.Wait(wait, record, 1, 0);
    t.Into(1).Api(10 * i + 6, 10 * i + 9, "cudaLaunchKernel", CallKind::kLaunch);
    t.Run("ncclAllReduce", 106 + 101 * i, 126 + 101 * i, WorkKind::kCollective);
  }
  Graph graph = t.Graph();
  EXPECT_NEAR(EndUs(graph), 833, 2);
  for (GpuTask& task : graph.gpu) {
    if (task.kind == WorkKind::kKernel) task.duration_ns /= 2;
  }
  EXPECT_NEAR(EndUs(graph), 433, 2);
}

TEST(ReplayTest, ACollectiveThatARankNeverReachesIsSaidNotWaitedForInVain) {
  Graph one = Rank(30, "one");
  Graph other = Rank(80, "other");
  other.gpu[0].collective = 0;  // twice in the other's
  const Graph* ranks[] = {&one, &other};
  EXPECT_GT(Replay(ranks).not_run, 0u);
}

}  // namespace
}  // namespace seqpoint::whatif
