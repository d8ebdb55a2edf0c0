#include "daemon/jobs/measurement_tracker.h"

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

const std::vector<double> kValues = {1, 2};

TEST(MeasurementTracker, TheTwoFindEachOtherWhicheverComesFirst) {
  MeasurementTracker tracker;
  EXPECT_FALSE(tracker.OnMeasurement(5, 9, kValues));
  const auto measurements = tracker.OnIteration(5, {{37, 0}, 50});
  ASSERT_EQ(measurements.size(), 1u);
  EXPECT_EQ(measurements[0].set(), 9u);
  EXPECT_TRUE(tracker.OnIteration(5, {{37, 0}, 50}).empty()) << "it was handed out";

  EXPECT_TRUE(tracker.OnIteration(6, {{38, 0}, 60}).empty());
  const auto iteration = tracker.OnMeasurement(6, 9, kValues);
  ASSERT_TRUE(iteration);
  EXPECT_EQ(iteration->key, (Key{38, 0}));
  EXPECT_EQ(iteration->sample, 60u);
}

TEST(MeasurementTracker, AResultThatIsTooLateIsNotUsed) {
  MeasurementTracker tracker;
  tracker.OnIteration(5, {{37, 0}, 50});
  tracker.OnIteration(6 + kResultPatience, {{38, 0}, 60});
  EXPECT_FALSE(tracker.OnMeasurement(5, 9, kValues));
}

TEST(MeasurementTracker, BothQueuesLast) {
  MeasurementTracker tracker;
  tracker.OnMeasurement(5, 9, kValues);
  tracker.OnIteration(6, {{38, 2}, 60});
  MeasurementsState state;
  tracker.Save(&state);
  MeasurementTracker restored;
  restored.Load(state);
  EXPECT_EQ(restored.OnMeasurement(6, 9, kValues)->key, (Key{38, 2}));
  const auto measurements = restored.OnIteration(5, {{37, 0}, 50});
  ASSERT_EQ(measurements.size(), 1u);
  EXPECT_EQ(measurements[0].values_size(), 2);
  restored.Clear();
  EXPECT_FALSE(restored.OnMeasurement(6, 9, kValues));
}

}  // namespace
}  // namespace seqpoint::jobs
