#include "client/text/figures_text.h"

#include "client/text/nothing.h"
#include "client/text/projection_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(IterationsTextTest, SaysWhatIsInNoFigureAndWhatWasLost) {
  v1::ListIterationsReply reply;
  for (const int number : {5, 6, 6, 9}) {
    v1::Iteration& iteration = *reply.add_iterations();
    iteration.set_number(number);
    iteration.set_duration_ns(1'000'000);
    iteration.set_concurrent(reply.iterations_size() == 3);
    iteration.set_rest_ns(reply.iterations_size() == 4 ? 30'000'000 : 0);
  }
  const std::string all = IterationsText(reply.iterations(), /*all=*/true);
  EXPECT_THAT(all,
              ContainsRegex("\n +6 +0 .*ran at the same time as another process, in no figure\n"));
  EXPECT_THAT(all, ContainsRegex("\n +9 +0 .*its end is not known: up to 30 ms more, the records "
                                 "of 2 before it were lost\n"));
  EXPECT_THAT(IterationsText(reply.iterations(), /*all=*/false), Not(HasSubstr("lost")));
}

TEST(ProjectionTextTest, APartHasOneTotal) {
  v1::Projection projection;
  projection.set_unit("ns");
  projection.set_iterations_so_far(10);
  projection.set_iterations_total(10);
  for (v1::Estimate* estimate : {projection.mutable_total(), projection.mutable_so_far()}) {
    estimate->set_value(5e6);
    estimate->set_low(5e6);
    estimate->set_high(5e6);
  }
  const std::string text = ProjectionText(projection, {}, "iterations 0 to 9");
  EXPECT_THAT(text,
              AllOf(HasSubstr("iterations 0 to 9 (10 iterations)"), Not(HasSubstr("so far"))));
}

TEST(TextTest, FiguresOfSeveralRanksAreSaidToBeSums) {
  v1::GetKernelsReply kernels;
  kernels.add_kernels()->set_name("gemm");
  v1::GetCountersReply counters;
  counters.add_counters()->set_metric("flops");
  v1::Job job;
  EXPECT_THAT(KernelsText(kernels, job, 0), Not(HasSubstr("summed")));
  job.set_working_ranks(4);
  EXPECT_THAT(KernelsText(kernels, job, 0), HasSubstr("\nsummed over 4 ranks"));
  EXPECT_THAT(CountersText(counters, job, 0, false), HasSubstr("\nsummed over 4 ranks"));
  // Where starts had different ranks.
  job.clear_working_ranks();
  for (const int rank : {0, 1, 1}) job.add_processes()->set_rank(rank);
  EXPECT_THAT(KernelsText(kernels, job, 0), HasSubstr("\nsummed over 2 ranks"));
}

TEST(TextTest, FiguresOfARunThatIsOverAreNotSaidToBeSoFar) {
  v1::GetKernelsReply kernels;
  kernels.add_kernels()->set_name("gemm");
  v1::GetCountersReply counters;
  counters.add_counters()->set_metric("flops");
  v1::Job job;
  job.set_state(v1::JOB_STATE_MARKING);
  EXPECT_THAT(KernelsText(kernels, job, 0), HasSubstr("TIME, SO FAR"));
  EXPECT_THAT(CountersText(counters, job, 0, false), HasSubstr("SO FAR"));
  job.set_state(v1::JOB_STATE_ENDED);
  EXPECT_THAT(KernelsText(kernels, job, 0),
              AllOf(HasSubstr("TIME, UNTIL ITS END"), Not(HasSubstr("SO FAR"))));
  EXPECT_THAT(CountersText(counters, job, 0, false),
              AllOf(HasSubstr("UNTIL ITS END"), Not(HasSubstr("SO FAR"))));
  job.mutable_losses()->set_uncounted_processes(1);
  EXPECT_THAT(KernelsText(kernels, job, 0), HasSubstr("TIME, WHAT WAS READ"));
}

TEST(TextTest, LaunchesAreWholeNumbers) {
  v1::GetKernelsReply reply;
  EXPECT_NE(NothingIn(reply), "");
  for (const double launches : {0.3, 940.3, 12345.6, 23.456e6}) {
    v1::Kernel* kernel = reply.add_kernels();
    kernel->set_name("gemm");
    kernel->set_launches(launches);
  }
  EXPECT_EQ(NothingIn(reply), "");
  EXPECT_THAT(KernelsText(reply, v1::Job(), 0),
              AllOf(HasSubstr(" 1  gemm"), HasSubstr(" 940  gemm"), HasSubstr(" 12,346  gemm"),
                    HasSubstr(" 23.46 M  gemm")));
}

TEST(TextTest, KernelsThatFewTracedIterationsHadAreSaid) {
  v1::GetKernelsReply reply;
  reply.set_measured_iterations(32);
  v1::Kernel* kernel = reply.add_kernels();
  kernel->set_name("gemm");
  kernel->set_launches(1084.3);
  kernel->set_launches_low(950.2);
  kernel->set_launches_high(1664.1);
  kernel->set_measured_iterations(6);
  kernel = reply.add_kernels();
  kernel->set_name("adam");
  kernel->set_launches(3125);
  kernel->set_launches_low(3125);
  kernel->set_launches_high(3125);
  kernel->set_measured_iterations(32);
  const std::string text = KernelsText(reply, v1::Job(), 0);
  EXPECT_THAT(text, AllOf(HasSubstr(" 1,084 (950 to 1,664)  gemm"), HasSubstr(" 3,125  adam"),
                          HasSubstr("gemm: seen in 6 of the 32 traced iterations; which of the "
                                    "others have it is an")));
  EXPECT_THAT(text, Not(HasSubstr("adam: seen")));
}

TEST(TextTest, TheRooflineSaysWhatBoundsAKernel) {
  v1::GetRooflineReply reply;
  EXPECT_NE(NothingIn(reply), "");
  reply.set_chip("GH100");
  v1::RooflineKernel* kernel = reply.add_kernels();
  kernel->set_name("_Z4gemmv");
  kernel->set_launches(800);
  kernel->set_share(0.75);
  kernel->set_complete(true);
  kernel->set_operations_per_byte(50.25);
  kernel->set_operations_per_s(5e13);
  kernel->set_bytes_per_s(1e12);
  kernel->set_roof_share(0.8);
  kernel->set_bound(v1::BOUND_COMPUTE);
  kernel = reply.add_kernels();
  kernel->set_name("copy");
  kernel->set_share(0.25);
  kernel->set_message("not measured with every configuration yet");
  v1::RooflineLength* length = reply.add_lengths();
  length->add_lengths(32);
  length->set_measured_iterations(5);
  length->set_wanted_iterations(6);
  v1::Roof* roof = reply.add_roofs();
  roof->set_name("device memory");
  roof->set_unit("B/s");
  roof->set_per_s(4.8e12);
  reply.set_kernel_names(3);
  reply.set_missing_launches(402);
  EXPECT_EQ(NothingIn(reply), "");
  EXPECT_THAT(
      RooflineText(reply, 0),
      AllOf(HasSubstr(" 50.25   50,000  1,000  compute"), HasSubstr("  gemm()"),
            HasSubstr("-  not measured with every configuration yet  copy"),
            HasSubstr("1 more kernels; --all"),
            HasSubstr("GH100, lengths 32: 5 of 6 iterations measured"),
            HasSubstr("roofs  device memory 4,800 GB/s"), HasSubstr("the last 402 launches")));
}

TEST(TextTest, CountersThatWereNotMeasuredHaveNoFigure) {
  v1::GetCountersReply reply;
  v1::Counter* counter = reply.add_counters();
  counter->set_metric("dram__bytes.sum");
  counter->set_message("0 iterations were measured");
  EXPECT_EQ(NothingIn(reply), "no counter was measured: 0 iterations were measured");
  counter = reply.add_counters();
  counter->set_metric("tensor_share");
  counter->set_ratio(true);
  counter->set_complete(true);
  counter->set_unit("%");
  counter->mutable_per_iteration()->set_value(25);
  EXPECT_EQ(NothingIn(reply), "");
  EXPECT_THAT(CountersText(reply, v1::Job(), 0),
              AllOf(HasSubstr("not measured: 0 iterations were measured"), HasSubstr("derived"),
                    Not(HasSubstr("0 ns"))));
  // What was measured, by what, and what that cost.
  reply.set_metric_sets("tensor");
  reply.set_chip("GH100");
  reply.set_backend(v1::COUNTER_BACKEND_PM);
  reply.set_message("PM sampling counts the whole GPU");
  reply.set_slowdown(1.25);
  v1::MeasuredIteration* iteration = reply.add_iterations();
  iteration->set_number(12345);
  iteration->add_lengths(37);
  iteration->set_config("tensor");
  iteration->set_duration_ns(125'000'000);
  iteration->set_usual_duration_ns(1e8);
  const std::string text = CountersText(reply, v1::Job(), 0);
  EXPECT_THAT(text, AllOf(HasSubstr("tensor, by PM sampling of the whole GPU, on GH100"),
                          HasSubstr("note: PM sampling counts the whole GPU"),
                          HasSubstr("1.25 times as long as usual"), Not(HasSubstr("12,345"))));
  EXPECT_THAT(CountersText(reply, v1::Job(), 0, /*list_measured=*/true),
              AllOf(HasSubstr("12,345"), HasSubstr("+25.0 %"), HasSubstr("came to nothing")));
}

}  // namespace
}  // namespace seqpoint::client
