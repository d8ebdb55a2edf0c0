#include "daemon/seqpoint/time_sample.h"

#include "gtest/gtest.h"

namespace seqpoint {
namespace {

TEST(TimeSampleTest, EveryTimeIsAsLikelyToBeKept) {
  TimeSample sample;
  constexpr int kTimes = 100 * TimeSample::kSize;
  for (int i = 0; i < kTimes; ++i) sample.Add({{1}, static_cast<double>(i)});
  ASSERT_EQ(sample.times.size(), TimeSample::kSize);
  double mean = 0;
  for (const SampledTime& t : sample.times) mean += t.time_ns / TimeSample::kSize;
  // 4 standard errors of the mean of 1,024 uniform numbers.
  EXPECT_NEAR(mean / kTimes, 0.5, 4 * 0.289 / 32);
}

}  // namespace
}  // namespace seqpoint
