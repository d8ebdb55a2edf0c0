#include "daemon/daemon.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "daemon_test.XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    options_.directory = folder_;
    options_.store_path = folder_ / "store.db";
  }
  ~DaemonTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Store> OpenStore() { return *Store::Open(options_.store_path, {}); }
  std::unique_ptr<Daemon> Start() {
    auto daemon = Daemon::Start(options_);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    return *std::move(daemon);
  }

  // What the store has of a job whose only process said goodbye.
  static void AddEndedJob(Store& store, WriteBatch& batch) {
    JobRow row{.job_id = store.NewJobId(), .name = "test", .state = v1::JOB_STATE_LEARNING};
    row.run_id = absl::StrCat(row.job_id);
    jobs::Job job(row, {});
    const int64_t process_id = store.NewProcessId();
    job.AddProcess({.process_id = process_id,
                    .job_id = row.job_id,
                    .ring_id = std::string(16, 'r'),
                    .start_ns = 1});
    job.OnProcessEnd(process_id, /*orderly=*/true, 1'700'000'000'000'000'000 + row.job_id);
    job.TakeRows(batch);
  }

  // A job whose state another version wrote, with iterations of two ranks.
  static void AddRefusedJob(Store& store, pid_t pid) {
    WriteBatch batch;
    const int64_t job_id = store.NewJobId();
    batch.jobs = {{.job_id = job_id, .name = "other", .run_id = "1", .start_ns = 1}};
    batch.states = {{.job_id = job_id,
                     .part = "job",
                     .version = jobs::kJobStateVersion + 1,
                     .bytes = "of another version"}};
    batch.processes = {{.process_id = store.NewProcessId(),
                        .job_id = job_id,
                        .pid = pid,
                        .ring_id = std::string(16, 'r'),
                        .start_ns = absl::GetCurrentTimeNanos()}};
    for (const int32_t rank : {0, 3}) {
      for (int64_t number = 0; number < 2 + rank; ++number) {
        batch.iterations.push_back({.job_id = job_id,
                                    .rank = rank,
                                    .number = number,
                                    .length_count = 1,
                                    .length = {37, 0},
                                    .duration_ns = 5'000'000});
      }
    }
    ASSERT_TRUE(store.Write(batch).ok());
  }

  std::filesystem::path folder_;
  DaemonOptions options_;
};

TEST_F(DaemonTest, ManyEndedJobsAreListedWithoutBeingLoaded) {
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
  const auto list = daemon->ListJobs({});
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->jobs_size(), kJobs);
  EXPECT_EQ(daemon->loaded_jobs(), 0u);
  for (int i = 0; i < kJobs; ++i) {
    EXPECT_EQ(list->jobs(i).id(), absl::StrCat(kJobs - i));  // the latest first
    EXPECT_EQ(list->jobs(i).process_count(), 1);
    EXPECT_EQ(list->jobs(i).state(), v1::JOB_STATE_ENDED);
  }

  // Those that are asked for come, and go again.
  v1::GetJobRequest request;
  for (int i = 1; i <= 20; ++i) {
    request.set_job(absl::StrCat(i));
    const auto reply = daemon->GetJob(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->job().processes_size(), 1);
  }
  while (daemon->loaded_jobs() > Daemon::kEndedJobsKept) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  request.set_job("3");
  EXPECT_TRUE(daemon->GetJob(request).ok());
  const auto again = daemon->ListJobs({});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->jobs_size(), kJobs);
  EXPECT_EQ(daemon->GetDaemon({})->jobs(), kJobs);
}

TEST_F(DaemonTest, WhatAnotherVersionWroteCanBeExportedAndIsRemovedInItsTurn) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  AddRefusedJob(*OpenStore(), gone);
  {
    auto daemon = Start();
    v1::ListIterationsRequest request;
    request.set_job("other");
    request.set_page_size(100);
    const auto list = daemon->ListIterations(request);
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_EQ(list->total(), 2);
    EXPECT_EQ(list->iterations_size(), 2);
    v1::ExportRequest csv;
    csv.set_job("other");
    csv.set_format(v1::ExportRequest::FORMAT_CSV);
    std::string text;
    ASSERT_TRUE(daemon
                    ->Export(csv,
                             [&](std::string_view piece) {
                               text += piece;
                               return true;
                             })
                    .ok());
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 2 + 5) << text;
    const auto jobs = daemon->ListJobs({});
    ASSERT_TRUE(jobs.ok());
    EXPECT_THAT(jobs->jobs(0).trouble(), HasSubstr("cannot be read"));
  }
  auto store = OpenStore();
  EXPECT_GT((*store->ListJobs())[0].end_ns, 0);
  EXPECT_EQ((*store->LoadStates(1))[0].bytes, "of another version");
  const auto pruned = store->Prune({.ended_before_ns = INT64_MAX});
  ASSERT_TRUE(pruned.ok());
  EXPECT_THAT(pruned->removed_jobs, testing::ElementsAre("other@1"));
}

TEST_F(DaemonTest, WhatAnotherVersionWroteLivesAsLongAsItsProcess) {
  AddRefusedJob(*OpenStore(), getpid());
  Start().reset();
  EXPECT_EQ((*OpenStore()->ListJobs())[0].end_ns, 0);
}

}  // namespace
}  // namespace seqpoint
