#include "daemon/whatif/preset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "daemon/whatif/preset_files.h"
#include "daemon/whatif/replay.h"
#include "daemon/whatif/test_trace.h"

namespace seqpoint::whatif {
namespace {

using testing::HasSubstr;

double EndUs(const Graph& graph) {
  const Graph* ranks[] = {&graph};
  return static_cast<double>(Replay(ranks).ranks[0].end_ns) / 1000;
}

TEST(PresetTest, EachFileCanBeReadAndUsed) {
  size_t files = 0;
  for (const PresetFile& file : kPresetFiles) {
    const absl::StatusOr<Preset> preset = ParsePreset(file.name, file.text);
    ASSERT_TRUE(preset.ok()) << preset.status();
    EXPECT_EQ(preset->unfit.has_value(), !preset->unfit_because.empty()) << file.name;
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

TEST(PresetTest, SaysWhereItDoesNotFit) {
  TestTrace t;
  t.Launch(0, 4, "volta_fp16_s884gemm", 8, 38);
  t.Launch(10, 14, "elementwise", 39, 49);
  const Graph graph = t.Graph();
  EXPECT_THAT(FitOf(*FindPreset("amp"), {}, graph).warning,
              HasSubstr("doubtful for 75 % of the time of kernels: these kernels run in half"));
  const Fit loading = FitOf(*FindPreset("faster-loading"), {}, graph);
  EXPECT_FALSE(loading.applies);
  EXPECT_THAT(loading.warning, HasSubstr("nothing in the trace"));
  EXPECT_EQ(FitOf(*FindPreset("cuda-graphs"), {}, graph).warning, "");
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
