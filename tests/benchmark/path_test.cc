// The counts of the whole path, in short runs: what was sent, as the program itself knows it, is
// what the store has, or was counted as dropped.
#include "tests/benchmark/path_run.h"

#include <gtest/gtest.h>

namespace seqpoint {
namespace {

TEST(Path, EveryKernelOfATracedRunIsInTheStoreOnce) {
  PathRun run;
  ASSERT_TRUE(run.Start({"rate=20000", "seconds=2"}, {}).ok());
  const absl::Status traced = run.TraceAll();
  ASSERT_TRUE(traced.ok()) << traced;
  const absl::StatusOr<PathResult> result = run.Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->kernels, 0u);
  EXPECT_EQ(static_cast<double>(result->kernels), result->launcher.at("launches"));
  EXPECT_EQ(result->losses.ring_dropped() + result->losses.ring_lost() + result->losses.rejected() +
                result->losses.cupti_dropped() + result->losses.invalid_timestamps(),
            0);
  EXPECT_TRUE(result->complete);
}

TEST(Path, OfASmallRingWhatCameAndWhatWasDroppedIsWhatWasSent) {
  PathRun run;
  ASSERT_TRUE(run.Start({"flood=300000"}, {{"SEQPOINT_RING_BYTES", "65536"}}).ok());
  const absl::StatusOr<PathResult> result = run.Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  const double sent = result->launcher.at("launches") + result->launcher.at("synchronisations");
  EXPECT_GT(result->losses.ring_dropped(), 0);
  EXPECT_GT(result->calls, 0u);
  EXPECT_EQ(static_cast<double>(result->calls) + static_cast<double>(result->losses.ring_dropped()),
            sent);
  EXPECT_EQ(result->losses.ring_lost() + result->losses.rejected(), 0);
}

}  // namespace
}  // namespace seqpoint
