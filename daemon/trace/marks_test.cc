#include "daemon/trace/marks.h"

#include <gtest/gtest.h>

#include "tests/support/small_trace.h"

namespace seqpoint::trace {
namespace {

TEST(MarksTest, StepsAreFoundInTheirOrderOnTheThreadThatHasMost) {
  TestTrace t;
  t.Annotation(100, 199, "ProfilerStep#2");
  t.Annotation(0, 99, "ProfilerStep#1");
  t.Annotation(10, 20, "Optimizer.zero_grad#SGD.zero_grad");
  t.On(1).Annotation(1, 99, "ProfilerStep#1");
  const IterationMarks marks = FindMarks(t.trace());
  EXPECT_EQ(marks.starts_ns, (std::vector<int64_t>{0, 100'000}));
  EXPECT_EQ(marks.ends_ns, (std::vector<int64_t>{99'000, 199'000}));
  EXPECT_EQ(marks.first, "ProfilerStep#1");
  EXPECT_FALSE(marks.points);
  EXPECT_EQ(marks.iterations(), 2u);
}

TEST(MarksTest, OfPointsTheLastOneOnlyEndsAnIteration) {
  TestTrace t;
  for (int i = 0; i < 4; ++i) t.Annotation(100 * i, 100 * i + 10, "Optimizer.zero_grad#SGD");
  const IterationMarks marks = FindMarks(t.trace());
  EXPECT_TRUE(marks.points);
  EXPECT_EQ(marks.iterations(), 3u);
  EXPECT_EQ(FindMarks(t.trace(), "zero_gra[dt]").starts_ns.size(), 4u);
  EXPECT_EQ(FindMarks(t.trace(), "^forward").iterations(), 0u);
}

TEST(MarksTest, ATraceIsSplitWhereNothingWasRecorded) {
  TestTrace t;
  // A window right behind the other, then one after a while.
  const double begins_us[] = {0, 100, 5000};
  for (int i = 0; i < 3; ++i) {
    const double at = begins_us[i];
    t.Annotation(at, at + 100, "ProfilerStep#1");
    t.Launch(at + 1, at + 5, "gemm", at + 6, at + 90);
    // The last kernel starts after the CPU has left the iteration.
    t.Launch(at + 95, at + 99, "relu", at + 101, at + 130);
    t.Annotation(at + 100, i == 1 ? 5000 : at + 100 + (i == 2 ? 50 : 0), kNotRecorded);
  }
  t.Wait(4, 3, 0, 0);
  const std::vector<Trace> parts = SplitAtHoles(t.trace());
  ASSERT_EQ(parts.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const int64_t at_ns = TestTrace::Ns(begins_us[i]);
    ASSERT_EQ(parts[i].works.size(), 2u);
    EXPECT_EQ(parts[i].works[1].start_ns, at_ns + 101'000);
    ASSERT_EQ(parts[i].calls.size(), 2u);
    EXPECT_EQ(parts[i].calls[0].begin_ns, at_ns + 1'000);
    EXPECT_EQ(FindMarks(parts[i]).starts_ns, std::vector<int64_t>{at_ns});
    ASSERT_EQ(FindHoles(parts[i]).size(), 1u);
    EXPECT_EQ(FindHoles(parts[i])[0].begin_ns, at_ns + 100'000);
    EXPECT_EQ(parts[i].waits.size(), i == 1 ? 1u : 0u);
  }
  TestTrace whole;
  whole.Launch(0, 5, "gemm", 10, 30);
  EXPECT_EQ(SplitAtHoles(whole.trace()).size(), 1u);
}

TEST(MarksTest, ATraceWithoutMarksHasNone) {
  TestTrace t;
  t.Launch(0, 5, "gemm", 10, 30);
  EXPECT_EQ(FindMarks(t.trace()).iterations(), 0u);
}

}  // namespace
}  // namespace seqpoint::trace
