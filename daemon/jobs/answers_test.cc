#include "daemon/jobs/answers.h"

#include <cstdint>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

constexpr int kIterations = 300;

// As many iterations of seven lengths, in one order or another.
Answers::Facts FactsOfRun(int64_t said) {
  Answers::Facts facts;
  facts.dimensions = 1;
  facts.ranks = {0};
  if (said > 0) {
    EXPECT_TRUE(facts.engine.SetHorizon(Horizon::Iterations(said)).ok());
    facts.horizon_kind = v1::Horizon::KIND_ITERATIONS;
  }
  for (uint64_t i = 0; i < kIterations; ++i) {
    const auto length = static_cast<int64_t>(10 + i * i % 7);
    facts.engine.current().AddIteration(
        {.iteration = i,
         .key = {length, 0},
         .time_ns = 1'000'000 * length + static_cast<int64_t>(i * 7919 % 500'000)});
  }
  return facts;
}

v1::Projection TimeOf(Answers::Facts facts) {
  v1::ProjectRequest request;
  request.set_metric("time");
  request.set_confidence(0.95);
  const auto reply = Answers(std::move(facts)).Project(request);
  EXPECT_TRUE(reply.ok()) << reply.status();
  return reply.ok() ? reply->projection() : v1::Projection();
}

TEST(AnswersTest, AThousandIterationsOfARunThatIsOverAreThoseThatRan) {
  for (const int said : {kIterations, 0}) {
    const v1::Projection time = TimeOf(FactsOfRun(said));
    const v1::Estimate& whole = said > 0 ? time.total() : time.so_far();
    EXPECT_EQ(whole.low(), whole.high());
    EXPECT_DOUBLE_EQ(time.per_1000_iterations().value(), whole.value() / kIterations * 1000);
    EXPECT_DOUBLE_EQ(time.per_1000_iterations().low(), time.per_1000_iterations().high());
  }
}

TEST(AnswersTest, AThousandIterationsOfARunThatGoesOnAreAForecast) {
  Answers::Facts facts = FactsOfRun(0);
  facts.live = true;
  const v1::Estimate next = TimeOf(std::move(facts)).per_1000_iterations();
  EXPECT_LT(next.low(), next.value());
  EXPECT_GT(next.high(), next.value());
}

TEST(AnswersTest, NoMoreMeasurementsAreTakenThanAreWanted) {
  Answers::Facts facts = FactsOfRun(kIterations);
  facts.plan.budget = 2;  // less than before
  facts.plan.sets = {1};
  for (uint64_t i = 200; i < 205; ++i) {
    ASSERT_TRUE(facts.engine.current()
                    .AddMeasurement(1, i, {static_cast<int64_t>(10 + i * i % 7), 0}, {1.0})
                    .ok());
  }
  const v1::SeqPointsSummary summary = Answers(std::move(facts)).Summarise().seqpoints;
  EXPECT_EQ(summary.measurements(), 5);
  EXPECT_EQ(summary.measurements_wanted(), 5);
}

}  // namespace
}  // namespace seqpoint::jobs
