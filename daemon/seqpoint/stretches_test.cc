// Iterations that are timed together: OnlineEngine::AddStretch.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/engine_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/estimates.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int64_t Ns(double time_ns) { return static_cast<int64_t>(time_ns); }

double UsualTime(int64_t length) {
  const auto x = static_cast<double>(length);
  return 2e6 + 3e4 * x + 250 * x * x;  // attention: 2.4 to 200 ms
}

struct Training {
  std::vector<Key> keys;
  std::vector<double> times_ns;
  double total_ns = 0;

  Training(int seed, int iterations, double noise, double slow_share = 0) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int64_t> length(8, 64);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    for (int i = 0; i < iterations; ++i) {
      keys.push_back({8 * length(random)});
      times_ns.push_back(UsualTime(keys.back().first) * std::exp(noise * normal(random)));
      if (uniform(random) < slow_share) times_ns.back() *= 1.5;
      total_ns += times_ns.back();
    }
  }

  std::vector<StretchIteration> Stretch(size_t begin, size_t count) const {
    std::vector<StretchIteration> stretch;
    for (size_t i = begin; i < begin + count; ++i) stretch.push_back({i, keys[i]});
    return stretch;
  }
  // The iterations [0, end), of which each `together` ones are timed as one.
  void Feed(OnlineEngine& engine, size_t end, size_t together) const {
    double sum = 0;
    for (size_t i = 0; i < end; ++i) {
      engine.AddIteration({.iteration = i, .key = keys[i]});
      sum += std::round(times_ns[i]);
      if (i % together != together - 1) continue;
      ASSERT_TRUE(engine.AddStretch(Stretch(i + 1 - together, together), Ns(sum)).ok());
      sum = 0;
    }
  }
  Horizon Lengths() const {
    std::map<Key, int64_t> counts;
    for (const Key& key : keys) ++counts[key];
    std::vector<KeyCount> histogram;
    for (const auto& [key, count] : counts) histogram.push_back({key, count});
    return Horizon::Histogram(histogram);
  }
};

TEST(StretchTest, WhatRanIsASum) {
  const Training run(1, 300, 0.01);
  OnlineEngine engine;
  run.Feed(engine, 300, 10);
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_NEAR(p.so_far->value / run.total_ns, 1, 1e-6);
  EXPECT_EQ(p.so_far->low, p.so_far->high);
  EXPECT_EQ(engine.Totals().untimed, 0u);
  EXPECT_THAT(p.basis, HasSubstr("300 of them were not timed one by one but in 30 stretches"));
  EXPECT_THAT(p.basis, Not(HasSubstr("explain")));
}

// The totals of 100 runs, with the lengths known, asked for after a part of each.
TEST(StretchTest, IntervalsCover) {
  for (const auto& [together, seen, slow] : std::vector<std::tuple<size_t, size_t, double>>{
           {10, 200, 0}, {10, 500, 0}, {10, 1000, 0.01}, {100, 500, 0}, {100, 1000, 0.01}}) {
    int covered = 0;
    double width = 0, curve = 0;
    for (int seed = 1; seed <= 100; ++seed) {
      const Training run(seed, 2000, 0.01, slow);
      OnlineEngine engine;
      ASSERT_TRUE(engine.SetHorizon(run.Lengths()).ok());
      run.Feed(engine, seen, together);
      const Projection p = engine.ProjectTime(0.95);
      ASSERT_TRUE(p.total.has_value()) << p.basis;
      covered += Covers(*p.total, run.total_ns);
      width += (p.total->high - p.total->low) / p.total->value / 200;
      curve += std::abs(engine.PredictTime({400}) / UsualTime(400) - 1) / 100;
    }
    std::printf("%zu together, %zu of 2,000 seen: %d of 100 covered, +-%.2f %%, 400: %.2f %%\n",
                together, seen, covered, 100 * width, 100 * curve);
    EXPECT_GE(covered, 92) << together << " together after " << seen;
    EXPECT_LT(width, together == 10 ? 0.03 : 0.06) << together << " together after " << seen;
  }
}

TEST(StretchTest, TheCurveIsFoundFromSums) {
  const Training run(7, 2000, 0.01);
  OnlineEngine engine;
  run.Feed(engine, 2000, 10);
  for (const int64_t length : {80, 200, 320, 440}) {
    EXPECT_NEAR(engine.PredictTime({length}), UsualTime(length), 0.01 * run.total_ns / 2000);
  }
}

// Work that is padded to the next 256, and a run that goes on with other lengths: a parabola is no
// guide there.
TEST(StretchTest, OtherLengthsThanThoseThatRanAreAsUncertainAsTheCurveIsWrong) {
  for (const int64_t low : {8, 26, 33, 50}) {
    Training run(6, 2000, 0.01);
    std::mt19937 random(7);
    run.total_ns = 0;
    for (size_t i = 0; i < run.keys.size(); ++i) {
      if (i >= 1000)
        run.keys[i].first = 8 * std::uniform_int_distribution<int64_t>(low, low + 8)(random);
      const int64_t padded = (run.keys[i].first + 255) / 256 * 256;
      run.times_ns[i] = std::round(UsualTime(padded));
      run.total_ns += run.times_ns[i];
    }
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(run.Lengths()).ok());
    run.Feed(engine, 1000, 10);
    const Projection p = engine.ProjectTime(0.95);
    ASSERT_TRUE(p.total.has_value()) << p.basis;
    EXPECT_TRUE(Covers(*p.total, run.total_ns))
        << low << ": " << p.total->low << " to " << p.total->high << ", truth " << run.total_ns;
  }
}

// Lengths in ascending order, whose times bend otherwise than a parabola.
TEST(StretchTest, OfLengthsBeyondThoseThatRanNothingIsSaid) {
  Training run(4, 2000, 0.01);
  std::sort(run.keys.begin(), run.keys.end());
  run.total_ns = 0;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    run.times_ns[i] = 2e6 + 4e3 * std::pow(static_cast<double>(run.keys[i].first), 1.5);
    run.total_ns += std::round(run.times_ns[i]);
  }
  for (const size_t seen : {500, 1000, 2000}) {
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(run.Lengths()).ok());
    run.Feed(engine, seen, 10);
    const Projection p = engine.ProjectTime(0.95);
    ASSERT_EQ(p.total.has_value(), seen == 2000) << seen;
    EXPECT_TRUE(p.so_far.has_value());
    if (p.total) {
      EXPECT_NEAR(p.total->value / run.total_ns, 1, 1e-9);
    } else {
      EXPECT_THAT(p.basis, HasSubstr("longer or shorter than all that ran"));
    }
  }
}

TEST(StretchTest, AsManyTimesAsWaitForOne) {
  OnlineEngine engine;
  engine.AddIteration({.iteration = 0, .key = {5}});
  engine.AddIteration({.iteration = 1, .key = {6}, .time_ns = 1000});
  const std::string before = SerializeEngine(engine);
  using Stretch = std::vector<StretchIteration>;
  EXPECT_FALSE(engine.AddStretch(Stretch{{0, {5}}, {0, {5}}}, 1000).ok());
  EXPECT_FALSE(engine.AddStretch(Stretch{{1, {6}}}, 1000).ok());
  EXPECT_FALSE(engine.AddStretch(Stretch{{2, {7}}}, 1000).ok());
  EXPECT_FALSE(engine.AddStretch(Stretch{}, 1000).ok());
  EXPECT_FALSE(engine.AddStretch(Stretch(kMaxStretch + 1, {0, {5}}), 1000).ok());
  EXPECT_FALSE(engine.AddStretch(Stretch{{0, {5}}}, 0).ok());
  EXPECT_EQ(SerializeEngine(engine), before);
  EXPECT_TRUE(engine.AddStretch(Stretch{{0, {5}}}, 1000).ok());
  EXPECT_FALSE(engine.AddStretch(Stretch{{0, {5}}}, 1000).ok());
}

// The times of stretches include the surcharges of first occurrences.
TEST(StretchTest, FirstOccurrencesInStretchesArePaidFor) {
  const Training run(5, 900, 0.003);
  OnlineEngine engine;
  double truth = 0;
  std::map<Key, int> seen;
  double sum = 0;
  for (size_t i = 0; i < 900; ++i) {
    const Key key = {run.keys[i].first + (i < 600 ? 0 : 1000)};
    const double time =
        std::round(UsualTime(key.first) * (1 + 0.003 * (static_cast<int>(i % 7) - 3)) +
                   (seen[key]++ == 0 ? 3e7 : 0));
    truth += time;
    sum += time;
    engine.AddIteration({.iteration = i, .key = key, .time_ns = i < 600 ? Ns(time) : 0});
    if (i < 600) sum = 0;
    if (i < 600 || i % 10 != 9) continue;
    std::vector<StretchIteration> stretch;
    for (size_t k = i - 9; k <= i; ++k) stretch.push_back({k, {run.keys[k].first + 1000}});
    ASSERT_TRUE(engine.AddStretch(stretch, Ns(sum)).ok());
    sum = 0;
  }
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_NEAR(p.so_far->value / truth, 1, 1e-9);
  EXPECT_EQ(p.so_far->low, p.so_far->high);
}

// A few slow iterations are timed alone, before the stretches begin.
TEST(StretchTest, ASlowStartIsNotMostOfTheRun) {
  int covered = 0;
  double bias = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    const Training run(seed, 12'000, 0.01);
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(run.Lengths()).ok());
    double slow = 0, sum = 0;
    for (size_t i = 0; i < 3060; ++i) {
      const double time = std::round(run.times_ns[i]);
      if (i < 60) slow += time;
      engine.AddIteration(
          {.iteration = i, .key = run.keys[i], .time_ns = i < 60 ? Ns(2 * time) : 0});
      if (i >= 60) sum += time;
      if (i < 60 || (i - 60) % 1000 != 999) continue;
      ASSERT_TRUE(engine.AddStretch(run.Stretch(i - 999, 1000), Ns(sum)).ok());
      sum = 0;
    }
    const Projection p = engine.ProjectTime(0.95);
    ASSERT_TRUE(p.total.has_value());
    const double truth = run.total_ns + slow;
    covered += Covers(*p.total, truth);
    bias += (p.total->value / truth - 1) / 20;
  }
  EXPECT_GE(covered, 18);
  EXPECT_LT(std::abs(bias), 0.02);
}

TEST(StretchTest, SurvivesARestart) {
  const Training run(3, 400, 0.01);
  OnlineEngine engine;
  engine.KeepCalls();
  run.Feed(engine, 200, 10);
  const std::string base = SerializeEngine(engine);
  engine.TakeCalls();
  for (size_t i = 200; i < 210; ++i) engine.AddIteration({.iteration = i, .key = run.keys[i]});
  ASSERT_TRUE(engine.AddStretch(run.Stretch(200, 10), 500'000'000).ok());
  absl::StatusOr<OnlineEngine> copy = ParseEngine(base);
  ASSERT_TRUE(copy.ok()) << copy.status();
  ASSERT_TRUE(ReplayCalls(SerializeCalls(engine.TakeCalls()), *copy).ok());
  EXPECT_EQ(SerializeEngine(*copy), SerializeEngine(engine));
  EXPECT_EQ(copy->ProjectTime(0.95).so_far->value, engine.ProjectTime(0.95).so_far->value);
}

}  // namespace
}  // namespace seqpoint
