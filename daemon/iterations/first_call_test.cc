#include "daemon/iterations/first_call.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace seqpoint::iterations {
namespace {

using abi::Op;

// c: copy to the device; r: copy back; m: memset; f, b, o: launches of the forward pass, of the
// backward pass and of the optimiser; F, S: a framework's forward pass and step; _: a second.
class FirstCallTest : public ::testing::Test {
 protected:
  FirstCallTest() {
    for (const char* name : {"f", "b", "o"}) names_.Add(static_cast<uint32_t>(name[0]), name);
  }
  std::optional<size_t> Of(const std::string& text, const abi::Rule& rule) {
    std::vector<abi::CallRecord> calls;
    uint64_t ns = 0;
    for (const char letter : text) {
      if (letter == ' ') continue;
      if (letter == '_') {
        ns += 1'000'000'000;
        continue;
      }
      abi::CallRecord call = {};
      call.sequence = calls.size();
      call.api_ns = ns += 1000;
      call.op = static_cast<uint8_t>(OpOf(letter));
      if (call.op == static_cast<uint8_t>(Op::kLaunch))
        call.name_id = static_cast<uint32_t>(letter);
      calls.push_back(call);
    }
    return FirstCall(calls, names_, rule);
  }
  static Op OpOf(char letter) {
    switch (letter) {
      case 'c':
        return Op::kCopyH2D;
      case 'r':
        return Op::kCopyD2H;
      case 'm':
        return Op::kMemset;
      case 'F':
        return Op::kForward;
      case 'S':
        return Op::kStep;
      default:
        return Op::kLaunch;
    }
  }
  static abi::EventPattern On(char letter) {
    abi::EventPattern pattern = {};
    pattern.op = static_cast<uint8_t>(OpOf(letter));
    if (OpOf(letter) == Op::kLaunch) {
      pattern.match = abi::kMatchName;
      pattern.name_hash = abi::NameHash(&letter, 1);
    }
    return pattern;
  }
  // The first of a group of copies, also by its clock; the backward pass; the optimiser.
  static abi::Rule GroupRule() {
    abi::Rule rule = {};
    rule.generation = 1;
    rule.watched_ops = ~0u;
    rule.boundary = On('c');
    rule.boundary.match = abi::kMatchNotPrevious;
    rule.boundary.previous_op = rule.boundary.op;
    rule.confirm = On('b');
    rule.step = On('o');
    rule.clock = rule.boundary;
    return rule;
  }
  // The framework's passes, with the batch's copy as the clock.
  static abi::Rule FrameworkRule() {
    abi::Rule rule = {};
    rule.generation = 1;
    rule.watched_ops = ~0u;
    rule.boundary = rule.confirm = On('F');
    rule.step = On('S');
    rule.clock = On('c');
    return rule;
  }

  NameTable names_;
};

TEST_F(FirstCallTest, TheUploadOfTheParametersIsNoPartOfTheFirstBatch) {
  EXPECT_EQ(Of("cccccc fbo ccfbo ccfbo ccfbo c", GroupRule()), 4u);
}

TEST_F(FirstCallTest, NothingIsSaidWhereTheRuleTellsIt) {
  EXPECT_EQ(Of("ccfbo ccfbo ccfbo c", GroupRule()), std::nullopt);
  EXPECT_EQ(Of("cccccc m ccfbo ccfbo ccfbo c", GroupRule()), std::nullopt) << "a memset between";
  EXPECT_EQ(Of("", GroupRule()), std::nullopt);
}

TEST_F(FirstCallTest, NothingIsKnownOfASingleIteration) {
  EXPECT_EQ(Of("cccccc fbo ccf", GroupRule()), std::nullopt);
}

TEST_F(FirstCallTest, TheUsualGroupDecides) {
  // Before the third iteration a table is copied, too, and before the fourth an evaluation runs.
  EXPECT_EQ(Of("cccccc fbo ccfbo cccccfbo ccf ccfbo ccfbo c", GroupRule()), 4u);
}

TEST_F(FirstCallTest, AClockBeforeTheFirstBoundaryIsFound) {
  EXPECT_EQ(Of("cccc cc F fb S cc F fb S cc F fb S cc", FrameworkRule()), 4u);
  EXPECT_EQ(Of("cc F fb S cc F fb S cc F fb S cc", FrameworkRule()), 0u);
}

TEST_F(FirstCallTest, WhatCameLongBeforeIsNotTaken) {
  // The first batch is one copy, others are two.
  EXPECT_EQ(Of("cccc _ c F fb S cc F fb S cc F fb S cc", FrameworkRule()), std::nullopt);
  EXPECT_EQ(Of("cccc _ cc F fb S cc F fb S cc F fb S cc", FrameworkRule()), 4u);
}

TEST_F(FirstCallTest, WhereLaterIterationsDifferNothingIsSaid) {
  EXPECT_EQ(Of("cccccc fbo ccfbo cccfbo c", GroupRule()), std::nullopt);
}

TEST_F(FirstCallTest, RulesThatCountCallsAreLeftAlone) {
  abi::Rule rule = GroupRule();
  rule.step.every = 2;
  EXPECT_EQ(Of("cccccc fbo ccfbo ccfbo ccfbo c", rule), std::nullopt);
}

}  // namespace
}  // namespace seqpoint::iterations
