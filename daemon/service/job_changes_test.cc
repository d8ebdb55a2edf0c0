// Jobs that are deleted, renamed and tagged, and lists that are narrowed to some.
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "daemon/service/daemon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobChangesTest : public ::testing::Test {
 protected:
  JobChangesTest() {
    options_.ingest.directory = folder_.path();
    options_.store_path = folder_.path() / "store.db";
    Restart();
  }

  void Restart() {
    daemon_.reset();
    auto daemon = service::Daemon::Start(options_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }

  // A job that is over, as a program leaves it that ended with `exit_status`.
  std::string AddJob(const std::string& name, int exit_status = 0) {
    const std::string id = Prepare(name);
    v1::ControlRequest request;
    request.set_job(id);
    request.set_action(v1::ControlRequest::ACTION_PROGRAM_ENDED);
    request.set_launch(absl::StrCat(name, id));
    request.set_exit_status(exit_status);
    EXPECT_TRUE(daemon_->backend().Control(request).ok());
    request.set_action(v1::ControlRequest::ACTION_END_WAITING);
    EXPECT_TRUE(daemon_->backend().Control(request).ok());
    return id;
  }
  std::string Prepare(const std::string& name) {
    v1::PrepareJobRequest request;
    request.set_name(name);
    request.set_run_id("r");
    const auto reply = daemon_->backend().PrepareJob(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->job().id() : "";
  }
  absl::Status Delete(const std::string& job) {
    v1::DeleteJobRequest request;
    request.set_job(job);
    return daemon_->backend().DeleteJob(request).status();
  }
  absl::StatusOr<v1::Job> Update(const std::string& job, const std::string& name,
                                 const std::vector<std::string>& add = {},
                                 const std::vector<std::string>& remove = {}) {
    v1::UpdateJobRequest request;
    request.set_job(job);
    request.set_name(name);
    *request.mutable_add_tags() = {add.begin(), add.end()};
    *request.mutable_remove_tags() = {remove.begin(), remove.end()};
    const auto reply = daemon_->backend().UpdateJob(request);
    if (!reply.ok()) return reply.status();
    return reply->job();
  }
  std::vector<std::string> Names(const v1::ListJobsRequest& request = {}) {
    const auto reply = daemon_->backend().ListJobs(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    std::vector<std::string> names;
    for (const v1::Job& job : reply->jobs()) names.push_back(job.name());
    return names;
  }

  const TempFolder folder_;
  service::DaemonOptions options_;
  std::unique_ptr<service::Daemon> daemon_;
};

TEST_F(JobChangesTest, ADeletedJobIsGoneAlsoAfterARestart) {
  AddJob("kept");
  const std::string id = AddJob("gone");
  ASSERT_TRUE(Delete(id).ok()) << Delete(id);
  EXPECT_THAT(Names(), ElementsAre("kept"));
  EXPECT_TRUE(absl::IsNotFound(Delete("gone")));
  Restart();
  EXPECT_THAT(Names(), ElementsAre("kept"));
  // Its name and run id are free, and what comes under them is another job.
  EXPECT_NE(Prepare("gone"), id);
}

TEST_F(JobChangesTest, AJobThatWaitsIsNeitherDeletedNorRenamed) {
  const std::string id = Prepare("waiting");
  for (const absl::Status& status : {Delete(id), Update(id, "other").status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("waiting@r"), HasSubstr("seqpoint control JOB end"),
                      HasSubstr("when it has ended")));
  }
  EXPECT_THAT(Names(), ElementsAre("waiting"));
  EXPECT_THAT(Update(id, "", {"nightly"})->tags(), ElementsAre("nightly"));
}

TEST_F(JobChangesTest, ANewNameAndTagsOutlastARestart) {
  const std::string id = AddJob("old");
  const auto renamed = Update("old", "new", {"nightly", "h200", "nightly"});
  ASSERT_TRUE(renamed.ok()) << renamed.status();
  EXPECT_EQ(renamed->name(), "new");
  EXPECT_THAT(renamed->tags(), ElementsAre("h200", "nightly"));
  Restart();
  EXPECT_THAT(Names(), ElementsAre("new"));
  v1::GetJobRequest request;
  request.set_job("new");
  const auto job = daemon_->backend().GetJob(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->job().id(), id);
  EXPECT_THAT(job->job().tags(), ElementsAre("h200", "nightly"));
  EXPECT_THAT(Update("new", "", {}, {"h200"})->tags(), ElementsAre("nightly"));
  EXPECT_THAT(std::string(Update("new", "", {}, {"h200"}).status().message()),
              HasSubstr("has no tag \"h200\""));
}

TEST_F(JobChangesTest, ANameThatIsTakenIsRefused) {
  AddJob("a");
  AddJob("b");
  const absl::Status status = Update("a", "b").status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(Names(), ElementsAre("b", "a"));
}

TEST_F(JobChangesTest, WhatTheStoreCannotTakeIsNotDone) {
  AddJob("old");
  ASSERT_TRUE(Update("old", "", {"nightly", "h200"}).ok());
  // As on a full disk: no file may grow.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none = {.rlim_cur = 1, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  const absl::Status status = Update("old", "new", {"weekly"}, {"nightly"}).status();
  const std::vector<std::string> names = Names();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing was changed"));
  EXPECT_THAT(names, ElementsAre("old"));
  for (const bool restarted : {false, true}) {
    if (restarted) Restart();
    EXPECT_THAT(Names(), ElementsAre("old"));
    v1::GetJobRequest request;
    request.set_job("old");
    const auto job = daemon_->backend().GetJob(request);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_THAT(job->job().tags(), ElementsAre("h200", "nightly"));
  }
  // The same question again is answered.
  const auto again = Update("old", "new", {"weekly"}, {"nightly"});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(again->tags(), ElementsAre("h200", "weekly"));
}

TEST_F(JobChangesTest, AListIsNarrowedByStateTimeAndTags) {
  AddJob("good");
  const int64_t since_ns = absl::ToUnixNanos(absl::Now());
  AddJob("bad", 3);
  Prepare("waiting");
  ASSERT_TRUE(Update("bad", "", {"nightly", "h200"}).ok());
  ASSERT_TRUE(Update("waiting", "", {"nightly"}).ok());
  for (const bool stored : {false, true}) {
    if (stored) Restart();
    v1::ListJobsRequest request;
    request.add_states(v1::JOB_STATE_FAILED);
    EXPECT_THAT(Names(request), ElementsAre("bad"));
    request.add_states(v1::JOB_STATE_ENDED);
    EXPECT_THAT(Names(request), ElementsAre("bad", "good"));
    request = {};
    request.set_since_ns(since_ns);
    EXPECT_THAT(Names(request), ElementsAre("waiting", "bad"));
    request = {};
    request.add_tags("nightly");
    EXPECT_THAT(Names(request), ElementsAre("waiting", "bad"));
    request.add_tags("h200");
    EXPECT_THAT(Names(request), ElementsAre("bad"));
    request.add_tags("other");
    EXPECT_THAT(Names(request), IsEmpty());
  }
}

TEST_F(JobChangesTest, AProgramThatFailsBeforeItTrainsSaysSo) {
  const std::string id = AddJob("bad", 3);
  v1::GetJobRequest request;
  request.set_job(id);
  const auto job = daemon_->backend().GetJob(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job->job().exit_status(), 3);
  EXPECT_FALSE(job->job().has_signal());
  EXPECT_THAT(job->job().error(), HasSubstr("ended with exit status 3 before it used CUDA"));
}

}  // namespace
}  // namespace seqpoint
