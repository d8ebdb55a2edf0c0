#include "injection/iterations/call_router.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/iteration_parts.h"

namespace seqpoint::inject {
namespace {

using abi::EventType;
using abi::Level;
using abi::Op;

Call CallOf(Op op, uint64_t begin_ns) {
  Call call = {};
  call.op = op;
  call.begin_ns = begin_ns;
  return call;
}

class CallRouterTest : public testing::Test {
 protected:
  // Iterations begin with a mark of the program, which carries their length, and end with a step.
  void FollowMarks() {
    control_->level = static_cast<uint8_t>(Level::kMark);
    abi::Rule& rule = control_->rule;
    rule.generation = 1;
    rule.watched_ops = OpBit(Op::kMark) | OpBit(Op::kStep);
    rule.boundary.op = static_cast<uint8_t>(Op::kMark);
    rule.clock = rule.boundary;
    rule.step.op = static_cast<uint8_t>(Op::kStep);
    rule.length_count = 1;
    rule.length[0].pattern = rule.boundary;
    rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kNamePayload);
    parts_->ring.Write(*control_);
    parts_->ring.control_block()->heartbeat_ns = MonotonicNs();
    parts_->state.boundary_monotonic_ns = 0;
    parts_->levels.Tick();
  }
  void Mark(uint64_t length) {
    Call call = CallOf(Op::kMark, now_ns_ += 1000);
    call.flags = abi::kCallHasPayload;
    call.bytes = length;
    parts_->router.OnCall(call);
  }
  void Step() { parts_->router.OnCall(CallOf(Op::kStep, now_ns_ += 1000)); }
  template <typename Event>
  std::vector<Event> Events(EventType type) {
    return parts_->ring.Events<Event>(type);
  }

  std::unique_ptr<IterationParts> parts_ = std::make_unique<IterationParts>();
  std::unique_ptr<abi::Control> control_ = std::make_unique<abi::Control>();
  uint64_t now_ns_ = 1'000'000;
};

TEST_F(CallRouterTest, WhileLearningEveryCallIsRecordedWithItsNumber) {
  Call launch = CallOf(Op::kLaunch, 100);
  launch.name = "gemm";
  launch.grid_x = 3;
  launch.grid_y = 70'000;
  launch.stream = 9;
  launch.correlation_id = 17;
  parts_->router.OnCall(launch);
  Call copy = CallOf(Op::kCopyH2D, 200);
  copy.bytes = 4096;
  parts_->router.OnCall(copy);
  const std::vector<abi::CallRecord> calls = parts_->ring.Calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].sequence, 0u);
  EXPECT_EQ(calls[0].op, static_cast<uint8_t>(Op::kLaunch));
  EXPECT_EQ(calls[0].name_id, 1u);
  EXPECT_EQ(calls[0].grid_x, 3u);
  EXPECT_EQ(calls[0].grid_y, 0xFFFF) << "what does not fit is cut";
  EXPECT_EQ(calls[0].stream, 9u);
  EXPECT_EQ(calls[0].correlation_id, 17u);
  EXPECT_EQ(calls[0].thread_id, ThreadId());
  EXPECT_EQ(calls[1].sequence, 1u);
  EXPECT_EQ(calls[1].bytes, 4096u);
  EXPECT_EQ(calls[1].api_ns, 200u);
}

TEST_F(CallRouterTest, ARuleTurnsCallsIntoIterations) {
  FollowMarks();
  Mark(320);
  Step();
  Mark(100);
  EXPECT_TRUE(parts_->ring.Calls().empty()) << "at mark calls are not recorded";
  const auto boundaries = Events<abi::BoundaryEvent>(EventType::kBoundary);
  ASSERT_EQ(boundaries.size(), 2u);
  EXPECT_EQ(boundaries[0].iteration, 0u);
  EXPECT_EQ(boundaries[1].iteration, 1u);
  EXPECT_EQ(boundaries[1].api_ns, now_ns_);
  EXPECT_EQ(boundaries[1].call_sequence, 2u);
  EXPECT_NE(boundaries[0].flags & abi::kDistorted, 0) << "the level was switched in it";
  EXPECT_EQ(boundaries[1].flags & abi::kDistorted, 0);
  const auto decisions = Events<abi::DecisionEvent>(EventType::kDecision);
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].length[0], 320);
  EXPECT_EQ(decisions[1].length[0], 100);
  const auto steps = Events<abi::StepEvent>(EventType::kStep);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].iteration, 0u);
  EXPECT_EQ(steps[0].length[0], 320);
  EXPECT_EQ(Events<abi::ClockEvent>(EventType::kClock).size(), 2u);
}

TEST_F(CallRouterTest, WhatTheRuleDoesNotNameIsNotSeen) {
  FollowMarks();
  const uint64_t before = parts_->state.calls;
  parts_->router.OnCall(CallOf(Op::kForward, 100));
  EXPECT_EQ(parts_->state.calls, before);
}

TEST_F(CallRouterTest, AnIterationThatWasSlowedDownIsDistorted) {
  FollowMarks();
  Mark(1);
  Step();
  Mark(2);
  parts_->router.Distort();
  Step();
  Mark(3);
  Step();
  Mark(4);
  const auto boundaries = Events<abi::BoundaryEvent>(EventType::kBoundary);
  ASSERT_EQ(boundaries.size(), 4u);
  EXPECT_EQ(boundaries[1].flags & abi::kDistorted, 0);
  EXPECT_NE(boundaries[2].flags & abi::kDistorted, 0);
  EXPECT_EQ(boundaries[3].flags & abi::kDistorted, 0);
}

TEST_F(CallRouterTest, TheFirstCallAfterAHoleSaysSo) {
  parts_->router.OnCall(CallOf(Op::kLaunch, 100));
  {
    LockGuard lock(&parts_->state.lock);
    parts_->handover.OnChange(/*hole=*/true);
  }
  parts_->router.OnCall(CallOf(Op::kLaunch, 200));
  parts_->router.OnCall(CallOf(Op::kLaunch, 300));
  const std::vector<abi::CallRecord> calls = parts_->ring.Calls();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].flags & abi::kCallAfterHole, 0);
  EXPECT_NE(calls[1].flags & abi::kCallAfterHole, 0);
  EXPECT_EQ(calls[2].flags & abi::kCallAfterHole, 0);
}

TEST_F(CallRouterTest, TheDaemonsWishIsAppliedAtTheBoundary) {
  FollowMarks();
  Mark(1);
  control_->level = static_cast<uint8_t>(Level::kPaused);
  parts_->ring.Write(*control_);
  Step();
  EXPECT_TRUE(parts_->state.Watches(Op::kMark));
  Mark(2);
  EXPECT_FALSE(parts_->state.Watches(Op::kMark));
  EXPECT_TRUE(parts_->token.TryTake()) << "the token is given back";
}

TEST_F(CallRouterTest, WhileAnotherThreadSwitchesTheBoundaryIsWrittenAndNothingSwitched) {
  FollowMarks();
  Mark(1);
  control_->level = static_cast<uint8_t>(Level::kPaused);
  parts_->ring.Write(*control_);
  const Switching other(&parts_->token);
  Step();
  Mark(2);
  EXPECT_TRUE(parts_->state.Watches(Op::kMark));
  EXPECT_EQ(Events<abi::BoundaryEvent>(EventType::kBoundary).size(), 2u);
}

TEST_F(CallRouterTest, NamesOfNvtxRangesNeedNoNumberUnlessTheyAreRecorded) {
  FollowMarks();
  control_->rule.generation = 2;
  control_->rule.watched_ops = OpBit(Op::kNvtxPush);
  control_->rule.boundary.op = static_cast<uint8_t>(Op::kNvtxPush);
  control_->rule.boundary.match = abi::kMatchName;
  control_->rule.boundary.name_hash = abi::ShapeOfName("step 1", 6).hash;
  control_->rule.length[0].pattern = control_->rule.boundary;
  control_->rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kNameDigits);
  control_->rule.step = {};
  parts_->ring.Write(*control_);
  parts_->state.boundary_monotonic_ns = 0;
  parts_->levels.Tick();
  for (int i = 0; i < 3; ++i) {
    Call push = CallOf(Op::kNvtxPush, now_ns_ += 1000);
    const std::string name = "step " + std::to_string(40 + i);
    push.name = name.c_str();
    parts_->router.OnCall(push);
  }
  EXPECT_TRUE(Events<abi::NameEvent>(EventType::kName).empty());
  const auto decisions = Events<abi::DecisionEvent>(EventType::kDecision);
  ASSERT_EQ(decisions.size(), 3u);
  EXPECT_EQ(decisions[2].length[0], 42);
}

}  // namespace
}  // namespace seqpoint::inject
