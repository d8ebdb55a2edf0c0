#include "daemon/jobs/measurement_plan.h"

#include "daemon/jobs/control_writer.h"
#include "daemon/jobs/orders.h"
#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

class MeasurementTest : public testing::Test {
 protected:
  // A process that marks iterations.
  Process& Add(int64_t id, int32_t rank) {
    return processes_.Add(std::make_unique<Process>(ProcessRow{.process_id = id, .rank = rank}));
  }
  int64_t Affordable(double share, int64_t iterations = 100) {
    return AffordableMeasurements(processes_, {.share = share,
                                               .most_pending = 64,
                                               .run_iterations = 1000,
                                               .observed_time_ns = 1e6 * 100,
                                               .iterations = iterations});
  }
  bool UpdatePlan(int64_t affordable) {
    return plan_.Update({.has_rule = true,
                         .measurement_budget = 64,
                         .orders = orders_.state(),
                         .processes = processes_,
                         .work = engine_,
                         .roofline = roofline_,
                         .metrics = metrics_,
                         .affordable = affordable});
  }
  abi::Control ControlOf(const Process& process) {
    return WriteControl(
        process,
        {.orders = orders_.state(),
         .processes = processes_,
         .metrics = metrics_,
         .plan = plan_,
         .observed = observed_,
         .shares = MeasurementShares(processes_, std::min<int64_t>(64, plan_.affordable_total())),
         .rule = &rule_},
        orders_.NextGeneration());
  }
  void See(int iterations) {
    for (int i = 0; i < iterations; ++i) {
      const int64_t length = 10 + i % 5;
      engine_.current().AddIteration(
          {.iteration = static_cast<uint64_t>(i), .key = {length, 0}, .time_ns = 1000 * length});
      observed_.Add(0, length);
    }
    rule_.rule.length_count = 1;
    rule_.rule.micro_batches = 1;
    ASSERT_TRUE(engine_.SetHorizon(Horizon::Iterations(1000)).ok());
  }

  ProcessTable processes_;
  Orders orders_{0.01};
  RunEngine engine_;
  RooflineMeasurements roofline_;
  MetricCollection metrics_;
  MeasurementPlan plan_;
  ObservedLengths observed_;
  iterations::LearnedRule rule_ = {};
};

TEST_F(MeasurementTest, TheFirstTellsThePriceAndTheBudgetPaysForTheRest) {
  Process& process = Add(1, 0);
  EXPECT_EQ(Affordable(0.01), 2) << "no price is known";
  process.state.set_measurements_started(2);
  process.state.set_stops(2);
  process.state.set_stopped_duration_ns(200'000);
  const int64_t affordable = Affordable(0.01);
  EXPECT_GT(affordable, 10);
  EXPECT_LE(affordable, 64);
  EXPECT_LT(Affordable(0.001), affordable);
  EXPECT_EQ(Affordable(0), 0);
  process.state.set_watching_ns(1, 1'000'000'000);
  EXPECT_GT(Affordable(0.01), 0) << "half of it is for measuring";
  EXPECT_LT(Affordable(0.01), affordable);
}

TEST_F(MeasurementTest, RanksHaveEqualSharesOfWhatIsLeft) {
  Process& first = Add(1, 0);
  Process& second = Add(2, 1);
  const MeasurementShares both(processes_, 9);
  EXPECT_EQ(both.CapOf(first), 4);
  EXPECT_EQ(both.CapOf(second), 5);
  EXPECT_EQ(both.measuring(), 2u);
  EXPECT_EQ(both.PlaceOf(second), 1u);
  first.state.set_measurements_started(6);
  const MeasurementShares late(processes_, 9);
  EXPECT_EQ(late.CapOf(second), 3) << "it finds what the other one left";
  EXPECT_EQ(late.measuring(), 1u);
  EXPECT_EQ(late.PlaceOf(second), 0u);
  second.state.set_aligning(true);
  EXPECT_FALSE(IsAbleToMeasure(second));
  EXPECT_EQ(MeasurementShares(processes_, 9).CapOf(first), 9);
}

TEST_F(MeasurementTest, APlanIsAnotherOnlyWhenItsEntriesOrItsCapAre) {
  Process& process = Add(1, 0);
  See(50);
  EXPECT_TRUE(UpdatePlan(20));
  EXPECT_FALSE(plan_.entries().empty());
  EXPECT_FALSE(UpdatePlan(20));
  const abi::Control control = ControlOf(process);
  EXPECT_EQ(control.level, static_cast<uint8_t>(abi::Level::kMark));
  EXPECT_EQ(control.measurement_cap, 20u);
  EXPECT_GT(control.plan_count, 0);
  EXPECT_TRUE(UpdatePlan(0)) << "the budget is spent";
  EXPECT_TRUE(plan_.entries().empty());
  EXPECT_NE(plan_.waits(), "");
}

TEST_F(MeasurementTest, OrdersStopMeasuringAndSayWhatIsMissing) {
  Process& process = Add(1, 0);
  See(50);
  UpdatePlan(20);
  std::string gap;
  v1::ControlRequest request;
  request.set_action(v1::ControlRequest::ACTION_RELEASE_CUPTI);
  ASSERT_TRUE(orders_.Apply(request, 50, true, gap).ok());
  EXPECT_EQ(ControlOf(process).level, static_cast<uint8_t>(abi::Level::kReleased));
  UpdatePlan(20);
  EXPECT_TRUE(plan_.entries().empty());
  EXPECT_EQ(gap, "");
  request.set_action(v1::ControlRequest::ACTION_RESUME);
  ASSERT_TRUE(orders_.Apply(request, 50, true, gap).ok());
  EXPECT_NE(gap.find("around iteration 50"), std::string::npos);
  request.set_action(v1::ControlRequest::ACTION_SET_LEVEL);
  request.set_level(v1::LEVEL_TRACE);
  EXPECT_FALSE(orders_.Apply(request, 50, /*can_trace=*/false, gap).ok());
  ASSERT_TRUE(orders_.Apply(request, 50, true, gap).ok());
  EXPECT_EQ(ControlOf(process).level, static_cast<uint8_t>(abi::Level::kTrace));
  Orders restored(0.5);
  restored.Load(orders_.state());
  request.set_level(v1::LEVEL_UNSPECIFIED);
  ASSERT_TRUE(restored.Apply(request, 80, true, gap).ok());
  EXPECT_NE(gap.find("between iterations 50 and 80"), std::string::npos);
  request.set_action(v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET);
  request.set_overhead_budget_share(1.5);
  EXPECT_FALSE(orders_.Apply(request, 50, true, gap).ok());
}

TEST_F(MeasurementTest, ALengthThatTheProcessNeverHadIsNotMeasuredOnIt) {
  Process& first = Add(1, 0);
  Add(2, 1);
  See(50);
  UpdatePlan(40);
  EXPECT_EQ(ControlOf(first).plan_count, 0) << "each length would come for the first time";
  for (int64_t length = 10; length < 15; ++length) first.seen.Add({{length, 0}}, 1);
  EXPECT_GT(ControlOf(first).plan_count, 0);
}

}  // namespace
}  // namespace seqpoint::jobs
