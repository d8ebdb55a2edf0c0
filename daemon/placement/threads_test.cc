// More threads give the same answer. Small enough for ThreadSanitizer.
#include <gtest/gtest.h>

#include <random>

#include "daemon/placement/planner.h"

namespace seqpoint::placement {
namespace {

// Four chains that meet at the end: 625 ideals.
Problem FourChains() {
  Problem problem;
  problem.accelerators = 3;
  problem.cpus = 1;
  problem.memory_bytes = 400;
  std::mt19937_64 random(5);
  for (int i = 0; i < 17; ++i) {
    Operator op;
    op.id = i;
    op.accelerator_time = static_cast<double>(1 + random() % 64) / 8;
    op.cpu_time = 6 * op.accelerator_time;
    op.memory_bytes = static_cast<double>(random() % 40);
    op.transfer_time = static_cast<double>(random() % 16) / 16;
    problem.operators.push_back(op);
    if (i >= 4 && i < 16) problem.edges.push_back({i - 4, i});
    if (i == 16) {
      for (int last = 12; last < 16; ++last) problem.edges.push_back({last, i});
    }
  }
  return problem;
}

class Threads : public testing::TestWithParam<PlannerOptions> {};

TEST_P(Threads, GiveTheSameAnswerAsOne) {
  PlannerOptions options = GetParam();
  options.threads = 1;
  const auto one = MakePlan(FourChains(), options);
  ASSERT_TRUE(one.ok()) << one.status();
  options.threads = 4;
  const auto four = MakePlan(FourChains(), options);
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_DOUBLE_EQ(one->value, four->value);
  EXPECT_EQ(one->optimal, four->optimal);
  // The search draws the same whoever draws; the exact method may find another one as good.
  if (one->method == "search") {
    EXPECT_EQ(one->placement, four->placement);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Threads,
                         testing::Values(PlannerOptions{}, PlannerOptions{.contiguous = false},
                                         PlannerOptions{.most_ideals = 10},
                                         PlannerOptions{.objective = Objective::kLatency}));

}  // namespace
}  // namespace seqpoint::placement
