#include "daemon/whatif/transform/transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "daemon/whatif/language/parser.h"
#include "daemon/whatif/replay.h"
#include "tests/support/small_graph.h"

namespace seqpoint::whatif {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Applied Do(const std::string& text, Graph* graph, const Bounds& bounds = {},
           const std::map<std::string, double>& parameters = {}) {
  const absl::StatusOr<Request> request = ParseRequest(text);
  EXPECT_TRUE(request.ok()) << request.status();
  absl::StatusOr<Applied> applied = Apply(*request, parameters, bounds, graph);
  EXPECT_TRUE(applied.ok()) << applied.status();
  return applied.ok() ? *applied : Applied();
}

// Three kernels of 30, 60 and 9 us behind each other, launched ahead of the GPU.
TestTrace GpuBound() {
  TestTrace t;
  t.Annotation(0, 25, "forward");
  t.Launch(0, 4, "sgemm", 8, 38);
  t.Launch(10, 14, "layer_norm", 39, 99);
  t.Annotation(26, 60, "Optimizer.step#Adam");
  t.Launch(30, 34, "adam", 100, 109);
  return t;
}

TEST(TransformTest, ScalesWhatItSelects) {
  Graph graph = GpuBound().Graph();
  EXPECT_THAT(Do("scale kernels where name ~ \"gemm\" by 1/3", &graph).tasks, ElementsAre(1));
  EXPECT_NEAR(EndUs(graph), 89, 0.01);
  EXPECT_THAT(
      Do("scale kernels where in = \"forward\" by 0; scale kernels where in ~ \"Adam\" by $x",
         &graph, {}, {{"x", 2}})
          .tasks,
      ElementsAre(2, 1));
  EXPECT_NEAR(EndUs(graph), 38 + 18, 0.01);  // launched at 30
}

TEST(TransformTest, SelectsByThread_Stream_Duration_Bytes) {
  TestTrace t = GpuBound();
  t.On(1).Into(2).Api(200, 203, "cudaMemcpyAsync", CallKind::kCopy);
  t.Run("Memcpy HtoD", 208, 220, WorkKind::kCopyH2D);
  t.trace().works.back().bytes = 4096;
  Graph graph = t.Graph();
  EXPECT_THAT(Do("scale work where stream = 2 by 1\n"
                 "scale work where thread = \"autograd\" by 1\n"
                 "scale kernels where duration > 20us and duration < 50us by 1\n"
                 "scale copies where bytes = 4096B by 1\n"
                 "scale copies where bytes > 4096B by 1\n"
                 "scale launches by 1\n"
                 "scale launches where stream != 2 by 1",
                 &graph)
                  .tasks,
              ElementsAre(1, 1, 1, 1, 0, 4, 3));
}

TEST(TransformTest, WhatLimitsAKernelIsMeasuredOrGuessed) {
  Graph graph = GpuBound().Graph();
  Applied applied = Do("scale kernels where bound = compute by 1/3", &graph);
  EXPECT_THAT(applied.tasks, ElementsAre(1));
  EXPECT_EQ(applied.guessed_bounds, 3u);
  applied = Do("scale kernels where bound = latency by 1", &graph, {{"sgemm", Bound::kLatency}});
  EXPECT_THAT(applied.tasks, ElementsAre(1));
  EXPECT_EQ(applied.measured_bounds, 1u);
  EXPECT_FALSE(IsProduct("convert_kernel"));
  EXPECT_TRUE(IsProduct("cudnn_convolve_sgemm"));
  EXPECT_EQ(BoundByTime(50'000), Bound::kMemory);
  EXPECT_EQ(BoundByTime(2'000), Bound::kLatency);
}

TEST(TransformTest, EachKernelWhoseBoundIsGuessedCountsOnce) {
  Graph graph = GpuBound().Graph();
  const Applied applied =
      Do("scale kernels where bound = compute by 1/3; scale kernels where bound = memory by 1/2; "
         "scale kernels where bound = latency and bound != memory by 1",
         &graph, {{"sgemm", Bound::kCompute}});
  EXPECT_EQ(applied.measured_bounds, 1u);
  EXPECT_EQ(applied.guessed_bounds, 2u);
}

TEST(TransformTest, ProductsAreKnownByTheNamesOfTheLibraries) {
  for (const char* name :
       {"volta_scudnn_128x64_relu_small_nn_v1", "cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1",
        "volta_s884cudnn_fp16_128x128_ldg8_relu", "maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile",
        "void implicit_convolve_sgemm<float, float, 128>(int)", "ampere_sgemm_64x32_sliced1x4_tn",
        "void cudnn::cnn::wgrad_alg1_engine<float>(int)", "void cudnn::detail::dgrad_engine<float>",
        "sm80_xmma_fprop_implicit_gemm_tf32f32", "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs",
        "MIOpenConvUni", "miopenSp3AsmConv_v21_1_2_gfx9_fp32_stride1", "gcnAsmConv1x1U", "attn_fwd",
        "fmha_cutlassF_f32", "RNN_blockPersist_fp_LSTM"}) {
    EXPECT_TRUE(IsProduct(name)) << name;
  }
  for (const char* name :
       {"void cudnn::cnn::im2col4d_kernel<float>(cudnn::cnn::params, cudnnConvolutionStruct)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>(cudnnTensorStruct)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)",
        "void at::native::(anonymous namespace)::convert<float>(cutlass::half_t)",
        "void cublasLt::splitKreduce_kernel<32, 16>(int)", "MIOpenBatchNormFwdTrainSpatial"}) {
    EXPECT_FALSE(IsProduct(name)) << name;
  }
}

TEST(TransformTest, SelectsByCountersThatWereMeasured) {
  Graph graph = GpuBound().Graph();
  Bounds bounds;
  bounds.counters["sgemm"]["sm__throughput"] = 0.7;
  bounds.counters["adam"]["sm__throughput"] = 0.2;
  const Applied applied =
      Do("scale kernels where counter \"sm__throughput\" > 0.6 by 1\n"
         "scale kernels where counter \"sm__throughput\" < 0.6 by 1",
         &graph, bounds);
  EXPECT_THAT(applied.tasks, ElementsAre(1, 1));
  EXPECT_EQ(applied.without_counter, 1u);  // layer_norm, in both steps
}

TEST(TransformTest, TimesOfATask) {
  TestTrace t = GpuBound();
  t.Api(200, 203, "cudaMemcpyAsync", CallKind::kCopy);
  t.Run("Memcpy HtoD", 208, 220, WorkKind::kCopyH2D);
  t.trace().works.back().bytes = 40'000;
  Graph graph = t.Graph();
  Do("set copies to bytes/2GB/s; insert \"encode\" of duration*0.5 after kernels where name = "
     "\"sgemm\"",
     &graph);
  EXPECT_EQ(graph.gpu[3].duration_ns, 20'000);
  EXPECT_EQ(graph.gpu.back().duration_ns, 15'000);
}

TEST(TransformTest, ChainsBecomeOneKernelEach) {
  TestTrace t;
  double end_us = 100;
  const std::vector<double> durations_us = {10, 30, 50, 5, 8};
  for (size_t i = 0; i < durations_us.size(); ++i) {
    const double at = static_cast<double>(i);
    t.Launch(at, at + 0.5, i == 2 ? "gemm" : "elementwise", end_us, end_us + durations_us[i]);
    end_us += durations_us[i] + 1;
  }
  Graph graph = t.Graph({0});
  Graph summed = graph;
  Do("fuse chains of kernels where name ~ \"element\" into \"fused\" of longest", &graph);
  // Launches 0 and 3 are not made, nor what was between: the chain of two is launched 1 us earlier.
  EXPECT_NEAR(EndUs(graph), 100 + 30 + 1 + 50 + 1 + 8, 0.01);
  // The start took 3 us of each.
  Do("fuse chains of kernels where name ~ \"element\" into \"fused\"", &summed);
  EXPECT_NEAR(EndUs(summed), 100 + 37 + 1 + 50 + 1 + 10, 0.01);
}

TEST(TransformTest, ASlowerLaunchDelaysItsWorkAndWhatFollows) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 10);
  t.Launch(20, 24, "b", 28, 30);
  Graph graph = t.Graph();
  Do("scale launches by 3", &graph);
  EXPECT_NEAR(EndUs(graph), 30 + 8 + 8, 0.01);
}

TEST(TransformTest, RemovesWorkWithItsLaunch) {
  Graph graph = GpuBound().Graph();
  EXPECT_THAT(Do("remove kernels where name = \"layer_norm\"", &graph).tasks, ElementsAre(1));
  EXPECT_NEAR(EndUs(graph), 38 + 1 + 9, 0.01);
  EXPECT_THAT(Do("scale kernels by 2", &graph).tasks, ElementsAre(2));
}

TEST(TransformTest, RemovesLoading) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 10);
  t.Annotation(14, 94, "enumerate(DataLoader)#next");
  t.Launch(100, 104, "b", 108, 110);
  Graph graph = t.Graph();
  EXPECT_THAT(Do("remove gaps where in ~ \"DataLoader\"", &graph).tasks, ElementsAre(1));
  EXPECT_NEAR(EndUs(graph), 30, 0.01);
}

TEST(TransformTest, InsertsWork) {
  Graph graph = GpuBound().Graph();
  Do("insert \"mask\" of 5us after kernels where name ~ \"gemm\"\n"
     "insert \"cast\" of 2us before kernels where name ~ \"mask\"",
     &graph);
  EXPECT_NEAR(EndUs(graph), 109 + 5 + 2 + 2, 0.01);  // and a gap for each
}

TEST(TransformTest, InsertsTimeOfTheCpuBeforeWorkIsLaunched) {
  TestTrace t;
  t.Launch(0, 4, "a", 8, 90);
  t.Launch(10, 14, "b", 92, 94);
  t.Launch(200, 204, "b", 208, 210);
  Graph graph = t.Graph();
  // The GPU is busy until 90: there it costs nothing.
  EXPECT_THAT(Do("insert call \"receive\" of 5us before kernels where name = \"b\"", &graph).tasks,
              ElementsAre(2));
  EXPECT_NEAR(EndUs(graph), 220, 0.01);
  EXPECT_FALSE(ParseRequest("insert call \"receive\" of 5us after kernels").ok());
}

TEST(TransformTest, FusedKernelsStartOnceAndTheirLaunchesAreNotMade) {
  TestTrace t;
  for (int iteration = 0; iteration < 2; ++iteration) {
    const double at = 1000 * iteration;
    for (int i = 0; i < 4; ++i) {
      t.Launch(at + 100 * i, at + 100 * i + 4, "adam", at + 100 * i + 8,
               at + 100 * i + 8 + (i == 0 ? 2 : 10));
    }
  }
  t.Launch(2000, 2004, "end", 2008, 2009);
  Graph graph = t.Graph({0, 1000, 2000});
  Do("fuse kernels where name = \"adam\" into \"fused_adam\"", &graph);
  // Each iteration loses three gaps of 96 us and three calls of 4 us; 2 + 3 * 8 us remain.
  EXPECT_NEAR(EndUs(graph), 2009 - 2 * 3 * 100, 0.01);
  int fused = 0;
  for (const GpuTask& task : graph.gpu) {
    if (task.call == kNone || graph.names[task.name] != "fused_adam") continue;
    ++fused;
    EXPECT_EQ(task.duration_ns, 26'000);
  }
  EXPECT_EQ(fused, 2);
}

TEST(TransformTest, WhatFusedKernelsWorkedStays) {
  const auto fused_us = [](const std::vector<double>& durations_us) {
    TestTrace t;
    double start_us = 10;
    for (size_t i = 0; i < durations_us.size(); ++i) {
      t.Launch(static_cast<double>(i), static_cast<double>(i) + 0.5, "adam", start_us,
               start_us + durations_us[i]);
      start_us += durations_us[i] + 1;
    }
    Graph graph = t.Graph({0});
    Do("fuse kernels where name = \"adam\" into \"fused_adam\"", &graph);
    return static_cast<double>(graph.gpu[durations_us.size() - 1].duration_ns) / 1000;
  };
  // Tensors of one size, all of them much work: 3 us of each were its start.
  EXPECT_NEAR(fused_us({50, 50, 50, 50}), 3 + 4 * 47, 0.01);
  // Small tensors, in whole microseconds: one is not 1 us of work more than the shortest.
  EXPECT_NEAR(fused_us({1, 2, 2, 2, 2, 2, 2, 2, 2, 5}), 2 + 3, 0.01);
}

TEST(TransformTest, WorkIsInAllAnnotationsAroundItsCall) {
  TestTrace t;
  t.Annotation(0, 300, "ProfilerStep#1");
  t.Annotation(100, 200, "Optimizer.step#Adam");
  t.Annotation(110, 190, "fused.step");
  for (int i = 0; i < 3; ++i) t.Launch(20 + 100 * i, 24 + 100 * i, "k", 30 + 100 * i, 35 + 100 * i);
  const auto selected = [&](const std::string& where) {
    Graph graph = t.Graph();
    return Apply(*ParseRequest("scale kernels where " + where + " by 2"), {}, {}, &graph)->tasks[0];
  };
  EXPECT_EQ(selected("in ~ \"ProfilerStep\""), 3u);
  EXPECT_EQ(selected("in ~ \"^Optimizer.step\""), 1u);
  EXPECT_EQ(selected("in ~ \"^fused.step$\""), 1u);
  EXPECT_EQ(selected("in = \"Optimizer.step#Adam\""), 1u);
  EXPECT_EQ(selected("in = \"Optimizer\""), 0u);
  EXPECT_EQ(selected("in !~ \"Optimizer\""), 2u);
  EXPECT_EQ(selected("in ~ \"ProfilerStep#1.Optimizer\""), 0u);
  EXPECT_EQ(selected("name = \"k\""), 3u);
}

TEST(TransformTest, FewerIterationsAreCountedAndChangeNoTask) {
  Graph graph = GpuBound().Graph();
  const Applied applied =
      Do("scale iterations by 1/$times; scale iterations by 3", &graph, {}, {{"times", 2}});
  EXPECT_DOUBLE_EQ(applied.iterations, 1.5);
  EXPECT_NEAR(EndUs(graph), 109, 0.01);
  for (const char* wrong : {"remove iterations", "scale iterations where name ~ \"a\" by 2",
                            "scale iterations by bytes / 2"}) {
    const absl::StatusOr<Request> request = ParseRequest(wrong);
    if (!request.ok()) continue;  // the units are wrong
    EXPECT_THAT(std::string(Apply(*request, {}, {}, &graph).status().message()),
                HasSubstr("iterations can only be scaled, all of them"))
        << wrong;
  }
}

TEST(TransformTest, CapturedLaunchesAreOneAndTheGpuSetsThePace) {
  TestTrace t;
  for (int i = 0; i < 10; ++i) t.Launch(50 * i, 50 * i + 4, "k", 50 * i + 8, 50 * i + 18);
  t.Api(500, 503, "cudaDeviceSynchronize", CallKind::kContextSync);
  Graph graph = t.Graph({0});
  EXPECT_NEAR(EndUs(graph), 503, 0.01);
  const auto applied = Apply(*ParseRequest("capture launches"), {}, {}, &graph);
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_EQ(applied->captured_ns, 9 * 50'000 + 4'000);
  EXPECT_NEAR(EndUs(graph), 6.5 + 10 * 10 + 9 * 1 + 2, 2);
}

TEST(TransformTest, ACaptureHidesNoAllocations) {
  TestTrace t;
  for (int i = 0; i < 10; ++i) {
    t.Launch(50 * i, 50 * i + 4, "k", 50 * i + 8, 50 * i + 18);
    t.Api(50 * i + 6, 50 * i + 36, i % 2 == 0 ? "hipFree" : "cudaMallocAsync", CallKind::kOther);
    t.Api(50 * i + 38, 50 * i + 40, "cudaGetDevice", CallKind::kOther);
  }
  Graph graph = t.Graph({0});
  const Graph before = graph;
  Do("capture launches", &graph);
  EXPECT_NEAR(EndUs(graph), 2.5 + 10 * 30, 20);
  graph = before;
  Do("remove calls where name ~ \"Malloc|Free\"; capture launches", &graph);
  EXPECT_NEAR(EndUs(graph), 6.5 + 10 * 10 + 9 * 1 + 2, 20);
}

TEST(TransformTest, NodesOfOneGraphLaunchAreRemovedAndInserted) {
  TestTrace t;
  t.Api(0, 10, "cudaGraphLaunch", CallKind::kGraphLaunch);
  for (int i = 0; i < 5; ++i) t.Run("node" + std::to_string(i), 20 + 10 * i, 30 + 10 * i);
  Graph graph = t.Graph();
  EXPECT_THAT(Do("remove kernels where name ~ \"[02]\"", &graph).tasks, ElementsAre(2));
  EXPECT_NEAR(EndUs(graph), 52, 0.01);  // 1 us from one to the next
  EXPECT_THAT(Do("insert \"more\" of 5us before kernels where name ~ \"node\"", &graph).tasks,
              ElementsAre(3));
  EXPECT_NEAR(EndUs(graph), 70, 0.01);
  std::string order;
  for (uint32_t g = graph.cpu[0].first_work; g != kNone; g = graph.gpu[g].next) {
    order += graph.names[graph.gpu[g].name] + " ";
  }
  EXPECT_EQ(order, "more node1 more node3 more node4 ");
  Do("remove kernels where name = \"more\"; remove kernels", &graph);
  EXPECT_EQ(graph.cpu[0].first_work, kNone);
  EXPECT_EQ(graph.cpu[0].duration_ns, 0);  // nothing is launched any more
}

TEST(TransformTest, WhatChangedIsAddedUp) {
  const Graph before = GpuBound().Graph();
  const auto changed_us = [&](const std::string& text) {
    Graph after = before;
    Do(text, &after);
    return static_cast<double>(ChangedNs(before, after)) / 1000;
  };
  EXPECT_EQ(changed_us("scale kernels by 1; remove memsets"), 0);
  EXPECT_EQ(changed_us("scale kernels by 2"), 30 + 60 + 9);
  EXPECT_EQ(changed_us("remove kernels where name = \"adam\""), 9 + 4);  // and its launch
  EXPECT_EQ(changed_us("insert \"x\" of 5us after kernels; scale launches by 1/2"), 3 * 5 + 3 * 2);
}

TEST(TransformTest, WhatNobodyCanMeanIsRefused) {
  const auto why = [](const std::string& text) {
    Graph graph = GpuBound().Graph();
    const absl::StatusOr<Request> request = ParseRequest(text);
    EXPECT_TRUE(request.ok()) << request.status();
    const absl::StatusOr<Applied> applied = Apply(*request, {}, {}, &graph);
    return std::string(applied.status().message());
  };
  EXPECT_THAT(why("set work to 1e9s"), HasSubstr("is the unit right?"));
  EXPECT_THAT(why("scale kernels by 1e300"), HasSubstr("is the unit right?"));
  EXPECT_THAT(why("insert \"x\" of 1e9s after launches"), HasSubstr("is the unit right?"));
  EXPECT_THAT(why("scale gaps by 1; scale iterations by 0"), HasSubstr("step 2: a run of 0 times"));
  EXPECT_THAT(why("scale iterations by 1e300"), HasSubstr("give a factor from 1e-6 to 1e6"));
  std::string doubled;
  for (int i = 0; i < 40; ++i) doubled += "insert \"x\" of 1us after kernels\n";
  EXPECT_THAT(why(doubled), HasSubstr("insert fewer, larger ones"));
}

TEST(TransformTest, WhatCannotBeDoneIsSaid) {
  Graph graph = GpuBound().Graph();
  const auto error = [&](const std::string& text) {
    return std::string(Apply(*ParseRequest(text), {}, {}, &graph).status().message());
  };
  EXPECT_THAT(error("scale kernels by 2; scale kernels by $x"),
              HasSubstr("step 2: the parameter $x"));
  EXPECT_THAT(error("fuse gaps into \"x\""), HasSubstr("work of the GPU"));
  EXPECT_THAT(error("capture kernels"), HasSubstr("launches"));
}

}  // namespace
}  // namespace seqpoint::whatif
