#include "injection/iterations/level_switch.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/support/iteration_parts.h"

namespace seqpoint::inject {
namespace {

using abi::Level;
using abi::Op;

constexpr uint64_t kSecond = 1'000'000'000;

// A loop that copies a batch, and has its optimiser step in a launch.
abi::Rule BatchRule() {
  abi::Rule rule = {};
  rule.generation = 1;
  rule.watched_ops = OpBit(Op::kCopyH2D) | OpBit(Op::kLaunch);
  rule.boundary.op = static_cast<uint8_t>(Op::kCopyH2D);
  rule.clock = rule.boundary;
  rule.step.op = static_cast<uint8_t>(Op::kLaunch);
  return rule;
}

class LevelSwitchTest : public testing::Test {
 protected:
  // The daemon writes a control block, gives a sign of life, and the helper thread's turn comes in
  // a loop that meets no boundary.
  void Apply(Level level, const abi::Rule& rule = {}) {
    control_->level = static_cast<uint8_t>(level);
    control_->rule = rule;
    parts_->ring.Write(*control_);
    parts_->ring.control_block()->heartbeat_ns = MonotonicNs();
    parts_->state.boundary_monotonic_ns = MonotonicNs() - 2 * kSecond;
    parts_->state.calls = 0;
    parts_->levels.Tick();
  }
  uint32_t watched() const { return parts_->state.watched.load(); }
  std::vector<abi::RuleEvent> Rules() {
    return parts_->ring.Events<abi::RuleEvent>(abi::EventType::kRule);
  }

  std::unique_ptr<IterationParts> parts_ = std::make_unique<IterationParts>();
  std::unique_ptr<abi::Control> control_ = std::make_unique<abi::Control>();
};

TEST_F(LevelSwitchTest, ItBeginsByWatchingAll) {
  EXPECT_EQ(watched(), kAllOps);
  EXPECT_TRUE(parts_->state.is_learning());
  ASSERT_EQ(Rules().size(), 1u);
  EXPECT_EQ(Rules()[0].level, static_cast<uint8_t>(Level::kLearn));
}

TEST_F(LevelSwitchTest, AtMarkOnlyWhatTheRuleNamesIsWatched) {
  Apply(Level::kMark, BatchRule());
  EXPECT_FALSE(parts_->state.is_learning());
  EXPECT_EQ(watched(), OpBit(Op::kCopyH2D) | OpBit(Op::kLaunch));
  ASSERT_EQ(Rules().size(), 2u);
  EXPECT_EQ(Rules()[1].rule_generation, 1u);
  EXPECT_EQ(Rules()[1].level, static_cast<uint8_t>(Level::kMark));
  EXPECT_TRUE(parts_->state.distorted);
}

TEST_F(LevelSwitchTest, WhileItIsNotKnownWhenLengthsComeWorkIsWatchedToo) {
  abi::Rule rule = BatchRule();
  rule.length_count = 1;
  rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kBytes);
  Apply(Level::kMark, rule);
  EXPECT_EQ(watched() & kWorkOps, kWorkOps);
}

TEST_F(LevelSwitchTest, ARuleWithoutAClockHasWaitsWatched) {
  abi::Rule rule = BatchRule();
  rule.clock = {};
  Apply(Level::kMark, rule);
  EXPECT_EQ(watched() & kWaitOps, kWaitOps);
}

TEST_F(LevelSwitchTest, WithoutCallbacksHalfARuleIsNoRule) {
  parts_->ownership.Pretend(CuptiOwnership::Share::kNothing);
  Apply(Level::kMark, BatchRule());
  EXPECT_EQ(watched(), 0u);
  abi::Rule marks = {};
  marks.generation = 2;
  marks.watched_ops = OpBit(Op::kMark);
  marks.boundary.op = static_cast<uint8_t>(Op::kMark);
  Apply(Level::kMark, marks);
  EXPECT_EQ(watched(), OpBit(Op::kMark));
}

TEST_F(LevelSwitchTest, PausedWatchesNothingAndReleasedIsToldToTheHelperThread) {
  Apply(Level::kMark, BatchRule());
  Apply(Level::kPaused, BatchRule());
  EXPECT_EQ(watched(), 0u);
  EXPECT_FALSE(parts_->ownership.release_wanted());
  Apply(Level::kReleased, BatchRule());
  EXPECT_TRUE(parts_->ownership.release_wanted());
  // Calls passed unseen: the first one that is seen again says so.
  Apply(Level::kLearn);
  EXPECT_FALSE(parts_->ownership.release_wanted());
  EXPECT_TRUE(parts_->state.after_hole);
}

TEST_F(LevelSwitchTest, AnUnknownLevelPauses) {
  control_->level = 99;
  Apply(static_cast<Level>(99), BatchRule());
  EXPECT_EQ(watched(), 0u);
}

TEST_F(LevelSwitchTest, ARunningLoopIsSwitchedAtItsBoundaryOnly) {
  Apply(Level::kMark, BatchRule());
  control_->level = static_cast<uint8_t>(Level::kPaused);
  parts_->ring.Write(*control_);
  parts_->state.boundary_monotonic_ns = MonotonicNs();
  parts_->levels.Tick();
  EXPECT_NE(watched(), 0u);
  DeferredActions actions = {};
  actions.apply = true;
  ASSERT_TRUE(parts_->token.TryTake());
  parts_->levels.Perform(nullptr, actions);
  EXPECT_EQ(watched(), 0u);
  EXPECT_TRUE(parts_->token.TryTake()) << "Perform gives the token back";
}

TEST_F(LevelSwitchTest, WhileAnotherThreadSwitchesTheTickWaits) {
  const Switching other(&parts_->token);
  Apply(Level::kPaused);
  EXPECT_EQ(watched(), kAllOps);
}

TEST_F(LevelSwitchTest, MetricConfigurationsHaveAGenerationOfTheirOwn) {
  auto copy = std::make_unique<WantedConfigs>();
  parts_->control.CopyConfigs(copy.get());
  EXPECT_EQ(copy->generation, 0u);
  Apply(Level::kMark, BatchRule());
  Apply(Level::kPaused, BatchRule());
  parts_->control.CopyConfigs(copy.get());
  EXPECT_EQ(copy->generation, 1u) << "a level is no reason to build them again";
  control_->config[0].config_id = 2;
  Apply(Level::kMark, BatchRule());
  parts_->control.CopyConfigs(copy.get());
  EXPECT_EQ(copy->generation, 2u);
  EXPECT_EQ(copy->configs[0].config_id, 2);
}

}  // namespace
}  // namespace seqpoint::inject
