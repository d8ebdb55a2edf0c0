#include "daemon/jobs/change_tracker.h"

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

TEST(ChangeTracker, ANewJobIsStoredWholeAndThenWhatChanged) {
  ChangeTracker changes;
  EXPECT_TRUE(changes.unsaved(StatePart::kRow));
  EXPECT_TRUE(changes.unsaved(StatePart::kJob));
  EXPECT_TRUE(changes.unsaved(StatePart::kEngine));
  changes.SetSaved();
  EXPECT_TRUE(changes.all_saved());
  changes.Mark(Change::kHorizon);
  EXPECT_TRUE(changes.unsaved(StatePart::kHorizon));
  EXPECT_TRUE(changes.unsaved(StatePart::kJob));
  EXPECT_FALSE(changes.unsaved(StatePart::kEngine));
  EXPECT_FALSE(changes.unsaved(StatePart::kRow));
}

TEST(ChangeTracker, WatchersSeeWhatADescriptionShowsAlone) {
  ChangeTracker changes;
  const int64_t generation = changes.generation();
  changes.Mark(Change::kRecords);
  changes.Mark(Change::kLosses);
  changes.Mark(Change::kPlan);
  EXPECT_EQ(changes.generation(), generation);
  changes.Mark(Change::kIterations);
  changes.Mark(Change::kDescription);
  EXPECT_EQ(changes.generation(), generation + 2);
  changes.SetGeneration(40);
  changes.Mark(Change::kRow);
  EXPECT_EQ(changes.generation(), 41);
}

TEST(ChangeTracker, FiguresOutliveIterationsAndNotMeasurements) {
  ChangeTracker changes;
  const int64_t figures = changes.figures(), knowledge = changes.knowledge();
  changes.Mark(Change::kIterations);
  EXPECT_EQ(changes.figures(), figures);
  EXPECT_GT(changes.knowledge(), knowledge);
  changes.Mark(Change::kMeasurements);
  EXPECT_GT(changes.figures(), figures);
}

TEST(ChangeTracker, ASnapshotDoesNotOutliveItsPlan) {
  ChangeTracker changes;
  const int64_t figures = changes.figures(), knowledge = changes.knowledge();
  changes.Mark(Change::kPlan);
  EXPECT_GT(changes.knowledge(), knowledge);
  EXPECT_EQ(changes.figures(), figures);
}

TEST(ChangeTracker, EntriesOfAPlanCountFromItsBlockSoBlocksAreMadeAgainOnlyForAnotherPlan) {
  ChangeTracker changes;
  EXPECT_TRUE(changes.TakePlanDue());
  const int64_t controls = changes.controls();
  changes.Mark(Change::kIterations);
  EXPECT_EQ(changes.controls(), controls);
  EXPECT_TRUE(changes.TakePlanDue());
  EXPECT_FALSE(changes.TakePlanDue());
  changes.Mark(Change::kPlan);
  EXPECT_GT(changes.controls(), controls);
}

}  // namespace
}  // namespace seqpoint::jobs
