#include "daemon/jobs/iteration_builder.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

// A process that marks iterations of 100 ns on the CPU and, `lag_ns` later, 1000 ns on the GPU.
class Script {
 public:
  explicit Script(IterationBuilder& builder) : builder_(builder) {}

  void Candidate(uint64_t n, int64_t gpu_ns, bool clock = true, uint8_t flags = 0) {
    api_ns_ += 10;
    builder_.OnBoundary(
        {.iteration = n, .api_ns = api_ns_, .call_sequence = ++call_, .flags = flags});
    if (!clock) return;
    ++correlation_;
    builder_.OnClock({.iteration = n, .api_ns = api_ns_, .correlation_id = correlation_});
    stamps_.emplace_back(correlation_, gpu_ns);
  }
  void Step(uint64_t n, int64_t length) {
    api_ns_ += 90;
    builder_.OnStep(
        {.iteration = n, .api_ns = api_ns_, .length = {length, 0}, .valid = 1, .micro_batches = 1});
  }
  void SendStamps() {
    for (const auto& [id, ns] : stamps_) builder_.OnGpuStart(id, static_cast<uint64_t>(ns));
    stamps_.clear();
  }
  uint64_t api_ns() const { return api_ns_; }

 private:
  IterationBuilder& builder_;
  uint64_t api_ns_ = 1000;
  uint64_t call_ = 0;
  uint32_t correlation_ = 100;
  std::vector<std::pair<uint32_t, int64_t>> stamps_;
};

TEST(IterationBuilder, ABoundarySaysThatTheIterationBeforeItWasDistorted) {
  IterationBuilder builder;
  Script script(builder);
  for (uint64_t n = 0; n < 5; ++n) {
    script.Candidate(n, static_cast<int64_t>(n) * 1000 + 1000, /*clock=*/true,
                     n == 2 ? abi::kDistorted : 0);
    script.Step(n, 7);
  }
  script.SendStamps();
  const auto finished = builder.TakeFinished();
  ASSERT_EQ(finished.size(), 4);
  for (const FinishedIteration& iteration : finished) {
    EXPECT_EQ(iteration.distorted(), iteration.number() == 1) << iteration.number();
  }
}

// The event may come before or after the boundaries around the step; what it says outlives a
// restart.
TEST(IterationBuilder, AroundAStepOfTheClockThereAreNoTimes) {
  for (const bool late : {false, true}) {
    IterationBuilder builder;
    Script script(builder);
    const abi::ClockStepEvent step = {.by_ns = 3600, .first_call = 5, .last_call = 6};
    if (!late) builder.OnClockStep(step);
    for (uint64_t n = 0; n < 10; ++n) {
      // Call 5 is the boundary of iteration 4, call 6 that of iteration 5.
      script.Candidate(n, static_cast<int64_t>(n) * 1000 + (n >= 5 ? 1'000'000 : 1000));
      script.Step(n, 7);
      if (n == 5 && late) {
        builder.OnClockStep(step);
        script.SendStamps();
      }
    }
    const BuilderState saved = builder.Save();
    const auto before = builder.TakeFinished();
    IterationBuilder restarted;
    restarted.Load(saved);
    script.SendStamps();
    auto finished = builder.TakeFinished();
    finished.insert(finished.begin(), before.begin(), before.end());
    ASSERT_EQ(finished.size(), 9);
    for (const FinishedIteration& iteration : finished) {
      const bool around =
          late ? iteration.number() <= 5 : iteration.number() >= 3 && iteration.number() <= 5;
      EXPECT_EQ(iteration.distorted(), around) << iteration.number() << late;
      EXPECT_EQ(iteration.duration_ns(), around ? 0 : 1000) << iteration.number() << late;
    }
    EXPECT_EQ(restarted.Save().clock_steps_size(), 1);
  }
}

// Where there is no step pattern the step of an iteration is told with the begin of the next one.
TEST(IterationBuilder, TheLastBeginCountsOnlyWhereItIsCertain) {
  for (const bool certain : {false, true}) {
    IterationBuilder builder;
    Script script(builder);
    for (uint64_t n = 0; n < 5; ++n) {
      if (n > 0) script.Step(n - 1, 7);
      script.Candidate(n, static_cast<int64_t>(n) * 1000 + 1000);
    }
    script.SendStamps();
    EXPECT_TRUE(builder.has_begun());
    builder.Finish(certain);
    EXPECT_EQ(builder.has_begun(), !certain);
    const auto finished = builder.TakeFinished();
    ASSERT_EQ(finished.size(), certain ? 5 : 4);
    for (const FinishedIteration& iteration : finished) {
      EXPECT_EQ(iteration.ended(), iteration.number() < 4);
      EXPECT_EQ(iteration.duration_ns(), iteration.number() < 4 ? 1000 : 0) << iteration.number();
    }
    EXPECT_EQ(finished.back().number(), certain ? 4u : 3u);
  }
}

TEST(IterationBuilder, WhereTheHostDoesTheWorkApiTimeIsTheTime) {
  IterationBuilder builder;
  Script script(builder);
  for (uint64_t n = 0; n < 4; ++n) {
    if (n == 2) script.Candidate(n, 0, /*clock=*/false, abi::kHostTime);  // an evaluation batch
    script.Candidate(n, 0, /*clock=*/false, abi::kHostTime);
    script.Step(n, 7);
  }
  builder.Finish();
  const auto finished = builder.TakeFinished();
  ASSERT_EQ(finished.size(), 4u);
  for (int n = 0; n < 3; ++n) EXPECT_EQ(finished[n].duration_ns(), 100) << n;
  EXPECT_EQ(finished[2].other_batches(), 1u);
  EXPECT_EQ(finished[2].other_duration_ns(), 10);
  EXPECT_EQ(finished[3].duration_ns(), 90) << "until its step";
  EXPECT_EQ(finished[3].rest_ns(), 20) << "the longest from a step to the next begin, at both ends";
  EXPECT_FALSE(finished[3].ended());
  EXPECT_EQ(finished[2].rest_ns(), 0);
  EXPECT_FALSE(finished[0].gpu_time());
}

TEST(IterationBuilder, TimeIsTheDifferenceOfGpuStampsHoweverLateTheyCome) {
  IterationBuilder builder;
  Script script(builder);
  for (uint64_t n = 0; n < 5; ++n) {
    script.Candidate(n, 50'000 + static_cast<int64_t>(n) * 1000);
    script.Step(n, 7);
  }
  EXPECT_TRUE(builder.TakeFinished().empty());
  script.SendStamps();
  const auto finished = builder.TakeFinished();
  ASSERT_EQ(finished.size(), 4);  // the fifth has no end yet
  for (uint64_t n = 0; n < 4; ++n) {
    EXPECT_EQ(finished[n].number(), n);
    EXPECT_EQ(finished[n].duration_ns(), 1000);
    EXPECT_TRUE(finished[n].gpu_time());
    EXPECT_EQ(finished[n].first_length(), 7);
  }
  builder.Finish();
  const auto last = builder.TakeFinished();
  ASSERT_EQ(last.size(), 1);
  EXPECT_EQ(last[0].duration_ns(), 0);  // unknown, not guessed
}

TEST(IterationBuilder, AnEvaluationPhaseIsNotPartOfAnIteration) {
  IterationBuilder builder;
  Script script(builder);
  script.Candidate(0, 1000);
  script.Step(0, 7);
  for (int batch = 0; batch < 3; ++batch) script.Candidate(1, 2000 + batch * 100);  // evaluation
  script.Candidate(1, 2300);                                                        // training
  script.Step(1, 7);
  script.Candidate(2, 3300);
  script.SendStamps();
  const auto finished = builder.TakeFinished();
  ASSERT_EQ(finished.size(), 2);
  EXPECT_EQ(finished[0].duration_ns(), 1000);
  EXPECT_EQ(finished[1].duration_ns(), 1000);
  EXPECT_EQ(finished[1].other_batches(), 3u);
  EXPECT_EQ(finished[1].other_duration_ns(), 300);
}

TEST(IterationBuilder, AHoleThatEndsWithAStepIsNoLongIteration) {
  IterationBuilder builder;
  Script script(builder);
  script.Candidate(0, 1000);
  script.Step(0, 7);
  script.Candidate(1, 2000);
  script.Step(1, 7);
  // Everything between was dropped.
  script.Step(1000, 7);
  script.Candidate(1001, 1'001'000);
  script.Step(1001, 7);
  script.Candidate(1002, 1'002'000);
  script.SendStamps();
  const auto finished = builder.TakeFinished();
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[0].number(), 0u);
  EXPECT_EQ(finished[0].duration_ns(), 1000);
  EXPECT_EQ(finished[1].number(), 1001u);
  EXPECT_EQ(finished[1].duration_ns(), 1000);
  EXPECT_EQ(builder.lost_iterations(), 1000u);
}

TEST(IterationBuilder, ALostStepCostsItsIterationsAndNoOthers) {
  IterationBuilder builder;
  Script script(builder);
  script.Candidate(0, 1000);
  script.Step(0, 7);
  script.Candidate(1, 2000);
  // Step 1, boundary 2 and step 2 were dropped.
  script.Candidate(3, 5000);
  script.Step(3, 7);
  script.Candidate(4, 6000);
  script.SendStamps();
  const auto finished = builder.TakeFinished();
  ASSERT_EQ(finished.size(), 2);
  EXPECT_EQ(finished[0].number(), 0u);
  EXPECT_EQ(finished[0].duration_ns(), 1000);
  EXPECT_EQ(finished[1].number(), 3u);
  EXPECT_EQ(finished[1].duration_ns(), 1000);
  EXPECT_EQ(builder.lost_iterations(), 2u);
}

TEST(IterationBuilder, WithoutGpuStampsApiTimesCountOnlyWhereTheHostWaited) {
  for (const bool waits : {true, false}) {
    IterationBuilder builder;
    Script script(builder);
    for (uint64_t n = 0; n < 20; ++n) {
      script.Candidate(n, 0, /*clock=*/false);
      if (waits) builder.OnSync({.iteration = n});
      script.Step(n, 7);
    }
    const auto finished = builder.TakeFinished();
    ASSERT_GT(finished.size(), 10);
    EXPECT_EQ(finished[5].duration_ns(), waits ? 100 : 0);
    EXPECT_FALSE(finished[5].gpu_time());
  }
}

// The host waits in each fourth iteration; in one of them there is an evaluation batch.
TEST(IterationBuilder, WhereTheHostWaitsNowAndThenWhatRanBetweenIsKnownTogether) {
  IterationBuilder builder;
  Script script(builder);
  for (uint64_t n = 0; n < 40; ++n) {
    if (n == 21) script.Candidate(n, 0, /*clock=*/false);
    script.Candidate(n, 0, /*clock=*/false);
    if (n % 4 == 3) builder.OnSync({.iteration = n});
    script.Step(n, 7);
    if (n == 13) {
      builder.Load(builder.Save());
    }
  }
  builder.Finish();
  std::map<uint64_t, std::pair<uint32_t, int64_t>> stretches;
  for (const FinishedIteration& iteration : builder.TakeFinished()) {
    EXPECT_EQ(iteration.duration_ns(), 0) << iteration.number();
    if (iteration.stretch() > 0) {
      stretches[iteration.number()] = {iteration.stretch(), iteration.stretch_ns()};
    }
  }
  // Before the first wait nothing is known, behind the last one there is no end, and [20, 23] holds
  // something else.
  const std::pair<uint32_t, int64_t> four = {4, 400};
  EXPECT_THAT(stretches, testing::ElementsAre(testing::Pair(7, four), testing::Pair(11, four),
                                              testing::Pair(15, four), testing::Pair(19, four),
                                              testing::Pair(27, four), testing::Pair(31, four),
                                              testing::Pair(35, four)));
}

TEST(IterationBuilder, AStretchWithAHoleHasNoTime) {
  IterationBuilder builder;
  Script script(builder);
  for (uint64_t n = 0; n < 30; ++n) {
    if (n == 13) continue;  // lost
    script.Candidate(n, 0, /*clock=*/false);
    if (n % 5 == 4) builder.OnSync({.iteration = n});
    script.Step(n, 7);
  }
  builder.Finish();
  std::vector<uint64_t> ends;
  for (const FinishedIteration& iteration : builder.TakeFinished()) {
    if (iteration.stretch() > 0) ends.push_back(iteration.number());
  }
  EXPECT_THAT(ends, testing::ElementsAre(9, 19, 24));
}

TEST(IterationBuilder, AClockEventRightAfterTheStepStandsForTheNextBegin) {
  IterationBuilder builder;
  uint64_t api_ns = 0;
  for (uint64_t n = 0; n < 4; ++n) {
    builder.OnClock(
        {.iteration = n, .api_ns = ++api_ns, .correlation_id = static_cast<uint32_t>(n) + 1});
    builder.OnBoundary({.iteration = n, .api_ns = ++api_ns, .call_sequence = n});
    builder.OnStep({.iteration = n, .api_ns = ++api_ns, .valid = 0});
    builder.OnGpuStart(static_cast<uint32_t>(n) + 1, 1000 * (n + 1));
  }
  builder.Finish();
  const auto finished = builder.TakeFinished();
  ASSERT_EQ(finished.size(), 4);
  EXPECT_EQ(finished[0].duration_ns(), 1000);
  EXPECT_EQ(finished[1].duration_ns(), 1000);
  EXPECT_EQ(finished[2].duration_ns(), 1000);
}

// Iteration `n` with these micro-batchs, of which those of length 0 are lost.
void Accumulate(IterationBuilder& builder, uint64_t n, const std::vector<int64_t>& lengths,
                uint32_t valid = 1) {
  builder.OnBoundary({.iteration = n, .api_ns = 100 * n, .call_sequence = n});
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) continue;
    builder.OnMicroBatch({.iteration = n, .length = {lengths[i], 0}, .valid = valid, .index = i});
  }
  builder.OnStep({.iteration = n,
                  .length = {1, 0},
                  .valid = 1,
                  .micro_batches = static_cast<uint32_t>(lengths.size())});
}

TEST(IterationBuilder, MicroBatchsAreAllKnownOrNoneIs) {
  IterationBuilder builder;
  Accumulate(builder, 0, {3, 5});
  Accumulate(builder, 1, {3, 0, 5});
  Accumulate(builder, 2, {0, 5});
  Accumulate(builder, 3, {3, 5}, /*valid=*/2);
  Accumulate(builder, 4, std::vector<int64_t>(64, 9));
  Accumulate(builder, 5, std::vector<int64_t>(65, 9));
  Accumulate(builder, 6, {});
  builder.OnMicroBatch({.iteration = 7, .length = {8, 0}, .valid = 1});  // of no iteration
  // What came before a candidate is not the iteration's.
  builder.OnBoundary({.iteration = 7, .call_sequence = 7});
  builder.OnMicroBatch({.iteration = 7, .length = {8, 0}, .valid = 0});
  builder.OnMicroBatch({.iteration = 9, .length = {8, 0}, .valid = 1});
  Accumulate(builder, 7, {4});
  builder.Finish();
  std::vector<size_t> known;
  const auto finished = builder.TakeFinished();
  for (const FinishedIteration& iteration : finished) {
    known.push_back(static_cast<size_t>(iteration.micro_lengths_size()));
  }
  EXPECT_THAT(known, testing::ElementsAre(2, 0, 0, 0, 64, 0, 0, 1));
  EXPECT_EQ(finished[0].micro_lengths(1).first(), 5);
}

TEST(IterationBuilder, MicroBatchsSurviveARestart) {
  IterationBuilder before, after;
  Accumulate(before, 0, {3, 5});
  before.OnBoundary({.iteration = 1, .api_ns = 100, .call_sequence = 1});
  before.OnMicroBatch({.iteration = 1, .length = {7, 1}, .valid = 3});
  after.Load(before.Save());
  after.OnMicroBatch({.iteration = 1, .length = {8, 2}, .valid = 3, .index = 1});
  after.OnStep({.iteration = 1, .length = {15, 3}, .valid = 3, .micro_batches = 2});
  after.Finish();
  const auto finished = after.TakeFinished();
  ASSERT_EQ(finished.size(), 2u);
  const auto lengths = [](int64_t first, int64_t second) {
    return testing::AllOf(testing::Property(&LengthPair::first, first),
                          testing::Property(&LengthPair::second, second));
  };
  EXPECT_THAT(finished[0].micro_lengths(), testing::ElementsAre(lengths(3, 0), lengths(5, 0)));
  EXPECT_THAT(finished[1].micro_lengths(), testing::ElementsAre(lengths(7, 1), lengths(8, 2)));
}

TEST(IterationBuilder, SavedStateGoesOnWithTheSameAnswers) {
  IterationBuilder straight, before, after;
  Script a(straight);
  for (uint64_t n = 0; n < 6; ++n) {
    a.Candidate(n, 1000 * static_cast<int64_t>(n + 1));
    a.Step(n, 3);
  }
  a.SendStamps();
  {
    Script b(before);
    for (uint64_t n = 0; n < 3; ++n) {
      b.Candidate(n, 1000 * static_cast<int64_t>(n + 1));
      b.Step(n, 3);
    }
    b.SendStamps();
    after.Load(before.Save());
    (void)before.TakeFinished();
  }
  for (uint64_t n = 3; n < 6; ++n) {
    const uint32_t id = 500 + static_cast<uint32_t>(n);
    after.OnBoundary({.iteration = n, .api_ns = 5000 + n, .call_sequence = 100 + n});
    after.OnClock({.iteration = n, .api_ns = 5000 + n, .correlation_id = id});
    after.OnGpuStart(id, 1000 * (n + 1));
    after.OnStep({.iteration = n, .api_ns = 5000 + n, .length = {3, 0}, .valid = 1});
  }
  const auto want = straight.TakeFinished();
  const auto got = after.TakeFinished();
  ASSERT_FALSE(got.empty());
  for (const FinishedIteration& iteration : got) {
    EXPECT_EQ(iteration.duration_ns(), want[iteration.number()].duration_ns())
        << iteration.number();
  }
}

}  // namespace
}  // namespace seqpoint::jobs
