#include "daemon/seqpoint/block_trace.h"

#include <vector>

#include "daemon/seqpoint/drift_estimate.h"
#include "gtest/gtest.h"

namespace seqpoint {
namespace {

Quadratic TimesLength(double ns) {
  Quadratic curve;
  curve.coefficients = {0, ns};
  return curve;
}

TEST(BlockTraceTest, KeepsSumsInBoundedMemory) {
  BlockTrace trace;
  double total = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {
    const auto length = static_cast<int64_t>(10 + i % 7);
    trace.Add(i, {length}, 100.0 * static_cast<double>(length));
    total += 100.0 * static_cast<double>(length);
  }
  EXPECT_LT(trace.blocks.size(), static_cast<size_t>(BlockTrace::kMaxBlocks));
  double time = trace.open.time_ns, expected = trace.Expected(trace.open, TimesLength(100));
  for (const BlockTrace::Block& block : trace.blocks) {
    time += block.time_ns;
    expected += trace.Expected(block, TimesLength(100));
  }
  EXPECT_DOUBLE_EQ(time, total);
  EXPECT_NEAR(expected, total, 1e-9 * total);
}

TEST(BlockTraceTest, ALongStretchMakesAllBlocksLong) {
  BlockTrace trace;
  for (uint64_t i = 0; i < 40; ++i) trace.Add(i, {10}, 1000);
  trace.Add(139, std::vector<Key>(100, Key{10}), 1e5);
  for (const BlockTrace::Block& block : trace.blocks) EXPECT_GE(block.count, 100);
}

TEST(DriftEstimateTest, SortedLengthsDriftAndShuffledOnesDoNot) {
  BlockTrace sorted, shuffled;
  for (uint64_t i = 0; i < 1000; ++i) {
    sorted.Add(i, {static_cast<int64_t>(i)}, 1);
    shuffled.Add(i, {static_cast<int64_t>(i * 619 % 1000)}, 1);
  }
  const double variance = 1e6 / 12;
  const DriftEstimate drift = EstimateKeyDrift(sorted, TimesLength(1), variance);
  EXPECT_TRUE(drift.moving());
  EXPECT_NEAR(drift.trend, 1, 0.1);
  EXPECT_FALSE(EstimateKeyDrift(shuffled, TimesLength(1), variance).moving());
}

}  // namespace
}  // namespace seqpoint
