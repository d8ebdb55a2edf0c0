// Tasks beside the streams: communication, copies to the host, in order or by need. The times
// expected are worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/whatif/language/parser.h"
#include "daemon/whatif/preset.h"
#include "daemon/whatif/replay.h"
#include "daemon/whatif/transform/transform.h"
#include "tests/support/small_graph.h"

namespace seqpoint::whatif {
namespace {

using testing::HasSubstr;

constexpr int kLayers = 4;

// The GPU begins 100 us in, and each kernel then takes 10 us, one behind the other: forward and
// backward of four layers ("0 f1" to "0 f4", "0 b4" to "0 b1"), the optimiser ("0 o").
Graph Training(int iterations, bool optimizer = true) {
  TestTrace t;
  double call_us = 0, kernel_us = 100;
  std::vector<double> begins_us;
  const auto pass = [&](const std::string& annotation, const std::vector<std::string>& kernels) {
    const double begin_us = call_us;
    for (const std::string& kernel : kernels) {
      t.Launch(call_us, call_us + 0.5, kernel, kernel_us, kernel_us + 10);
      call_us += 1;
      kernel_us += 10;
    }
    t.Annotation(begin_us, call_us - 0.1, annotation);
  };
  for (int i = 0; i < iterations; ++i) {
    begins_us.push_back(call_us);
    const std::string number = std::to_string(i);
    std::vector<std::string> forward, backward;
    for (int layer = 1; layer <= kLayers; ++layer) {
      forward.push_back(number + " gemm f" + std::to_string(layer));
      backward.push_back(number + " gemm b" + std::to_string(kLayers + 1 - layer));
    }
    pass("forward", forward);
    pass("backward", backward);
    if (optimizer) pass("Optimizer.step", {number + " o"});
  }
  Graph graph = t.Graph(begins_us);
  for (GpuTask& task : graph.gpu) task.gap_ns = task.wait_gap_ns = 0;
  return graph;
}

void ApplyText(const std::string& text, Graph* graph) {
  const absl::StatusOr<Change> change = ParseChange(text);
  const absl::StatusOr<Request> request =
      change.ok() ? absl::StatusOr<Request>(change->request) : ParseRequest(text);
  ASSERT_TRUE(request.ok()) << change.status() << request.status();
  const absl::StatusOr<Applied> applied = Apply(
      *request, change.ok() ? change->parameters : std::map<std::string, double>(), {}, graph);
  ASSERT_TRUE(applied.ok()) << applied.status();
}
double AfterUs(const std::string& text, Graph graph, const std::string& name) {
  ApplyText(text, &graph);
  return StartUs(graph, name);
}

TEST(LanesTest, GradientsTravelWhileTheBackwardPassRuns) {
  const Graph graph = Training(1);
  EXPECT_EQ(StartUs(graph, "0 o"), 180);
  const std::string change = "data-parallel,bytes=80KB,bucket=20KB,latency=0us,workers=2,";
  // A bucket is full after each backward kernel. The network keeps up: only the last one is left.
  EXPECT_EQ(AfterUs(change + "bandwidth=4GB/s", graph, "0 o"), 180 + 5);
  // It does not: from the first bucket on it is what everything waits for.
  EXPECT_EQ(AfterUs(change + "bandwidth=1GB/s", graph, "0 o"), 100 + 50 + 4 * 20);
  // Three of four move 3/2 of the bytes in six messages.
  EXPECT_EQ(AfterUs("data-parallel,bytes=80KB,bucket=20KB,workers=4,bandwidth=1GB/s,latency=1us",
                    graph, "0 o"),
            100 + 50 + 4 * (30 + 6));
  // Both trees of two workers move all bytes twice.
  EXPECT_EQ(AfterUs("data-parallel-tree,bytes=80KB,bucket=20KB,bandwidth=1GB/s,latency=1us", graph,
                    "0 o"),
            100 + 50 + 4 * (40 + 2));
}

TEST(LanesTest, BucketsAreFullWhenTheirBytesAreThere) {
  // 50 KB in 20 KB: full after 16 and 32 us, that is with the second and the fourth kernel, and the
  // rest goes with the last.
  Graph graph = Training(1);
  ApplyText("data-parallel,bytes=50KB,bucket=20KB,bandwidth=1GB/s,latency=0us", &graph);
  const RankTimeline timeline = ReplayOne(graph, {.causes = true});
  std::vector<double> starts_us;
  for (size_t i = 0; i < graph.gpu.size(); ++i) {
    if (graph.names[graph.gpu[i].name] != "all_reduce") continue;
    EXPECT_EQ(graph.gpu[i].kind, WorkKind::kCollective);
    starts_us.push_back(static_cast<double>(timeline.gpu_begin_ns[i]) / 1000);
  }
  EXPECT_THAT(starts_us, testing::ElementsAre(160, 180, 200));
  EXPECT_EQ(StartUs(graph, "0 o"), 210);
}

TEST(LanesTest, WhatIsNeededFirstGoesFirst) {
  // A slice of 20 us after each backward kernel of 10 us, the first for layer 4. In order: layer
  // 1's comes last, at 150 + 4 * 20, and all of the next forward pass is behind it.
  const Graph graph = Training(2, /*optimizer=*/false);
  const std::string p3 = "p3,bytes=80KB,slice=20KB,bandwidth=1GB/s";
  const absl::StatusOr<Change> change = ParseChange(p3);
  ASSERT_TRUE(change.ok()) << change.status();
  Request in_order = change->request;
  in_order.steps.pop_back();
  Graph fifo = graph;
  ASSERT_TRUE(Apply(in_order, change->parameters, {}, &fifo).ok());
  EXPECT_EQ(StartUs(fifo, "1 gemm f1"), 230);
  EXPECT_EQ(StartUs(fifo, "1 gemm b4"), 270);
  // By need: layer 4 (150 to 170), then 2, which has come meanwhile, 1 (190 to 210), 3 (to 230).
  Graph by_need = graph;
  ApplyText(p3, &by_need);
  EXPECT_EQ(StartUs(by_need, "1 gemm f1"), 210);
  EXPECT_EQ(StartUs(by_need, "1 gemm f2"), 220);
  EXPECT_EQ(StartUs(by_need, "1 gemm f3"), 230);
  EXPECT_EQ(StartUs(by_need, "1 gemm b4"), 250);
}

TEST(LanesTest, WhatAGradientComesFromMayGoAway) {
  // Without the backward kernels all buckets are there when the forward pass is over.
  Graph graph = Training(1);
  ApplyText("data-parallel,bytes=80KB,bucket=20KB,bandwidth=1GB/s,latency=0us", &graph);
  ApplyText("remove kernels where phase = backward", &graph);
  EXPECT_EQ(StartUs(graph, "0 o"), 140 + 4 * 20);
}

TEST(LanesTest, ASlowBusStallsWhatMovesFeatureMaps) {
  const Graph graph = Training(1);
  // Copies of 5 us beside kernels of 10: nothing waits.
  EXPECT_EQ(AfterUs("vdnn,bytes=80KB,bandwidth=4GB/s", graph, "0 o"), 180);
  // Copies of 20 us: the second to the fourth kernel of each pass wait for the copy that began with
  // the one before.
  Graph slow = graph;
  ApplyText("vdnn,bytes=80KB,bandwidth=1GB/s", &slow);
  EXPECT_EQ(StartUs(slow, "0 gemm b4"), 100 + 3 * 20 + 10);
  EXPECT_EQ(StartUs(slow, "0 o"), 170 + 3 * 20 + 10);
}

TEST(LanesTest, ADeviceSynchroniseWaitsForWhatRunsByNeed) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 18);
  t.Launch(5, 7, "b", 19, 29);
  t.Api(20, 31, "cudaDeviceSynchronize", CallKind::kContextSync);
  Graph graph = t.Graph();
  ApplyText(
      "insert \"send\" of 50us into \"network\" after kernels; reschedule work where name = "
      "\"send\" "
      "by need",
      &graph);
  // 18 to 68, 68 to 118; the call ended 2 us after what it waited for.
  EXPECT_NEAR(static_cast<double>(ReplayOne(graph, {.causes = true}).cpu_end_ns.back()) / 1000, 120,
              0.01);
}

// By rank, chosen by a loop that knows all times beforehand.
TEST(LanesTest, TheBestOfWhatIsThereRuns) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    TestTrace t;
    double end_us = 100;
    const int count = 30;
    std::vector<double> ready_us;
    for (int i = 0; i < count; ++i) {
      const double duration_us = 1 + static_cast<double>(random() % 20);
      t.Launch(i, i + 0.5, "k" + std::to_string(i), end_us, end_us + duration_us);
      end_us += duration_us;
      ready_us.push_back(end_us);
    }
    Graph graph = t.Graph();
    for (GpuTask& task : graph.gpu) task.gap_ns = task.wait_gap_ns = 0;
    ApplyText(
        "insert \"send\" of 1us into \"network\" after kernels\n"
        "reschedule work where name = \"send\" first",
        &graph);
    std::vector<uint32_t> open;
    for (uint32_t g = count; g < graph.gpu.size(); ++g) {
      graph.gpu[g].duration_ns = 1000 * static_cast<int64_t>(1 + random() % 30);
      graph.gpu[g].priority = static_cast<uint32_t>(random() % 10);
      open.push_back(g);
    }
    ASSERT_EQ(open.size(), static_cast<size_t>(count));
    const RankTimeline timeline = ReplayOne(graph, {.causes = true});
    double now_us = 0;
    while (!open.empty()) {
      const auto ready = [&](uint32_t g) { return ready_us[g - count]; };
      double earliest_us = ready(open[0]);
      for (const uint32_t g : open) earliest_us = std::min(earliest_us, ready(g));
      now_us = std::max(now_us, earliest_us);
      const auto best = std::min_element(open.begin(), open.end(), [&](uint32_t a, uint32_t b) {
        return std::tuple(ready(a) > now_us, graph.gpu[a].priority, a) <
               std::tuple(ready(b) > now_us, graph.gpu[b].priority, b);
      });
      EXPECT_EQ(static_cast<double>(timeline.gpu_begin_ns[*best]) / 1000, now_us) << *best;
      now_us += static_cast<double>(graph.gpu[*best].duration_ns) / 1000;
      open.erase(best);
    }
  }
}

TEST(LanesTest, WhatCannotBeDoneIsSaid) {
  Graph graph = Training(1);
  const auto error = [&](const std::string& text) {
    const absl::StatusOr<Request> request = ParseRequest(text);
    EXPECT_TRUE(request.ok()) << request.status();
    return std::string(Apply(*request, {}, {}, &graph).status().message());
  };
  EXPECT_THAT(error("insert \"x\" of 1us into \"q\" after gaps"), HasSubstr("no work of the GPU"));
  EXPECT_THAT(error("insert \"x\" of 1us into \"q\" after kernels needed by calls"),
              HasSubstr("needed by work of the GPU"));
  EXPECT_THAT(error("insert \"x\" of 1us into \"q\" after kernels sharing 1GB in 1B"),
              HasSubstr("take larger ones"));
  EXPECT_THAT(error("insert \"x\" of bytes/$rate into \"q\" after kernels"), HasSubstr("$rate"));
  EXPECT_THAT(error("set kernels to bytes/2GB/s"), HasSubstr("has no bytes of \"0 gemm f1\""));
  EXPECT_THAT(error("scale kernels where name ~ $kernels by 2"),
              HasSubstr("$kernels has no value"));
}

TEST(LanesTest, WhatNobodyCanMeanIsRefused) {
  const auto why = [](const std::string& sharing) {
    Graph graph = Training(3);
    const absl::StatusOr<Request> request =
        ParseRequest("insert \"x\" of 1us into \"q\" after kernels sharing " + sharing);
    EXPECT_TRUE(request.ok()) << request.status();
    return std::string(Apply(*request, {}, {}, &graph).status().message());
  };
  EXPECT_THAT(why("0B in 0B"), HasSubstr("pieces of 0 bytes: give a size from 1B on"));
  EXPECT_THAT(why("1GB in 1B"), HasSubstr("more than 1e+06 in all: take larger ones"));
  EXPECT_THAT(why("1e20B in 1e19B"), HasSubstr("is the unit right?"));
  // One kernel may be needed by many, but not wait for any number.
  EXPECT_THAT(why("10MB in 100B needed by kernels where name = \"2 o\""),
              HasSubstr("make fewer, larger ones"));
  EXPECT_EQ(why("1MB in 100B needed by kernels where name = \"2 o\""), "");
}

TEST(LanesTest, PresetsSayWhyTheyDoNotApply) {
  const auto fit = [](const std::string& preset, const Graph& graph) {
    return FitOf(*FindPreset(preset), {}, graph);
  };
  const Graph training = Training(2);
  EXPECT_EQ(fit("data-parallel", training).why_not, "");
  EXPECT_EQ(fit("p3", training).why_not, "");
  EXPECT_EQ(fit("vdnn", training).why_not, "");
  EXPECT_THAT(fit("data-parallel", Training(1, /*optimizer=*/false)).why_not,
              HasSubstr("Optimizer.step, would tell"));
  Graph parallel = training;
  ApplyText("data-parallel,bytes=80KB,bandwidth=1GB/s", &parallel);
  EXPECT_FALSE(fit("data-parallel", parallel).applies);
  EXPECT_THAT(fit("data-parallel", parallel).why_not, HasSubstr("it is data parallel already"));
  EXPECT_TRUE(fit("blueconnect", parallel).applies);
  TestTrace bare;
  bare.Launch(0, 4, "gemm", 8, 38);
  EXPECT_FALSE(fit("p3", bare.Graph()).applies);
  EXPECT_THAT(fit("p3", bare.Graph()).why_not, HasSubstr("which kernels the backward pass has"));
}

TEST(LanesTest, P3TakesThePlaceOfAllReduces) {
  Graph graph = Training(2);
  ApplyText("data-parallel,bytes=80KB,bucket=20KB,bandwidth=0.01GB/s", &graph);
  ApplyText("p3,bytes=80KB,bandwidth=100GB/s", &graph);
  EXPECT_NEAR(StartUs(graph, "1 o"), 100 + 9 * 10 + 8 * 10, 1);
}

}  // namespace
}  // namespace seqpoint::whatif
