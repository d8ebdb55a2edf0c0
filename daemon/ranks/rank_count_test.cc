#include "daemon/ranks/rank_count.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace seqpoint::ranks {
namespace {

using testing::HasSubstr;

enum class Lengths { kEqual, kOwn, kDealt };

// A rank is late by 30 % in one of a hundred steps, and by 0.2 % always.
std::vector<StepOfRanks> StepsOf(Lengths lengths, size_t ranks, size_t count, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  std::vector<StepOfRanks> steps;
  for (size_t i = 0; i < count; ++i) {
    StepOfRanks& step = steps.emplace_back();
    const double shared = std::exp(0.2 * normal(random));
    for (size_t r = 0; r < ranks; ++r) {
      const double own = std::exp((lengths == Lengths::kDealt ? 0.02 : 0.2) * normal(random));
      step.expected_ns.push_back(1e7 * (lengths == Lengths::kEqual ? shared
                                        : lengths == Lengths::kOwn ? own
                                                                   : shared * own));
      const double late = (uniform(random) < 0.01 ? 1.3 : 1) * (1 + 0.002 * normal(random));
      step.time_ns = std::max(step.time_ns, step.expected_ns.back() * late);
    }
  }
  return steps;
}

// Where all ranks have the same lengths, of one length.
double MeanTime(Lengths lengths, const std::vector<StepOfRanks>& steps) {
  double sum = 0;
  for (const StepOfRanks& step : steps) {
    sum += lengths == Lengths::kEqual ? step.time_ns / step.expected_ns[0] : step.time_ns;
  }
  return sum / static_cast<double>(steps.size());
}
double TrueFactor(Lengths lengths, size_t before, size_t after) {
  constexpr size_t kMany = 60'000;
  return MeanTime(lengths, StepsOf(lengths, after, kMany, 1)) /
         MeanTime(lengths, StepsOf(lengths, before, kMany, 2));
}

// The product, with both errors.
Estimate FactorOf(const LastRank& last) {
  const double value = last.lengths * last.chance.value;
  return {value, value - std::hypot(last.lengths_error, last.chance.value - last.chance.low),
          value + std::hypot(last.lengths_error, last.chance.high - last.chance.value)};
}

struct Case {
  size_t before, after;
};
constexpr Case kCases[] = {{4, 8}, {2, 4}, {4, 2}, {8, 4}, {3, 2}, {2, 8}, {8, 2}};

TEST(RankCountTest, MoreRanksWaitLongerForTheLastOneAndFewerShorter) {
  for (const Lengths lengths : {Lengths::kEqual, Lengths::kOwn}) {
    for (const auto& [before, after] : kCases) {
      const double truth = TrueFactor(lengths, before, after);
      int held = 0;
      constexpr int kJobs = 20;
      for (uint64_t job = 0; job < kJobs; ++job) {
        const auto other =
            WithOtherCount(StepsOf(lengths, before, 3000, 100 + job), after, 3000, 0.95);
        ASSERT_TRUE(other.ok()) << other.status();
        EXPECT_EQ(other->equal_lengths, lengths == Lengths::kEqual);
        EXPECT_NEAR(FactorOf(*other).value, truth, 0.02 * truth) << before << " to " << after;
        held += FactorOf(*other).low <= truth && truth <= FactorOf(*other).high;
      }
      EXPECT_GE(held, 18) << before << " to " << after;
    }
  }
}

// A delay of any rank is waited for then, not only one of the longest.
TEST(RankCountTest, EqualLengthsSaveLessThanTheLengthsTell) {
  int held = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<StepOfRanks> steps = StepsOf(Lengths::kOwn, 4, 3000, seed);
    const auto balanced = WithEqualLengths(steps, 3000, 0.95);
    ASSERT_TRUE(balanced.ok());
    // The same batches in the order of their lengths.
    std::vector<double> all;
    for (const StepOfRanks& step : steps) {
      all.insert(all.end(), step.expected_ns.begin(), step.expected_ns.end());
    }
    std::sort(all.begin(), all.end());
    std::mt19937_64 random(1000 + seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    double after_ns = 0;
    for (size_t i = 0; i < all.size(); i += 4) {
      double longest_ns = 0;
      for (size_t r = 0; r < 4; ++r) {
        const double late = (uniform(random) < 0.01 ? 1.3 : 1) * (1 + 0.002 * normal(random));
        longest_ns = std::max(longest_ns, all[i + r] * late);
      }
      after_ns += longest_ns;
    }
    const double truth = after_ns / (MeanTime(Lengths::kOwn, steps) * 3000);
    EXPECT_NEAR(FactorOf(*balanced).value, truth, 0.005 * truth);
    EXPECT_GT(truth, balanced->lengths);
    held += FactorOf(*balanced).low <= truth && truth <= FactorOf(*balanced).high;
  }
  EXPECT_GE(held, 18);
}

TEST(RankCountTest, AsManyRanksAreNoChange) {
  const auto other = WithOtherCount(StepsOf(Lengths::kOwn, 4, 1000), 4, 1000, 0.95);
  ASSERT_TRUE(other.ok());
  EXPECT_NEAR(FactorOf(*other).value, 1, 1e-9);
}

TEST(RankCountTest, LengthsThatAreDealtOutTellNothingOfMoreRanks) {
  const std::vector<StepOfRanks> steps = StepsOf(Lengths::kDealt, 4, 3000);
  EXPECT_THAT(std::string(WithOtherCount(steps, 8, 3000, 0.95).status().message()),
              HasSubstr("more alike than chance makes them"));
  const auto fewer = WithOtherCount(steps, 2, 3000, 0.95);
  ASSERT_TRUE(fewer.ok());
  const double truth = TrueFactor(Lengths::kDealt, 4, 2);
  EXPECT_LE(FactorOf(*fewer).low, truth);
  EXPECT_GE(FactorOf(*fewer).high, truth);
}

// The longest batch, or the sum of a step, is dealt out.
TEST(RankCountTest, OneRanksLongBatchesAndEqualSumsTellNothingOfOtherRanks) {
  std::vector<StepOfRanks> first = StepsOf(Lengths::kEqual, 4, 3000), noisy = first;
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::vector<StepOfRanks> sums = StepsOf(Lengths::kOwn, 4, 3000);
  for (size_t i = 0; i < first.size(); ++i) {
    first[i].expected_ns = {2e7, 1e7, 1e7, 1e7};
    for (double& expected : noisy[i].expected_ns) expected = 1e7 * std::exp(0.2 * normal(random));
    noisy[i].expected_ns[0] *= 1.05;
    const double off = 4e7 / (4 * sums[i].Mean());
    for (double& expected : sums[i].expected_ns) expected *= off;
    for (auto* steps : {&first, &noisy, &sums}) (*steps)[i].time_ns = (*steps)[i].Longest();
  }
  for (const size_t count : {2, 8}) {
    for (const auto* steps : {&first, &noisy}) {
      EXPECT_THAT(std::string(WithOtherCount(*steps, count, 3000, 0.95).status().message()),
                  HasSubstr("some ranks have longer batches than others"));
    }
    EXPECT_THAT(std::string(WithOtherCount(sums, count, 3000, 0.95).status().message()),
                HasSubstr("less alike than chance makes them (correlation -0.33)"));
  }
}

TEST(RankCountTest, OneRankDoesNotTellHowLengthsAreDealtOut) {
  std::vector<StepOfRanks> steps = StepsOf(Lengths::kOwn, 1, 3000);
  EXPECT_THAT(std::string(WithOtherCount(steps, 4, 3000, 0.95).status().message()),
              HasSubstr("one rank does not tell"));
  for (StepOfRanks& step : steps) {
    step.time_ns *= 1e7 / step.expected_ns[0];
    step.expected_ns[0] = 1e7;
  }
  const auto other = WithOtherCount(steps, 4, 3000, 0.95);
  ASSERT_TRUE(other.ok()) << other.status();
  const double truth = TrueFactor(Lengths::kEqual, 1, 4);
  EXPECT_NEAR(FactorOf(*other).value, truth, 0.01 * truth);
}

// Known steps at one place are no fewer.
TEST(RankCountTest, TheErrorCountsWhereTimesAreKnownInOnePlaceOnly) {
  std::vector<StepOfRanks> steps = StepsOf(Lengths::kEqual, 4, 3200);
  std::vector<StepOfRanks> known(steps.begin(), steps.begin() + 100);
  for (size_t i = 100; i < steps.size(); ++i) steps[i].time_ns = 0;
  const auto all = WithOtherCount(steps, 8, 3000, 0.95);
  const auto alone = WithOtherCount(known, 8, 3000, 0.95);
  ASSERT_TRUE(all.ok() && alone.ok());
  EXPECT_NEAR(all->chance.high - all->chance.value, alone->chance.high - alone->chance.value, 1e-6);
  steps[50].expected_ns.assign(4, 0);
  EXPECT_FALSE(WithOtherCount(steps, 8, 3000, 0.95).ok());
}

TEST(RankCountTest, IntervalsHoldFromAsManyStepsAsAreAskedFor) {
  for (const Lengths lengths : {Lengths::kEqual, Lengths::kOwn}) {
    for (const auto& [before, after] : {Case{4, 8}, Case{2, 16}, Case{2, 64}}) {
      const size_t needed = 32 * after / before;
      const double truth = TrueFactor(lengths, before, after);
      int held = 0;
      for (uint64_t job = 0; job < 40; ++job) {
        const std::vector<StepOfRanks> steps = StepsOf(lengths, before, needed, 5000 + job);
        const auto other = WithOtherCount(steps, after, 3000, 0.95);
        ASSERT_TRUE(other.ok()) << other.status();
        held += FactorOf(*other).low <= truth && truth <= FactorOf(*other).high;
        EXPECT_THAT(
            std::string(WithOtherCount(absl::MakeSpan(steps).first(needed - 1), after, 3000, 0.95)
                            .status()
                            .message()),
            HasSubstr(std::to_string(needed) + " are needed"));
      }
      EXPECT_GE(held, 34) << before << " to " << after;
    }
  }
}

TEST(RankCountTest, FewStepsAreRefused) {
  EXPECT_THAT(
      std::string(WithOtherCount(StepsOf(Lengths::kOwn, 4, 20), 8, 3000, 0.95).status().message()),
      HasSubstr("20 ordinary iterations"));
  std::vector<StepOfRanks> untimed = StepsOf(Lengths::kOwn, 4, 100);
  for (StepOfRanks& step : untimed) step.time_ns = 0;
  EXPECT_FALSE(WithOtherCount(untimed, 8, 3000, 0.95).ok());
}

TEST(RankCountTest, AnEpochsLastSmallStepIsNoChanceOfTheRanks) {
  std::vector<StepOfRanks> steps = StepsOf(Lengths::kEqual, 8, 3000);
  const double without = FactorOf(*WithOtherCount(steps, 2, 3000, 0.95)).value;
  steps[2000].time_ns *= 0.5;
  EXPECT_NEAR(FactorOf(*WithOtherCount(steps, 2, 3000, 0.95)).value, without, 0.001);
}

}  // namespace
}  // namespace seqpoint::ranks
