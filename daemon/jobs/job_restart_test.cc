// What a job is after the daemon was started again.
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_fixture.h"

namespace seqpoint::jobs {
namespace {

TEST(Job, ARestartAtAnyMomentLosesAndDoublesNothing) {
  for (const int restart_every : {3, 17, 61}) {
    auto job = std::make_unique<Job>(Row(), JobOptions{});
    FakeProcess process(3);
    job->AddProcess(TrainingProcess());
    process.Connect(*job, 7);
    FakeStore store;
    store.Take(*job);
    for (int i = 0; i < 200; ++i) {
      process.Iterate();
      store.Take(*job);
      if (i % restart_every == restart_every - 1) {
        job = store.Restart();
        process.Connect(*job, 7);
      }
    }
    job->OnProcessEnd(7, true, 1);
    store.Take(*job);
    ASSERT_EQ(store.iterations.size(), process.truth.size()) << restart_every;
    for (const auto& [number, row] : store.iterations) {
      EXPECT_EQ(LengthOf(*job, row), process.truth[static_cast<size_t>(number)].length);
    }
    EXPECT_EQ(job->Describe(true).iterations(), 200);
    EXPECT_LE(process.measured_iterations.size(), 64u);
  }
}

TEST(Job, ARestartedJobAnswersAsItDidBefore) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(12);
  process.kernel_names = 200;
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  FakeStore store;
  const auto answers = [&] {
    v1::GetKernelsRequest kernels;
    kernels.set_limit(2);
    // The summary in Describe may be a little old before a restart.
    v1::Job described = job->Describe(false);
    return absl::StrCat(described.rule().DebugString(), described.losses().DebugString(),
                        Project(*job, AskTime())->DebugString(),
                        GetKernels(*job, kernels)->DebugString(),
                        GetCounters(*job, {})->DebugString(), GetSeqPoints(*job)->DebugString());
  };
  for (int i = 0; i < 2500; ++i) {
    process.Iterate();
    if (i % 3 == 0) store.Take(*job);
    if (i % 400 != 399) continue;
    store.Take(*job);
    const std::string before = answers();
    store.Take(*job);  // the questions may have made the plan anew
    job = store.Restart();
    process.Connect(*job, 7);
    job->OnRead(7, /*complete=*/false);  // it came back
    ASSERT_EQ(answers(), before) << i;
  }
  EXPECT_TRUE(store.HasPart("engine"));  // the log was folded into it
}

TEST(Job, AStateThatCannotBeReadStaysAsItIs) {
  Job job(Row(), {});
  const std::vector<StateRow> states = {
      {.job_id = 1, .part = "job", .version = kJobStateVersion + 1, .bytes = "of another version"}};
  EXPECT_FALSE(job.Restore(states, {{TrainingProcess(), {}}}).ok());
  EXPECT_NE(job.refused().find("version"), std::string::npos);
  v1::ControlRequest request;
  request.set_action(v1::ControlRequest::ACTION_PAUSE);
  EXPECT_FALSE(job.Control(request).ok());
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(5);
  EXPECT_FALSE(job.SetHorizon(horizon).ok());
  job.EndUnused(1);
  WriteBatch batch;
  job.TakeRows(batch);
  EXPECT_TRUE(batch.Empty());
  EXPECT_EQ(job.Describe(true).error(), job.refused());
  job.EndRefused(5);
  job.TakeRows(batch);
  ASSERT_EQ(batch.jobs.size(), 1u);
  EXPECT_EQ(batch.jobs[0].end_ns, 5);
  EXPECT_TRUE(batch.states.empty());
}

TEST(Job, ARuleOrAHorizonThatCannotBeIsRefused) {
  JobState state;
  abi::Rule rule = {};
  rule.length_count = 3;
  state.mutable_rule()->set_rule(std::string(reinterpret_cast<const char*>(&rule), sizeof(rule)));
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
  horizon.add_histogram()->set_count(1);  // without a length
  for (const auto& [part, bytes] : {std::pair("job", state.SerializeAsString()),
                                    std::pair("horizon", horizon.SerializeAsString())}) {
    Job job(Row(), {});
    const absl::Status status =
        job.Restore({{.job_id = 1, .part = part, .version = kJobStateVersion, .bytes = bytes}}, {});
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("cannot be read (damaged)"));
  }
}

// A damaged state is refused with a message, or is one of a job that goes on and answers.
TEST(Job, DamagedStatesAreRefusedOrAreThoseOfAJob) {
  Job job(Row(), {});
  FakeProcess process(5);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  FakeStore store;
  for (int i = 0; i < 400; ++i) {
    process.Iterate();
    store.Take(job);
  }
  std::mt19937_64 random(1);
  int restored = 0;
  constexpr int kTrials = 120;
  for (int trial = 0; trial < kTrials; ++trial) {
    FakeStore damaged = store;
    auto part = damaged.states().begin();
    std::advance(part, trial % damaged.states().size());
    std::string& bytes = part->second.bytes;
    SCOPED_TRACE(absl::StrCat("trial ", trial, ", part ", part->first));
    if (trial % 4 == 0) bytes.resize(random() % bytes.size());
    for (uint64_t flips = random() % 4; flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    Job again(Row(), {});
    if (const absl::Status status = damaged.Restore(again); !status.ok()) {
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("cannot be read"));
      continue;
    }
    ++restored;
    again.OnRead(7, /*complete=*/true);
    again.Advance();
    again.Describe(true);
    Project(again, AskTime()).status().IgnoreError();
    GetCounters(again, {}).status().IgnoreError();
    GetKernels(again, {}).status().IgnoreError();
    GetSeqPoints(again).status().IgnoreError();
    again.OnProcessEnd(7, true, 1);
    WriteBatch batch;
    again.TakeRows(batch);
  }
  EXPECT_GT(restored, 0);
  EXPECT_LT(restored, kTrials);
}

}  // namespace
}  // namespace seqpoint::jobs
