#include "daemon/jobs/measurement_tracker.h"

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

const std::vector<double> kValues = {1, 2};

MeasuredIterationState Iteration(int64_t first, uint64_t sample) {
  MeasuredIterationState iteration;
  iteration.set_first(first);
  iteration.set_sample(sample);
  return iteration;
}

TEST(MeasurementTracker, TheTwoFindEachOtherWhicheverComesFirst) {
  MeasurementsState state;
  EXPECT_FALSE(OnMeasurement(5, 9, kValues, state));
  const auto measurements = OnMeasuredIteration(5, Iteration(37, 50), state);
  ASSERT_EQ(measurements.size(), 1u);
  EXPECT_EQ(measurements[0].set(), 9u);
  EXPECT_EQ(measurements[0].values_size(), 2);
  EXPECT_TRUE(OnMeasuredIteration(5, Iteration(37, 50), state).empty()) << "it was handed out";

  EXPECT_TRUE(OnMeasuredIteration(6, Iteration(38, 60), state).empty());
  const auto iteration = OnMeasurement(6, 9, kValues, state);
  ASSERT_TRUE(iteration);
  EXPECT_EQ(iteration->first(), 38);
  EXPECT_EQ(iteration->sample(), 60u);
}

TEST(MeasurementTracker, AResultThatIsTooLateIsNotUsed) {
  MeasurementsState state;
  OnMeasuredIteration(5, Iteration(37, 50), state);
  OnMeasuredIteration(6 + kResultPatience, Iteration(38, 60), state);
  EXPECT_FALSE(OnMeasurement(5, 9, kValues, state));
}

TEST(MeasurementTracker, OneThatStartedIsOpenUntilItsResultComesOrItFails) {
  MeasurementsState state;
  StartedMeasurementState started;
  started.set_set(9);
  for (uint64_t number : {5, 6, 7, 8}) OnStarted(number, started, state);
  OnMeasuredIteration(5, Iteration(37, 50), state);
  EXPECT_EQ(state.started_size(), 4) << "its values have not come";
  OnMeasurement(5, 9, kValues, state);
  EXPECT_FALSE(state.started().contains(5));
  OnMeasurement(6, 9, kValues, state);
  EXPECT_TRUE(state.started().contains(6)) << "its iteration has not ended";
  OnMeasuredIteration(6, Iteration(37, 60), state);
  EXPECT_FALSE(state.started().contains(6));
  OnFailed(7, state);
  EXPECT_FALSE(state.started().contains(7));
  ForgetStartedBefore(9, state);
  EXPECT_EQ(state.started_size(), 0);
}

}  // namespace
}  // namespace seqpoint::jobs
