// Which iterations a job measures, and the counters and kernels of the whole run.
#include <map>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_fixture.h"

namespace seqpoint::jobs {
namespace {

TEST(Job, MeasuresWithinItsCapAndProjectsCountersOfTheWholeRun) {
  Job job(Row(), {});
  FakeProcess process(2);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(1000);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  double early = 0;
  for (int i = 0; i < 1000; ++i) {
    process.Iterate();
    if (i == 250) early = Project(job, AskTime())->projection().total().value();
  }
  double time_ns = 0, flops = 0;
  for (const auto& truth : process.truth) {
    time_ns += static_cast<double>(truth.time_ns);
    flops += truth.flops;
  }
  EXPECT_NEAR(early / time_ns, 1, 0.05);
  EXPECT_NEAR(Project(job, AskTime())->projection().total().value() / time_ns, 1, 0.005);
  EXPECT_LE(process.measured_iterations.size(), 64u);
  EXPECT_GE(process.measured_iterations.size(), 16u);

  v1::GetCountersRequest request;
  request.set_confidence(0.999);
  const auto counters = GetCounters(job, request);
  ASSERT_TRUE(counters.ok());
  const v1::Estimate& total = counters->counters(1).projection().total();
  EXPECT_NEAR(total.value() / flops, 1, 0.02);
  const auto kernels = GetKernels(job, {});
  ASSERT_TRUE(kernels.ok());
  EXPECT_EQ(kernels->kernels(0).name(), "lstm_forward");
}

TEST(Job, RatesAreOverTheTimeOfIterationsAndNotOfRanges) {
  Job job(Row(), {});
  FakeProcess process(2);
  process.range_extra_ns = 20'000;
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  double time_ns = 0, amount = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t length = process.DrawLength();
    process.Iterate(length, process.TimeOf(length) / 10);  // 120 to 420 us
    time_ns += static_cast<double>(process.truth.back().time_ns);
    amount += process.truth.back().flops;
  }
  const auto counters = GetCounters(job, {});
  ASSERT_TRUE(counters.ok());
  std::map<std::string, double> ratios;
  for (const v1::Counter& counter : counters->counters()) {
    if (counter.ratio()) ratios[counter.metric()] = counter.per_iteration().value();
  }
  EXPECT_NEAR(ratios["device memory read"] / (amount / time_ns), 1, 0.01);
  EXPECT_NEAR(
      ratios["multiprocessors active"] / (100 * amount / (time_ns * FakeProcess::kCyclesPerNs)), 1,
      0.01);
  EXPECT_NEAR(ratios["instructions per active cycle"], 1, 0.01);
  EXPECT_THAT(counters->message(), testing::HasSubstr("over the usual time of iterations"));
}

// Which kernels ran in them nobody knows; that iterations were traced, and how long they took, is.
TEST(Job, GraphsThatWereRecordedAsAWholeAreTracedAsSuch) {
  Job job(Row(), {});
  FakeProcess process(2);
  process.whole_graphs = true;
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(1000);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  for (int i = 0; i < 1000; ++i) process.Iterate();
  const auto kernels = GetKernels(job, {});
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  ASSERT_EQ(kernels->kernels_size(), 1);
  EXPECT_EQ(kernels->kernels(0).name(), "(CUDA graphs, recorded as a whole)");
  EXPECT_GT(kernels->measured_iterations(), 0);
  EXPECT_NEAR(kernels->kernels(0).launches(), 1000, 1);
  // Slow iterations that times do not show may add a little.
  EXPECT_NEAR(kernels->kernels(0).duration_ns().value(), 1000 * 100, 300);
}

TEST(Job, ResultsThatComeAfterTheirIterationCountAllTheSame) {
  Job job(Row(), {});
  FakeProcess process(2);
  process.late_results = 3;
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 600; ++i) process.Iterate();
  const v1::Job described = job.Describe(false);
  EXPECT_GE(process.measured_iterations.size(), 20u);
  EXPECT_EQ(described.seqpoints().measurements() +
                static_cast<int>(described.losses().refused_measurements()),
            static_cast<int>(process.measured_iterations.size()));
}

TEST(Job, MeasuresNoMoreThanTheOverheadBudgetPaysFor) {
  Job job(Row(), {});
  FakeProcess process(8);
  process.stop_ns = 10'000'000;
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 1000; ++i) process.Iterate();
  // 1,000 iterations of 2.7 ms: 1 % pays for two stops of 10 ms, and two are taken without a price.
  EXPECT_GE(process.measured_iterations.size(), 1u);
  EXPECT_LE(process.measured_iterations.size(), 4u);
  v1::Job described = job.Describe(false);
  EXPECT_NE(described.overhead().message().find("measurements wait"), std::string::npos);

  v1::ControlRequest request;
  request.set_action(v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET);
  request.set_overhead_budget_share(0.5);
  ASSERT_TRUE(job.Control(request).ok());
  for (int i = 0; i < 500; ++i) process.Iterate();
  EXPECT_GT(process.measured_iterations.size(), 20u);
  EXPECT_EQ(job.Describe(false).overhead().message(), "");
}

TEST(Job, WatchingComesOffTheOverheadBudgetAndIsShown) {
  const auto measured = [](uint64_t watching_ns) {
    Job job(Row(), {});
    FakeProcess process(8);
    process.stop_ns = 500'000;
    job.AddProcess(TrainingProcess());
    process.Connect(job, 7);
    for (int i = 0; i < 600; ++i) {
      process.TellCost(watching_ns / 2, watching_ns / 2);
      process.Iterate();
    }
    const v1::Overhead overhead = job.Describe(false).overhead();
    EXPECT_LE(overhead.spent_share(), 0.0105);
    if (watching_ns > 0) {
      EXPECT_GE(overhead.spent_size(), 2);
      EXPECT_EQ(overhead.spent(0).activity(), "watching at learn");
      EXPECT_EQ(overhead.spent(0).count(), 100);
      EXPECT_TRUE(overhead.spent(0).estimated());
    }
    return process.measured_iterations.size();
  };
  const size_t all = measured(0);
  const size_t some = measured(uint64_t{1} << 40);  // more than the budget
  EXPECT_GT(some, all / 3);
  EXPECT_LT(some, all * 3 / 4);
}

TEST(Job, MoreKernelsThanFitAreOneEntryAndNoTimeIsLost) {
  for (const bool restart : {false, true}) {
    auto job = std::make_unique<Job>(Row(), JobOptions{.measurement_budget = 2});
    FakeProcess process(2);
    process.kernel_names = 5000;
    job->AddProcess(TrainingProcess());
    process.Connect(*job, 7);
    FakeStore store;
    for (int i = 0; i < 40; ++i) process.Iterate();
    if (restart) {
      store.Take(*job);
      job = store.Restart();
    }
    const auto kernels = GetKernels(*job, {});
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    EXPECT_EQ(kernels->kernels_size(), 256 + 1);
    EXPECT_EQ(kernels->kernel_names(), 5000);
    const v1::Kernel& others = kernels->kernels(256);
    EXPECT_EQ(others.name(), "(others)");
    // Every kernel takes the same.
    EXPECT_NEAR(others.share(), (5000.0 - 256) / 5000, 1e-6);
    v1::GetKernelsRequest few;
    few.set_limit(3);
    const auto three = GetKernels(*job, few);
    ASSERT_TRUE(three.ok()) << three.status();
    ASSERT_EQ(three->kernels_size(), 3);
    EXPECT_NEAR(three->kernels(0).share(), 1.0 / 5000, 1e-6);
  }
}

}  // namespace
}  // namespace seqpoint::jobs
