#include "injection/iterations/measurement_window.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace seqpoint::inject {
namespace {

constexpr uint16_t kCounters = 7;
constexpr uint32_t kAtBoundary = abi::kMatchedBoundary | abi::kMatchedDecision;

class FakeReadiness final : public Readiness {
 public:
  bool CanBegin(uint16_t config_id) override { return ready.count(config_id) != 0; }
  bool CanCount(uint16_t config_id) override { return countable.count(config_id) != 0; }
  bool OfKernels(uint16_t) override { return false; }

  std::set<uint16_t> ready = {abi::kConfigTrace, kCounters};
  std::set<uint16_t> countable = {kCounters};
};

// A loop whose iterations have one length.
class MeasurementWindowTest : public testing::Test {
 protected:
  MeasurementWindowTest() {
    control_->measurement_cap = 100;
    rule_.generation = 1;
    rule_.length_count = 1;
    rule_.length[0].field = static_cast<uint8_t>(abi::LengthField::kBytes);
    SetRule();
  }
  void SetRule() {
    state_->matcher.SetRule(rule_, 0, false);
    window_->BeginRule(rule_);
  }
  // Iterations of this length are to be measured.
  void Want(int64_t length, uint16_t config_id, uint32_t quota = 1) {
    control_->plan[control_->plan_count] = {
        {length, INT64_MIN}, {length, INT64_MAX}, config_id, 0, quota, control_->plan_count + 1u};
    ++control_->plan_count;
    window_->ApplyPlan(*control_);
  }
  // The answer to a boundary; `length`: known there, else 0.
  DeferredActions Boundary(int64_t length, bool may_switch = true) {
    ++iteration_;
    DeferredActions actions = {};
    window_->OnBoundary(may_switch, &actions);
    window_->Decide(Result(length), length != 0 ? kAtBoundary : abi::kMatchedBoundary, 0,
                    may_switch, &actions);
    return actions;
  }
  // The lengths are known behind the boundary.
  DeferredActions Decision(int64_t length) {
    DeferredActions actions = {};
    window_->Decide(Result(length), abi::kMatchedDecision, 0, true, &actions);
    return actions;
  }
  bool Step(int64_t length) {
    abi::MatchResult result = {};
    result.step.iteration = iteration_;
    result.step.length[0] = length;
    result.step.valid = 1;
    return window_->OnStep(result);
  }
  abi::MatchResult Result(int64_t length) const {
    abi::MatchResult result = {};
    result.iteration = iteration_;
    result.length[0] = length;
    result.valid = length != 0 ? 1 : 0;
    return result;
  }

  std::unique_ptr<IterationState> state_ = std::make_unique<IterationState>();
  std::unique_ptr<abi::Control> control_ = std::make_unique<abi::Control>();
  FakeReadiness readiness_;
  std::unique_ptr<MeasurementWindow> window_ =
      std::make_unique<MeasurementWindow>(state_.get(), &readiness_);
  abi::Rule rule_ = {};
  uint64_t iteration_ = 0;
};

TEST_F(MeasurementWindowTest, AWantedLengthAtTheBoundaryIsMeasuredToTheNextOne) {
  Want(320, abi::kConfigTrace);
  EXPECT_FALSE(Boundary(100).open);
  EXPECT_TRUE(Boundary(320).open);
  EXPECT_TRUE(window_->Measures(iteration_));
  EXPECT_TRUE(state_->distorted);
  EXPECT_FALSE(Step(320));
  const DeferredActions next = Boundary(320);
  EXPECT_TRUE(next.close);
  EXPECT_FALSE(next.open) << "the quota is used up";
  EXPECT_EQ(window_->closing()->iteration, iteration_ - 1);
  EXPECT_TRUE(window_->closing()->stepped);
  EXPECT_FALSE(window_->closing()->unwanted);
}

TEST_F(MeasurementWindowTest, AnIterationIsTracedForItsNumberWhateverItsLengths) {
  Want(320, kCounters, 10);
  for (const bool known : {true, false}) {
    control_->traced_iteration = iteration_ + 3;  // the next but one
    window_->ApplyPlan(*control_);
    EXPECT_FALSE(Boundary(100).open);
    EXPECT_TRUE(Boundary(known ? 320 : 0).open);
    EXPECT_EQ(window_->kind(), Measurement::Kind::kTrace);
    EXPECT_TRUE(window_->Measures(iteration_));
    if (!known) {
      EXPECT_FALSE(Decision(57).close);
    }
    EXPECT_FALSE(Step(57));
    EXPECT_TRUE(Boundary(100).close);
    EXPECT_FALSE(window_->closing()->unwanted);
    EXPECT_FALSE(window_->closing()->speculative);
  }
  // It takes nothing of the plan's quota, and is not taken up later when it could not begin.
  control_->traced_iteration = iteration_ + 2;
  readiness_.ready = {kCounters};
  window_->ApplyPlan(*control_);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Boundary(320).open);
    EXPECT_EQ(window_->kind(), Measurement::Kind::kCounters);
    Step(320);
  }
}

TEST_F(MeasurementWindowTest, WhileAnotherThreadSwitchesNothingBegins) {
  Want(320, abi::kConfigTrace);
  EXPECT_FALSE(Boundary(320, /*may_switch=*/false).open);
  EXPECT_TRUE(Boundary(320).open);
  // It cannot be closed either; one iteration later it is worth nothing.
  EXPECT_FALSE(Boundary(320, /*may_switch=*/false).close);
  EXPECT_TRUE(Boundary(320).close);
  EXPECT_TRUE(window_->closing()->unwanted);
}

TEST_F(MeasurementWindowTest, WhatIsNotReadyWaits) {
  Want(320, kCounters);
  readiness_.ready = {abi::kConfigTrace};
  EXPECT_FALSE(Boundary(320).open);
  EXPECT_TRUE(window_->WantsCounters());
  readiness_.ready = {kCounters};
  EXPECT_TRUE(Boundary(320).open);
  EXPECT_EQ(window_->kind(), Measurement::Kind::kCounters);
}

TEST_F(MeasurementWindowTest, ALengthThatTheStepDeniesIsUnwanted) {
  Want(320, abi::kConfigTrace);
  Boundary(320);
  Step(640);
  Boundary(100);
  EXPECT_TRUE(window_->closing()->unwanted);
}

TEST_F(MeasurementWindowTest, ADecisionBeforeAnyWorkOpensAndOneBehindItDoesNot) {
  Want(320, abi::kConfigTrace, 10);
  Boundary(0);
  EXPECT_TRUE(Decision(320).open);
  EXPECT_TRUE(Boundary(0).close);
  window_->OnWork();
  EXPECT_FALSE(Decision(320).open);
}

TEST_F(MeasurementWindowTest, WhereLengthsComeBehindWorkTheWindowIsSpeculative) {
  Want(320, abi::kConfigTrace, 10);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(Boundary(0).open);
    EXPECT_TRUE(window_->probing());
    window_->OnWork();
    Decision(320);
  }
  EXPECT_FALSE(window_->probing());
  // Opened at the boundary, kept for a wanted length.
  EXPECT_TRUE(Boundary(0).open);
  EXPECT_FALSE(window_->Measures(iteration_));
  EXPECT_FALSE(Decision(320).close);
  EXPECT_TRUE(window_->Measures(iteration_));
  EXPECT_TRUE(Boundary(0).open);
  // Given up at once for another one.
  EXPECT_TRUE(Decision(100).close);
  EXPECT_TRUE(window_->closing()->unwanted);
  EXPECT_TRUE(window_->closing()->speculative);
  EXPECT_FALSE(window_->open());
}

TEST_F(MeasurementWindowTest, TheStepMayTellTheLengthsOfASpeculativeWindow) {
  rule_.length[0].field = static_cast<uint8_t>(abi::LengthField::kCallCount);
  SetRule();
  Want(12, abi::kConfigTrace);
  EXPECT_TRUE(Boundary(0).open);
  EXPECT_TRUE(Step(12));
  EXPECT_TRUE(Boundary(0).close);
  EXPECT_FALSE(window_->closing()->unwanted);
  EXPECT_EQ(window_->closing()->length[0], 12);
}

TEST_F(MeasurementWindowTest, AFailedMeasurementIsTriedAgain) {
  Want(320, abi::kConfigTrace);
  EXPECT_TRUE(Boundary(320).open);
  EXPECT_TRUE(Boundary(320).close);
  window_->OnFailed(0);
  EXPECT_TRUE(Boundary(320).open);
  window_->Drop();
  EXPECT_FALSE(window_->open());
  EXPECT_TRUE(Boundary(320).open);
}

TEST_F(MeasurementWindowTest, ARuleWithoutLengthsIsMeasuredAtItsBoundary) {
  rule_.length_count = 0;
  SetRule();
  control_->plan[0] = {{INT64_MIN, INT64_MIN}, {INT64_MAX, INT64_MAX}, kCounters, 0, 1, 1};
  control_->plan_count = 1;
  window_->ApplyPlan(*control_);
  EXPECT_TRUE(Boundary(0).open);
  EXPECT_TRUE(window_->Measures(iteration_));
}

TEST_F(MeasurementWindowTest, OperatorsAreWantedOfTheOpenIterationAlone) {
  Want(320, abi::kConfigOperators, 0);
  int64_t length[2] = {};
  EXPECT_EQ(window_->WantsOperators(length), MeasurementWindow::kNotWanted);
  Boundary(320);
  EXPECT_EQ(window_->WantsOperators(length), 1);
  EXPECT_EQ(length[0], 320);
  Boundary(100);
  EXPECT_EQ(window_->WantsOperators(length), MeasurementWindow::kNotWanted);
}

}  // namespace
}  // namespace seqpoint::inject
