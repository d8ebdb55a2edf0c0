#include "daemon/placement/whole_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/placement/judge.h"
#include "tests/placement/pipeline_simulation.h"

namespace seqpoint::placement {
namespace {

using ::testing::IsEmpty;

constexpr int kDevices = 4;

// A layered graph with skips, forward and (in training) mirrored backward; operators grow with the
// length not at all, linearly or quadratically.
std::vector<WeightedProblem> RandomRun(uint64_t seed, bool training) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0.2, 1);
  const int forward = 24;
  Problem graph;
  graph.accelerators = kDevices - 1;
  graph.cpus = 1;
  graph.memory_bytes = 1e9;
  std::vector<int> power;
  std::vector<Operator> base;
  for (int i = 0; i < forward * (training ? 2 : 1); ++i) {
    Operator op;
    op.id = i;
    op.backward = i >= forward;
    if (training) op.color = op.backward ? 2 * forward - 1 - i : i;
    op.accelerator_time = uniform(random);
    op.cpu_time = 3 * op.accelerator_time;
    op.transfer_time = 0.1 * uniform(random);
    op.memory_bytes = 100;
    power.push_back(static_cast<int>(random() % 3));
    base.push_back(op);
  }
  for (int i = 1; i < forward; ++i) {
    std::vector<int> producers = {i - 1};
    if (i > 3 && random() % 2 == 0) producers.push_back(static_cast<int>(random() % (i - 2)));
    for (const int from : producers) {
      graph.edges.push_back({from, i});
      if (training) graph.edges.push_back({2 * forward - 1 - i, 2 * forward - 1 - from});
    }
  }
  if (training) graph.edges.push_back({forward - 1, forward});
  std::vector<WeightedProblem> problems;
  for (const auto& [length, weight] : {std::pair{10, 5.0}, {25, 3.0}, {60, 1.0}}) {
    WeightedProblem& problem = problems.emplace_back();
    problem.name = "length " + std::to_string(length);
    problem.weight = weight;
    problem.problem = graph;
    for (size_t i = 0; i < base.size(); ++i) {
      Operator op = base[i];
      const double scale = std::pow(length / 20.0, power[i]);
      op.accelerator_time *= scale;
      op.cpu_time *= scale;
      op.transfer_time *= length / 20.0;
      op.memory_bytes *= length;
      problem.problem.operators.push_back(op);
    }
  }
  return problems;
}

// In order of the devices; operators of one color stay together.
Placement Slices(const Problem& problem) {
  Placement placement;
  for (const Operator& op : problem.operators) {
    placement.push_back(
        std::min<int>(static_cast<int>(op.color.value_or(op.id)) * kDevices / 24, kDevices - 1));
  }
  return placement;
}

Placement AtRandom(const Problem& problem, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> device(100);
  for (int& d : device) d = static_cast<int>(random() % kDevices);
  Placement placement;
  for (const Operator& op : problem.operators)
    placement.push_back(device[op.color.value_or(op.id)]);
  return placement;
}

struct Case {
  uint64_t seed;
  bool training;
  bool contiguous;
};

void PrintTo(const Case& c, std::ostream* out) { *out << "seed " << c.seed; }

class WholeRunSimulationTest : public testing::TestWithParam<Case> {};

TEST_P(WholeRunSimulationTest, ThePredictionIsWhatAPipelineTakes) {
  const Case& c = GetParam();
  const auto problems = RandomRun(c.seed, c.training);
  const Placement placement =
      c.contiguous ? Slices(problems[0].problem) : AtRandom(problems[0].problem, c.seed);
  const WholeRunTime predicted = TimeOfWholeRun(problems, placement);
  EXPECT_NEAR(SimulateDecoupled(problems, placement, {.micro_batches = 18'000, .seed = c.seed}) /
                  predicted.decoupled,
              1, 0.01);
  // An iteration of many micro-batches: filling and draining the pipeline is not predicted.
  const SimulatedRun iterations = {
      .micro_batches = 45 * 5'000, .same_length = 5'000, .seed = c.seed};
  EXPECT_NEAR(SimulateLockStep(problems, placement, iterations) / predicted.lock_step, 1, 0.01);
  EXPECT_LE(predicted.decoupled, predicted.lock_step * (1 + 1e-12));
}

INSTANTIATE_TEST_SUITE_P(, WholeRunSimulationTest,
                         testing::Values(Case{1, false, true}, Case{2, false, false},
                                         Case{3, true, true}, Case{4, true, false},
                                         Case{5, true, true}, Case{6, false, false}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return absl::StrCat(c.training ? "training" : "inference",
                                               c.contiguous ? "_contiguous_" : "_any_", c.seed);
                         });

TEST(WholeRunTest, WhatFitsTheAverageFitsEveryLength) {
  const auto problems = RandomRun(1, true);
  const Problem average = AverageProblem(problems);
  EXPECT_DOUBLE_EQ(average.operators[0].memory_bytes, 100 * 60);
  const double expected = (5 * problems[0].problem.operators[0].accelerator_time +
                           3 * problems[1].problem.operators[0].accelerator_time +
                           1 * problems[2].problem.operators[0].accelerator_time) /
                          9;
  EXPECT_DOUBLE_EQ(average.operators[0].accelerator_time, expected);
}

TEST(WholeRunTest, ALockStepPipelineIsImprovedWithinTheRules) {
  auto problems = RandomRun(3, true);
  for (const bool contiguous : {true, false}) {
    const Placement start = Slices(problems[0].problem);
    ASSERT_TRUE(Judge(problems[0].problem, start).contiguous);
    const double before = TimeOfWholeRun(problems, start).lock_step;
    const LockStepResult result = ImproveLockStep(problems, start, contiguous, {.restarts = 2});
    EXPECT_LT(result.value, before);
    EXPECT_FALSE(result.stopped);
    EXPECT_DOUBLE_EQ(result.value, TimeOfWholeRun(problems, result.placement).lock_step);
    for (const WeightedProblem& problem : problems) {
      const Judgement judgement = Judge(problem.problem, result.placement);
      EXPECT_THAT(judgement.violations, IsEmpty());
      EXPECT_TRUE(judgement.contiguous || !contiguous);
    }
  }
}

TEST(WholeRunTest, AStopKeepsWhatWasFound) {
  const auto problems = RandomRun(3, true);
  const Placement start = Slices(problems[0].problem);
  const LockStepResult result =
      ImproveLockStep(problems, start, true, {.stop = [] { return true; }});
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.placement, start);
}

}  // namespace
}  // namespace seqpoint::placement
