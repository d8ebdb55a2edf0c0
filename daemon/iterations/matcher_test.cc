#include "injection/abi/matcher.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>

namespace seqpoint::abi {
namespace {

static_assert(std::is_trivially_copyable_v<Matcher>);

EventPattern On(Op op, uint64_t name_hash = 0) {
  EventPattern pattern{};
  pattern.op = static_cast<uint8_t>(op);
  pattern.name_hash = name_hash;
  if (name_hash != 0) pattern.match = kMatchName;
  return pattern;
}

// Copy, forward 1, backward 2, optimiser 3.
Rule CopyRule() {
  Rule rule{};
  rule.generation = 1;
  rule.watched_ops = ~0u;
  rule.boundary = On(Op::kCopyH2D);
  rule.confirm = On(Op::kLaunch, 2);
  rule.step = On(Op::kLaunch, 3);
  rule.clock = On(Op::kCopyH2D);
  rule.length_count = 1;
  rule.length[0].pattern = On(Op::kCopyH2D);
  rule.length[0].field = static_cast<uint8_t>(LengthField::kBytes);
  rule.length[0].fold = static_cast<uint8_t>(LengthFold::kSum);
  return rule;
}

class MatcherTest : public ::testing::Test {
 protected:
  // Letters in the order of MatchedFlags, with the iteration's number where it matters.
  std::string Feed(Op op, uint64_t name = 0, uint64_t bytes = 0) {
    MatchEvent event{};
    event.op = static_cast<uint8_t>(op);
    event.name_hash = name;
    event.bytes = bytes;
    event.grid_x = static_cast<uint32_t>(bytes);
    const uint32_t flags = matcher_.OnEvent(event);
    const MatchResult& result = matcher_.result();
    std::string said;
    if (flags & kMatchedMicroLengths) {
      said += "L" + std::to_string(result.micro_batch.iteration) + "." +
              std::to_string(result.micro_batch.index) + "=" +
              (result.micro_batch.valid == 1 ? std::to_string(result.micro_batch.length[0]) : "?");
    }
    if (flags & kMatchedStep) {
      said += "S" + std::to_string(result.step.iteration) + "(" +
              (result.step.valid ? std::to_string(result.step.length[0]) : "?") + "x" +
              std::to_string(result.step.micro_batches) + ")";
    }
    if (flags & kMatchedBoundary) said += "B" + std::to_string(result.iteration);
    if (flags & kMatchedConfirmed) said += "!";
    if (flags & kMatchedMicroBatch) said += "M";
    if (flags & kMatchedDecision) said += "D" + std::to_string(result.length[0]);
    if (flags & kMatchedClock) said += "C";
    return said;
  }
  std::string Copy(uint64_t bytes) { return Feed(Op::kCopyH2D, 0, bytes); }
  // The bytes of the copy and the name of the graph of each micro-batch.
  std::string MicroBatches(std::initializer_list<std::pair<uint64_t, uint64_t>> micro_batches) {
    std::string said;
    for (const auto& [bytes, graph] : micro_batches) {
      said += Copy(bytes);
      said += Feed(Op::kGraphLaunch, graph);
    }
    return said;
  }
  std::string Forward() { return Feed(Op::kLaunch, 1); }
  std::string Backward() { return Feed(Op::kLaunch, 2); }
  std::string Optimiser() { return Feed(Op::kLaunch, 3); }

  Matcher matcher_{CopyRule()};
};

TEST_F(MatcherTest, TrainingIterations) {
  EXPECT_EQ(Copy(10), "B0D10C");
  EXPECT_EQ(Forward(), "");
  EXPECT_EQ(Backward(), "");
  EXPECT_EQ(Optimiser(), "S0(10x1)");
  EXPECT_EQ(Optimiser(), "");  // one launch per tensor
  EXPECT_EQ(Copy(20), "B1D20C");
  Backward();
  EXPECT_EQ(Optimiser(), "S1(20x1)");
}

TEST_F(MatcherTest, EvaluationIsReplaced) {
  Copy(10), Backward(), Optimiser();
  EXPECT_EQ(Copy(7), "B1D7C");
  Forward();
  EXPECT_EQ(Copy(8), "B1D8C");
  Forward();
  EXPECT_EQ(Copy(20), "B1D20C");
  Backward();
  EXPECT_EQ(Optimiser(), "S1(20x1)");
}

TEST_F(MatcherTest, MicroBatchesAddUp) {
  EXPECT_EQ(Copy(10), "B0D10C");
  Backward();
  EXPECT_EQ(Copy(5), "MD15");
  Backward();
  EXPECT_EQ(Optimiser(), "S0(15x2)");
  EXPECT_EQ(Copy(3), "B1D3C");
}

Rule AccumulatingRule(uint32_t micro_batches) {
  Rule rule = CopyRule();
  rule.micro_batches = micro_batches;
  return rule;
}

TEST_F(MatcherTest, MicroBatchesTellTheirLengths) {
  matcher_.SetRule(AccumulatingRule(2), 0, false);
  EXPECT_EQ(Copy(10), "B0C");
  Backward();
  EXPECT_EQ(Copy(5), "L0.0=10MD15");
  Backward();
  EXPECT_EQ(Optimiser(), "L0.1=5S0(15x2)");
  EXPECT_EQ(Optimiser(), "");
  EXPECT_EQ(Copy(7), "B1C");  // evaluation
  EXPECT_EQ(Copy(8), "B1C");
  Backward();
  EXPECT_EQ(Copy(9), "L1.0=8MD17");
  Backward();
  EXPECT_EQ(Optimiser(), "L1.1=9S1(17x2)");
}

TEST_F(MatcherTest, ALengthToldBehindTheBeginOfAMicroBatchIsWaitedFor) {
  Rule rule = CopyRule();
  rule.boundary = rule.clock = On(Op::kForward);
  rule.confirm = On(Op::kForward, 7);
  rule.step = On(Op::kStep);
  rule.length[0].pattern = On(Op::kFeature, 9);
  rule.micro_batches = 2;
  matcher_.SetRule(rule, 0, false);
  EXPECT_EQ(Feed(Op::kForward, 7), "B0C");
  EXPECT_EQ(Feed(Op::kFeature, 9, 10), "");
  EXPECT_EQ(Feed(Op::kForward, 7), "L0.0=10M");
  EXPECT_EQ(Feed(Op::kFeature, 9, 5), "D15");
  EXPECT_EQ(Feed(Op::kStep), "L0.1=5S0(15x2)");
  EXPECT_EQ(Feed(Op::kForward, 8), "B1C");  // an evaluation batch
  EXPECT_EQ(Feed(Op::kFeature, 9, 99), "");
  EXPECT_EQ(Feed(Op::kForward, 7), "B1C");
}

TEST_F(MatcherTest, MicroBatchesTellLengthsThatWereCopiedAhead) {
  Rule rule = AccumulatingRule(2);
  rule.length[0].lag = 1;
  matcher_.SetRule(rule, 0, false);
  EXPECT_EQ(Copy(20), "B0C");
  Backward();
  EXPECT_EQ(Copy(30), "L0.0=?MD20");
  Backward();
  EXPECT_EQ(Optimiser(), "L0.1=20S0(20x2)");
  EXPECT_EQ(Copy(7), "B1C");  // evaluation
  EXPECT_EQ(Copy(40), "B1C");
  Backward();
  EXPECT_EQ(Copy(50), "L1.0=30MD70");
  Backward();
  EXPECT_EQ(Optimiser(), "L1.1=40S1(70x2)");
}

TEST_F(MatcherTest, MicroBatchesTellTheirCalls) {
  Rule rule = AccumulatingRule(2);
  rule.length[0].pattern = On(Op::kLaunch, 1);
  rule.length[0].field = static_cast<uint8_t>(LengthField::kCallCount);
  matcher_.SetRule(rule, 0, false);
  Copy(1), Forward(), Forward(), Forward(), Backward();
  EXPECT_EQ(Copy(1), "L0.0=3MD3");
  Forward(), Backward();
  EXPECT_EQ(Optimiser(), "L0.1=1S0(4x2)");
}

TEST_F(MatcherTest, WhatIsNoSumTellsNoMicroBatches) {
  Rule rule = AccumulatingRule(2);
  rule.length[0].fold = static_cast<uint8_t>(LengthFold::kFirst);
  matcher_.SetRule(rule, 0, false);
  Copy(10), Backward();
  EXPECT_EQ(Copy(5), "MD10");
  Backward();
  EXPECT_EQ(Optimiser(), "S0(10x2)");
  // The rule came in the middle of an iteration.
  matcher_.SetRule(AccumulatingRule(2), 0, true);
  EXPECT_EQ(Optimiser(), "S0(?x0)");
}

TEST_F(MatcherTest, PrefetchedLengthSkipsEvaluation) {
  Rule rule = CopyRule();
  rule.length[0].lag = 1;
  matcher_.SetRule(rule, 0, false);
  EXPECT_EQ(Copy(20), "B0C");  // the next batch's
  Backward();
  EXPECT_EQ(Optimiser(), "S0(?x1)");
  EXPECT_EQ(Copy(7), "B1D20C");  // evaluation
  Forward();
  EXPECT_EQ(Copy(30), "B1D20C");  // training: what evaluation copied is not its length
  Backward();
  EXPECT_EQ(Optimiser(), "S1(20x1)");
  EXPECT_EQ(Copy(40), "B2D30C");
}

TEST_F(MatcherTest, LagOfTwo) {
  Rule rule = CopyRule();
  rule.length[0].lag = 2;
  matcher_.SetRule(rule, 0, false);
  for (uint64_t bytes : {1, 2, 3}) Copy(bytes), Backward(), Optimiser();
  EXPECT_EQ(Copy(4), "B3D2C");
}

TEST_F(MatcherTest, WithoutStepEachBoundaryEndsTheOneBefore) {
  Rule rule = CopyRule();
  rule.confirm = rule.step = {};
  matcher_.SetRule(rule, 5, false);
  EXPECT_EQ(Copy(10), "B5!D10C");
  EXPECT_EQ(Copy(20), "S5(10x1)B6!D20C");
}

TEST_F(MatcherTest, RuleInTheMiddleOfAnIteration) {
  matcher_.SetRule(CopyRule(), 0, true);
  Backward();
  EXPECT_EQ(Optimiser(), "S0(?x0)");
  EXPECT_EQ(Copy(10), "B1D10C");
  matcher_.SetRule(CopyRule(), 0, false);
  EXPECT_EQ(Optimiser(), "");
}

TEST_F(MatcherTest, GroupOfCopiesAndOrdinal) {
  Rule rule = CopyRule();
  rule.boundary.match = kMatchNotPrevious;
  rule.boundary.previous_op = static_cast<uint8_t>(Op::kCopyH2D);
  rule.length[0].ordinal = 1;
  rule.clock = {};
  matcher_.SetRule(rule, 0, false);
  EXPECT_EQ(Copy(10), "B0");
  EXPECT_EQ(Copy(11), "D11");
  EXPECT_EQ(Copy(12), "");
  Forward(), Backward(), Optimiser();
  EXPECT_EQ(Copy(13), "B1");
}

TEST_F(MatcherTest, CountedBoundaryStartsAnewAfterTheStep) {
  Rule rule = CopyRule();
  rule.boundary.every = 2;
  rule.clock = {};
  rule.length_count = 0;
  matcher_.SetRule(rule, 0, false);
  EXPECT_EQ(Copy(1), "B0");
  EXPECT_EQ(Copy(1), "");
  EXPECT_EQ(Copy(1), "B0");
  Backward();
  EXPECT_EQ(Optimiser(), "S0(?x1)");
  EXPECT_EQ(Copy(1), "B1");
}

TEST_F(MatcherTest, CallCountIsFinalAtTheStep) {
  Rule rule = CopyRule();
  rule.length[0].pattern = On(Op::kLaunch, 1);
  rule.length[0].field = static_cast<uint8_t>(LengthField::kCallCount);
  matcher_.SetRule(rule, 0, false);
  EXPECT_EQ(Copy(1), "B0C");
  Forward(), Forward(), Forward(), Backward();
  EXPECT_EQ(Optimiser(), "S0(3x1)");
}

TEST_F(MatcherTest, ConditionsOnBytesAndGrid) {
  Rule rule = CopyRule();
  rule.boundary.match = kMatchBytesAtLeast;
  rule.boundary.bytes = 100;
  rule.length_count = 0;
  rule.clock = {};
  matcher_.SetRule(rule, 0, false);
  EXPECT_EQ(Copy(99), "");
  EXPECT_EQ(Copy(100), "B0");
  rule.boundary = On(Op::kLaunch);
  rule.boundary.match = kMatchGrid;
  rule.boundary.bytes = PackGrid(5, 0, 0);
  matcher_.SetRule(rule, 0, false);
  EXPECT_EQ(Feed(Op::kLaunch, 1, 4), "");
  EXPECT_EQ(Feed(Op::kLaunch, 1, 5), "B0");
}

TEST_F(MatcherTest, UnwatchedOperationsAreNotSeen) {
  Rule rule = CopyRule();
  rule.watched_ops = 1u << static_cast<uint32_t>(Op::kLaunch);
  matcher_.SetRule(rule, 0, false);
  EXPECT_EQ(Copy(10), "");
}

TEST(NameShapeTest, NumbersAreKeptApart) {
  const auto shape = [](const std::string& name) { return ShapeOfName(name.data(), name.size()); };
  const NameShape a = shape("step 17, 320 tokens"), b = shape("step 180, 6 tokens");
  EXPECT_EQ(a.hash, b.hash);
  ASSERT_EQ(a.digit_runs, 2u);
  EXPECT_EQ(a.digits[0], 17);
  EXPECT_EQ(a.digits[1], 320);
  EXPECT_NE(shape("step").hash, a.hash);
  EXPECT_EQ(shape("1 2 3 4 5").digit_runs, kMaxDigitRuns);
  EXPECT_GT(shape(std::string(300, '9')).digits[0], 0);
}

Rule CountedRule() {
  Rule rule = CopyRule();
  rule.confirm = On(Op::kGraphLaunch);
  rule.step = On(Op::kGraphLaunch);
  rule.step.match = kMatchAnchored;
  rule.step.every = 3;
  rule.step.phase = 2;
  rule.step.previous_name_hash = 77;
  rule.micro_batches = 3;
  return rule;
}

TEST_F(MatcherTest, CountedStepsFromTheStart) {
  matcher_.SetRule(CountedRule(), 0, /*inside=*/false);
  EXPECT_EQ(MicroBatches({{1, 5}, {2, 6}, {3, 7}}), "B0CL0.0=1ML0.1=2MD6L0.2=3S0(6x3)");
  EXPECT_EQ(MicroBatches({{1, 5}, {2, 6}, {3, 7}}), "B1CL1.0=1ML1.1=2MD6L1.2=3S1(6x3)");
}

TEST_F(MatcherTest, CountedStepsWaitForAKnownGraph) {
  matcher_.SetRule(CountedRule(), 0, /*inside=*/true);
  // The rule came between two micro-batches, and nobody knows which.
  EXPECT_EQ(MicroBatches({{1, 5}, {2, 6}, {3, 5}}), "");
  EXPECT_EQ(MicroBatches({{4, 77}}), "S0(?x0)");
  EXPECT_EQ(MicroBatches({{1, 5}, {2, 6}, {3, 7}}), "B1CL1.0=1ML1.1=2MD6L1.2=3S1(6x3)");
  // An epoch's last iteration has two micro-batches; the next known graph puts the count right.
  EXPECT_EQ(MicroBatches({{1, 5}, {2, 77}}), "B2CL2.0=1ML2.1=2S2(3x2)");
  EXPECT_EQ(MicroBatches({{1, 5}, {2, 6}, {3, 7}}), "B3CL3.0=1ML3.1=2MD6L3.2=3S3(6x3)");
}

}  // namespace
}  // namespace seqpoint::abi
