#include "injection/iterations/step_watch.h"

#include <gtest/gtest.h>

#include <random>

namespace seqpoint::inject {
namespace {

using abi::Op;

constexpr uint32_t kLaunchBit = 1u << static_cast<uint32_t>(Op::kLaunch);

abi::Rule NvtxRule() {
  abi::Rule rule = {};
  rule.boundary.op = static_cast<uint8_t>(Op::kNvtxPush);
  rule.step.op = static_cast<uint8_t>(Op::kLaunch);
  rule.micro_batches = 1;
  rule.length_count = 1;
  rule.length[0].pattern.op = static_cast<uint8_t>(Op::kCopyH2D);
  return rule;
}

// Iterations as StepAccount counts them: one is watched when its launches were when it began.
struct Loop {
  explicit Loop(const abi::Rule& rule) { watch.Begin(rule); }
  bool Iteration(bool stepped) {
    watched_count += watched;
    missed_count += watched && !stepped;
    const bool assumed = !watched && watch.assumes();
    next += stepped || assumed;
    const bool late = watch.OnIteration(next, watched, stepped || assumed, random());
    watched = watch.spared_ops() == 0;  // switched at the boundary
    return late;
  }
  StepWatch watch;
  bool watched = true;
  std::minstd_rand random;
  uint64_t next = 0;
  int watched_count = 0, missed_count = 0;
};

TEST(StepWatchTest, StopsWhenEachIterationHadItsStep) {
  Loop loop(NvtxRule());
  for (int i = 0; i < 10'000; ++i) EXPECT_FALSE(loop.Iteration(true));
  EXPECT_TRUE(loop.watch.assumes());
  EXPECT_LT(loop.watched_count, 10'000 / 10);
  EXPECT_GT(loop.watched_count, static_cast<int>(StepWatch::kLearned) + 100);
}

TEST(StepWatchTest, NeverStopsWhereEvaluationIsInRangesOfTheSameName) {
  Loop loop(NvtxRule());
  for (int i = 0; i < 2'000; ++i) {
    EXPECT_FALSE(loop.Iteration(i % 200 < 180));
    EXPECT_EQ(loop.watch.spared_ops(), 0u);
  }
}

TEST(StepWatchTest, SaysSoWhenEvaluationComesLate) {
  Loop loop(NvtxRule());
  for (int i = 0; i < 1'000; ++i) EXPECT_FALSE(loop.Iteration(true));
  int unnoticed = 0;
  while (!loop.Iteration(false)) ++unnoticed;
  EXPECT_LE(unnoticed, static_cast<int>(StepWatch::kCheckEvery + StepWatch::kVaries + 1));
  for (int i = 0; i < 1'000; ++i) EXPECT_FALSE(loop.Iteration(true));
  EXPECT_EQ(loop.watch.spared_ops(), 0u);
  abi::Rule again = NvtxRule();
  again.generation = 7;
  loop.watch.Begin(again);
  for (int i = 0; i < 1'000; ++i) EXPECT_FALSE(loop.Iteration(true));
  EXPECT_EQ(loop.watch.spared_ops(), 0u);
}

TEST(StepWatchTest, AnotherRuleIsLearnedAnew) {
  abi::Rule wrong = NvtxRule();
  wrong.boundary.name_hash = 1;  // a range that evaluation has, too
  Loop loop(wrong);
  for (int i = 0; i < 100; ++i) loop.Iteration(i % 10 < 8);
  loop.watch.Begin(NvtxRule());
  for (int i = 0; i < 1'000; ++i) EXPECT_FALSE(loop.Iteration(true));
  EXPECT_TRUE(loop.watch.assumes());
}

// Mixed precision leaves out steps whose gradients overflow: two at the start, one in 2,000 later.
TEST(StepWatchTest, AStepThatIsLeftOutIsNoEvaluation) {
  for (const unsigned in_a_row : {0, 2}) {
    int doubted = 0, watched = 0;
    for (unsigned seed = 1; seed <= 100; ++seed) {
      Loop loop(NvtxRule());
      loop.random.seed(seed);
      std::mt19937 overflow(seed);
      bool late = false;
      for (unsigned i = 0; i < 20'000; ++i) {
        late = loop.Iteration(i >= in_a_row && overflow() % 2'000 != 0) || late;
      }
      doubted += late;
      watched += loop.watched_count;
    }
    EXPECT_EQ(doubted, 0);
    EXPECT_LT(watched, 100 * 20'000 / 10);
  }
}

// Where single ones are many, all are watched; two in a row are then met.
TEST(StepWatchTest, ManyThatHaveNoStepAreNotTakenForGranted) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    Loop loop(NvtxRule());
    loop.random.seed(seed);
    for (int i = 0; i < 1'000; ++i) EXPECT_FALSE(loop.Iteration(true));
    for (int i = 0; i < 4'000; ++i) EXPECT_FALSE(loop.Iteration(i % 20 != 0));
    EXPECT_FALSE(loop.watch.assumes());
    bool late = false;
    for (int i = 0; i < 2; ++i) late = loop.Iteration(false);
    EXPECT_TRUE(late);
  }
}

// Phases of ten batches, one in 500 iterations.
TEST(StepWatchTest, ShortPhasesAreSeenAndAllThatPassedIsDoubtful) {
  int late = 0;
  for (unsigned seed = 1; seed <= 2'000; ++seed) {
    Loop loop(NvtxRule());
    loop.random.seed(seed);
    bool seen = false;
    int phases = 0;
    while (!seen) {
      for (int i = 0; i < 500; ++i) EXPECT_FALSE(loop.Iteration(true));
      ++phases;
      for (int i = 0; i < 10 && !seen; ++i) seen = loop.Iteration(false);
    }
    late += phases > 5;
    // Whatever was not watched since steps were taken for granted.
    EXPECT_EQ(loop.watch.first_unseen(), StepWatch::kLearned);
    EXPECT_EQ(loop.watch.unseen() + static_cast<uint64_t>(loop.watched_count - loop.missed_count),
              loop.next);
  }
  EXPECT_LT(late, 2'000 / 40);  // 1.6 % in the mean
}

TEST(StepWatchTest, OnlyWhereNothingElseNeedsLaunches) {
  const auto stops = [](const abi::Rule& rule) {
    Loop loop(rule);
    for (int i = 0; i < 1'000; ++i) loop.Iteration(true);
    return loop.watch.assumes();
  };
  EXPECT_TRUE(stops(NvtxRule()));
  abi::Rule rule = NvtxRule();
  rule.confirm.op = static_cast<uint8_t>(Op::kLaunch);
  EXPECT_TRUE(stops(rule));
  rule.length[0].pattern.op = static_cast<uint8_t>(Op::kLaunch);
  EXPECT_FALSE(stops(rule));
  rule = NvtxRule();
  rule.micro_batches = 4;
  EXPECT_FALSE(stops(rule));
  rule = NvtxRule();
  rule.length[0].pattern.match = abi::kMatchNotPrevious;
  EXPECT_FALSE(stops(rule));
  rule = NvtxRule();
  rule.boundary.op = static_cast<uint8_t>(Op::kCopyH2D);  // an evaluation batch has one, too
  EXPECT_FALSE(stops(rule));
}

}  // namespace
}  // namespace seqpoint::inject
