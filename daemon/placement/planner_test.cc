#include "daemon/placement/planner.h"

#include <simdjson.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>

#include "daemon/placement/bound.h"
#include "daemon/placement/class_graph.h"
#include "daemon/placement/exact.h"
#include "daemon/placement/linear.h"
#include "daemon/placement/problem_json.h"
#include "daemon/placement/split_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/shared_traces.h"

namespace seqpoint::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-6;  // relative, of the expected values

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string Data(const std::string& name) { return SharedData() + "/placement/" + name; }

// Files of a table of expected values; "none" where it is not there.
std::vector<std::string> FilesOf(const std::string& folder) {
  std::vector<std::string> files;
  simdjson::dom::parser parser;
  simdjson::dom::object expected;
  if (!parser.load(Data(folder + "expected.json")).get_object().get(expected)) {
    for (const auto& [file, values] : expected) files.push_back(folder + std::string(file));
  }
  return OrNone(files);
}

class ExpectedValueTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "none") GTEST_SKIP() << "no " << Data("expected.json");
    const std::string folder = GetParam().starts_with("synthetic/") ? "synthetic/" : "";
    ASSERT_FALSE(parser_.load(Data(folder + "expected.json"))[GetParam().substr(folder.size())].get(
        values_));
    const auto problem = ReadProblem(ReadFile(Data(GetParam())), GetParam());
    ASSERT_TRUE(problem.ok()) << problem.status();
    problem_ = *problem;
  }

  simdjson::dom::parser parser_;
  simdjson::dom::element values_;
  Problem problem_;
};

TEST_P(ExpectedValueTest, TheBestContiguousPlacementIsFound) {
  const auto plan = MakePlan(problem_, {.threads = 2});
  if (values_["maxLoad"].is_null()) {
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr("there is no core"));
    return;
  }
  ASSERT_TRUE(plan.ok()) << plan.status();
  const double expected = values_["maxLoad"].get_double();
  EXPECT_NEAR(plan->value, expected, expected * kTolerance);
  EXPECT_EQ(plan->method, "exact");
  EXPECT_TRUE(plan->optimal);
  EXPECT_TRUE(plan->judgement.contiguous);
  EXPECT_THAT(plan->judgement.violations, ElementsAre());
  EXPECT_LE(LoadBound(ContiguousClasses(problem_)), expected * (1 + kTolerance));
}

INSTANTIATE_TEST_SUITE_P(Published, ExpectedValueTest, ::testing::ValuesIn(FilesOf("")),
                         [](const auto& file) { return TestNameOf(file.param); });
INSTANTIATE_TEST_SUITE_P(Synthetic, ExpectedValueTest, ::testing::ValuesIn(FilesOf("synthetic/")),
                         [](const auto& file) { return TestNameOf(file.param); });

TEST(HumanExpertTest, SplitsOfPeopleHaveTheirPublishedLoads) {
  for (const auto& [model, expected] :
       std::vector<std::pair<std::string, double>>{{"bert24_inference", 20.084},
                                                   {"bert24_training", 49.4049},
                                                   {"gnmt_training", 137.154},
                                                   {"resnet50_inference", 43.9183}}) {
    const auto problem =
        ReadProblem(ReadFile(Data("throughput/LayerGraphs/" + model + ".json")), model);
    if (!problem.ok()) GTEST_SKIP() << "no " << Data("throughput");
    const auto split =
        ReadSplit(ReadFile(Data("human-experts/" + model + "_expert.json")), model, *problem);
    ASSERT_TRUE(split.ok()) << split.status();
    const Judgement judgement = Judge(*problem, *split);
    EXPECT_NEAR(judgement.max_load, expected, expected * 1e-5) << model;  // six digits
    EXPECT_THAT(judgement.violations, ElementsAre()) << model;
  }
}

// `chains` chains of `length` operators side by side: (length + 1) ^ chains ideals.
Problem Chains(int chains, int length) {
  Problem problem;
  problem.accelerators = 3;
  problem.cpus = 1;
  problem.memory_bytes = 1e9;
  for (int i = 0; i < chains * length; ++i) {
    problem.operators.push_back({.id = i,
                                 .cpu_time = 20.0 + i % 3,
                                 .accelerator_time = 1.0 + i % 5,
                                 .memory_bytes = 1,
                                 .transfer_time = 0.1 * (i % 7)});
    if (i % length > 0) problem.edges.push_back({i - 1, i});
  }
  return problem;
}

TEST(PlannerTest, TooManyIdealsAreSaidAndBounded) {
  const auto plan = MakePlan(Chains(3, 4), {.most_ideals = 124});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("more than 124 ideals: linearised, not exact")));
  EXPECT_NE(plan->method, "exact");
  EXPECT_FALSE(plan->optimal);
  EXPECT_LT(plan->lower_bound, plan->value);

  const auto exact = MakePlan(Chains(3, 4), {.most_ideals = 125});
  ASSERT_TRUE(exact.ok()) << exact.status();
  EXPECT_EQ(exact->method, "exact");
  EXPECT_LE(exact->value, plan->value);
  EXPECT_GE(exact->value, plan->lower_bound);
}

TEST(PlannerTest, ThreadsGiveTheSameValue) {
  const Problem problem = Chains(3, 8);
  const auto one = MakePlan(problem, {.threads = 1});
  ASSERT_TRUE(one.ok()) << one.status();
  for (const int threads : {2, 3, 8}) {
    const auto more = MakePlan(problem, {.threads = threads});
    ASSERT_TRUE(more.ok()) << more.status();
    EXPECT_EQ(more->value, one->value);
    EXPECT_EQ(more->placement, one->placement);
  }
}

// Whenever it is stopped, the answer is a placement within its bound, or says that there is none
// yet.
TEST(PlannerTest, AStopGivesTheBestSoFar) {
  const Problem problem = Chains(4, 6);
  const auto best = MakePlan(problem, {});
  ASSERT_TRUE(best.ok()) << best.status();
  int stopped = 0, with_placement = 0;
  for (int after = 0; after < 64; ++after) {
    std::atomic<int> asked = 0;
    const auto plan = MakePlan(problem, {.threads = 2, .stop = [&] { return asked++ >= after; }});
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kCancelled);
      ++stopped;
      continue;
    }
    ++with_placement;
    if (plan->stopped) ++stopped;
    EXPECT_THAT(plan->judgement.violations, ElementsAre());
    EXPECT_GE(plan->value, best->value * (1 - 1e-9));
    EXPECT_LE(plan->lower_bound, best->value * (1 + 1e-9));
  }
  EXPECT_GT(stopped, 0);
  EXPECT_GT(with_placement, 0);
}

// Large graphs take minutes, and people stop them at any time.
TEST(PlannerTest, ThereIsAPlacementFromTheStart) {
  const Problem chains = Chains(60, 20);
  Problem without_cores = chains;
  without_cores.cpus = 0;
  Problem cores = chains;
  cores.accelerators = 0;
  Problem full = without_cores;
  full.memory_bytes = 1200.0 / 3;
  for (const Problem& problem : {chains, without_cores, cores, full}) {
    for (const Objective objective : {Objective::kThroughput, Objective::kLatency}) {
      for (const bool contiguous : {true, false}) {
        const auto plan = MakePlan(
            problem,
            {.objective = objective, .contiguous = contiguous, .stop = [] { return true; }});
        ASSERT_TRUE(plan.ok()) << plan.status();
        EXPECT_TRUE(plan->stopped || problem.accelerators == 0);  // alike cores: nothing to choose
        EXPECT_THAT(plan->judgement.violations, ElementsAre());
        EXPECT_LE(plan->lower_bound, plan->value);
      }
    }
  }
}

// That there is no placement is known at once, too.
TEST(PlannerTest, MemoryThatIsTooSmallIsSaidForEveryObjective) {
  Problem problem = Chains(6, 20);
  problem.cpus = 0;
  problem.memory_bytes = 39;
  for (const Objective objective : {Objective::kThroughput, Objective::kLatency}) {
    for (const bool contiguous : {true, false}) {
      const auto plan = MakePlan(
          problem, {.objective = objective, .contiguous = contiguous, .stop = [] { return true; }});
      EXPECT_THAT(std::string(plan.status().message()),
                  HasSubstr("placement keeps to the rules: 3 accelerators have 39 bytes each, and "
                            "all operators need 120"));
    }
  }
}

// More classes than the method looks at one by one: the borders are found among all of them.
TEST(PlannerTest, ALongChainIsCutWhereItIsBest) {
  Problem problem = Chains(1, 20'000);
  for (Operator& op : problem.operators) op.transfer_time = 1000;
  problem.operators[6'666].transfer_time = 0;
  problem.operators[13'332].transfer_time = 0;
  problem.cpus = 0;
  const ClassGraph graph = ContiguousClasses(problem);
  const Stages stages = BestLinearStages(graph, LoadBound(graph), HUGE_VAL, {});
  ASSERT_FALSE(stages.device.empty());
  const Judgement judgement = Judge(problem, ToPlacement(graph, stages.device));
  EXPECT_TRUE(judgement.contiguous);
  for (const DeviceLoad& device : judgement.devices) EXPECT_EQ(device.communication, 0);
}

TEST(PlannerTest, SaysWhoFitsNowhere) {
  Problem problem = Chains(1, 4);
  problem.cpus = 0;
  problem.operators[2].memory_bytes = 2e9;
  EXPECT_THAT(std::string(MakePlan(problem, {}).status().message()),
              HasSubstr("operator 2 needs 2000000000 bytes; an accelerator has 1000000000"));
  problem.operators[2].memory_bytes = 6e8;
  problem.operators[1].memory_bytes = 6e8;
  problem.operators[1].color = problem.operators[2].color = 1;
  EXPECT_THAT(std::string(MakePlan(problem, {}).status().message()),
              HasSubstr("operators 1, 2, which sit together, need 1200000000 bytes"));
  problem.operators[1].color.reset();
  problem.operators[3].accelerator_supported = false;
  EXPECT_THAT(std::string(MakePlan(problem, {}).status().message()),
              HasSubstr("operator 3 cannot run on an accelerator, and there is no core"));
  problem.cpus = 1;
  EXPECT_TRUE(MakePlan(problem, {}).ok());
  problem.cpus = problem.accelerators = 0;
  EXPECT_THAT(std::string(MakePlan(problem, {}).status().message()),
              HasSubstr("there are no devices"));
}

// Each operator fits, but not all of them.
TEST(PlannerTest, SaysWhenTheMemoryOfAllIsTooSmall) {
  Problem problem = Chains(1, 4);
  problem.cpus = 0;
  for (Operator& op : problem.operators) op.memory_bytes = 9e8;
  EXPECT_THAT(std::string(MakePlan(problem, {}).status().message()),
              HasSubstr("3 accelerators have 1000000000 bytes each, and all operators need "
                        "3600000000"));
}

TEST(PlannerTest, CoresAloneAndOperatorsWithoutTimeAreNoSpecialCases) {
  Problem problem = Chains(2, 3);
  problem.accelerators = 0;
  problem.cpus = 2;
  const auto cores = MakePlan(problem, {});
  ASSERT_TRUE(cores.ok()) << cores.status();
  EXPECT_EQ(cores->value, 63);

  for (Operator& op : problem.operators) op.cpu_time = op.accelerator_time = 0;
  const auto free = MakePlan(problem, {});
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_EQ(free->value, 0);
  EXPECT_TRUE(free->optimal);
}

TEST(PlannerTest, MoreDevicesThanOperatorsAreNotNeeded) {
  Problem problem = Chains(1, 3);
  problem.accelerators = 4096;
  problem.cpus = 4096;
  for (const bool contiguous : {true, false}) {
    const auto plan = MakePlan(problem, {.contiguous = contiguous, .proof_seconds = 10});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(plan->optimal);
    EXPECT_EQ(plan->judgement.devices.size(), 8192u);
  }
}

TEST(PlannerTest, TimesMayBeInAnyUnit) {
  for (const double unit : {1e-9, 1e9}) {
    Problem problem = Chains(2, 3);
    for (Operator& op : problem.operators) {
      op.cpu_time *= unit;
      op.accelerator_time *= unit;
      op.transfer_time *= unit;
    }
    const PlannerOptions any = {.contiguous = false, .proof_seconds = 10};
    const auto plan = MakePlan(problem, any);
    const auto unscaled = MakePlan(Chains(2, 3), any);
    ASSERT_TRUE(plan.ok() && unscaled.ok()) << plan.status();
    EXPECT_NEAR(plan->value / unit, unscaled->value, 1e-9 * unscaled->value);
    EXPECT_EQ(plan->optimal, unscaled->optimal);

    problem.accelerators = 0;
    problem.cpus = 1;
    EXPECT_TRUE(MakePlan(problem, any).ok());
  }
}

// .3 + .1 + .2 is above .6 in the last digit, and .1 + .2 + .3 too, but not by as much.
TEST(PlannerTest, MemoryMayBeFullToTheLastDigit) {
  for (const auto& sizes : {std::vector{.3, .1, .2}, std::vector{.1, .2, .3}}) {
    Problem problem = Chains(1, 3);
    problem.accelerators = 1;
    problem.cpus = 0;
    problem.memory_bytes = .6;
    for (size_t i = 0; i < sizes.size(); ++i) problem.operators[i].memory_bytes = sizes[i];
    for (const bool contiguous : {true, false}) {
      const auto plan = MakePlan(problem, {.contiguous = contiguous});
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->judgement.devices[0].operators, 3);
    }
  }
}

TEST(PlannerTest, MemoryWithoutEndIsNoMemoryLimit) {
  Problem problem = Chains(2, 3);
  problem.memory_bytes = 1e308;
  const auto plan = MakePlan(problem, {.objective = Objective::kLatency});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->lower_bound, 0);
  EXPECT_LE(plan->lower_bound, plan->value);
}

}  // namespace
}  // namespace seqpoint::placement
