#include <signal.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/fake_backend.h"
#include "tests/support/client_fixture.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ClientTest, JobsAreListedOverAllPages) {
  for (int id = 2; id <= 8; ++id) {
    v1::Job job = rpc::FakeBackend::SampleJob();
    job.set_id(absl::StrCat(id));
    job.set_name(absl::StrCat("job", id));
    if (id % 2 == 0) job.add_tags("even");
    backend_.PutJob(job);
  }
  backend_.SetJobsPerPage(3);
  StartServer();
  Result result = Client({"jobs"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (int id = 2; id <= 8; ++id) EXPECT_THAT(result.out, HasSubstr(absl::StrCat("  job", id)));
  EXPECT_THAT(Client({"jobs", "--json"}).out, HasSubstr("\"job2\""));
  // A limit and a filter are of all jobs, not of a page.
  result = Client({"jobs", "--limit", "4"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("  job5"), Not(HasSubstr("  job4")),
                                HasSubstr("4 earlier jobs left out")));
  EXPECT_THAT(Client({"jobs", "--limit", "4", "--json"}).out,
              AllOf(HasSubstr("\"job5\""), Not(HasSubstr("\"job4\""))));
  result = Client({"jobs", "--tag", "even"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("  job8"), HasSubstr("  job6"), HasSubstr("  job4"),
                                HasSubstr("  job2"), Not(HasSubstr("  job7"))));
  EXPECT_THAT(Client({"complete", "--", "project", "job2"}).out, HasSubstr("job2@"));
}

TEST_F(ClientTest, ControlReachesTheDaemon) {
  StartServer();
  Result result = Client({"control", "1", "pause"});
  EXPECT_EQ(result.code, 0) << result.err;
  // A line, not all that is known of the job.
  EXPECT_EQ(result.out, "gnmt@r1 (job 1), paused\n");
  result = Client({"control", "1", "budget", "0.5%"});
  EXPECT_THAT(result.out, HasSubstr(", of the run's time 0.50 % for measurements\n"));
  EXPECT_DOUBLE_EQ(backend_.last_control()->overhead_budget_share(), 0.005);
  EXPECT_EQ(Client({"control", "1", "level", "mark"}).code, 0);
  EXPECT_EQ(backend_.last_control()->action(), v1::ControlRequest::ACTION_SET_LEVEL);
  EXPECT_EQ(backend_.last_control()->level(), v1::LEVEL_MARK);
  EXPECT_EQ(Client({"control", "1", "release"}).code, 0);
  EXPECT_EQ(backend_.last_control()->action(), v1::ControlRequest::ACTION_RELEASE_CUPTI);
  EXPECT_EQ(Client({"control", "1", "end"}).err, "");
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_state(v1::JOB_STATE_ENDED);
  backend_.PutJob(job);
  result = Client({"control", "1", "end"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("gnmt@r1 (job 1) has ended already"));
}

TEST_F(ClientTest, JobsAreTaggedNarrowedRenamedAndDeleted) {
  StartServer();
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_id("2");
  job.set_name("old");
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_start_ns(job.start_ns() + 1);
  job.set_end_ns(job.start_ns() + 1);
  job.set_signal(SIGSEGV);
  backend_.PutJob(job);
  EXPECT_THAT(Client({"jobs", "old"}).out,
              StartsWith("old@r1 (job 2), failed: signal 11 (Segmentation fault)"));
  EXPECT_EQ(Client({"tag", "old", "nightly", "h200"}).out, "old@r1 (job 2), tags h200, nightly\n");
  EXPECT_THAT(Client({"jobs"}).out, AllOf(HasSubstr("TAGS"), HasSubstr("h200, nightly")));
  EXPECT_THAT(Client({"jobs", "old"}).out, HasSubstr("tags:      h200, nightly"));
  for (const auto& [words, shown] :
       std::vector<std::pair<std::string, std::string>>{{"--state failed", "old"},
                                                        {"--state marking", "gnmt"},
                                                        {"--tag nightly,h200", "old"},
                                                        {"--limit 1", "old"}}) {
    std::vector<std::string> arguments = {"jobs"};
    for (absl::string_view word : absl::StrSplit(words, ' ')) arguments.emplace_back(word);
    const Result result = Client(arguments);
    EXPECT_EQ(result.code, 0) << words << result.err;
    EXPECT_THAT(result.out, HasSubstr("  " + shown + " ")) << words;
    EXPECT_THAT(result.out, Not(HasSubstr(shown == "old" ? "  gnmt " : "  old "))) << words;
  }
  EXPECT_EQ(Client({"jobs", "--since", "1h"}).out, "no job matches\n");
  EXPECT_THAT(Client({"jobs", "--since", "2020-01-01"}).out, HasSubstr("gnmt"));
  EXPECT_EQ(Client({"tag", "old", "h200", "--remove"}).out, "old@r1 (job 2), tags nightly\n");
  EXPECT_EQ(Client({"rename", "old", "new"}).out, "new@r1 (job 2)\n");
  EXPECT_EQ(Client({"rename", "gnmt", "new"}).code, 5);
  EXPECT_EQ(Client({"delete", "gnmt"}).code, 5);
  EXPECT_EQ(Client({"delete", "new"}).out, "new@r1 (job 2) is deleted\n");
  EXPECT_EQ(Client({"delete", "new"}).code, 4);
}

TEST_F(ClientTest, WatchEndsWithTheJob) {
  StartServer();
  pid_t child = Spawn({"watch", "1", "--json"});
  for (int i = 0; i < 500 && ReadFile(directory_ / "out").empty(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_state(v1::JOB_STATE_ENDED);
  backend_.PutJob(job);
  Result result = Wait(child);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("JOB_STATE_MARKING"), HasSubstr("JOB_STATE_ENDED")));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2);  // one per message
}

}  // namespace
}  // namespace seqpoint::client
