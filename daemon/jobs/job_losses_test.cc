// Iterations and records that are missing, and what the answers say of them.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/queries/changed_run.h"
#include "daemon/queries/counters.h"
#include "daemon/queries/kernels.h"
#include "daemon/queries/playlist.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_fixture.h"

namespace seqpoint::jobs {
namespace {

TEST(Job, IterationsWhoseRecordsWereLostAreCounted) {
  Job job(Row(), {});
  FakeProcess process(8);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 300; ++i) process.Iterate();
  process.deaf = true;  // the ring is full
  for (int i = 0; i < 100; ++i) process.Iterate();
  process.deaf = false;
  for (int i = 0; i < 100; ++i) process.Iterate();
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  const v1::Job described = job.Describe(false);
  EXPECT_EQ(described.iterations(), 500);
  EXPECT_GE(described.losses().ring_lost(), 99);
  EXPECT_GE(described.losses().untimed_iterations(), 99);
  double truth = 0;
  for (const auto& iteration : process.truth) truth += static_cast<double>(iteration.time_ns);
  const v1::Projection time = Project(job, AskTime())->projection();
  EXPECT_LE(time.so_far().low(), truth);
  EXPECT_GE(time.so_far().high(), truth);
}

TEST(Job, TheLastIterationHasNoEndAndIsNoLoss) {
  for (const bool over : {false, true}) {
    Job job(Row(), {});
    FakeProcess process(8);
    job.AddProcess(TrainingProcess());
    process.Connect(job, 7);
    for (int i = 0; i < 300; ++i) process.Iterate();
    if (over) job.OnProcessEnd(7, /*orderly=*/true, 1);
    EXPECT_EQ(job.Describe(false).losses().untimed_iterations(), 0);
  }
}

TEST(Job, IterationsThatWereLostBetweenOthersAreAmongThoseThatAreCounted) {
  Job job(Row(), {});
  FakeProcess process(8);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 300; ++i) process.Iterate();
  for (const int after : {100, 0}) {
    process.deaf = true;
    for (int i = 0; i < 100; ++i) process.Iterate();
    process.deaf = false;
    for (int i = 0; i < after; ++i) process.Iterate();
  }
  job.OnLosses(7, {.dropped = 40, .events_dropped = 40});
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  const v1::Job described = job.Describe(false);
  ASSERT_EQ(described.losses().uncounted_processes(), 1);
  EXPECT_THAT(described.error(), testing::HasSubstr(absl::StrCat(
                                     "after the ", described.iterations(), " iterations")));
}

TEST(Job, ARunThatEndedWhileNoDaemonReadItIsALowerBoundEverywhere) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(8);
  process.kernel_names = 3;
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  FakeStore store;
  for (int i = 0; i < 400; ++i) {
    process.Iterate();
    store.Take(*job);
  }
  // The daemon is killed; the run goes on, and ends before the next one is there.
  job = store.Restart();
  EXPECT_THAT(job->Describe(false).error(), testing::HasSubstr("has not come back"));
  job->OnProcessEnd(7, /*orderly=*/false, 1);
  const auto check = [](Job& job) {
    const v1::Job described = job.Describe(true);
    EXPECT_THAT(described.error(), testing::HasSubstr("ended while no daemon read it"));
    EXPECT_THAT(described.error(), testing::HasSubstr("lower bounds"));
    EXPECT_EQ(described.losses().uncounted_processes(), 1);
    EXPECT_TRUE(std::isinf(described.time().so_far().high()));
    EXPECT_FALSE(described.time().has_total());
    const auto time = Project(job, AskTime());
    ASSERT_TRUE(time.ok());
    EXPECT_TRUE(std::isinf(time->projection().so_far().high()));
    EXPECT_THAT(time->projection().basis(), testing::HasSubstr("lower bounds"));
    EXPECT_EQ(time->losses().uncounted_processes(), 1);
    const auto snapshot = *job.TakeSnapshot();
    v1::GetCountersRequest counters_request;
    counters_request.set_confidence(0.95);
    const auto counters = queries::GetCounters(*snapshot, counters_request);
    ASSERT_TRUE(counters.ok()) << counters.status();
    EXPECT_EQ(counters->losses().uncounted_processes(), 1);
    for (const v1::Counter& counter : counters->counters()) {
      if (!counter.has_projection()) continue;
      EXPECT_TRUE(std::isinf(counter.projection().so_far().high())) << counter.metric();
    }
    v1::GetKernelsRequest kernels_request;
    kernels_request.set_confidence(0.95);
    const auto kernels = queries::GetKernels(*snapshot, kernels_request);
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    for (const v1::Kernel& kernel : kernels->kernels()) {
      EXPECT_TRUE(std::isinf(kernel.duration_ns().high())) << kernel.name();
    }
    const auto playlist = queries::MakePlaylist(*snapshot, {.points = 8});
    ASSERT_TRUE(playlist.ok()) << playlist.status();
    EXPECT_THAT(playlist->reply.message(), testing::HasSubstr("lower bounds"));
  };
  check(*job);
  store.Take(*job);
  ProcessRow ended = TrainingProcess();
  ended.end_ns = 1;
  ended.lost = true;
  check(*store.Restart({ended}));
}

TEST(Job, CallsThatWereDroppedWhileIterationsAreCountedByThemMakeALowerBound) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(8);
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  FakeStore store;
  for (int i = 0; i < 6; ++i) process.Iterate();
  // Two that nobody saw: their numbers would be the library's, which does not count yet.
  process.deaf = true;
  for (int i = 0; i < 2; ++i) process.Iterate();
  process.deaf = false;
  job->OnCallsMissing(7, 24);
  job->OnLosses(7, {.dropped = 24});
  for (int i = 0; i < 300; ++i) process.Iterate();
  EXPECT_EQ(job->Describe(false).state(), v1::JOB_STATE_MARKING);
  store.Take(*job);
  job->OnProcessEnd(7, /*orderly=*/true, 1);
  const v1::Job described = job->Describe(true);
  EXPECT_THAT(described.error(), testing::HasSubstr("lost 24 calls while its iterations were"));
  EXPECT_THAT(described.error(), testing::HasSubstr("lower bounds"));
  EXPECT_EQ(described.losses().uncounted_processes(), 1);
  EXPECT_TRUE(std::isinf(described.time().so_far().high()));
  EXPECT_EQ(store.Restart()->Describe(false).losses().uncounted_processes(), 1);
}

TEST(Job, TheTimeOfCallsThatWereDroppedIsInNoIteration) {
  for (const bool restarted : {false, true}) {
    auto job = std::make_unique<Job>(Row(), JobOptions{});
    v1::Horizon horizon;
    horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
    horizon.set_iterations(346);
    ASSERT_TRUE(job->SetHorizon(horizon).ok());
    FakeProcess process(8);
    job->AddProcess(TrainingProcess());
    process.Connect(*job, 7);
    FakeStore store;
    for (int i = 0; i < 6; ++i) process.Iterate();
    process.deaf = true;  // from the begin of iteration 6 on
    for (int i = 0; i < 40; ++i) process.Iterate();
    process.deaf = false;
    job->OnCallsMissing(7, 2000);
    job->OnLosses(7, {.dropped = 2000});
    if (restarted) {
      store.Take(*job);
      job = store.Restart();
      process.Connect(*job, 7);
    }
    for (int i = 0; i < 300; ++i) process.Iterate();
    job->OnProcessEnd(7, /*orderly=*/true, 1);
    store.Take(*job);
    double truth = 0;
    for (const auto& iteration : process.truth) truth += static_cast<double>(iteration.time_ns);
    const v1::Projection time = Project(*job, AskTime())->projection();
    EXPECT_LE(time.total().low(), truth);
    EXPECT_GE(time.total().high(), truth);
    EXPECT_NEAR(time.per_1000_iterations().value() / truth, 1000. / 346, 0.1);
    EXPECT_TRUE(std::isinf(time.so_far().high()));
    EXPECT_EQ(time.remaining().low(), 0) << "what is missing may have run";
    EXPECT_EQ(store.iterations[5].flags & kIterationDistorted, kIterationDistorted);
    EXPECT_EQ((*job->TakeSnapshot())->data().counted_to, 5);
    ProcessRow ended = TrainingProcess();
    ended.end_ns = 1;
    EXPECT_EQ((*store.Restart({ended})->TakeSnapshot())->data().counted_to, 5);
  }
}

TEST(Job, WhereEvaluationMayBeAmongTheIterationsNothingIsSaidOfAWholeRun) {
  const std::string why = "some of its iterations may be evaluation";
  for (const bool unread : {false, true}) {
    auto job = std::make_unique<Job>(Row(), JobOptions{});
    ASSERT_TRUE(job->SetHorizon(AllLengths(20)).ok());
    FakeProcess process(8);
    job->AddProcess(TrainingProcess());
    process.Connect(*job, 7);
    job->OnLosses(7, {.clock_kind = static_cast<uint32_t>(abi::ClockKind::kReal)});
    for (int i = 0; i < 300; ++i) process.Iterate();
    EXPECT_TRUE(job->Describe(true).has_expected_end());
    process.SayLateEvaluation(why);
    for (int i = 0; i < 10; ++i) process.Iterate();
    EXPECT_FALSE(job->Describe(true).has_expected_end());
    FakeStore store;
    store.Take(*job);
    if (unread) job = store.Restart();
    const v1::Projection time = Project(*job, AskTime())->projection();
    EXPECT_FALSE(time.has_total());
    EXPECT_FALSE(time.has_remaining());
    EXPECT_FALSE(time.has_per_1000_iterations());
    EXPECT_EQ(time.has_so_far(), !unread) << "neither end is known";
    EXPECT_EQ(time.so_far().low(), 0);
    EXPECT_THAT(time.basis(), testing::HasSubstr(why));
    EXPECT_FALSE(job->Describe(true).time().has_total());
    v1::ProjectRequest another = AskTime();
    *another.mutable_horizon() = AllLengths(30);
    EXPECT_FALSE(Project(*job, another)->projection().has_total());
    const auto counters = GetCounters(*job, {});
    ASSERT_TRUE(counters.ok()) << counters.status();
    ASSERT_GT(counters->counters_size(), 0);
    for (const v1::Counter& counter : counters->counters()) {
      EXPECT_FALSE(counter.has_per_iteration()) << counter.metric();
      EXPECT_FALSE(counter.projection().has_total()) << counter.metric();
    }
    const auto kernels = GetKernels(*job, {});
    EXPECT_EQ(kernels.ok(), !unread);
    if (!unread) {
      EXPECT_EQ(kernels->kernels(0).duration_ns().low(), 0);
    }
    const auto snapshot = *job->TakeSnapshot();
    EXPECT_THAT(std::string(queries::ProjectChange(*snapshot, {}, 0.95, 0).status().message()),
                testing::HasSubstr(why));
    EXPECT_EQ(snapshot->data().counted_to, 0);
  }
}

TEST(Job, WhatWasReadBeforeTheEndThatNobodyReadIsCounted) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(8);
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  FakeStore store;
  for (int i = 0; i < 400; ++i) process.Iterate();
  store.Take(*job);
  EXPECT_GT((*job->TakeSnapshot())->data().counted_to, 1 << 30);
  job = store.Restart();
  job->OnProcessEnd(7, /*orderly=*/false, 1);
  EXPECT_EQ((*job->TakeSnapshot())->data().counted_to, 400);
}

TEST(Job, WhereTheLibraryCountsOnlyTheLastEventsCanHideIterations) {
  for (const bool goes_on : {true, false}) {
    Job job(Row(), {});
    FakeProcess process(8);
    job.AddProcess(TrainingProcess());
    process.Connect(job, 7);
    for (int i = 0; i < 300; ++i) process.Iterate();
    process.deaf = true;
    for (int i = 0; i < 10; ++i) process.Iterate();
    process.deaf = false;
    job.OnCallsMissing(7, 100);
    job.OnLosses(7, {.dropped = 40, .events_dropped = 40});
    EXPECT_EQ(job.Describe(false).losses().uncounted_processes(), 0) << "it may go on";
    for (int i = 0; goes_on && i < 5; ++i) process.Iterate();
    job.OnProcessEnd(7, /*orderly=*/true, 1);
    const v1::Job described = job.Describe(false);
    EXPECT_EQ(described.losses().uncounted_processes(), goes_on ? 0 : 1);
    EXPECT_EQ(std::isinf(described.time().so_far().high()), !goes_on);
    EXPECT_THAT(described.error(),
                testing::HasSubstr(goes_on ? "were dropped" : "lost its last records"));
  }
}

TEST(Job, CuptiThatIsLeftToAnotherToolIsAStateOfItsOwn) {
  Job job(Row(), {});
  FakeProcess process(7);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  v1::ControlRequest request;
  request.set_action(v1::ControlRequest::ACTION_RELEASE_CUPTI);
  ASSERT_TRUE(job.Control(request).ok());
  EXPECT_EQ(job.Describe(false).state(), v1::JOB_STATE_RELEASED);
  request.set_action(v1::ControlRequest::ACTION_RESUME);
  ASSERT_TRUE(job.Control(request).ok());
  EXPECT_EQ(job.Describe(false).state(), v1::JOB_STATE_LEARNING);
}

TEST(Job, SaysForWhomCuptiWasLeftToTheEnd) {
  Job job(Row(), {});
  FakeProcess process(7);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  process.StandDown(process.api_ns(), 0);
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  EXPECT_THAT(job.Describe(true).error(),
              testing::AllOf(testing::HasSubstr("torch.profiler"),
                             testing::HasSubstr("until the process ended")));
}

TEST(Job, SaysHowLongCuptiWasLeftToAnotherProfiler) {
  Job job(Row(), {});
  FakeProcess process(7);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 300; ++i) process.Iterate();
  const uint64_t begin_ns = process.api_ns();
  process.StandDown(begin_ns, 0);
  EXPECT_EQ(job.Describe(true).processes(0).stands_down_for(), "torch.profiler");
  EXPECT_NE(job.Describe(false).error().find("torch.profiler"), std::string::npos);
  const int64_t stood_down_ns = 2'000'000'000;
  process.PassTime(stood_down_ns);
  process.StandDown(begin_ns, begin_ns + stood_down_ns);
  for (int i = 0; i < 100; ++i) process.Iterate();
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  const v1::Job described = job.Describe(true);
  EXPECT_EQ(described.iterations(), 400);
  EXPECT_EQ(described.processes(0).stands_down_for(), "");
  EXPECT_EQ(described.processes(0).stood_down_duration_ns(), stood_down_ns);
  EXPECT_EQ(described.error(), "");
  EXPECT_NE(described.rule().message().find("left to torch.profiler for 2 s around iteration"),
            std::string::npos)
      << described.rule().message();
  EXPECT_NE(described.rule().message().find("were not seen"), std::string::npos);
}

TEST(Job, HostilePayloadsAreRejectedAndCounted) {
  Job job(Row(), {});
  job.AddProcess(TrainingProcess());
  std::mt19937 random(9);
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> payload(random() % 128);
    for (uint8_t& byte : payload) byte = static_cast<uint8_t>(random());
    job.OnEvent(7, static_cast<abi::EventType>(random() % 20), payload);
    abi::DataRecord record;
    for (uint8_t& byte : record.bytes) byte = static_cast<uint8_t>(random());
    record.type = static_cast<uint16_t>(random() % 12);
    job.OnData(7, {&record, 1});
    if (i % 100 == 0) job.Advance();
  }
  const int64_t rejected = job.Describe(true).losses().rejected();
  EXPECT_GT(rejected, 0);
  job.OnLosses(7, {.rejected = 3});  // by the ring's reader, before they came here
  EXPECT_EQ(job.Describe(true).losses().rejected(), rejected + 3);
  job.OnProcessEnd(7, false, 1);
  EXPECT_GE(job.Describe(true).losses().rejected(), rejected + 3);
}

TEST(Job, WhatAHostileProcessCountsNeverTurnsNegative) {
  Job job({.job_id = 1, .name = "x", .run_id = "1"}, {});
  for (const int64_t id : {7, 8, 9}) {
    job.AddProcess({.process_id = id, .job_id = 1, .rank = static_cast<int32_t>(id)});
    job.OnLosses(id, {.dropped = UINT64_MAX,
                      .lost = UINT64_MAX,
                      .rejected = UINT64_MAX,
                      .cupti_dropped = UINT64_MAX,
                      .invalid_timestamps = UINT64_MAX});
    for (int i = 0; i < 3; ++i) {
      const abi::WindowEvent window = {.stopped_ns = UINT64_MAX - 1};
      job.OnEvent(id, abi::EventType::kWindow,
                  {reinterpret_cast<const uint8_t*>(&window), sizeof window});
    }
  }
  const v1::Job described = job.Describe(true);
  const v1::Losses& losses = described.losses();
  for (const int64_t count :
       {losses.ring_dropped(), losses.ring_lost(), losses.rejected(), losses.cupti_dropped(),
        losses.invalid_timestamps(), described.overhead().stopped_duration_ns()}) {
    EXPECT_EQ(count, int64_t{1} << 62);
  }
}

}  // namespace
}  // namespace seqpoint::jobs
