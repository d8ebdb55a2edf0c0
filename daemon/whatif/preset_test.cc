#include "daemon/whatif/preset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "daemon/whatif/language/parser.h"
#include "daemon/whatif/language/printer.h"
#include "daemon/whatif/preset_files.h"
#include "daemon/whatif/replay.h"
#include "tests/support/small_graph.h"

namespace seqpoint::whatif {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(PresetTest, EachFileCanBeReadAndUsed) {
  size_t files = 0;
  for (const PresetFile& file : kPresetFiles) {
    const absl::StatusOr<Preset> preset = ParsePreset(file.name, file.text);
    ASSERT_TRUE(preset.ok()) << preset.status();
    for (const Doubt& doubt : preset->unfit) EXPECT_NE(doubt.because, "") << file.name;
    for (const Requirement& requirement : preset->requirements) {
      EXPECT_NE(requirement.because, "") << file.name << " does not say why it does not apply";
    }
    std::string text = file.name;
    for (const Parameter& parameter : preset->parameters) {
      if (parameter.value || parameter.text) continue;
      text += "," + parameter.name + "=2";
      if (parameter.unit == Unit::kBytes) text += "MB";
      if (parameter.unit == Unit::kRate) text += "GB/s";
    }
    const absl::StatusOr<Change> change = ParseChange(text);
    ASSERT_TRUE(change.ok()) << change.status();
    // Every parameter that the steps name is declared.
    Graph graph = BuildGraph({}, {});
    const absl::StatusOr<Applied> applied = Apply(change->request, change->parameters, {}, &graph);
    EXPECT_TRUE(applied.ok()) << applied.status();
    ++files;
  }
  EXPECT_EQ(Presets().size(), files);
  EXPECT_GE(files, 10u);
}

TEST(PresetTest, ParametersReplaceTheDefaults) {
  EXPECT_EQ(ParseChange("amp")->parameters.at("compute"), 3);
  EXPECT_EQ(ParseChange("amp, compute=4")->parameters.at("compute"), 4);
  EXPECT_EQ(ParseChange("gradient-compression,packing=1.5ms")->parameters.at("packing"), 1.5e6);
}

TEST(PresetTest, WhatIsWrongIsNamedWithWhatThereIs) {
  const auto error = [](const std::string& text) {
    return std::string(ParseChange(text).status().message());
  };
  EXPECT_THAT(error("ampere"), HasSubstr("no preset \"ampere\"; there are: amp, "));
  EXPECT_THAT(error("amp,speed=2"), HasSubstr("no parameter \"speed\"; it has compute, memory"));
  EXPECT_THAT(error("amp,compute=fast"), HasSubstr("\"fast\" is not a number"));
  EXPECT_THAT(error("gradient-compression,packing=5"), HasSubstr("\"5\" is not a time such as"));
  EXPECT_THAT(error("other-gpu,compute=2"), HasSubstr("other-gpu needs bandwidth"));
  const auto file_error = [](const std::string& text) {
    return std::string(ParsePreset("x", text).status().message());
  };
  EXPECT_THAT(file_error("title: x\nsteps:\nscale kernels by 2"), HasSubstr("are wanted"));
  EXPECT_THAT(file_error("title x"), HasSubstr("line 1: \"KEY: VALUE\""));
  EXPECT_THAT(file_error("needs: kernel"), HasSubstr("\"kernel\" where one of work"));
  EXPECT_THAT(file_error("titel: x"), HasSubstr("\"titel\" is none of"));
}

TEST(PresetTest, ParametersHaveUnitsOrAreText) {
  const Change change = *ParseChange("data-parallel,bytes=100MB, bandwidth = 10 GB/s");
  EXPECT_EQ(change.parameters.at("bytes"), 1e8);
  EXPECT_EQ(change.parameters.at("bandwidth"), 10);
  EXPECT_EQ(change.parameters.at("bucket"), 25e6);
  const Change fusion = *ParseChange("kernel-fusion,kernels=\"gelu,|\\\"add\\\"\"");
  EXPECT_EQ(fusion.request.steps[0].selection.conditions[0].text, "gelu,|\"add\"");
  EXPECT_EQ(FormatRequest(*ParseRequest(FormatRequest(fusion.request))),
            FormatRequest(fusion.request));
  const auto error = [](const std::string& text) {
    return std::string(ParseChange(text).status().message());
  };
  EXPECT_THAT(error("data-parallel"), HasSubstr("data-parallel,bytes=100MB"));
  EXPECT_THAT(error("data-parallel,bytes=5"), HasSubstr("\"5\" is not a number of bytes such as"));
  EXPECT_THAT(error("data-parallel,bytes=5MB,bandwidth=5MB"), HasSubstr("not a rate such as"));
  EXPECT_THAT(error("data-parallel,bytes=5PB"), HasSubstr("there is no unit \"PB\"; there are ns"));
  EXPECT_THAT(error("metaflow"), HasSubstr("metaflow,kernels=TEXT"));
  EXPECT_THAT(error("metaflow,kernels=("), HasSubstr("missing )"));
}

TEST(PresetTest, TheTextThatIsGivenDecidesWhetherItApplies) {
  TestTrace t;
  t.Launch(0, 4, "gelu", 8, 38);
  t.Launch(10, 14, "elementwise_add", 39, 49);
  const Graph graph = t.Graph();
  const Preset fusion = *FindPreset("kernel-fusion");
  EXPECT_TRUE(FitOf(fusion, {}, graph).applies);
  const Change softmax = *ParseChange("kernel-fusion,kernels=softmax");
  EXPECT_FALSE(FitOf(fusion, {}, graph, &softmax).applies);
  EXPECT_FALSE(FitOf(*FindPreset("metaflow"), {}, graph).applies);
  const Change gelu = *ParseChange("metaflow,kernels=gelu");
  EXPECT_TRUE(FitOf(*FindPreset("metaflow"), {}, graph, &gelu).applies);
}

std::vector<std::string> WarningsOf(const std::vector<Fit>& fits) {
  Doubts doubts;
  for (const Fit& fit : fits) doubts.Add(fit);
  return doubts.InWords();
}

TEST(PresetTest, SaysWhereItDoesNotFit) {
  TestTrace t;
  t.Launch(0, 4, "volta_fp16_s884gemm", 8, 38);
  t.Launch(10, 14, "elementwise", 39, 49);
  const Graph graph = t.Graph();
  const Fit amp = FitOf(*FindPreset("amp"), {}, graph);
  EXPECT_THAT(
      WarningsOf({amp}),
      ElementsAre(HasSubstr("doubtful for 75 % of the time of kernels: these kernels run")));
  const Fit loading = FitOf(*FindPreset("faster-loading"), {}, graph);
  EXPECT_FALSE(loading.applies);
  EXPECT_THAT(loading.why_not, HasSubstr("nothing in the trace"));
  EXPECT_THAT(WarningsOf({FitOf(*FindPreset("cuda-graphs"), {}, graph)}), IsEmpty());
  // Other traces have other shares.
  TestTrace other;
  other.Launch(0, 4, "volta_fp16_s884gemm", 8, 18);
  other.Launch(10, 14, "elementwise", 39, 49);
  EXPECT_THAT(WarningsOf({amp, FitOf(*FindPreset("amp"), {}, other.Graph()), amp}),
              ElementsAre(HasSubstr("doubtful for 50 to 75 % of the time of kernels: these")));
}

TEST(PresetTest, MixedPrecisionLeavesWhatIsInHalfPrecision) {
  // As cuBLAS, cuDNN, CUTLASS, rocBLAS, hipBLASLt, MIOpen, flash attention and ATen name them.
  const char* const half[] = {
      "volta_h884gemm_128x64_ldg8_nn",
      "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
      "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>",
      "void cutlass::Kernel<cutlass_80_tensorop_s16816gemm_f16_64x64>",
      "volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_exp_small_nhwc_tn_v1",
      "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_cublas",
      "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc",
      "maxwell_hgemm_128x64_nn",
      "void implicit_convolve_sgemm<__half, __half, 1024, 5, 5, 3, 3, 3, 1>(int)",
      "void wgrad_alg0_engine<__nv_bfloat16, 128>(int)",
      "Cijk_Alik_Bljk_HHS_BH_MT64x32x16",
      "Cijk_Ailk_Bljk_BBS_BH_MT64x32x16",
      "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x128",
      "igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32",
      "batched_transpose_32x32_half",
      "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t> >",
      "void at::native::batch_norm_backward_kernel<c10::BFloat16, float>(int)",
      "_ZN2at6native13reduce_kernelIN3c104HalfEEEvT_",
  };
  const char* const single[] = {
      "volta_sgemm_64x64_nt",
      "volta_scudnn_128x64_relu_small_nn_v1",
      "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32",
      "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT64x16x32",
      "cutlass_80_simt_sgemm_128x64_8x5_nt_align1",
      "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >",
  };
  const char* const tf32[] = {
      "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32",
      "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x128_32x3_nn_align1>",
      "ampere_tf32_s1688gemm_tf32_128x64",
  };
  TestTrace t;
  double at_us = 0;
  const auto launch = [&](const char* name) {
    t.Launch(at_us, at_us + 4, name, at_us + 8, at_us + 68);
    at_us += 100;
  };
  for (const char* name : half) launch(name);
  for (const char* name : single) launch(name);
  for (const char* name : tf32) launch(name);
  Graph graph = t.Graph();
  const Change change = *ParseChange("amp");
  const Fit fit = FitOf(*FindPreset("amp"), {}, graph, &change);
  EXPECT_TRUE(fit.applies);
  EXPECT_THAT(WarningsOf({fit}),
              UnorderedElementsAre(HasSubstr("doubtful for 66.7 % of the time of kernels: these"),
                                   HasSubstr("doubtful for 11.1 % of the time of kernels: these")));
  ASSERT_TRUE(Apply(change.request, change.parameters, {}, &graph).ok());
  for (const GpuTask& task : graph.gpu) {
    const std::string& name = graph.names[task.name];
    const auto is = [&](const auto& names) {
      return std::find(std::begin(names), std::end(names), name) != std::end(names);
    };
    const int64_t expected_us = is(half) ? 60 : is(tf32) || name.find("elementwise") < 99 ? 30 : 20;
    EXPECT_EQ(task.duration_ns, expected_us * 1000) << name;
  }

  TestTrace all_half;
  for (const char* name : half) {
    all_half.Launch(at_us, at_us + 4, name, at_us + 8, at_us + 68);
    at_us += 100;
  }
  const Fit none = FitOf(*FindPreset("amp"), {}, all_half.Graph());
  EXPECT_FALSE(none.applies);
  EXPECT_THAT(none.why_not, HasSubstr("all run in half precision already"));
}

TEST(PresetTest, SaysWhyWhatIsThereAlreadyDoesNotApply) {
  TestTrace t;
  t.Launch(0, 4, "softmax_warp_forward", 8, 38);
  t.Launch(10, 14, "attn_fwd", 39, 49);
  t.Api(20, 24, "cudaLaunchKernel", CallKind::kLaunch);
  t.Run("ncclDevKernel_ReduceScatter_Sum_f32", 50, 60, WorkKind::kCollective);
  const Graph graph = t.Graph();
  const auto warning = [&](const char* preset) {
    const Fit fit = FitOf(*FindPreset(preset), {}, graph);
    EXPECT_FALSE(fit.applies) << preset;
    return fit.why_not;
  };
  EXPECT_THAT(warning("fused-attention"), HasSubstr("attention is fused already"));
  EXPECT_THAT(warning("data-parallel"), HasSubstr("it is data parallel already"));
  EXPECT_THAT(warning("data-parallel-tree"), HasSubstr("it is data parallel already"));
  EXPECT_THAT(warning("faster-loading"), HasSubstr("an annotation, enumerate(DataLoader)"));
  // No preset applies to a trace without anything, and each says why.
  const Graph empty = TestTrace().Graph();
  for (const Preset& preset : Presets()) {
    const Fit fit = FitOf(preset, {}, empty);
    EXPECT_FALSE(fit.applies) << preset.name;
    EXPECT_THAT(fit.why_not, HasSubstr(": ")) << preset.name;
  }
}

TEST(PresetTest, WhatJudgedAnswersWereOffIsRead) {
  EXPECT_GT(FindPreset("faster-loading")->off_by, 0);
  EXPECT_EQ(FindPreset("amp")->off_by, 0);
  EXPECT_THAT(ParsePreset("mine", "off by: 4 %\n").status().message(),
              HasSubstr("no share from 0 to 1"));
}

// A batch from another process is received, tensor by tensor, and the memory of the one before is
// freed, before it is copied to the GPU.
TEST(PresetTest, ABatchOfAnotherProcessCostsTheTrainingProcessTime) {
  TestTrace t;
  t.Api(-10, -5, "cudaEventQuery", CallKind::kOther);
  t.Annotation(0, 9'995, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
  t.Api(10'000, 10'900, "cudaMemcpyAsync", CallKind::kLaunch);
  t.Run("Memcpy HtoD (Pageable -> Device)", 10'010, 10'890, WorkKind::kCopyH2D, true);
  t.trace().works.back().bytes = 8'000'000;
  const auto after = [&](const char* text) {
    Graph graph = t.Graph();
    const Change change = *ParseChange(text);
    EXPECT_TRUE(Apply(change.request, change.parameters, {}, &graph).ok());
    return EndUs(graph);
  };
  EXPECT_NEAR(
      after("faster-loading,busy=1") - after("faster-loading,busy=1,receive=0,free=1000000GB/s"),
      700 + 1000, 1);
}

TEST(PresetTest, ALargerBatchTakesLongerToLoadAndNotToOptimise) {
  TestTrace t;
  t.Api(-10, -5, "cudaEventQuery", CallKind::kOther);
  t.Annotation(0, 95, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
  t.Launch(100, 104, "sgemm", 110, 140);
  t.Annotation(110, 150, "Optimizer.step#SGD.step");
  t.Launch(120, 124, "multi_tensor_apply", 150, 170);
  Graph graph = t.Graph();
  const auto loading = [](const Graph& of) {
    int64_t sum_ns = 0;
    for (const CpuTask& task : of.cpu) {
      if (of.names[task.label].find("DataLoader") != std::string::npos) sum_ns += task.duration_ns;
    }
    return sum_ns;
  };
  const int64_t loading_ns = loading(graph);
  const Change change = *ParseChange("larger-batch");
  ASSERT_TRUE(Apply(change.request, change.parameters, {}, &graph).ok());
  EXPECT_EQ(graph.gpu[0].duration_ns, 60'000);
  EXPECT_EQ(graph.gpu[1].duration_ns, 20'000);
  EXPECT_GT(loading_ns, 80'000);
  EXPECT_EQ(loading(graph), 2 * loading_ns);
}

TEST(PresetTest, WithoutWaitsTheCpuRunsAhead) {
  TestTrace t;
  for (int i = 0; i < 3; ++i) {
    t.Launch(100 * i, 100 * i + 4, "k", 100 * i + 8, 100 * i + 90);
    t.Api(100 * i + 10, 100 * i + 92, "cudaStreamSynchronize", CallKind::kStreamSync);
  }
  Graph graph = t.Graph();
  EXPECT_NEAR(EndUs(graph), 292, 0.1);
  const Change change = *ParseChange("without-waits");
  ASSERT_TRUE(Apply(change.request, change.parameters, {}, &graph).ok());
  EXPECT_NEAR(EndUs(graph), 8 + 3 * 82 + 2, 0.1);
}

}  // namespace
}  // namespace seqpoint::whatif
