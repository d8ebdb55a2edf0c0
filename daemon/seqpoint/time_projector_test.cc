#include "daemon/seqpoint/time_projector.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "daemon/seqpoint/engine_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_runs.h"
#include "tests/support/estimates.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The last batch of an epoch is smaller: its length is far below the others, its time not known.
TEST(ProjectTimeTest, AnIterationFarBelowAllOthersCostsNoMoreThanTheShortest) {
  for (int seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int64_t> length(456, 480);
    std::normal_distribution<double> normal;
    OnlineEngine engine;
    double others = 0, shortest = INFINITY, instructions = 0;
    for (uint64_t i = 0; i < 28; ++i) {
      const Key key = {length(random)};
      const int64_t time =
          std::llround(100'000 * static_cast<double>(key.first) * std::exp(0.01 * normal(random)));
      engine.AddIteration({.iteration = i, .key = key, .time_ns = time});
      others += static_cast<double>(time);
      shortest = std::min(shortest, static_cast<double>(time));
      instructions += 1e6 * static_cast<double>(key.first);
      if (i % 3 == 2) {
        const double value =
            1e6 * static_cast<double>(key.first) * std::exp(0.003 * normal(random));
        engine.AddMeasurement(0, i, key, {value}).IgnoreError();
      }
    }
    engine.AddIteration({.iteration = 28, .key = {53}});
    ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(29)).ok());
    const Projection p = engine.ProjectTime(0.95);
    ASSERT_TRUE(p.total.has_value());
    EXPECT_GE(p.total->value, others);
    EXPECT_LE(p.total->value, others + 1.02 * shortest);
    EXPECT_LE(p.total->high, others + 1.5 * shortest);
    EXPECT_TRUE(Covers(*p.total, others + 0.2 * shortest)) << seed;
    EXPECT_TRUE(Covers(*p.total, others + 0.9 * shortest)) << seed;
    EXPECT_LE(engine.PredictTime({53}), 1.02 * shortest);
    const auto statistic = engine.ProjectStatistic(0, 0, 0.95, StatisticKind::kAmount);
    ASSERT_TRUE(statistic.ok()) << statistic.status();
    EXPECT_TRUE(Covers(*statistic->total, instructions + 53e6)) << seed;
    EXPECT_NEAR(statistic->total->value / instructions, 1.02, 0.03) << seed;
  }
}

TEST(ProjectTimeTest, PastIsASumAndTheRestIsProjected) {
  const Epoch run = MakeEpoch(1, 2000);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  Feed(engine, run, 0, 500);
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_EQ(p.iterations_so_far, 500);
  EXPECT_EQ(p.iterations_total, 2000);
  const double past = run.Total() - run.Total(500);
  EXPECT_DOUBLE_EQ(p.so_far->value, past);
  EXPECT_DOUBLE_EQ(p.so_far->low, past);
  EXPECT_DOUBLE_EQ(p.so_far->high, past);
  ASSERT_TRUE(p.total.has_value());
  EXPECT_NEAR(p.total->value / run.Total(), 1, 0.003);
  EXPECT_TRUE(Covers(*p.total, run.Total()));
  EXPECT_TRUE(Covers(p.remaining, run.Total(500)));
  EXPECT_NEAR(p.so_far->value + p.remaining.value, p.total->value, 1e-3 * p.total->value);
  EXPECT_NEAR(p.per_1000->value, p.total->value / 2, 1);
  EXPECT_THAT(p.basis, HasSubstr("the length explains 9"));
}

TEST(ProjectTimeTest, TheEndIsExact) {
  const Epoch run = MakeEpoch(2, 300);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(300)).ok());
  Feed(engine, run, 0, 300);
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_DOUBLE_EQ(p.total->value, run.Total());
  EXPECT_DOUBLE_EQ(p.total->high, p.total->low);
  EXPECT_EQ(p.remaining.value, 0);
}

TEST(ProjectTimeTest, TheLastIterationIsKnownUntilItsStep) {
  const Epoch run = MakeEpoch(17, 200);
  OnlineEngine cut;
  const int64_t rest = run.times_ns.back() / 4;
  for (size_t i = 0; i < 200; ++i) {
    IterationSample sample{.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i]};
    if (i == 199) sample.time_ns -= rest, sample.rest_ns = rest;
    cut.AddIteration(sample);
  }
  absl::StatusOr<OnlineEngine> parsed = ParseEngine(SerializeEngine(cut));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (OnlineEngine* engine : {&cut, &*parsed}) {
    EXPECT_EQ(engine->Totals().untimed, 0u);
    ASSERT_TRUE(engine->SetHorizon(Horizon::Histogram(run.Histogram())).ok());
    const Projection p = engine->ProjectTime(0.95);
    ASSERT_TRUE(p.total.has_value());
    const double known = run.Total() - static_cast<double>(rest);
    EXPECT_DOUBLE_EQ(p.total->low, known);
    EXPECT_DOUBLE_EQ(p.total->value, known);
    EXPECT_DOUBLE_EQ(p.total->high, run.Total());
  }
}

TEST(ProjectTimeTest, WithoutHorizonThereIsNoTotal) {
  const Epoch run = MakeEpoch(3, 400);
  OnlineEngine engine;
  Feed(engine, run, 0, 400);
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_FALSE(p.total.has_value());
  EXPECT_EQ(p.iterations_total, 0);
  EXPECT_DOUBLE_EQ(p.so_far->value, run.Total());
  EXPECT_TRUE(Covers(*p.per_1000, run.Total() / 400 * 1000));
  EXPECT_LT(p.per_1000->high - p.per_1000->low, 0.2 * p.per_1000->value);
}

TEST(ProjectTimeTest, IntervalsShrinkAsTheRunGoesOn) {
  const Epoch run = MakeEpoch(4, 4000);
  for (const Horizon& horizon : {Horizon::Iterations(4000), Horizon::Histogram(run.Histogram()),
                                 Horizon::Distribution(run.Histogram())}) {
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(horizon).ok());
    double width = INFINITY;
    size_t at = 0;
    for (size_t n : {40, 200, 1000, 3000}) {
      Feed(engine, run, at, n);
      at = n;
      const Projection p = engine.ProjectTime(0.95);
      EXPECT_LT(p.total->high - p.total->low, width) << n;
      EXPECT_TRUE(Covers(*p.total, run.Total())) << n;
      width = p.total->high - p.total->low;
    }
  }
}

TEST(ProjectTimeTest, KnownLengthsAreWorthKnowing) {
  // The past holds the short ones only.
  Epoch run = MakeEpoch(5, 2000);
  std::stable_sort(run.keys.begin(), run.keys.end());
  for (size_t i = 0; i < run.keys.size(); ++i) run.times_ns[i] = NormalTime(run.keys[i]) + i % 7;
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  Feed(engine, run, 0, 700);
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_TRUE(Covers(*p.total, run.Total()));
  EXPECT_NEAR(p.total->value / run.Total(), 1, 0.1);
  EXPECT_THAT(p.basis, HasSubstr("distribution of lengths still moves"));

  // The expected distribution serves the same, less what has passed.
  ASSERT_TRUE(engine.SetHorizon(Horizon::Distribution(run.Histogram())).ok());
  EXPECT_TRUE(Covers(*engine.ProjectTime(0.95).total, run.Total()));

  // Lengths unknown: it cannot be known, and that is said.
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(2000)).ok());
  const Projection blind = engine.ProjectTime(0.95);
  EXPECT_GT(blind.total->high - blind.total->low, 5 * (p.total->high - p.total->low));
  EXPECT_TRUE(Covers(*blind.total, run.Total()));
}

TEST(ProjectTimeTest, ScalingTimesScalesTheProjection) {
  const Epoch run = MakeEpoch(6, 1000, /*two_dimensional=*/true);
  OnlineEngine engine, scaled;
  for (size_t i = 0; i < 500; ++i) {
    engine.AddIteration({.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i]});
    scaled.AddIteration({.iteration = i, .key = run.keys[i], .time_ns = 8 * run.times_ns[i]});
  }
  for (OnlineEngine* e : {&engine, &scaled}) {
    ASSERT_TRUE(e->SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  }
  const Projection a = engine.ProjectTime(0.95), b = scaled.ProjectTime(0.95);
  EXPECT_NEAR(b.total->value / a.total->value, 8, 1e-6);
  EXPECT_NEAR(b.total->low / a.total->low, 8, 1e-6);
  EXPECT_NEAR(b.total->high / a.total->high, 8, 1e-6);
}

TEST(ProjectTimeTest, MeasuredDistortedAndUntimedIterationsCostWhatTheirKeyCosts) {
  const Epoch run = MakeEpoch(7, 1000);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(1000)).ok());
  double observed = 0;
  for (size_t i = 0; i < 1000; ++i) {
    IterationSample sample{.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i]};
    if (i % 20 == 7) sample.measured = true, sample.time_ns *= 5;
    if (i % 20 == 11) sample.distorted = true, sample.time_ns *= 3;
    if (i % 20 == 13) sample.time_ns = 0;
    observed += static_cast<double>(sample.time_ns);
    engine.AddIteration(sample);
  }
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_NEAR(p.so_far->value / run.Total(), 1, 0.001);
  EXPECT_TRUE(Covers(*p.so_far, run.Total()));
  EXPECT_LT(p.so_far->low, p.so_far->high);
  const EngineTotals totals = engine.Totals();
  EXPECT_EQ(totals.measured, 50u);
  EXPECT_EQ(totals.distorted, 50u);
  EXPECT_EQ(totals.untimed, 50u);
  EXPECT_DOUBLE_EQ(totals.observed_time_ns, observed);
}

// The ring was full for half of the run: how many iterations fell into the hole is known, their
// lengths are not.
TEST(ProjectTimeTest, LostIterationsAreAsUncertainAsTheirLengths) {
  int total = 0, so_far = 0, work = 0;
  constexpr int kRuns = 40;
  for (uint32_t seed = 1; seed <= kRuns; ++seed) {
    const Epoch run = MakeEpoch(seed, 2000);
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(2000)).ok());
    double passed = 0, all_work = 0;
    const auto work_of = [&](size_t i) { return 1e6 * static_cast<double>(run.keys[i].first); };
    for (size_t i = 0; i < 2000; ++i) {
      all_work += work_of(i);
      if (i >= 1980) continue;  // to come
      passed += static_cast<double>(run.times_ns[i]);
      const bool lost = i >= 500 && i < 1500;
      IterationSample sample{.iteration = i};
      if (!lost) sample.key = run.keys[i], sample.time_ns = run.times_ns[i];
      sample.measured = i % 100 == 7 && !lost;
      engine.AddIteration(sample);
      if (!sample.measured) continue;
      engine.AddMeasurement(0, i, run.keys[i], {work_of(i)}).IgnoreError();
    }
    const Projection time = engine.ProjectTime(0.95);
    total += Covers(*time.total, run.Total());
    so_far += Covers(*time.so_far, passed);
    const auto statistic = engine.ProjectStatistic(0, 0, 0.95, StatisticKind::kAmount);
    ASSERT_TRUE(statistic.ok()) << statistic.status();
    work += Covers(*statistic->total, all_work);
    EXPECT_LT(time.total->high - time.total->low, 0.1 * run.Total());
  }
  EXPECT_GE(total, 0.9 * kRuns);
  EXPECT_GE(so_far, 0.9 * kRuns);
  EXPECT_GE(work, 0.9 * kRuns);
}

TEST(ProjectTimeTest, FirstOccurrencesAreAStratumOfTheirOwn) {
  Epoch run = MakeEpoch(8, 3000);
  std::set<int64_t> seen;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    if (seen.insert(run.keys[i].first).second) run.times_ns[i] += 40'000'000;
  }
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  Feed(engine, run, 0, 300);
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_NEAR(p.total->value / run.Total(), 1, 0.004);
  EXPECT_TRUE(Covers(*p.total, run.Total()));
  EXPECT_THAT(p.basis, HasSubstr("the first iteration of a length costs"));
  EXPECT_NEAR(engine.PredictTime({30}) / static_cast<double>(NormalTime({30})), 1, 0.01);
}

// The part of them that a window hides is not free.
// A training on a CPU of which a neighbour takes a part from some iteration on, or leaves it.
TEST(ProjectTimeTest, IntervalsOfACpusTimesHoldWhatNeighboursDo) {
  constexpr int kRuns = 60, kIterations = 160, kSeen = 48;
  int held = 0, held_as_device = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::mt19937_64 random(run + 1);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    const double begins = uniform(random) * kIterations, by = 1 + 0.06 * normal(random);
    OnlineEngine engine;
    std::map<Key, int64_t> counts;
    std::vector<IterationSample> samples;
    double truth = 0;
    for (uint64_t i = 0; i < kIterations; ++i) {
      const Key key{10 + static_cast<int64_t>(uniform(random) * 20)};
      const double level =
          (static_cast<double>(i) < begins ? 1 : by) * (1 + 0.025 * normal(random));
      const auto time_ns =
          static_cast<int64_t>((3e6 + 1e6 * static_cast<double>(key.first)) * level);
      samples.push_back({.iteration = i, .key = key, .time_ns = time_ns});
      truth += static_cast<double>(time_ns);
      ++counts[key];
    }
    std::vector<KeyCount> histogram;
    for (const auto& [key, count] : counts) histogram.push_back({key, count});
    ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(histogram)).ok());
    for (int i = 0; i < kSeen; ++i) engine.AddIteration(samples[i]);
    const auto holds = [&](const Estimate& e) { return e.low <= truth && truth <= e.high; };
    held += holds(*engine.ProjectTime(0.95, /*host_times=*/true).total);
    held_as_device += holds(*engine.ProjectTime(0.95).total);
  }
  EXPECT_GE(held, 0.93 * kRuns);
  EXPECT_LT(held_as_device, 0.8 * kRuns);  // of a GPU, whose times drift ten times less
}

TEST(ProjectTimeTest, FirstOccurrencesBesideAMeasurementAreChargedToo) {
  int covered = 0;
  for (int seed = 0; seed < 20; ++seed) {
    Epoch run = MakeEpoch(seed, 3000, /*two_dimensional=*/true);
    std::set<int64_t> seen[2];
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
    for (size_t i = 0; i < run.keys.size(); ++i) {
      bool first = seen[0].insert(run.keys[i].first).second;
      first |= seen[1].insert(run.keys[i].second).second;
      if (first) run.times_ns[i] += 20'000'000;
      engine.AddIteration({.iteration = i,
                           .key = run.keys[i],
                           .time_ns = run.times_ns[i],
                           .distorted = i > 3 && i % 3 == 0});
    }
    const Projection p = engine.ProjectTime(0.95);
    EXPECT_NEAR(p.total->value / run.Total(), 1, 0.002) << seed;
    covered += Covers(*p.total, run.Total());
  }
  EXPECT_GE(covered, 17);
}

// Times drift, and the iterations whose time is not used all lie where they are shortest.
TEST(ProjectTimeTest, UntimedIterationsMayHaveRunAtAnotherLevel) {
  Epoch run = MakeEpoch(3, 3000);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  for (size_t i = 0; i < run.keys.size(); ++i) {
    run.times_ns[i] += run.times_ns[i] / 50 * static_cast<int64_t>(i) / 3000;
    engine.AddIteration({.iteration = i,
                         .key = run.keys[i],
                         .time_ns = run.times_ns[i],
                         .distorted = i >= 50 && i < 250});
  }
  EXPECT_TRUE(Covers(*engine.ProjectTime(0.95).total, run.Total()));
}

TEST(ProjectTimeTest, IterationsWithoutALengthDoNotBendTheCurve) {
  const Epoch run = MakeEpoch(36, 1600, /*two_dimensional=*/true);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Distribution(run.Histogram())).ok());
  for (size_t i = 0; i < 400; ++i) {
    engine.AddIteration(
        {.iteration = i, .key = i < 10 ? Key{} : run.keys[i], .time_ns = run.times_ns[i]});
  }
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_NEAR(p.total->value / run.Total(), 1, 0.02);
  EXPECT_TRUE(Covers(*p.total, run.Total()));
  EXPECT_GT(engine.Explained().explained, 0.95);
  EXPECT_NEAR(engine.PredictTime({30, 30}) / static_cast<double>(NormalTime({30, 30})), 1, 0.01);
}

// Lengths share kernels by whole tiles: only the first of each tile pays, and tiles get rare.
TEST(ProjectTimeTest, FirstOccurrencesThatShareBucketsMostlyCostNothing) {
  for (int seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    Epoch run;
    std::set<int64_t> tiles[2];
    for (int i = 0; i < 1600; ++i) {
      const auto length = [&] {
        return static_cast<int64_t>(64 * std::exp(0.25 * normal(random)));
      };
      const Key key = {length(), length()};
      double time = 4e6 + 5e4 * static_cast<double>(key.first + key.second);
      if (tiles[0].insert(key.first / 8).second) time += 4e6;
      if (tiles[1].insert(key.second / 8).second) time += 4e6;
      run.keys.push_back(key);
      run.times_ns.push_back(std::llround(time * std::exp(0.003 * normal(random))));
    }
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
    Feed(engine, run, 0, 80);
    const Projection early = engine.ProjectTime(0.95);
    EXPECT_NEAR(early.total->value / run.Total(), 1, 0.012) << seed;
    EXPECT_TRUE(Covers(*early.total, run.Total())) << seed;
    EXPECT_GT(engine.Explained().explained, 0.8) << seed;
    Feed(engine, run, 80, 400);
    EXPECT_NEAR(engine.ProjectTime(0.95).total->value / run.Total(), 1, 0.005) << seed;
  }
}

TEST(ProjectTimeTest, FirstOccurrencesOfMicroStepsAreTakenOffSums) {
  for (const bool graphs : {false, true}) {
    double told = 0, not_told = 0, later = 0;
    for (int seed = 1; seed <= 8; ++seed) {
      const SumsRun run(seed, graphs);
      OnlineEngine a, b;
      told += std::abs(run.ErrorAt(50, true, a)) / 8;
      not_told += std::abs(run.ErrorAt(50, false, b)) / 8;
      const Projection early = a.ProjectTime(0.95);
      EXPECT_TRUE(Covers(*early.total, run.total)) << seed;
      OnlineEngine c;
      later += std::abs(run.ErrorAt(500, true, c)) / 8;
      EXPECT_GT(c.Explained().explained, 0.98);
      EXPECT_EQ(b.Totals().cold_iterations, 0u);
      EXPECT_THAT(c.ProjectTime(0.95).basis, HasSubstr("the first iteration of a length costs"));
    }
    EXPECT_LT(told, 0.012) << graphs;
    EXPECT_GT(not_told, 2 * told) << graphs;
    EXPECT_LT(later, 0.002) << graphs;
  }
}

// In sorted order the rest is longer than all that was seen, and the curve bends among the latter.
TEST(ProjectTimeTest, ABendDoesNotGoOnForCertain) {
  for (const double bend : {0.1, 0.2}) {
    int covered = 0;
    for (int seed = 0; seed < 20; ++seed) {
      std::mt19937 random(seed);
      std::normal_distribution<double> normal;
      Epoch run;
      for (int i = 0; i < 3000; ++i) {
        run.keys.push_back({std::llround(64 * std::exp(0.4 * normal(random)))});
      }
      std::sort(run.keys.begin(), run.keys.end());
      for (const Key& key : run.keys) {
        const double length = static_cast<double>(key.first);
        const double time = 5e6 + 2e5 * (length - bend * std::min(length, 36.0));
        run.times_ns.push_back(std::llround(time * std::exp(0.003 * normal(random))));
      }
      OnlineEngine engine;
      ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
      Feed(engine, run, 0, 750);
      covered += Covers(*engine.ProjectTime(0.95).total, run.Total());
      Feed(engine, run, 750, 1500);
      covered += Covers(*engine.ProjectTime(0.95).total, run.Total());
    }
    EXPECT_GE(covered, 36) << bend;
  }
}

// A long tail, of which only first occurrences are known, each with its surcharge.
TEST(ProjectTimeTest, TheTailIsNotTakenForSteeperThanItIs) {
  for (int seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    Epoch run;
    std::set<int64_t> tiles;
    for (int i = 0; i < 1600; ++i) {
      const int64_t length = static_cast<int64_t>(250 * std::exp(0.3 * normal(random)));
      const double l = static_cast<double>(length);
      double time = 1e6 + 2e4 * l + 20 * l * l;
      if (tiles.insert(length / 4).second) time += 2e6;
      run.keys.push_back({length});
      run.times_ns.push_back(std::llround(time * std::exp(0.004 * normal(random))));
    }
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
    for (const auto& [begin, end] : {std::pair(0, 80), std::pair(80, 400)}) {
      Feed(engine, run, begin, end);
      const Projection p = engine.ProjectTime(0.95);
      EXPECT_NEAR(p.total->value / run.Total(), 1, end == 80 ? 0.03 : 0.01) << seed;
      EXPECT_TRUE(Covers(*p.total, run.Total())) << seed;
      EXPECT_LT(p.total->high - p.total->low, (end == 80 ? 0.2 : 0.04) * run.Total()) << seed;
    }
  }
}

TEST(ProjectTimeTest, RedoneIterationsCountOnce) {
  const Epoch run = MakeEpoch(11, 300);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(300)).ok());
  Feed(engine, run, 0, 200);
  for (size_t i = 150; i < 200; ++i) {
    engine.AddIteration(
        {.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i], .redone = true});
  }
  Feed(engine, run, 200, 300);
  EXPECT_DOUBLE_EQ(engine.ProjectTime(0.95).total->value, run.Total());
  EXPECT_EQ(engine.Totals().iterations, 300u);
  EXPECT_EQ(engine.Totals().redone, 50u);
}

TEST(ProjectTimeTest, OtherPhasesAreApart) {
  const Epoch run = MakeEpoch(12, 100);
  OnlineEngine engine;
  Feed(engine, run, 0, 100);
  engine.AddIteration(
      {.iteration = 100, .key = {5}, .time_ns = 1'000'000'000, .phase = Phase::kOther});
  EXPECT_DOUBLE_EQ(engine.ProjectTime(0.95).so_far->value, run.Total());
  EXPECT_EQ(engine.Totals().other_iterations, 1u);
  EXPECT_EQ(engine.Totals().other_time_ns, 1e9);
}

TEST(ProjectTimeTest, SaysWhenTheKeyDoesNotExplainTime) {
  Epoch run = MakeEpoch(13, 3000);
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (int64_t& t : run.times_ns) {
    t = std::llround(1e7 * std::exp(0.3 * normal(random)));
  }
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  Feed(engine, run, 0, 600);
  EXPECT_EQ(engine.Explained().verdict, KeyVerdict::kNotExplained);
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_THAT(p.basis, HasSubstr("does not explain time"));
  EXPECT_TRUE(Covers(*p.total, run.Total()));
  EXPECT_GT(p.total->high - p.total->low, 0.02 * p.total->value);
}

// Lengths that have nothing to do with times.
Epoch UnexplainedEpoch(int seed, int iterations) {
  Epoch run = MakeEpoch(seed, iterations);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (int64_t& t : run.times_ns) t = std::llround(1e7 * std::exp(0.3 * normal(random)));
  return run;
}

// `value` is so many means; next to the interval it does not matter that drift is never quite ruled
// out.
void ExpectMeans(const Estimate& e, double means, double mean) {
  EXPECT_NEAR(e.value, means * mean, 0.05 * (e.high - e.low));
  EXPECT_NEAR(e.value / (means * mean), 1, 0.001);
}

TEST(ProjectTimeTest, UnexplainedTheRestIsTheMean) {
  const Epoch run = UnexplainedEpoch(21, 600);
  OnlineEngine engine;
  Feed(engine, run, 0, 600);
  const double mean = run.Total() / 600;
  // No horizon: no total, and 1,000 iterations cost 1,000 means.
  Projection p = engine.ProjectTime(0.95);
  EXPECT_FALSE(p.total);
  EXPECT_EQ(p.remaining.value, 0);
  EXPECT_EQ(p.so_far->value, run.Total());
  ExpectMeans(*p.per_1000, 1'000, mean);
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(5'000)).ok());
  p = engine.ProjectTime(0.95);
  ExpectMeans(p.remaining, 4'400, mean);
  ExpectMeans(*p.total, 5'000, mean);
  ExpectMeans(*p.per_1000, 1'000, mean);
  EXPECT_NEAR(p.total->value, p.so_far->value + p.remaining.value, 1);
  EXPECT_EQ(p.so_far->low, p.so_far->high);
  EXPECT_THAT(p.basis, HasSubstr("count as drawn at random"));
  EXPECT_THAT(p.basis, Not(HasSubstr("not stationary")));
  // Another run of as many iterations has no past.
  Horizon another = Horizon::Iterations(5'000);
  another.another = true;
  ASSERT_TRUE(engine.SetHorizon(std::move(another)).ok());
  ExpectMeans(*engine.ProjectTime(0.95).total, 5'000, mean);
  // Known lengths change nothing, and at the end all is exact.
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram(), 2)).ok());
  ExpectMeans(*engine.ProjectTime(0.95).total, 1'200, mean);
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(600)).ok());
  p = engine.ProjectTime(0.95);
  EXPECT_EQ(p.total->value, run.Total());
  EXPECT_EQ(p.total->low, p.total->high);
}

TEST(ProjectTimeTest, UnexplainedTimesThatGrowGoOnSo) {
  double with_drift = 0, mean_alone = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    Epoch run = UnexplainedEpoch(seed, 4'000);
    for (size_t i = 0; i < run.times_ns.size(); ++i) {
      run.times_ns[i] += run.times_ns[i] * static_cast<int64_t>(i) / 10'000;
    }
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(4'000)).ok());
    Feed(engine, run, 0, 2'000);
    const double seen = run.Total() - run.Total(2'000);
    with_drift += std::abs(engine.ProjectTime(0.95).total->value / run.Total() - 1);
    mean_alone += std::abs(2 * seen / run.Total() - 1);
  }
  EXPECT_LT(with_drift, 0.7 * mean_alone);
}

TEST(ProjectTimeTest, UnexplainedIterationsWithoutATimeCostTheMean) {
  const Epoch run = UnexplainedEpoch(22, 600);
  OnlineEngine engine;
  double known = 0;
  for (size_t i = 0; i < 600; ++i) {
    const bool timed = i % 4 != 0;
    known += timed ? static_cast<double>(run.times_ns[i]) : 0;
    engine.AddIteration(
        {.iteration = i, .key = run.keys[i], .time_ns = timed ? run.times_ns[i] : 0});
  }
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_THAT(p.basis, HasSubstr("does not explain time"));
  ExpectMeans(*p.so_far, 600, known / 450);
  EXPECT_TRUE(Covers(*p.so_far, run.Total()));
  EXPECT_GT(p.so_far->low, known);
}

TEST(ProjectTimeTest, UnexplainedIntervalsCover) {
  for (const size_t seen : {100, 600, 1'800}) {
    int covered = 0;
    double width = 0;
    for (int seed = 1; seed <= 100; ++seed) {
      const Epoch run = UnexplainedEpoch(seed, 2'000);
      OnlineEngine engine;
      ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(2'000)).ok());
      Feed(engine, run, 0, seen);
      const Projection p = engine.ProjectTime(0.95);
      covered += Covers(*p.total, run.Total());
      width += (p.total->high - p.total->low) / p.total->value / 100;
    }
    EXPECT_GE(covered, 92) << seen;
    // No more than twice what the textbook gives for times that are drawn at random.
    const auto n = static_cast<double>(seen);
    EXPECT_LT(width, 2 * 2 * 1.96 * 0.31 * std::sqrt((1 - n / 2'000) / n)) << seen;
  }
}

TEST(ProjectTimeTest, UnexplainedTimesWhoseLevelWandersAreSaidToBeNotStationary) {
  for (int seed = 1; seed <= 20; ++seed) {
    Epoch run = UnexplainedEpoch(seed, 4'000);
    const Epoch steady = run;
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    double level = 1;
    for (size_t i = 0; i < run.times_ns.size(); ++i) {
      if (i % 100 == 0) level *= std::exp(0.15 * normal(random));
      run.times_ns[i] = std::llround(level * static_cast<double>(run.times_ns[i]));
    }
    OnlineEngine engine, other;
    ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(4'000)).ok());
    ASSERT_TRUE(other.SetHorizon(Horizon::Iterations(4'000)).ok());
    Feed(engine, run, 0, 2'000);
    Feed(other, steady, 0, 2'000);
    const Projection p = engine.ProjectTime(0.95), q = other.ProjectTime(0.95);
    EXPECT_THAT(p.basis, HasSubstr("not stationary")) << seed;
    EXPECT_GT(p.total->high - p.total->low, 2 * (q.total->high - q.total->low));
  }
}

TEST(ProjectTimeTest, AHistogramOfAnotherRunIsNoticed) {
  const Epoch run = MakeEpoch(14, 1000);
  std::vector<KeyCount> wrong;
  for (int64_t length = 100; length < 140; ++length) wrong.push_back({{length}, 25});
  for (const Horizon& horizon : {Horizon::Histogram(wrong), Horizon::Distribution(wrong)}) {
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(horizon).ok());
    Feed(engine, run, 0, 500);
    const Projection p = engine.ProjectTime(0.95);
    EXPECT_THAT(p.basis, HasSubstr("the given lengths are not those that occur"));
    EXPECT_TRUE(Covers(*p.total, run.Total()));
  }
}

TEST(ProjectTimeTest, ALongerRunThanAnnounced) {
  const Epoch run = MakeEpoch(15, 300);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(200)).ok());
  Feed(engine, run, 0, 300);
  const Projection p = engine.ProjectTime(0.95);
  // How long it is nobody knows now.
  EXPECT_EQ(p.iterations_total, 0);
  EXPECT_FALSE(p.total.has_value());
  EXPECT_DOUBLE_EQ(p.so_far->value, run.Total());
  EXPECT_TRUE(Covers(*p.per_1000, run.Total() / 300 * 1000));
  EXPECT_THAT(p.basis, HasSubstr("past the 200 iterations that were expected"));
}

TEST(ProjectTimeTest, NoTimeIsNotZero) {
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(100)).ok());
  for (uint64_t i = 0; i < 100; ++i) {
    engine.AddIteration({.iteration = i, .key = {10 + static_cast<int64_t>(i % 7), 0}});
    const Projection p = engine.ProjectTime(0.95);
    EXPECT_FALSE(p.total || p.so_far || p.per_1000) << i;
    EXPECT_THAT(p.basis, HasSubstr("no iteration has a usable time"));
  }
}

TEST(ProjectTimeTest, AThousandIterationsAreOnlyExactWhereAsManyRan) {
  const Epoch run = MakeEpoch(16, 1200);
  for (const int iterations : {1, 2, 10, 100, 999, 1000, 1200}) {
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(iterations)).ok());
    Feed(engine, run, 0, iterations);
    const Projection p = engine.ProjectTime(0.95);
    EXPECT_EQ(p.total->low, p.total->high) << iterations;
    EXPECT_EQ(p.per_1000->low < p.per_1000->high, iterations < 1000) << iterations;
  }
}

}  // namespace
}  // namespace seqpoint
