// Asks the real CUPTI host library, which needs no GPU, how many passes each shipped configuration
// takes on every chip that it knows, with both backends. Skipped, with the reason, where the
// library is not there.
#include "daemon/counters/host_library.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/counters/metric_sets.h"
#include "daemon/counters/roofline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::counters {
namespace {

using testing::HasSubstr;

class HostLibraryTest : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    auto library = HostLibrary::Open();
    if (!library.ok()) GTEST_SKIP() << library.status();
    library_.emplace(*library);
  }
  std::optional<HostLibrary> library_;
};

// In the library's list, but not in the toolkit.
bool Installed(const std::string& chip) { return chip != "GV11B"; }

TEST_P(HostLibraryTest, EveryConfigurationIsOnePassOnEveryChip) {
  int checked = 0;
  for (const std::string& chip : library_->Chips()) {
    if (!Installed(chip)) continue;
    for (const MetricSet& set : MetricSets(chip, GetParam())) {
      for (const OnePassConfig& config : set.configs) {
        std::vector<std::string> names;
        for (const Metric& metric : config.metrics) names.push_back(metric.name);
        const absl::StatusOr<int> passes = library_->Passes(chip, GetParam(), names);
        ASSERT_TRUE(passes.ok()) << set.name << " on " << chip << ": " << passes.status();
        EXPECT_EQ(*passes, 1) << set.name << " on " << chip;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 200);
}

TEST_P(HostLibraryTest, EveryConfigurationOfTheRooflineIsOnePass) {
  if (GetParam() == Backend::kPm) return;  // which knows no kernels
  int checked = 0;
  for (const std::string& chip : library_->Chips()) {
    if (!Installed(chip)) continue;
    for (const OnePassConfig& config : MakeRoofline(chip).configs) {
      std::vector<std::string> names;
      for (const Metric& metric : config.metrics) names.push_back(metric.name);
      const absl::StatusOr<int> passes = library_->Passes(chip, GetParam(), names);
      ASSERT_TRUE(passes.ok()) << chip << ": " << passes.status();
      EXPECT_EQ(*passes, 1) << chip << ": " << absl::StrJoin(names, " ");
      ++checked;
    }
  }
  EXPECT_GT(checked, 100);
}

TEST_P(HostLibraryTest, WhatASetSaysIsMissingIsNotOffered) {
  const auto offered = [&](const std::string& chip, std::vector<std::string> metrics) {
    const absl::StatusOr<int> passes = library_->Passes(chip, GetParam(), metrics);
    return passes.ok() && *passes == 1;
  };
  const std::string duration = "gpu__time_duration.sum";
  struct Claim {
    const char* words;
    std::vector<std::string> metrics;
  };
  const std::vector<Claim> claims = {
      {"no PM sampling", {duration}},
      {"device memory", {duration, "dram__bytes.sum", "dram__bytes.sum.peak_sustained_elapsed"}},
      {"the peak, which", {duration, "dram__bytes.sum", "dram__bytes.sum.peak_sustained_elapsed"}},
      {"without NVLink", {"nvlrx__bytes.sum"}},
      {"without PCIe", {"pcie__read_bytes.sum"}},
      {"counters of links", {"nvlrx__bytes.sum"}},
      {"counters of links", {"pcie__read_bytes.sum"}},
      {"without tensor pipes", {duration, "sm__pipe_tensor_cycles_active.sum"}},
      {"FMA pipes",
       {duration, "sm__pipe_fma_cycles_active.sum",
        "sm__pipe_fma_cycles_active.sum.peak_sustained_elapsed"}},
      {"no counters of operations", {"sm__sass_thread_inst_executed_op_ffma_pred_on.sum"}},
      {"without L2 hits", {duration, "lts__t_sectors_lookup_hit.sum"}},
      {"host's memory", {duration, "lts__t_sectors_aperture_sysmem_op_read.sum"}}};
  int checked = 0;
  for (const std::string& chip : library_->Chips()) {
    if (!Installed(chip)) continue;
    for (const MetricSet& set : MetricSets(chip, GetParam())) {
      const std::string where = absl::StrCat(set.name, " on ", chip, ": ", set.missing);
      EXPECT_FALSE(set.configs.empty() && set.missing.empty()) << where;
      for (const Claim& claim : claims) {
        if (!absl::StrContains(set.missing, claim.words)) continue;
        EXPECT_FALSE(offered(chip, claim.metrics)) << where;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 10);
}

TEST_P(HostLibraryTest, RefusesWithANameAndAReason) {
  const auto why = [&](std::vector<std::string> metrics) {
    return std::string(library_->Passes("GH100", GetParam(), metrics).status().message());
  };
  EXPECT_THAT(why({"gpu__time_duration.sum", "sm__unheard_of.sum"}),
              HasSubstr("\"sm__unheard_of.sum\""));
  EXPECT_THAT(std::string(library_->Passes("GX999", GetParam(), {}).status().message()),
              HasSubstr("no chip \"GX999\""));
  if (GetParam() == Backend::kPm) return;  // which may mix them
  EXPECT_THAT(why({"sm__cycles_active.sum", "nvlrx__bytes.sum"}), HasSubstr("cannot share"));
  EXPECT_EQ(
      library_->Passes("GH100", GetParam(), {"sm__throughput.avg.pct_of_peak_sustained_elapsed"})
          .value_or(0),
      8);
}

INSTANTIATE_TEST_SUITE_P(Backends, HostLibraryTest, testing::Values(Backend::kRange, Backend::kPm),
                         [](const auto& info) { return std::string(BackendName(info.param)); });

}  // namespace
}  // namespace seqpoint::counters
