#include "client/text/job_text.h"

#include "client/commands/run/summary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/fake_backend.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TextTest, APhaseWhoseTimeIsNotKnownTakesNotZero) {
  v1::Job job;
  v1::PhaseSummary& phase = *job.add_phases();
  phase.set_name("evaluation");
  phase.set_iterations(12);
  EXPECT_THAT(UnprojectedText(job),
              HasSubstr("evaluation or rollouts of 12 batches, whose time is not known"));
  phase.set_duration_ns(30'000'000);
  EXPECT_THAT(UnprojectedText(job), HasSubstr("evaluation or rollouts 30 ms;"));
}

TEST(TextTest, WhatIsNotKnownYetIsSaidWithItsReason) {
  v1::Job job = rpc::FakeBackend::SampleJob();
  v1::Feature* feature = job.mutable_processes(0)->mutable_features(0);
  feature->set_name("batches");
  feature->set_state(v1::FEATURE_STATE_IGNORED);
  feature->set_code(2);
  feature->set_message("it is not known how many batches an iteration takes");
  job.mutable_horizon()->set_kind(v1::Horizon::KIND_DISTRIBUTION);
  job.mutable_horizon()->set_source("train.csv");
  EXPECT_THAT(
      JobText(job),
      AllOf(HasSubstr("\nrank 0, batches: it is not known how many batches an iteration takes\n"),
            HasSubstr("\nhorizon:   not known, from train.csv\n")));
  job.mutable_horizon()->set_iterations(500);
  EXPECT_THAT(JobText(job), HasSubstr("\nhorizon:   500 iterations from train.csv\n"));
  EXPECT_THAT(JobText(job), HasSubstr("\nso far:    1,000 iterations of 73 lengths\n"));
  v1::Job ended = job;
  ended.set_state(v1::JOB_STATE_ENDED);
  EXPECT_THAT(JobText(ended), HasSubstr("\nran:       1,000 iterations of 73 lengths\n"));
  job.set_state(v1::JOB_STATE_LEARNING);
  job.clear_rule();
  job.set_iterations(0);
  EXPECT_THAT(JobText(job),
              HasSubstr("so far:    not known yet, because it is still learned where"));
  feature->set_name("framework");
  feature->set_state(v1::FEATURE_STATE_READY);
  EXPECT_THAT(JobText(job), HasSubstr("learned which of the reported numbers is"));
}

TEST(TextTest, WithoutAGpuNoMeasurementIsShownAsIfItWereToCome) {
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_time_only("the program does not use a GPU: time only");
  v1::Feature* feature = job.mutable_processes(0)->mutable_features(0);
  feature->set_name("cupti");
  feature->set_state(v1::FEATURE_STATE_IGNORED);
  feature->set_message(job.time_only());
  job.mutable_processes(0)->set_cupti_version("0");
  EXPECT_THAT(JobText(job),
              AllOf(HasSubstr("measured:  the program does not use a GPU: time only\n"),
                    Not(HasSubstr("SeqPoints:")), Not(HasSubstr("measuring:")),
                    Not(HasSubstr("ignored")), Not(HasSubstr("CUPTI"))));
  EXPECT_THAT(RunSummary(job, {}, 0), AllOf(HasSubstr("1,000 iterations, 73 lengths\n"),
                                            HasSubstr("time only"), Not(HasSubstr("SeqPoint,"))));
  EXPECT_THAT(ProgressLine(job, 1'000), HasSubstr("73 lengths, time only"));
  v1::ListJobsReply list;
  *list.add_jobs() = job;
  EXPECT_THAT(JobsText(list), Not(HasSubstr("8/8")));
}

TEST(TextTest, WhatTheFrameworkToldIsShownOnce) {
  v1::Job job = rpc::FakeBackend::SampleJob();
  v1::Feature* feature = job.mutable_processes(0)->add_features();
  feature->set_name("framework");
  feature->set_state(v1::FEATURE_STATE_READY);
  feature->set_message("PyTorch 2.1.0: reported are src.shape[1]");
  *job.add_processes() = job.processes(0);
  const std::string text = JobText(job);
  const size_t first = text.find("adapter:   PyTorch 2.1.0: reported are src.shape[1]\n");
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("adapter:", first + 1), std::string::npos) << text;
}

TEST(TextTest, CommandsThatDidNotTrainAreListedWhenAskedFor) {
  v1::ListJobsReply reply;
  *reply.add_jobs() = rpc::FakeBackend::SampleJob();
  v1::Job* unused = reply.add_jobs();
  unused->set_name("ls");
  unused->set_unused(true);
  EXPECT_THAT(JobsText(reply),
              AllOf(HasSubstr("gnmt"), Not(HasSubstr("  ls")),
                    HasSubstr("1 command that did not train is left out; --all shows it")));
  EXPECT_THAT(JobsText(reply, /*all=*/true), AllOf(HasSubstr("  ls"), Not(HasSubstr("left out"))));
}

TEST(TextTest, WhatIsApartHasItsShareOfTheTime) {
  v1::Job job;
  v1::PhaseSummary& phase = *job.add_phases();
  phase.set_name("evaluation");
  phase.set_iterations(100);
  phase.set_duration_ns(3'000'000'000);
  EXPECT_THAT(UnprojectedText(job),
              AllOf(HasSubstr("evaluation or rollouts 3"), Not(HasSubstr("%"))));
  job.set_iterations_duration_ns(1'000'000'000);
  EXPECT_THAT(UnprojectedText(job), HasSubstr("(75.0 % of the time seen)"));
  // The time of several ranks is a sum, and may be in the iterations of ranks that wait for it.
  for (const int rank : {0, 1}) job.add_processes()->set_rank(rank);
  EXPECT_THAT(UnprojectedText(job), AllOf(HasSubstr("of 2 ranks together"), Not(HasSubstr("%"))));
  job.clear_processes();
  job.set_iterations_duration_ns(3'000'000'000'000);
  EXPECT_THAT(UnprojectedText(job), Not(HasSubstr("%")));
}

}  // namespace
}  // namespace seqpoint::client
