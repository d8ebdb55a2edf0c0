// The user's lengths and horizons.
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "daemon/base/horizon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_fixture.h"

namespace seqpoint::jobs {
namespace {

TEST(Job, UserLengthsOfTheDataSetGiveTheWholeRun) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  v1::Horizon horizon = AllLengths(40);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  for (int i = 0; i < 200; ++i) process.Iterate();
  const auto reply = Project(job, AskTime());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->projection().iterations_total(), 40 * 31);
  EXPECT_EQ(reply->projection().horizon_kind(), v1::Horizon::KIND_DISTRIBUTION);
  // 200,000 + 100,000 x 25 on average
  EXPECT_NEAR(reply->projection().total().value(), 40 * 31 * 2.7e6, 0.01 * 40 * 31 * 2.7e6);
}

TEST(Job, FirstOccurrencesAreThoseOfMicroBatchs) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(6);
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(600);
  ASSERT_TRUE(job->SetHorizon(horizon).ok());
  FakeStore store;
  store.Take(*job);
  for (int i = 0; i < 600; ++i) {
    process.Accumulate();
    store.Take(*job);
    if (i % 37 != 36) continue;
    job = store.Restart();
    process.Connect(*job, 7);
  }
  const v1::Projection projection = Project(*job, AskTime())->projection();
  job->OnProcessEnd(7, true, 1);
  store.Take(*job);
  ASSERT_EQ(store.iterations.size(), 600u) << job->Describe(true).rule().DebugString();
  for (const auto& [number, row] : store.iterations) {
    const auto n = static_cast<size_t>(number);
    EXPECT_EQ((row.flags & kIterationFirst) != 0, process.new_lengths()[n] > 0) << number;
  }
  EXPECT_THAT(projection.basis(), testing::HasSubstr("the first iteration of a length costs"));
}

TEST(Job, LengthsGiveNoTotalWhileItIsNotKnownHowManyBatchesAnIterationTakes) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  ASSERT_TRUE(job.SetHorizon(AllLengths(40)).ok());
  const std::string why = "two optimisers take turns";
  process.SayBatches(abi::kBatchUnknown, why);
  for (int i = 0; i < 200; ++i) process.Iterate();
  EXPECT_EQ(Project(job, AskTime())->projection().iterations_total(), 0);
  EXPECT_EQ(job.Describe(true).horizon().iterations(), 0);
  EXPECT_THAT(job.Describe(true).rule().message(), testing::HasSubstr(why));
  v1::ProjectRequest another = AskTime();
  *another.mutable_horizon() = AllLengths(20);
  EXPECT_THAT(std::string(Project(job, another).status().message()), testing::HasSubstr(why));
  another.mutable_horizon()->Clear();
  another.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
  another.mutable_horizon()->set_iterations(700);
  EXPECT_EQ(Project(job, another)->projection().iterations_total(), 700);

  process.SayBatches(abi::kBatchEach, "each has its own");
  for (int i = 0; i < 2; ++i) process.Iterate();
  EXPECT_EQ(Project(job, AskTime())->projection().iterations_total(), 40 * 31);
  EXPECT_EQ(job.Describe(true).rule().message(), "");
}

TEST(Job, SeveralPassesOverOneBatchTakeOneOfTheUsersBatches) {
  Job job(Row(), {});
  FakeProcess process(6);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  ASSERT_TRUE(job.SetHorizon(AllLengths(40)).ok());
  process.SayBatches(abi::kBatchOne, "all passes have the same lengths");
  for (int i = 0; i < 300; ++i) process.Accumulate(process.DrawLength());
  const v1::Projection projection = Project(job, AskTime())->projection();
  EXPECT_EQ(projection.iterations_total(), 40 * 31);
  EXPECT_EQ(projection.horizon_kind(), v1::Horizon::KIND_DISTRIBUTION);
  const double truth = 40 * 31 * (8e5 + 4e5 * 25) + 31 * 3e6;
  EXPECT_NEAR(projection.total().value() / truth, 1, 0.01);
  EXPECT_LE(projection.total().low(), truth);
  EXPECT_GE(projection.total().high(), truth);
  EXPECT_EQ(job.Describe(true).rule().message(), "");
}

TEST(Job, LengthsThatAreDistributedOtherwiseAreTold) {
  for (const auto kind : {v1::Horizon::KIND_DISTRIBUTION, v1::Horizon::KIND_HISTOGRAM}) {
    for (const bool skewed : {false, true}) {
      Job job(Row(), {});
      FakeProcess process(4);
      job.AddProcess(TrainingProcess());
      process.Connect(job, 7);
      v1::Horizon horizon;
      horizon.set_kind(kind);
      const bool rows = kind == v1::Horizon::KIND_HISTOGRAM;
      horizon.set_batch(rows ? 0 : 16);
      for (int length = 10; length <= 40; ++length) {
        v1::LengthCount& entry = *horizon.add_histogram();
        entry.add_lengths(length);
        const double x = (length - 9) / 31.0, before = (length - 10) / 31.0;
        // As of batches of twice the size, or of half of it.
        const double share = rows ? std::sqrt(x) - std::sqrt(before) : x * x - before * before;
        entry.set_count(skewed ? std::llround(1000 * share) : 32);
      }
      ASSERT_TRUE(job.SetHorizon(horizon).ok());
      for (int i = 0; i < 420; ++i) process.Iterate();
      const std::string message = job.Describe(false).rule().message();
      EXPECT_EQ(message.find("distributed otherwise") != std::string::npos, skewed) << message;
      EXPECT_EQ(message.find("--batch missing") != std::string::npos, skewed && rows) << message;
      EXPECT_EQ(message.find("as of batches of about 8 examples, not 16") != std::string::npos,
                skewed && !rows)
          << message;
    }
  }
}

TEST(Job, AQuestionAboutAnotherRunIsAboutAllOfIt) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 400; ++i) process.Iterate();
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  v1::ProjectRequest request = AskTime();
  request.mutable_horizon()->set_kind(v1::Horizon::KIND_HISTOGRAM);
  for (int length = 10; length <= 30; ++length) {  // shorter ones, and fewer than have run
    v1::LengthCount& entry = *request.mutable_horizon()->add_histogram();
    entry.add_lengths(length);
    entry.set_count(5);
  }
  const auto reply = Project(job, request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->projection().iterations_total(), 105);
  EXPECT_NEAR(reply->projection().total().value(), 105 * 2.2e6, 0.01 * 105 * 2.2e6);
  EXPECT_FALSE(reply->projection().has_so_far());
  request.clear_horizon();
  request.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
  request.mutable_horizon()->set_iterations(10'000);
  EXPECT_NEAR(Project(job, request)->projection().total().value(), 10'000 * 2.7e6,
              0.05 * 10'000 * 2.7e6);
}

// In whatever order the batches come.
TEST(Job, EpochsOfANumberOfIterationsHaveAsManyEach) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 200; ++i) process.Iterate();
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(600);
  for (const auto& [epochs, each] :
       {std::pair(3, 200), std::pair(7, 0), std::pair(1, 600), std::pair(0, 0)}) {
    horizon.set_epochs(epochs);
    ASSERT_TRUE(job.SetHorizon(horizon).ok());
    const auto snapshot = job.TakeSnapshot();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_EQ((*snapshot)->data().epoch_iterations, each) << epochs;
  }
}

// Which lengths an epoch has is not known of shuffled batches; how many it has is.
TEST(Job, EpochsOfShuffledBatchesHaveAsManyEach) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 200; ++i) process.Iterate();
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_DISTRIBUTION);
  horizon.set_epochs(3);
  v1::LengthCount& entry = *horizon.add_histogram();
  entry.add_lengths(20);
  // The histogram is of all epochs; of more iterations than were said nothing tells the epoch.
  for (const auto& [batches, each] : {std::pair(600, 200), std::pair(601, 0), std::pair(150, 0)}) {
    entry.set_count(batches);
    ASSERT_TRUE(job.SetHorizon(horizon).ok());
    EXPECT_EQ(job.Describe(false).horizon().iterations(), batches);
    const auto snapshot = job.TakeSnapshot();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_EQ((*snapshot)->data().epoch_iterations, each) << batches;
  }
}

TEST(Job, LengthsAndCountsThatOverflowAreRefused) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 200; ++i) process.Iterate();
  const auto ask = [&](int64_t length, int64_t count, int64_t epochs) {
    v1::ProjectRequest request = AskTime();
    request.mutable_horizon()->set_kind(v1::Horizon::KIND_HISTOGRAM);
    request.mutable_horizon()->set_epochs(epochs);
    for (const int64_t value : {int64_t{20}, length}) {
      v1::LengthCount& entry = *request.mutable_horizon()->add_histogram();
      entry.add_lengths(value);
      entry.set_count(count);
    }
    const absl::Status asked = Project(job, request).status();
    EXPECT_EQ(job.SetHorizon(request.horizon()).ok(),
              asked.code() != absl::StatusCode::kInvalidArgument);
    return std::string(asked.message());
  };
  EXPECT_THAT(ask(INT64_MAX, 1, 1), testing::HasSubstr("9223372036854775807 is more than"));
  EXPECT_THAT(ask(30, INT64_MAX, 1), testing::HasSubstr("check the counts"));
  EXPECT_THAT(ask(30, 1 << 20, kMaxRunIterations), testing::HasSubstr("check the counts"));
  EXPECT_THAT(ask(30, 1, INT64_MAX),
              testing::HasSubstr("epochs = 9223372036854775807 is not in 0 ... 1000000000000000"));
  // A length that is none in the feature's units: bytes of a copy, 128 of each.
  EXPECT_NE(ask(kMaxLength, 1, 1), "");
}

}  // namespace
}  // namespace seqpoint::jobs
