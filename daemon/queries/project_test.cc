#include "daemon/queries/project.h"

#include <cstdint>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::queries {
namespace {

constexpr int kIterations = 300;

// As many iterations of seven lengths, in one order or another.
jobs::SnapshotData DataOfRun(int64_t said) {
  jobs::SnapshotData data;
  data.dimensions = 1;
  data.ranks = {0};
  if (said > 0) {
    EXPECT_TRUE(data.engine.SetHorizon(Horizon::Iterations(said)).ok());
    data.horizon_kind = v1::Horizon::KIND_ITERATIONS;
  }
  for (uint64_t i = 0; i < kIterations; ++i) {
    const auto length = static_cast<int64_t>(10 + i * i % 7);
    data.engine.current().AddIteration(
        {.iteration = i,
         .key = {length, 0},
         .time_ns = 1'000'000 * length + static_cast<int64_t>(i * 7919 % 500'000)});
  }
  return data;
}

v1::Projection TimeOf(jobs::SnapshotData data) {
  v1::ProjectRequest request;
  request.set_metric("time");
  request.set_confidence(0.95);
  const auto reply = Project(jobs::Snapshot(std::move(data)), request);
  EXPECT_TRUE(reply.ok()) << reply.status();
  return reply.ok() ? reply->projection() : v1::Projection();
}

TEST(ProjectTest, AThousandIterationsOfARunThatIsOverAreThoseThatRan) {
  for (const int said : {kIterations, 0}) {
    const v1::Projection time = TimeOf(DataOfRun(said));
    const v1::Estimate& whole = said > 0 ? time.total() : time.so_far();
    EXPECT_EQ(whole.low(), whole.high());
    EXPECT_DOUBLE_EQ(time.per_1000_iterations().value(), whole.value() / kIterations * 1000);
    EXPECT_DOUBLE_EQ(time.per_1000_iterations().low(), time.per_1000_iterations().high());
  }
}

TEST(ProjectTest, AThousandIterationsOfARunThatGoesOnAreAForecast) {
  jobs::SnapshotData data = DataOfRun(0);
  data.live = true;
  const v1::Estimate next = TimeOf(std::move(data)).per_1000_iterations();
  EXPECT_LT(next.low(), next.value());
  EXPECT_GT(next.high(), next.value());
}

TEST(ProjectTest, NoMoreMeasurementsAreTakenThanAreWanted) {
  jobs::SnapshotData data = DataOfRun(kIterations);
  data.plan.budget = 2;  // less than before
  data.plan.sets = {1};
  for (uint64_t i = 200; i < 205; ++i) {
    ASSERT_TRUE(data.engine.current()
                    .AddMeasurement(1, i, {static_cast<int64_t>(10 + i * i % 7), 0}, {1.0})
                    .ok());
  }
  const v1::SeqPointsSummary summary = jobs::Snapshot(std::move(data)).Summarise().seqpoints;
  EXPECT_EQ(summary.measurements(), 5);
  EXPECT_EQ(summary.measurements_wanted(), 5);
}

}  // namespace
}  // namespace seqpoint::queries
