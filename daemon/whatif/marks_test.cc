#include "daemon/whatif/marks.h"

#include <gtest/gtest.h>

#include "daemon/whatif/test_trace.h"

namespace seqpoint::whatif {
namespace {

TEST(MarksTest, StepsAreFoundInTheirOrderOnTheThreadThatHasMost) {
  TestTrace t;
  t.Annotation(100, 199, "ProfilerStep#2");
  t.Annotation(0, 99, "ProfilerStep#1");
  t.Annotation(10, 20, "Optimizer.zero_grad#SGD.zero_grad");
  t.On(1).Annotation(1, 99, "ProfilerStep#1");
  const IterationMarks marks = FindMarks(t.trace());
  EXPECT_EQ(marks.begins_ns, (std::vector<int64_t>{0, 100'000}));
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
  EXPECT_EQ(FindMarks(t.trace(), "zero_gra[dt]").begins_ns.size(), 4u);
  EXPECT_EQ(FindMarks(t.trace(), "^forward").iterations(), 0u);
}

TEST(MarksTest, ATraceWithoutMarksHasNone) {
  TestTrace t;
  t.Launch(0, 5, "gemm", 10, 30);
  EXPECT_EQ(FindMarks(t.trace()).iterations(), 0u);
}

}  // namespace
}  // namespace seqpoint::whatif
