#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/daemon_in_process.h"

namespace seqpoint::service {
namespace {

using ::testing::HasSubstr;

class JobRegistryTest : public DaemonTest {};

TEST_F(JobRegistryTest, ManyEndedJobsAreListedWithoutBeingLoaded) {
  constexpr int kJobs = 500;
  {
    auto store = OpenStore();
    WriteBatch batch;
    for (int i = 0; i < kJobs; ++i) AddEndedJob(*store, batch);
    // As an earlier version left it.
    std::erase_if(batch.states, [](const StateRow& row) {
      return row.part == jobs::kSummaryPart && row.job_id % 100 == 7;
    });
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  const auto list = daemon->backend().ListJobs({});
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->jobs_size(), kJobs);
  const auto loaded_count = [&] {
    absl::MutexLock lock(&daemon->jobs().mutex());
    return daemon->jobs().loaded().size();
  };
  EXPECT_EQ(loaded_count(), 0u);
  for (int i = 0; i < kJobs; ++i) {
    EXPECT_EQ(list->jobs(i).id(), absl::StrCat(kJobs - i));  // the latest first
    EXPECT_EQ(list->jobs(i).process_count(), 1);
    EXPECT_EQ(list->jobs(i).state(), v1::JOB_STATE_ENDED);
  }

  // Those that are asked for come, and go again.
  v1::GetJobRequest request;
  for (int i = 1; i <= 20; ++i) {
    request.set_job(absl::StrCat(i));
    const auto reply = daemon->backend().GetJob(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->job().processes_size(), 1);
  }
  while (loaded_count() > JobRegistry::kEndedJobsKept) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  request.set_job("3");
  EXPECT_TRUE(daemon->backend().GetJob(request).ok());
  const auto again = daemon->backend().ListJobs({});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->jobs_size(), kJobs);
  EXPECT_EQ(daemon->backend().GetDaemon({})->jobs(), kJobs);
}

TEST_F(JobRegistryTest, WhatAnotherVersionWroteCanBeExportedAndIsRemovedInItsTurn) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  AddRefusedJob(*OpenStore(), gone);
  {
    auto daemon = Start();
    v1::ListIterationsRequest request;
    request.set_job("other");
    request.set_page_size(100);
    const auto list = daemon->backend().ListIterations(request);
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_EQ(list->total(), 2);
    EXPECT_EQ(list->iterations_size(), 2);
    const std::string text = ExportCsv(*daemon, "other");
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 2 + 5) << text;
    const auto jobs = daemon->backend().ListJobs({});
    ASSERT_TRUE(jobs.ok());
    EXPECT_THAT(jobs->jobs(0).error(), HasSubstr("cannot be read"));
  }
  auto store = OpenStore();
  EXPECT_GT((*store->ListJobs())[0].end_ns, 0);
  EXPECT_EQ((*store->LoadStates(1))[0].bytes, "of another version");
  const auto pruned = store->Prune({.ended_before_ns = INT64_MAX});
  ASSERT_TRUE(pruned.ok());
  EXPECT_THAT(pruned->removed_jobs, testing::ElementsAre(1));
}

TEST_F(JobRegistryTest, WhatAnotherVersionWroteLivesAsLongAsItsProcess) {
  AddRefusedJob(*OpenStore(), getpid());
  Start().reset();
  EXPECT_EQ((*OpenStore()->ListJobs())[0].end_ns, 0);
}

TEST_F(JobRegistryTest, ARefusedPrepareJobLeavesNothingBehind) {
  int64_t end_ns = 0;
  {
    auto store = OpenStore();
    WriteBatch batch;
    AddEndedJob(*store, batch);
    end_ns = batch.jobs[0].end_ns;
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  v1::PrepareJobRequest metrics, horizon, budget;
  metrics.add_metric_sets("cache");  // it collected others
  horizon.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.mutable_horizon()->set_iterations(INT64_MAX);
  budget.set_overhead_budget_share(7);
  for (v1::PrepareJobRequest request : {metrics, horizon, budget}) {
    request.set_name("test");
    request.set_run_id("1");
    EXPECT_FALSE(daemon->backend().PrepareJob(request).ok()) << request.ShortDebugString();
  }
  for (v1::PrepareJobRequest request : {horizon, budget}) {
    for (const char* run_id : {"", "new"}) {
      request.set_name("other");
      request.set_run_id(run_id);
      EXPECT_FALSE(daemon->backend().PrepareJob(request).ok()) << request.ShortDebugString();
    }
  }
  const auto list = daemon->backend().ListJobs({});
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->jobs_size(), 1);
  EXPECT_EQ(list->jobs(0).state(), v1::JOB_STATE_ENDED);
  EXPECT_EQ(list->jobs(0).end_ns(), end_ns);
}

TEST_F(JobRegistryTest, AJobWhoseProgramDoesNotComeAgainIsWhatItWasBefore) {
  int64_t end_ns = 0;
  {
    auto store = OpenStore();
    WriteBatch batch;
    AddEndedJob(*store, batch, /*orderly=*/false);
    end_ns = batch.jobs[0].end_ns;
    ASSERT_TRUE(store->Write(batch).ok());
  }
  v1::PrepareJobRequest request;
  request.set_name("test");
  request.set_run_id("1");
  const auto waiting = Start()->backend().PrepareJob(request);
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  EXPECT_EQ(waiting->job().state(), v1::JOB_STATE_WAITING);
  auto daemon = Start();  // also when the daemon was stopped meanwhile
  v1::ControlRequest end;
  end.set_job("test@1");
  end.set_action(v1::ControlRequest::ACTION_END_WAITING);
  const auto ended = daemon->backend().Control(end);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->job().state(), v1::JOB_STATE_LOST);
  EXPECT_EQ(ended->job().end_ns(), end_ns);
}

TEST_F(JobRegistryTest, ANameWithAnAtSignIsNoOtherJobsNameAndRun) {
  int64_t mixed_up = 0;
  {
    auto store = OpenStore();
    WriteBatch batch;
    batch.jobs = {{.job_id = mixed_up = store->NewJobId(),
                   .name = "a@b",
                   .run_id = "c",
                   .state = v1::JOB_STATE_ENDED,
                   .start_ns = 1,
                   .end_ns = 2}};
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  v1::PrepareJobRequest request;
  request.set_name("a");
  request.set_run_id("b@c");
  const auto reply = daemon->backend().PrepareJob(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->job().name(), "a");
  EXPECT_NE(reply->job().id(), absl::StrCat(mixed_up));
  const auto again = daemon->backend().PrepareJob(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job().id(), reply->job().id());
}

TEST_F(JobRegistryTest, RetentionTakesTheEndedJobAndNotTheOneThatIsOpenedAgain) {
  const int64_t now_ns = absl::GetCurrentTimeNanos();
  {
    auto store = OpenStore();
    WriteBatch batch;
    // Texts that look the same; and one that is too young until it is opened again.
    batch.jobs = {{.job_id = store->NewJobId(), .name = "a@b", .run_id = "c", .end_ns = 1},
                  {.job_id = store->NewJobId(),
                   .name = "a",
                   .run_id = "b@c",
                   .start_ns = now_ns,
                   .end_ns = now_ns},
                  {.job_id = store->NewJobId(),
                   .name = "next",
                   .run_id = "1",
                   .start_ns = now_ns,
                   .end_ns = now_ns}};
    ASSERT_TRUE(store->Write(batch).ok());
  }
  options_.retention.max_job_age_s = 3'600;
  options_.ingest.prune_interval = absl::ZeroDuration();
  {
    auto daemon = Start();
    while (daemon->backend().GetDaemon({})->jobs() > 2) absl::SleepFor(absl::Milliseconds(5));
    v1::PrepareJobRequest request;
    request.set_name("a");
    request.set_run_id("b@c");
    EXPECT_EQ(daemon->backend().PrepareJob(request)->job().id(), "2");
  }
  options_.retention.max_job_age_s = 0;
  options_.retention.max_store_bytes = 1;
  auto daemon = Start();
  while (daemon->backend().GetDaemon({})->jobs() > 1) absl::SleepFor(absl::Milliseconds(5));
  const auto list = daemon->backend().ListJobs({});
  ASSERT_EQ(list->jobs_size(), 1);
  EXPECT_EQ(list->jobs(0).id(), "2");
  EXPECT_EQ(list->jobs(0).state(), v1::JOB_STATE_WAITING);
}

TEST_F(JobRegistryTest, AListOfJobsHasPages) {
  auto daemon = Start();
  v1::PrepareJobRequest prepare;
  for (int i = 1; i <= 5; ++i) {
    prepare.set_name(absl::StrCat("job", i));
    ASSERT_TRUE(daemon->backend().PrepareJob(prepare).ok());
  }
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::vector<std::string> names;
  for (int page = 0; page < 3; ++page) {
    const auto reply = daemon->backend().ListJobs(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    for (const v1::Job& job : reply->jobs()) names.push_back(job.name());
    EXPECT_EQ(reply->next_page_token().empty(), page == 2);
    request.set_page_token(reply->next_page_token());
  }
  EXPECT_THAT(names, testing::ElementsAre("job5", "job4", "job3", "job2", "job1"));
  request.set_page_token("x");
  EXPECT_TRUE(absl::IsInvalidArgument(daemon->backend().ListJobs(request).status()));
}

TEST_F(JobRegistryTest, TextsOfAnyLengthLeaveTheListAnAnswer) {
  const std::string huge(12 << 20, 'x');
  {
    auto store = OpenStore();  // as an earlier version left it
    WriteBatch batch;
    for (int i = 0; i < 3; ++i) {
      AddEndedJob(*store, batch);
      batch.jobs.back().command = huge;
      for (StateRow& state : batch.states) {
        if (state.part != jobs::kSummaryPart || state.job_id != batch.jobs.back().job_id) continue;
        v1::Job summary;
        ASSERT_TRUE(summary.ParseFromString(state.bytes));
        summary.set_command(huge);
        summary.mutable_horizon()->set_source(huge);
        state.bytes = summary.SerializeAsString();
      }
    }
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  v1::PrepareJobRequest prepare;
  prepare.set_command(huge);
  for (int i = 0; i < 3; ++i) {
    prepare.set_name(absl::StrCat("new", i));
    const auto reply = daemon->backend().PrepareJob(prepare);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_LE(reply->job().command().size(), 4096u);
    EXPECT_THAT(reply->job().command(), testing::EndsWith("x ..."));
  }
  for (int restart = 0; restart < 2; ++restart) {
    const auto list = daemon->backend().ListJobs({});
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_EQ(list->jobs_size(), 6);
    EXPECT_LT(list->ByteSizeLong(), 200'000u);
    daemon.reset();
    daemon = Start();
  }
  for (const char* name : {"a@b", "", "line\nbreak"}) {
    prepare.set_name(name);
    EXPECT_TRUE(absl::IsInvalidArgument(daemon->backend().PrepareJob(prepare).status())) << name;
  }
}

}  // namespace
}  // namespace seqpoint::service
