#include "daemon/seqpoint/expected_end.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace seqpoint {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(WallPaceTest, WhatLiesBetweenIterationsGoesOnAsItWas) {
  WallPace pace;
  int64_t now = 1'000'000 * kMs;
  for (int i = 0; i < 400; ++i) {
    pace.Add(now, 10 * kMs);
    now += 12 * kMs;                    // 2 ms of data loading
    if (i % 20 == 19) now += 60 * kMs;  // an evaluation: 3 ms for each iteration
  }
  const double training = 1000.0 * 10 * kMs;
  const auto rest = pace.WallTimeOf({training, training, training}, 0.95);
  ASSERT_TRUE(rest.has_value());
  EXPECT_NEAR(rest->value, 1.5 * training, 0.02 * training);
  EXPECT_LT(rest->low, 1.5 * training);
  EXPECT_GT(rest->high, 1.5 * training);
}

TEST(WallPaceTest, TheIntervalHoldsTheEnd) {
  int held = 0;
  constexpr int kSeeds = 400;
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> between(std::log(2e6), 0.8);
    std::lognormal_distribution<double> duration(std::log(10e6), 0.3);
    WallPace pace;
    double now = 1e12, training = 0, last = 0;
    constexpr int kSoFar = 300, kAll = 1000;
    std::optional<Estimate> rest;
    for (int i = 0; i < kAll; ++i) {
      const double d = duration(random);
      if (i < kSoFar) {
        pace.Add(std::llround(now), std::llround(d));
        last = now;
      }
      if (i >= kSoFar - 1) training += d;
      now += d + between(random);
    }
    rest = pace.WallTimeOf({training, training, training}, 0.95);
    ASSERT_TRUE(rest.has_value());
    held += rest->low <= now - last && now - last <= rest->high;
  }
  EXPECT_GE(held, 0.93 * kSeeds);
}

TEST(WallPaceTest, TooFewIterationsSayNothing) {
  WallPace pace;
  for (int i = 0; i < 20; ++i) pace.Add((100 + i) * kMs, kMs);
  EXPECT_FALSE(pace.WallTimeOf({1e9, 1e9, 1e9}, 0.95).has_value());
}

TEST(WallPaceTest, AClockThatWasSetBackBeginsAgain) {
  WallPace pace;
  for (int i = 0; i < 400; ++i) pace.Add((100'000 + i) * kMs, kMs);
  pace.Add(50'000 * kMs, kMs);
  EXPECT_FALSE(pace.WallTimeOf({1e9, 1e9, 1e9}, 0.95).has_value());
}

TEST(WallPaceTest, IterationsWithoutATimeAreLeftOut) {
  WallPace pace;
  int64_t now = 1'000'000 * kMs;
  for (int i = 0; i < 800; ++i) {
    pace.Add(now, i % 2 == 0 ? 10 * kMs : 0);
    now += 12 * kMs;
  }
  const auto rest = pace.WallTimeOf({1e10, 1e10, 1e10}, 0.95);
  ASSERT_TRUE(rest.has_value());
  EXPECT_NEAR(rest->value, 1.2e10, 1e7);
}

}  // namespace
}  // namespace seqpoint
