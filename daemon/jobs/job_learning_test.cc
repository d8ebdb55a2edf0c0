// Where a job's iterations begin, how long they are and what they take.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_fixture.h"

namespace seqpoint::jobs {
namespace {

TEST(Job, FindsEveryIterationWithItsLengthAndTime) {
  Job job(Row(), {});
  FakeProcess process(1);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  FakeStore store;
  for (int i = 0; i < 400; ++i) {
    process.Iterate();
    store.Take(job);
  }
  EXPECT_EQ(job.Describe(true).state(), v1::JOB_STATE_MARKING);
  job.OnProcessEnd(7, true, 1);
  store.Take(job);
  EXPECT_EQ(job.Describe(true).state(), v1::JOB_STATE_ENDED);
  ASSERT_EQ(store.iterations.size(), process.truth.size())
      << job.Describe(true).rule().DebugString();
  for (const auto& [number, row] : store.iterations) {
    const auto& truth = process.truth[static_cast<size_t>(number)];
    ASSERT_EQ(row.length_count, 1) << number;
    EXPECT_EQ(LengthOf(job, row), truth.length) << number;
    if (number + 1 < static_cast<int64_t>(process.truth.size())) {
      EXPECT_NEAR(static_cast<double>(row.duration_ns), static_cast<double>(truth.time_ns), 10)
          << number;
    }
  }
}

// Copies of parameters right before the first batch look like copies of the batch.
TEST(Job, TheProgramsSetUpIsNoPartOfTheFirstIteration) {
  Job job(Row(), {});
  FakeProcess process(1);
  process.labels = true;
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  process.SetUp(6'000'000'000);
  FakeStore store;
  for (int i = 0; i < 100; ++i) {
    process.Iterate();
    store.Take(job);
  }
  job.OnProcessEnd(7, true, 1);
  store.Take(job);
  ASSERT_EQ(store.iterations.size(), 100u) << job.Describe(true).rule().DebugString();
  const IterationRow& first = store.iterations.begin()->second;
  EXPECT_EQ(LengthOf(job, first), process.truth[0].length);
  EXPECT_NEAR(static_cast<double>(first.duration_ns), static_cast<double>(process.truth[0].time_ns),
              1000);
}

TEST(Job, ALoopThatChangesIsLearnedAnew) {
  for (const bool restart : {false, true}) {
    auto job = std::make_unique<Job>(Row(), JobOptions{});
    FakeProcess process(6);
    job->AddProcess(TrainingProcess());
    process.Connect(*job, 7);
    v1::Horizon horizon;
    horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
    horizon.set_iterations(800);
    ASSERT_TRUE(job->SetHorizon(horizon).ok());
    FakeStore store;
    for (int i = 0; i < 200; ++i) process.Iterate();
    // Nothing that the rule knows comes any more.
    for (int i = 0; i < 20; ++i) process.IterateOther();
    EXPECT_EQ(job->Describe(true).state(), v1::JOB_STATE_MARKING);
    process.truth.resize(200);  // these are lost
    process.PassTime(7200'000'000'000);
    EXPECT_EQ(job->Describe(true).state(), v1::JOB_STATE_LEARNING);
    EXPECT_FALSE(job->Describe(true).error().empty());
    store.Take(*job);
    for (int i = 0; i < 400; ++i) {
      process.IterateOther();
      store.Take(*job);
      if (restart && i % 50 == 49) {
        job = store.Restart();
        process.Connect(*job, 7);
      }
    }
    job->OnProcessEnd(7, true, 1);
    store.Take(*job);
    const v1::Job described = job->Describe(true);
    EXPECT_NE(described.rule().message().find("learned again"), std::string::npos);
    EXPECT_EQ(described.iterations(), 600) << described.DebugString();
    double time_ns = 0;
    for (const auto& truth : process.truth) time_ns += static_cast<double>(truth.time_ns);
    const auto reply = Project(*job, AskTime());
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply->projection().iterations_total(), 800);
    EXPECT_NEAR(reply->projection().so_far().value() / time_ns, 1, 0.01);
    EXPECT_TRUE(GetCounters(*job, {}).ok());
  }
}

// Two stages of a pipeline: the last one's rule counts three of the first one's micro-batches.
class PipelineTest : public testing::Test {
 protected:
  PipelineTest() {
    for (const ProcessRow& row : rows_) job_->AddProcess(row);
    Connect();
  }
  void Connect() {
    first_.Connect(*job_, 7);
    last_.Connect(*job_, 8);
  }
  // Iterations of both; the daemon reads one ring before the other.
  void Iterate(int count, bool last_before_first) {
    for (int i = 0; i < count; ++i) {
      if (last_before_first) last_.Iterate(last_stream_, next_);
      first_.Iterate(first_stream_, next_);
      if (!last_before_first) last_.Iterate(last_stream_, next_);
      ++next_;
      store_.Take(*job_);
    }
  }
  void RestartDaemon() {
    job_ = store_.Restart(rows_);
    Connect();
  }
  void End() {
    for (const int64_t id : {8, 7}) job_->OnProcessEnd(id, true, 1);
    store_.Take(*job_);
  }
  // Every iteration of both, with the sum of all its micro-batches.
  void ExpectTruth() {
    SCOPED_TRACE(job_->Describe(true).rule().DebugString());
    EXPECT_EQ(job_->Describe(true).rule().message().find("learned again"), std::string::npos);
    for (int32_t rank = 0; rank < 2; ++rank) {
      const std::vector<FakeProcess::Truth>& truth = rank == 0 ? first_.truth : last_.truth;
      for (size_t i = 0; i < truth.size(); ++i) {
        const auto row =
            store_.iterations.find(static_cast<int64_t>(i) + FakeStore::kRankStride * rank);
        ASSERT_NE(row, store_.iterations.end()) << i << " of rank " << rank;
        ASSERT_EQ(LengthOf(*job_, row->second), truth[i].length) << i << " of rank " << rank;
      }
    }
  }

  const std::vector<ProcessRow> rows_ = TwoRanks();
  const iterations::SyntheticStream first_stream_ = MakeStage(1), last_stream_ = MakeStage(0);
  size_t next_ = 0;  // iteration
  FakeProcess first_{5}, last_{6};
  FakeStore store_;
  std::unique_ptr<Job> job_ = std::make_unique<Job>(Row(), JobOptions{});

 private:
  static iterations::SyntheticStream MakeStage(int ahead) {
    return iterations::MakeSyntheticStream(
        {.iterations = 120, .recurrent = false, .micro_batches = 4, .ahead = ahead});
  }
  static std::vector<ProcessRow> TwoRanks() {
    std::vector<ProcessRow> rows(2, TrainingProcess());
    rows[1].process_id = 8;
    rows[1].rank = 1;
    for (ProcessRow& row : rows) row.text = absl::StrCat("rank=", row.rank, "\nworld_size=2\n");
    return rows;
  }
};

TEST_F(PipelineTest, TheRuleFitsAllStages) {
  Iterate(100, /*last_before_first=*/false);
  End();
  ExpectTruth();
}

TEST_F(PipelineTest, TheRuleFitsAllStagesWhicheverIsReadBefore) {
  Iterate(100, /*last_before_first=*/true);
  End();
  ExpectTruth();
}

TEST_F(PipelineTest, TheRuleFitsAllStagesOfAShortRun) {
  Iterate(13, /*last_before_first=*/true);
  End();
  ExpectTruth();
}

TEST_F(PipelineTest, TheRuleFitsAllStagesWhenTheDaemonIsRestarted) {
  for (int i = 0; i < 20; ++i) {
    Iterate(5, /*last_before_first=*/true);
    RestartDaemon();
  }
  End();
  ExpectTruth();
}

// The first stage learns no rule for a long time, and that of the last one counts two of its four
// micro-batches.
TEST(Job, ARuleThatNeverFittedAllStagesIsNotLearnedAgain) {
  const auto stage = [](int layers, int ahead) {
    return iterations::MakeSyntheticStream({.iterations = 200,
                                            .layers = layers,
                                            .recurrent = false,
                                            .micro_batches = 4,
                                            .ahead = ahead,
                                            .middle_stage = true});
  };
  const iterations::SyntheticStream of_first = stage(2, 2), of_last = stage(1, 0);
  Job job(Row(), {});
  FakeProcess first(5), last(6);
  ConnectTwo(job, first, last);
  for (size_t i = 0; i < 150; ++i) {
    first.Iterate(of_first, i);
    last.Iterate(of_last, i);
    job.CheckRules(static_cast<int64_t>(i + 1) * 1'000'000'000);
  }
  const v1::Job described = job.Describe(true);
  EXPECT_EQ(described.rule().message().find("learned again"), std::string::npos)
      << described.rule().message();
  EXPECT_GE(described.iterations(), 149);
}

// No rule finds iterations in the calls of a process that does not train.
TEST(Job, ARuleIsTakenThoughItFitsNotAllProcesses) {
  Job job(Row(), {});
  FakeProcess training(5), other(6);
  ConnectTwo(job, training, other);
  other.Begin();
  for (int i = 0; i < 60; ++i) training.Iterate();
  EXPECT_EQ(job.Describe(true).state(), v1::JOB_STATE_MARKING);
  EXPECT_GE(job.Describe(true).iterations(), 59);
}

TEST(Job, AShortRunIsStillCounted) {
  Job job(Row(), {});
  FakeProcess process(5);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 9; ++i) process.Iterate();
  job.OnProcessEnd(7, /*orderly=*/false, 1);
  const v1::Job described = job.Describe(true);
  EXPECT_EQ(described.state(), v1::JOB_STATE_LOST);
  EXPECT_GE(described.iterations(), 8);
}

TEST(Job, SaysWhyIterationsHaveNoTime) {
  for (const auto wait : {FakeProcess::Wait::kNever, FakeProcess::Wait::kForCopies}) {
    Job ahead(Row(), {}), timed(Row(), {});
    FakeProcess process(5), other(5);
    ahead.AddProcess(TrainingProcess());
    timed.AddProcess(TrainingProcess());
    process.Connect(ahead, 7);
    other.Connect(timed, 7);
    for (int i = 0; i < 100; ++i) {
      process.IterateAhead(wait);
      other.Iterate();
    }
    EXPECT_GE(ahead.Describe(true).iterations(), 90);
    EXPECT_THAT(ahead.Describe(true).rule().message(),
                testing::HasSubstr("the time of its iterations is not known: "));
    EXPECT_FALSE(Project(ahead, AskTime())->projection().has_per_1000_iterations());
    EXPECT_EQ(timed.Describe(true).rule().message(), "");
  }
}

// The loss is read in each tenth iteration, and a new daemon goes on in the middle.
TEST(Job, WhereTheHostWaitsNowAndThenTheWholeRunHasATime) {
  auto job = std::make_unique<Job>(Row(), JobOptions{.measurement_budget = 8});
  FakeProcess process(5);
  FakeStore store;
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  ASSERT_TRUE(job->SetHorizon(AllLengths(32)).ok());
  for (int i = 0; i < 500; ++i) {
    process.IterateAhead(i % 10 == 9 ? FakeProcess::Wait::kForWork : FakeProcess::Wait::kNever);
    store.Take(*job);
    if (i != 333) continue;
    job = store.Restart({TrainingProcess()}, {.measurement_budget = 8});
    process.Connect(*job, 7);
  }
  const auto projected = Project(*job, AskTime());
  ASSERT_TRUE(projected.ok()) << projected.status();
  const v1::Projection& time = projected->projection();
  double truth_ns = 0, mean_ns = 0;
  for (const FakeProcess::Truth& one : process.truth) truth_ns += static_cast<double>(one.time_ns);
  for (int length = 10; length <= 40; ++length) mean_ns += (2e5 + 1e5 * length) / 31;
  const double total_ns = truth_ns + (992 - 500) * mean_ns;
  ASSERT_TRUE(time.has_total());
  EXPECT_LT(time.total().low(), total_ns);
  EXPECT_GT(time.total().high(), total_ns);
  EXPECT_LT(time.total().high(), 1.04 * time.total().low());
  const v1::Job described = job->Describe(true);
  EXPECT_THAT(described.rule().message(), testing::HasSubstr("10 at a time"));
  // Those before the first wait, in the stretches of eight measurements and of the restart, and
  // behind the last wait.
  EXPECT_LE(described.losses().untimed_iterations(), 120);
  EXPECT_GE(described.losses().untimed_iterations(), 20);
  for (const auto& [number, row] : store.iterations) EXPECT_EQ(row.duration_ns, 0) << number;
}

TEST(Job, ARunningJobSaysWhenItWillEnd) {
  for (const abi::ClockKind clock : {abi::ClockKind::kReal, abi::ClockKind::kForeign}) {
    Job job(Row(), {});
    FakeProcess process(3);
    job.AddProcess(TrainingProcess());
    process.Connect(job, 7);
    job.OnLosses(7, {.clock_kind = static_cast<uint32_t>(clock)});
    for (int i = 0; i < 500; ++i) process.Iterate();
    // How long the run is is not known.
    EXPECT_FALSE(job.Describe(true).has_expected_end());
    v1::Horizon horizon;
    horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
    horizon.set_iterations(1000);
    ASSERT_TRUE(job.SetHorizon(horizon).ok());
    const v1::Job running = job.Describe(true);
    for (int i = 500; i < 1000; ++i) process.Iterate();
    const auto truth = static_cast<int64_t>(process.api_ns());
    // A software GPU's clock is not the one on the wall.
    ASSERT_EQ(running.has_expected_end(), clock == abi::ClockKind::kReal);
    process.Iterate();  // the one before ends where it begins
    EXPECT_FALSE(job.Describe(true).has_expected_end());
    if (clock != abi::ClockKind::kReal) continue;
    const v1::ExpectedEnd& end = running.expected_end();
    EXPECT_LE(end.low_ns(), truth);
    EXPECT_GE(end.high_ns(), truth);
    EXPECT_LT(end.high_ns() - end.low_ns(), (truth - end.last_iteration_ns()) / 2);
  }
}

}  // namespace
}  // namespace seqpoint::jobs
