// The GNMT of the software GPU as a placement problem: from its program to the time of a pipeline.
#include "tests/placement/traced_gnmt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "daemon/placement/judge.h"
#include "daemon/placement/planner.h"
#include "daemon/placement/whole_run.h"
#include "tests/placement/pipeline_simulation.h"

namespace seqpoint::placement {
namespace {

using ::testing::IsEmpty;

TEST(TracedGnmtTest, FromTracedIterationsToAPlacementOfTheWholeRun) {
  whatif::SoftwareRuns runs;
  const GnmtRun run = {.batch = 32, .options = {"--hidden", "256", "--launch-us", "1"}};
  const std::vector<Lengths> lengths = {{6, 7}, {24, 20}, {30, 41}};
  const auto traced = TraceGnmt(runs, run, lengths);
  ASSERT_TRUE(traced.ok()) << traced.status();

  std::vector<WeightedProblem> problems;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const TracedProblem& one = (*traced)[i];
    // The operators add up to the iteration, as the profiler has it.
    EXPECT_NEAR(one.loads_ms / one.iteration_ms, 1, 0.02);
    double operators = 0;
    for (const Operator& op : one.problem.operators) {
      EXPECT_GT(op.accelerator_time, 0) << op.name;
      operators += op.accelerator_time;
    }
    EXPECT_NEAR(operators / one.loads_ms, 1, 1e-9);
    WeightedProblem& weighted = problems.emplace_back();
    weighted.weight = 3.0 - static_cast<double>(i);
    weighted.problem = one.problem;
    weighted.problem.accelerators = 3;
    weighted.problem.memory_bytes = 141e9;
  }
  EXPECT_LT((*traced)[0].iteration_ms, (*traced)[1].iteration_ms);
  EXPECT_LT((*traced)[1].iteration_ms, (*traced)[2].iteration_ms);

  // A graph with a cycle has no placement.
  const auto plan = MakePlan(AverageProblem(problems), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->optimal);
  EXPECT_THAT(plan->judgement.violations, IsEmpty());
  for (const int device : plan->placement) EXPECT_GE(device, 0);

  const WholeRunTime predicted = TimeOfWholeRun(problems, plan->placement);
  EXPECT_NEAR(
      SimulateDecoupled(problems, plan->placement, {.micro_batches = 18'000}) / predicted.decoupled,
      1, 0.01);
  const SimulatedRun iterations = {.micro_batches = 12 * 5'000, .same_length = 5'000};
  EXPECT_NEAR(SimulateLockStep(problems, plan->placement, iterations) / predicted.lock_step, 1,
              0.01);
}

}  // namespace
}  // namespace seqpoint::placement
