// More threads give the same answer. Small enough for ThreadSanitizer.
#include <gtest/gtest.h>

#include <random>

#include "daemon/placement/planner.h"

namespace seqpoint::placement {
namespace {

// Four chains of this length that meet at the end.
Problem FourChains(int length) {
  Problem problem;
  problem.accelerators = 3;
  problem.cpus = 1;
  problem.memory_bytes = 400;
  std::mt19937_64 random(5);
  const int end = 4 * length;
  for (int i = 0; i <= end; ++i) {
    Operator op;
    op.id = i;
    op.accelerator_time = static_cast<double>(1 + random() % 64) / 8;
    op.cpu_time = 6 * op.accelerator_time;
    op.memory_bytes = static_cast<double>(random() % 40);
    op.transfer_time = static_cast<double>(random() % 16) / 16;
    problem.operators.push_back(op);
    if (i >= 4 && i < end) problem.edges.push_back({i - 4, i});
    if (i == end) {
      for (int last = end - 4; last < end; ++last) problem.edges.push_back({last, i});
    }
  }
  return problem;
}

struct Case {
  PlannerOptions options;
  int length;
};

class Threads : public testing::TestWithParam<Case> {};

TEST_P(Threads, GiveTheSameAnswerAsOne) {
  PlannerOptions options = GetParam().options;
  const Problem problem = FourChains(GetParam().length);
  options.threads = 1;
  const auto one = MakePlan(problem, options);
  ASSERT_TRUE(one.ok()) << one.status();
  options.threads = 4;
  const auto four = MakePlan(problem, options);
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_DOUBLE_EQ(one->value, four->value);
  EXPECT_EQ(one->optimal, four->optimal);
  // The search draws the same whoever draws; the exact method may find another one as good.
  if (one->method == "search") {
    EXPECT_EQ(one->placement, four->placement);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Threads,
                         testing::Values(Case{{}, 4},  // 625 ideals
                                         Case{{.contiguous = false}, 1},
                                         Case{{.most_ideals = 10}, 1},
                                         Case{{.objective = Objective::kLatency}, 2}));

}  // namespace
}  // namespace seqpoint::placement
