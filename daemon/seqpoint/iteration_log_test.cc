#include "daemon/seqpoint/iteration_log.h"

#include <vector>

#include "gtest/gtest.h"

namespace seqpoint {
namespace {

KeyRecord* Add(const IterationSample& sample, IterationLog& log) {
  return log.Add(sample, SampleUse(sample));
}

TEST(IterationLogTest, CountsRedoneIterationsOnceAndKeepsEveryTime) {
  IterationLog log;
  Add({.iteration = 3, .key = {5}, .time_ns = 10}, log);
  Add({.iteration = 3, .key = {5}, .time_ns = 12, .redone = true}, log);
  Add({.iteration = 4, .key = {5}, .time_ns = 20, .distorted = true}, log);
  EXPECT_EQ(log.iterations, 2u);
  EXPECT_EQ(log.redone, 1u);
  EXPECT_EQ(log.exact_time_ns, 10);
  EXPECT_EQ(log.observed_time_ns, 42);
  EXPECT_EQ(log.keys.At({5}).iterations, 2);
  EXPECT_EQ(log.keys.At({5}).untimed, 1);
  EXPECT_EQ(log.newest, 4u);
}

TEST(IterationLogTest, AStretchTimesIterationsThatWaitForATime) {
  IterationLog log;
  const std::vector<StretchIteration> stretch = {{0, {5}}, {1, {6}}};
  EXPECT_TRUE(absl::IsInvalidArgument(log.CheckStretch(stretch, 100)));
  Add({.iteration = 0, .key = {5}}, log);
  Add({.iteration = 1, .key = {6}}, log);
  ASSERT_TRUE(log.CheckStretch(stretch, 100).ok());
  log.AddStretch(stretch, 100);
  EXPECT_EQ(log.untimed, 0u);
  EXPECT_EQ(log.exact_time_ns, 100);
  EXPECT_TRUE(absl::IsInvalidArgument(log.CheckStretch(stretch, 100)));
}

}  // namespace
}  // namespace seqpoint
