// Several processes of one rank: resumed runs, and helpers that run at the same time.
#include <cmath>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_fixture.h"

namespace seqpoint::jobs {
namespace {

TEST(Job, OfTwoTrainingsOfARankTheFirstThatCameIsCounted) {
  Job job(Row(), {});
  FakeProcess first(5), second(6);
  ConnectTwo(job, first, second);
  first.Iterate();
  for (int i = 0; i < 50; ++i) second.Iterate();  // the rule is learned from this one
  for (int i = 0; i < 70; ++i) {
    first.Iterate();
    second.Iterate();
  }
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  for (int i = 0; i < 30; ++i) second.Iterate();
  job.OnProcessEnd(8, /*orderly=*/true, 2);
  EXPECT_EQ(job.Describe(true).iterations(), 71);
  EXPECT_THAT(job.Describe(true).error(), testing::HasSubstr("(150) are in the log"));
}

TEST(Job, AHelperThatCameFirstTakesNoIterationFromATraining) {
  Job job(Row(), {});
  ProcessRow row = TrainingProcess();
  row.process_id = 8;
  row.incarnation = 1;
  job.AddProcess(TrainingProcess());
  job.AddProcess(row);
  FakeProcess helper(5), training(6);
  helper.Connect(job, 7);
  training.Connect(job, 8);
  for (int i = 0; i < 100; ++i) training.Iterate();
  job.OnProcessEnd(8, /*orderly=*/true, 1);
  EXPECT_EQ(job.Describe(true).iterations(), 100);
  for (int i = 0; i < 50; ++i) helper.Iterate();
  job.OnProcessEnd(7, /*orderly=*/true, 2);
  EXPECT_EQ(job.Describe(true).iterations(), 150);
  EXPECT_EQ(job.Describe(true).error(), "");
}

TEST(Job, WhatAnIncarnationLeftUndoneIsNotMissingOnceAnotherWentOn) {
  constexpr char kMissing[] = "what began behind them has no end";
  Job job(Row(), {});
  FakeProcess killed(8), resumed(9);
  job.AddProcess(TrainingProcess());
  killed.Connect(job, 7);
  for (int i = 0; i < 300; ++i) killed.Iterate();
  killed.Begin();
  job.OnProcessEnd(7, /*orderly=*/false, 1);
  EXPECT_THAT(Project(job, AskTime())->projection().basis(), testing::HasSubstr(kMissing));
  ProcessRow row = TrainingProcess();
  row.process_id = 8;
  row.incarnation = 1;
  job.AddProcess(row);
  resumed.Connect(job, 8);
  for (int i = 0; i < 200; ++i) resumed.Iterate();
  EXPECT_EQ(Project(job, AskTime())->projection().basis().find(kMissing), std::string::npos);
  // Behind the last iteration of a run that had all of them there is at most an evaluation.
  resumed.Begin();
  job.OnProcessEnd(8, /*orderly=*/true, 2);
  EXPECT_THAT(Project(job, AskTime())->projection().basis(), testing::HasSubstr(kMissing));
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(job.Describe(false).iterations());
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  EXPECT_TRUE(Project(job, AskTime())->projection().has_total());
  EXPECT_EQ(Project(job, AskTime())->projection().basis().find(kMissing), std::string::npos);
}

// Its last iterations still wait for their stamps when the next process begins.
TEST(Job, TheEndOfAKilledProcessThatIsReadLateIsCountedOnce) {
  Job job(Row(), {});
  FakeProcess killed(8), resumed(9);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 320; ++i) lengths.push_back(killed.DrawLength());
  const auto run = [&](FakeProcess& process, int begin, int end) {
    for (int i = begin; i < end; ++i) process.Iterate(lengths[i], process.TimeOf(lengths[i]));
  };
  job.AddProcess(TrainingProcess());
  killed.Connect(job, 7);
  run(killed, 0, 250);
  FakeStore store;
  store.Take(job);
  ProcessRow row = TrainingProcess();
  row.process_id = 8;
  row.incarnation = 1;
  job.AddProcess(row, /*gone=*/{7});
  run(killed, 250, 260);
  resumed.Connect(job, 8);
  std::vector<KnownLengths> log;
  for (const auto& [number, iteration] : store.iterations) {
    log.push_back(std::pair(iteration.length[0], iteration.length[1]));
  }
  job.SetLog(8, 0, log);
  run(resumed, 200, 240);
  job.OnProcessEnd(7, /*orderly=*/false, 1);
  run(resumed, 240, 320);
  job.OnProcessEnd(8, /*orderly=*/true, 2);
  EXPECT_EQ(job.Describe(true).iterations(), 320);
}

TEST(Job, AProcessThatCameBackIsReadOn) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(8);
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  FakeStore store;
  for (int i = 0; i < 300; ++i) process.Iterate();
  store.Take(*job);
  job = store.Restart();
  EXPECT_EQ(job->Describe(false).losses().uncounted_processes(), 1);
  process.Connect(*job, 7);
  for (int i = 0; i < 10; ++i) process.Iterate();
  job->OnProcessEnd(7, /*orderly=*/true, 1);
  const v1::Job described = job->Describe(false);
  EXPECT_EQ(described.losses().uncounted_processes(), 0);
  EXPECT_EQ(described.error(), "");
  EXPECT_TRUE(std::isfinite(described.time().so_far().high()));
}

}  // namespace
}  // namespace seqpoint::jobs
