#include "daemon/placement/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace seqpoint::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Operator Op(int64_t id, double accelerator_time, double cpu_time, double transfer_time) {
  return {.id = id,
          .cpu_time = cpu_time,
          .accelerator_time = accelerator_time,
          .memory_bytes = 10,
          .transfer_time = transfer_time};
}

// 0 -> 1 -> 3, 0 -> 2 -> 3; two accelerators of 25 bytes and a core.
Problem Diamond() {
  Problem problem;
  problem.operators = {Op(1, 1, 10, 0.5), Op(2, 2, 20, 0.25), Op(4, 4, 40, 0.125),
                       Op(8, 8, 80, 100)};
  problem.edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  problem.accelerators = 2;
  problem.cpus = 1;
  problem.memory_bytes = 25;
  return problem;
}

TEST(Judge, AnOutputIsPaidOncePerAcceleratorThatItLeavesOrReaches) {
  // 0 goes to both others of accelerator 1 and is fetched once there.
  const Judgement judgement = Judge(Diamond(), {0, 1, 1, 2});
  EXPECT_DOUBLE_EQ(judgement.devices[0].compute, 1);
  EXPECT_DOUBLE_EQ(judgement.devices[0].communication, 0.5);
  EXPECT_DOUBLE_EQ(judgement.devices[1].compute, 6);
  EXPECT_DOUBLE_EQ(judgement.devices[1].communication, 0.5 + 0.25 + 0.125);
  EXPECT_DOUBLE_EQ(judgement.devices[2].compute, 80);
  EXPECT_DOUBLE_EQ(judgement.devices[2].communication, 0);
  EXPECT_DOUBLE_EQ(judgement.max_load, 80);
  EXPECT_THAT(judgement.violations, IsEmpty());
  EXPECT_TRUE(judgement.contiguous);
}

TEST(Judge, WhatIsOnOneDeviceMovesNothing) {
  Problem problem = Diamond();
  problem.memory_bytes = 40;
  const Judgement judgement = Judge(problem, {1, 1, 1, 1});
  EXPECT_DOUBLE_EQ(judgement.max_load, 15);
  EXPECT_DOUBLE_EQ(judgement.devices[1].communication, 0);
  EXPECT_DOUBLE_EQ(judgement.devices[1].memory_bytes, 40);
}

TEST(Judge, BrokenRulesAreNamed) {
  Problem problem = Diamond();
  problem.operators[1].color = 7;
  problem.operators[2].color = 7;
  problem.operators[3].accelerator_supported = false;
  problem.operators[3].name = "softmax";
  const Judgement judgement = Judge(problem, {0, 0, 1, 0});
  EXPECT_THAT(judgement.violations,
              ElementsAre(HasSubstr("operator 4 and operator 2 have the color 7"),
                          HasSubstr("operator 8 (softmax) cannot run on accelerator 0"),
                          HasSubstr("accelerator 0 holds 30 bytes; it has 25")));
  EXPECT_THAT(Judge(problem, {0, 1, 1, -1}).violations,
              ElementsAre("operator 8 (softmax) is on no device"));
}

TEST(Judge, ADeviceThatIsLeftAndComeBackToIsNotContiguous) {
  EXPECT_FALSE(Judge(Diamond(), {0, 1, 1, 0}).contiguous);
  EXPECT_TRUE(Judge(Diamond(), {0, 1, 0, 1}).contiguous);
}

TEST(Judge, BackwardOperatorsFollowTheirTwinsAndTheOthersMirror) {
  // 0 -> 1 forward, 2 -> 3 backward; 3 is the twin of 0, and 2 of 1.
  Problem problem;
  problem.operators = {Op(0, 1, 1, 1), Op(1, 1, 1, 1), Op(2, 1, 1, 1), Op(3, 1, 1, 1),
                       Op(4, 1, 1, 1)};
  problem.edges = {{0, 1}, {1, 2}, {2, 3}, {2, 4}};
  for (int i : {0, 3}) problem.operators[i].color = 1;
  for (int i : {1, 2}) problem.operators[i].color = 2;
  for (int i : {2, 3, 4}) problem.operators[i].backward = true;
  problem.accelerators = 3;
  problem.memory_bytes = 100;
  EXPECT_TRUE(Judge(problem, {0, 1, 1, 0, 0}).contiguous);
  // 4 is the backward operator of nothing: it comes before the class of 2, as if mirrored, so it
  // cannot share a device with what comes after that.
  EXPECT_TRUE(Judge(problem, {0, 1, 1, 0, 2}).contiguous);
  problem.operators.push_back(Op(5, 1, 1, 1));
  problem.edges.push_back({1, 5});
  EXPECT_FALSE(Judge(problem, {0, 1, 1, 0, 2, 2}).contiguous);
}

TEST(Latency, AnAcceleratorFetchesComputesAndWritesBack) {
  // 1 is done by the core at 20 after 0; the piece {2} begins when 0 is there.
  const Problem problem = Diamond();
  // All on the core: the longer of the two ways.
  EXPECT_DOUBLE_EQ(Latency(problem, {2, 2, 2, 2}), 10 + 40 + 80);
  // {2} on an accelerator: 10, then 0.5 in, 4, 0.125 out; the core is through with 1 at 30.
  EXPECT_DOUBLE_EQ(Latency(problem, {2, 2, 0, 2}), 10 + 20 + 80);
  // {0, 1} and {2, 3}: the last output is nobody's input.
  EXPECT_DOUBLE_EQ(Latency(problem, {0, 0, 1, 1}), 1 + 2 + 0.5 + 0.25 + (0.5 + 0.25 + 4 + 8));
}

TEST(Latency, PiecesOfOneAcceleratorRunOneAfterAnother) {
  // {0} and {3} on accelerator 0, {1, 2} on accelerator 1.
  const Problem problem = Diamond();
  const double first = 1 + 0.5;
  const double second = 0.5 + 2 + 4 + 0.25 + 0.125;
  EXPECT_DOUBLE_EQ(Latency(problem, {0, 1, 1, 0}), first + second + 0.25 + 0.125 + 8);
  const std::vector<int> one_piece = {0, 0, 0, 0};
  EXPECT_EQ(Latency(problem, {0, 1, 1, 0}, &one_piece), std::numeric_limits<double>::infinity());
  // Two pieces that need nothing of each other still share the accelerator.
  const std::vector<int> pieces = {0, 1, 2, 0};
  EXPECT_DOUBLE_EQ(Latency(problem, {2, 0, 0, 2}, &pieces),
                   10 + (0.5 + 2 + 0.25) + (0.5 + 4 + 0.125) + 80);
}

}  // namespace
}  // namespace seqpoint::placement
