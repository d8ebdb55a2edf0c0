#include "daemon/counters/roofline.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::counters {
namespace {

TEST(Roofline, ConfigurationsHaveIdsOfTheirOwn) {
  for (const std::string& chip : KnownChips()) {
    const Roofline roofline = MakeRoofline(chip);
    ASSERT_GE(roofline.configs.size(), 2u) << chip;
    EXPECT_LE(roofline.configs.size(), kMaxConfigsOfJob) << chip;
    std::set<uint16_t> ids;
    for (const MetricSet& set : MetricSets(chip, Backend::kRange)) {
      for (const OnePassConfig& config : set.configs) ids.insert(config.config_id);
    }
    for (const OnePassConfig& config : roofline.configs) {
      EXPECT_TRUE(ids.insert(config.config_id).second) << chip;
      EXPECT_LT(config.config_id, kFirstOwnConfigId);
      EXPECT_LE(config.metrics.size(), 16u) << chip << ": what the library reads of kernels";
    }
  }
  EXPECT_TRUE(MakeRoofline("XX1").configs.empty());
}

TEST(Roofline, PlacesAKernelByTheNearerRoof) {
  const Roofline roofline = MakeRoofline("GH100");
  // 1 us at 1 GHz on 100 multiprocessors: 100,000 cycles, 256 FP32 operations in each.
  MetricSums sums = {{"gpu__time_duration.sum", 1000},
                     {"sm__cycles_elapsed.sum", 100'000},
                     {"dram__bytes_read.sum", 1e6},
                     {"dram__bytes_write.sum", 5e5},
                     {"dram__bytes.sum.peak_sustained_elapsed", 3e6},
                     {"sm__sass_thread_inst_executed_op_ffma_pred_on.sum", 1e6},
                     {"sm__sass_thread_inst_executed_op_fadd_pred_on.sum", 5.6e5}};
  RooflinePosition position = PlaceOnRoofline(roofline, sums);
  EXPECT_EQ(position.duration_ns, 1000);
  EXPECT_EQ(position.bytes, 1.5e6);
  EXPECT_DOUBLE_EQ(position.operations, 2.56e6);
  EXPECT_DOUBLE_EQ(position.memory_share.value_or(-1), 0.5);
  EXPECT_DOUBLE_EQ(position.compute_share.value_or(-1), 0.1);
  // Formats share the time: their shares add up.
  sums["sm__ops_path_tensor_src_bf16_dst_fp32.sum"] = 4e8;
  sums["sm__ops_path_tensor_src_bf16_dst_fp32.sum.peak_sustained_elapsed"] = 1e9;
  position = PlaceOnRoofline(roofline, sums);
  EXPECT_DOUBLE_EQ(position.operations, 4.0256e8);
  EXPECT_DOUBLE_EQ(position.compute_share.value_or(-1), 0.5);
  const std::vector<Roof> roofs = RoofsOf(roofline, sums);
  ASSERT_EQ(roofs.size(), 3u);
  EXPECT_DOUBLE_EQ(roofs[0].per_second, 3e12);
  EXPECT_EQ(roofs[1].name, "FP32");
  EXPECT_DOUBLE_EQ(roofs[1].per_second, 2.56e13);
  EXPECT_EQ(roofs[2].name, "tensor src_bf16_dst_fp32");
  // Packed halves: 128 threads' fused multiply-adds of pairs in a cycle are all that there can be.
  const MetricSums halves = {{"gpu__time_duration.sum", 1000},
                             {"sm__cycles_elapsed.sum", 100'000},
                             {"sm__sass_thread_inst_executed_op_hfma_pred_on.sum", 1.28e7}};
  EXPECT_DOUBLE_EQ(PlaceOnRoofline(roofline, halves).compute_share.value_or(-1), 1);
  // A format without a peak leaves the roof unknown.
  sums.erase("sm__ops_path_tensor_src_bf16_dst_fp32.sum.peak_sustained_elapsed");
  EXPECT_FALSE(PlaceOnRoofline(roofline, sums).compute_share.has_value());
  EXPECT_FALSE(PlaceOnRoofline(MakeRoofline("TU102"), sums).memory_share.has_value());
}

}  // namespace
}  // namespace seqpoint::counters
