// Copies of a job that answer questions, and its description.
#include <string>
#include <vector>

#include "daemon/queries/project.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_fixture.h"

namespace seqpoint::jobs {
namespace {

TEST(Job, SnapshotsAreOfTheMomentOfTheQuestionAndSharedUntilItChanges) {
  Job job(Row(), {});
  FakeProcess process(13);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 200; ++i) process.Iterate();
  const auto snapshot = *job.TakeSnapshot();
  EXPECT_EQ(*job.TakeSnapshot(), snapshot);
  const std::string before = queries::Project(*snapshot, AskTime())->DebugString();
  for (int i = 0; i < 200; ++i) process.Iterate();
  EXPECT_EQ(queries::Project(*snapshot, AskTime())->DebugString(), before);
  EXPECT_NE(*job.TakeSnapshot(), snapshot);
  EXPECT_EQ(queries::Project(**job.TakeSnapshot(), AskTime())->projection().iterations_so_far(),
            job.Describe(false).iterations());
}

TEST(Job, ASummaryThatIsMadeElsewhereIsDescribedOnceItIsThere) {
  Job job(Row(), {});
  FakeProcess process(14);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 200; ++i) process.Iterate();
  const auto so_far = [&] { return job.Describe(false).time().iterations_so_far(); };
  const int64_t first = so_far();
  for (int i = 0; i < 100; ++i) process.Iterate();
  job.Describe(false);  // measurements make the summary void
  for (int i = 0; i < 100; ++i) process.Iterate();
  const auto due = job.TakeDueSummary();
  ASSERT_NE(due, nullptr);
  EXPECT_EQ(job.TakeDueSummary(), nullptr);  // under way
  job.SetSummary(due->Summarise());
  EXPECT_GE(so_far(), first + 200);
  EXPECT_EQ(job.TakeDueSummary(), nullptr);

  // One that was begun before the horizon changed is not taken.
  for (int i = 0; i < 100; ++i) process.Iterate();
  const auto late = job.TakeDueSummary();
  ASSERT_NE(late, nullptr);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(1000);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  job.SetSummary(late->Summarise());
  EXPECT_EQ(job.Describe(false).time().iterations_total(), 1000);
}

TEST(Job, WhatIsStoredOfAnEndedJobIsItsEndAlsoWhenASummaryIsUnderWay) {
  Job job(Row(), {});
  FakeProcess process(14);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 2000; ++i) process.Iterate();  // all is measured: that makes summaries void
  job.Describe(false);
  for (int i = 0; i < 20; ++i) process.Iterate();
  const auto due = job.TakeDueSummary();
  ASSERT_NE(due, nullptr);
  for (int i = 0; i < 20; ++i) process.Iterate();
  job.OnProcessEnd(7, /*orderly=*/true, 2'000'000'000'000'000'000);
  WriteBatch batch;
  job.TakeRows(batch);
  v1::Job stored;
  for (const StateRow& state : batch.states) {
    if (state.part != kSummaryPart) continue;
    ASSERT_TRUE(stored.ParseFromString(state.bytes));
  }
  ASSERT_GT(stored.iterations(), 0);
  EXPECT_EQ(stored.time().iterations_so_far(), stored.iterations());
  // The one that was under way is of before.
  job.SetSummary(due->Summarise());
  EXPECT_EQ(job.Describe(false).time().DebugString(), stored.time().DebugString());
  // The job as it is read from the store says the same.
  Job restored(batch.jobs.back(), {});
  std::vector<Job::StoredProcess> processes;
  for (const ProcessRow& row : batch.processes) {
    if (row.end_ns != 0) processes.push_back({.row = row, .names = {}});
  }
  ASSERT_TRUE(restored.Restore(batch.states, processes).ok());
  EXPECT_EQ(restored.Describe(false).time().DebugString(), stored.time().DebugString());
}

TEST(Job, OfARunThatHasEndedNothingIsSaidUntilThen) {
  Job job(Row(), {});
  FakeProcess process(8);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
  for (const int length : {1'000, 1'001, 5'003}) {
    v1::LengthCount& entry = *horizon.add_histogram();
    entry.add_lengths(length);
    entry.set_count(100);
  }
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  for (int i = 0; i < 300; ++i) process.Iterate();
  EXPECT_THAT(job.Describe(false).rule().message(),
              testing::HasSubstr("until then only the number of iterations is used"));
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  job.Advance();
  EXPECT_THAT(job.Describe(false).rule().message(),
              testing::AllOf(testing::HasSubstr("; only the number of iterations is used"),
                             testing::Not(testing::HasSubstr("until then"))));
}

TEST(Job, BadRequestsNameTheValueAndWhatThereIs) {
  Job job(Row(), {});
  EXPECT_EQ(Project(job, AskTime()).status().code(), absl::StatusCode::kFailedPrecondition);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
  horizon.add_histogram()->add_lengths(-3);
  const absl::Status status = job.SetHorizon(horizon);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("-3"), std::string::npos);
}

}  // namespace
}  // namespace seqpoint::jobs
