#include "client/commands/jobs.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(JobsOptions, SinceIsATimeOrHowLongAgo) {
  const absl::Time now =
      absl::FromCivil(absl::CivilSecond(2026, 11, 22, 12), absl::LocalTimeZone());
  const auto hours_before = [&](const std::string& text) {
    const absl::StatusOr<absl::Time> time = ParseSince(text, now);
    EXPECT_TRUE(time.ok()) << time.status();
    return time.ok() ? absl::ToDoubleHours(now - *time) : -1;
  };
  EXPECT_EQ(hours_before("90m"), 1.5);
  EXPECT_EQ(hours_before("1h30m"), 1.5);
  EXPECT_EQ(hours_before("3d"), 72);
  EXPECT_EQ(hours_before("2026-11-22"), 12);
  EXPECT_EQ(hours_before("2026-11-22 11:30"), 0.5);
  EXPECT_EQ(hours_before("2026-11-22T11:30:00"), 0.5);
  for (const char* text : {"yesterday", "-3d", "3", "22.11.2026", "inf", "nand"}) {
    EXPECT_THAT(std::string(ParseSince(text, now).status().message()),
                AllOf(HasSubstr(text), HasSubstr("--since"), HasSubstr("3d")));
  }
}

TEST(JobsOptions, StatesAreThoseThatTheTableShows) {
  JobsOptions options;
  options.states = {"failed", "interrupted"};
  const absl::StatusOr<v1::ListJobsRequest> request = options.Request(absl::Now());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->states_size(), 2);
  EXPECT_EQ(request->states(0), v1::JOB_STATE_FAILED);
  EXPECT_EQ(request->states(1), v1::JOB_STATE_LOST);
  options.states = {"crashed"};
  EXPECT_THAT(std::string(options.Request(absl::Now()).status().message()),
              AllOf(HasSubstr("crashed"), HasSubstr("failed"), HasSubstr("interrupted")));
}

TEST(JobsOptions, TheLimitCountsJobsThatAreShown) {
  v1::ListJobsReply reply;
  for (const char* name : {"newest", "empty", "middle", "oldest"}) {
    v1::Job& job = *reply.add_jobs();
    job.set_name(name);
    job.set_unused(std::string(name) == "empty");
  }
  JobsOptions options;
  options.limit = 2;
  v1::ListJobsReply two = reply;
  const int left_out = KeepLatest(options, &two);
  EXPECT_EQ(two.jobs_size(), 2);
  EXPECT_THAT(JobListText(two, left_out, options),
              AllOf(HasSubstr("newest"), HasSubstr("middle"), Not(HasSubstr("oldest")),
                    HasSubstr("1 earlier job left out")));
  options.limit = 0;
  EXPECT_EQ(KeepLatest(options, &reply), 0);
  EXPECT_THAT(JobListText(reply, 0, options),
              AllOf(HasSubstr("oldest"), Not(HasSubstr("earlier"))));
  options.since = "1h";
  EXPECT_EQ(JobListText(v1::ListJobsReply(), 0, options), "no job matches\n");
}

}  // namespace
}  // namespace seqpoint::client
