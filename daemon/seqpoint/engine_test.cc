#include "daemon/seqpoint/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "daemon/seqpoint/estimates_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A run with known truth: two lengths (or one), time linear in them.
struct Epoch {
  std::vector<Key> keys;
  std::vector<int64_t> times_ns;

  double Total(size_t begin = 0) const {
    double sum = 0;
    for (size_t i = begin; i < times_ns.size(); ++i) sum += static_cast<double>(times_ns[i]);
    return sum;
  }
  std::vector<KeyCount> Histogram() const {
    std::map<Key, int64_t> counts;
    for (const Key& key : keys) ++counts[key];
    std::vector<KeyCount> histogram;
    for (const auto& [key, count] : counts) histogram.push_back({key, count});
    return histogram;
  }
};

int64_t NormalTime(const Key& key) {
  return 5'000'000 + 200'000 * key.first + 300'000 * key.second;
}

Epoch MakeEpoch(int seed, int iterations, bool two_dimensional = false, double noise = 0.005) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int64_t> length(10, 49);
  std::normal_distribution<double> normal;
  Epoch run;
  for (int i = 0; i < iterations; ++i) {
    const Key key = {length(random), two_dimensional ? length(random) : 0};
    run.keys.push_back(key);
    run.times_ns.push_back(
        std::llround(static_cast<double>(NormalTime(key)) * std::exp(noise * normal(random))));
  }
  return run;
}

void Feed(OnlineEngine& engine, const Epoch& run, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    engine.AddIteration({.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i]});
  }
}

bool Equal(const Estimate& a, const Estimate& b) {
  return a.value == b.value && a.low == b.low && a.high == b.high;
}

// -------------------------------------------------------------------------- ordinary times

TEST(OrdinaryTimesTest, CountsAreAllIterationsAndMeansThoseOfOrdinaryOnes) {
  const Epoch run = MakeEpoch(1, 4'000);
  OnlineEngine engine;
  EXPECT_THAT(engine.OrdinaryTimes(), IsEmpty());
  std::set<Key> seen;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    IterationSample sample{.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i]};
    if (seen.insert(sample.key).second) sample.time_ns += 20'000'000;  // algorithm search
    if (i % 500 == 499) sample.time_ns *= 10;                          // a stall
    if (i % 7 == 3) sample.time_ns = 0;                                // unknown
    if (i % 7 == 4) sample.distorted = true, sample.time_ns *= 2;
    if (i % 100 == 50) sample.key = {}, sample.time_ns = 0;  // its records were lost
    engine.AddIteration(sample);
  }
  // Of this length no repeated iteration has a time.
  engine.AddIteration({.iteration = 4'000, .key = {30, 0}, .redone = true});
  engine.AddIteration({.iteration = 4'001, .key = {55, 0}});
  double count = 0;
  Key before = {-1, 0};
  for (const KeyTimes& times : engine.OrdinaryTimes()) {
    count += times.count;
    EXPECT_LT(before, times.key);
    before = times.key;
    const double normal = static_cast<double>(NormalTime(times.key));
    EXPECT_NEAR(times.mean / normal, 1, times.key.first == 55 ? 0.01 : 0.003) << times.key.first;
    if (times.count < 2) continue;
    const double deviation = std::sqrt(times.m2 / (times.count - 1)) / normal;
    EXPECT_GT(deviation, 0.003);
    EXPECT_LT(deviation, 0.007);
  }
  EXPECT_EQ(before, (Key{55, 0}));
  EXPECT_NEAR(count, 4'001, 1e-6);
}

// ------------------------------------------------------------------------------------- time

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
  absl::StatusOr<OnlineEngine> parsed = OnlineEngine::Parse(cut.Serialize());
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

// What a window hides of them is not free.
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

// A run with four micro-steps in each iteration. The first one of a length takes longer, and where
// micro-steps are graphs, so does the first that is an iteration's first, and its last.
struct SumsRun {
  explicit SumsRun(int seed, bool graphs = false) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::set<int64_t> ran[3];
    for (uint64_t i = 0; i < 1'000; ++i) {
      IterationSample& sample = iterations.emplace_back();
      sample.iteration = i;
      sample.combined = true;
      double time = 1e6;
      for (int j = 0; j < 4; ++j) {
        Part part{{static_cast<int64_t>(64 * std::exp(0.25 * normal(random)))}};
        if (graphs && j == 0) part.kind = Part::Kind::kFirst;
        if (graphs && j == 3) part.kind = Part::Kind::kLast;
        const int64_t length = part.key.first;
        ++batches[length];
        sample.key.first += length;
        time += 1e5 * static_cast<double>(length);
        if (ran[static_cast<int>(part.kind)].insert(length).second) time += 4e6;
        sample.parts.push_back(part);
      }
      sample.time_ns = std::llround(time * std::exp(0.003 * normal(random)));
      total += static_cast<double>(sample.time_ns);
    }
  }

  // `told`: the engine is told the micro-steps' lengths.
  double ErrorAt(size_t count, bool told, OnlineEngine& engine) const {
    std::map<Key, int64_t> sums;
    for (const IterationSample& sample : iterations) ++sums[sample.key];
    std::vector<KeyCount> histogram;
    for (const auto& [key, times] : sums) histogram.push_back({key, times});
    Horizon horizon = Horizon::Distribution(std::move(histogram));
    for (const auto& [length, times] : batches) horizon.parts.push_back({{length}, times});
    horizon.parts_certain = true;
    EXPECT_TRUE(engine.SetHorizon(horizon).ok());
    for (size_t i = 0; i < count; ++i) {
      IterationSample sample = iterations[i];
      if (!told) sample.parts.clear();
      engine.AddIteration(sample);
    }
    return engine.ProjectTime(0.95).total->value / total - 1;
  }

  double total = 0;
  std::vector<IterationSample> iterations;
  std::map<int64_t, int64_t> batches;
};

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
      EXPECT_EQ(b.Totals().first_occurrences, 0u);
      EXPECT_THAT(c.ProjectTime(0.95).basis, HasSubstr("the first iteration of a length costs"));
    }
    EXPECT_LT(told, 0.012) << graphs;
    EXPECT_GT(not_told, 2 * told) << graphs;
    EXPECT_LT(later, 0.002) << graphs;
  }
}

// Hardly anything else could be measured early in a run.
TEST(PlanTest, SumsThatHoldFirstOccurrencesAreMeasured) {
  const SumsRun run(3);
  OnlineEngine engine;
  run.ErrorAt(200, true, engine);
  EXPECT_GT(engine.Totals().first_occurrences, 20u);
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_TRUE(engine.AddMeasurement(0, i, run.iterations[i].key, {1.0}).ok()) << i;
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

TEST(ProjectTimeTest, StallsAreCountedApart) {
  Epoch run = MakeEpoch(9, 2000);
  for (size_t i : {150, 200, 333, 350}) run.times_ns[i] *= 20;
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  Feed(engine, run, 0, 400);
  EXPECT_EQ(engine.Totals().outliers, 4u);
  EXPECT_NEAR(engine.PredictTime({30}) / static_cast<double>(NormalTime({30})), 1, 0.01);
  // The past keeps them; the rest has them as often.
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_DOUBLE_EQ(p.so_far->value, run.Total() - run.Total(400));
  EXPECT_GT(p.remaining.value, 1.1 * run.Total(400));
  EXPECT_TRUE(Covers(p.remaining, run.Total(400)));
  EXPECT_THAT(p.basis, HasSubstr("4 stalls"));
}

// ------------------------------------------------------------- keys that the curve misses

double OrdinaryTime(const OnlineEngine& engine, const Key& key) {
  for (const KeyTimes& times : engine.OrdinaryTimes()) {
    if (times.key == key) return times.mean;
  }
  return 0;
}

// The times of one length are others than the curve's: beyond what counts as a stall, and as slow.
TEST(OwnLevelTest, ALengthThatTheCurveMissesHasItsOwnTime) {
  for (const double factor : {1.6, 1.15, 0.45, 0.85}) {
    for (const double share : {0.006, 0.025, 0.3}) {
      Epoch run = MakeEpoch(60, 3000);
      std::mt19937 random(1);
      std::uniform_real_distribution<double> uniform;
      for (size_t i = 0; i < run.keys.size(); ++i) {
        const bool odd = uniform(random) < share;
        if (!odd && run.keys[i].first != 30) continue;
        const double noise = static_cast<double>(run.times_ns[i]) / NormalTime(run.keys[i]);
        run.keys[i] = {odd ? 30 : 17};
        run.times_ns[i] = std::llround(noise * (odd ? factor : 1) * NormalTime(run.keys[i]));
      }
      OnlineEngine engine;
      Feed(engine, run, 0, run.keys.size());
      SCOPED_TRACE(testing::Message() << factor << ", share " << share);
      EXPECT_LE(engine.Totals().outliers, 3u);
      double ordinary = 0;
      for (const KeyTimes& times : engine.OrdinaryTimes()) {
        const double truth =
            static_cast<double>(NormalTime(times.key)) * (times.key.first == 30 ? factor : 1);
        EXPECT_NEAR(times.mean / truth, 1, 0.01) << times.key.first;
        EXPECT_NEAR(engine.PredictTime(times.key) / truth, 1, 0.01) << times.key.first;
        ordinary += times.count * times.mean;
      }
      EXPECT_NEAR(ordinary / run.Total(), 1, 1e-3);
      // Whatever the points are, they stand for the run's cost.
      double points = 0;
      for (const SeqPointInfo& point : engine.SeqPoints({})) {
        points += point.weight * OrdinaryTime(engine, point.key);
      }
      EXPECT_NEAR(points / run.Total(), 1, 0.005);
      // And what is to come costs what it did.
      ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram(), 2)).ok());
      const Projection p = engine.ProjectTime(0.95);
      // Of many that are far off, the time before that was known looks like a drift.
      EXPECT_NEAR(p.remaining.value / run.Total(), 1, share > 0.1 ? 0.015 : 0.003);
      EXPECT_TRUE(Covers(p.remaining, run.Total()));
      EXPECT_THAT(p.basis, Not(HasSubstr("that a length takes shifted")));
    }
  }
}

// Cycles follow time there, instructions do not.
TEST(OwnLevelTest, StatisticsOfALengthThatTheCurveMisses) {
  Epoch run = MakeEpoch(66, 3000);
  double cycles = 0, instructions = 0;
  OnlineEngine engine;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    if (run.keys[i].first == 30) run.times_ns[i] = run.times_ns[i] * 8 / 5;
    const double values[] = {static_cast<double>(run.times_ns[i]) * 1.5,
                             static_cast<double>(NormalTime(run.keys[i]))};
    cycles += values[0];
    instructions += values[1];
    engine.AddIteration({.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i]});
    if (i % 40 == 30) engine.AddMeasurement(0, i, run.keys[i], values).IgnoreError();
    if (i == 700 || run.keys[i].first != 30 || i % 3 != 0) continue;
    engine.AddMeasurement(0, i, run.keys[i], values).IgnoreError();
  }
  const auto a = engine.ProjectStatistic(0, 0, 0.95, StatisticKind::kTimeLike);
  const auto b = engine.ProjectStatistic(0, 1, 0.95, StatisticKind::kAmount);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NEAR(a->so_far->value / cycles, 1, 0.003);
  EXPECT_TRUE(Covers(*a->so_far, cycles));
  EXPECT_NEAR(b->so_far->value / instructions, 1, 0.003);
  EXPECT_TRUE(Covers(*b->so_far, instructions));
}

// Short lengths cost no less than others, all the way down.
TEST(OwnLevelTest, ABendThatTheCurveMissesIsNoStall) {
  Epoch run = MakeEpoch(61, 4000);
  const auto truth = [](const Key& key) {
    return 3e5 * static_cast<double>(std::max<int64_t>(key.first, 14));
  };
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    if (run.keys[i].first < 12) run.keys[i].first -= 7;
    run.times_ns[i] = std::llround(truth(run.keys[i]) * std::exp(0.005 * normal(random)));
  }
  OnlineEngine engine;
  Feed(engine, run, 0, run.keys.size());
  EXPECT_LE(engine.Totals().outliers, 5u);
  for (const KeyTimes& times : engine.OrdinaryTimes()) {
    EXPECT_NEAR(times.mean / truth(times.key), 1, 0.01) << times.key.first;
    EXPECT_NEAR(engine.PredictTime(times.key) / truth(times.key), 1, 0.02) << times.key.first;
  }
}

// Stalls are rare, of any size, at any length.
TEST(OwnLevelTest, StallsStayStalls) {
  for (int seed = 0; seed < 10; ++seed) {
    Epoch run = MakeEpoch(70 + seed, 3000);
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> size(1, 4);
    double stalls = 0, excess = 0;
    for (size_t i = 200; i < run.times_ns.size(); i += 1 + random() % 200) {
      // Now and then a few iterations in a row, alike.
      const double factor = std::exp(size(random));
      for (size_t k = i; k < std::min(i + (random() % 10 == 0 ? 5 : 1), run.times_ns.size()); ++k) {
        const double time = static_cast<double>(run.times_ns[k]);
        run.times_ns[k] = std::llround(time * factor);
        excess += time * (factor - 1);
        stalls += 1;
      }
    }
    OnlineEngine engine;
    Feed(engine, run, 0, run.keys.size());
    EXPECT_EQ(static_cast<double>(engine.Totals().outliers), stalls) << seed;
    double ordinary = 0;
    for (const KeyTimes& times : engine.OrdinaryTimes()) {
      const double truth = static_cast<double>(NormalTime(times.key));
      EXPECT_NEAR(times.mean / truth, 1, 0.005) << times.key.first;
      EXPECT_NEAR(engine.PredictTime(times.key) / truth, 1, 0.005) << times.key.first;
      ordinary += times.count * times.mean;
    }
    EXPECT_NEAR(ordinary / (run.Total() - excess), 1, 1e-3);
  }
}

TEST(OwnLevelTest, AMomentOfThrottlingIsNobodysLevel) {
  Epoch run = MakeEpoch(62, 2000);
  // Lengths that occur there first, and for some time only there.
  for (size_t i = 1000; i < 1007; ++i) {
    run.keys[i] = {60 + static_cast<int64_t>(i % 2)};
    run.times_ns[i] = NormalTime(run.keys[i]) * 8 / 5;
  }
  for (size_t i = 1500; i < 2000; i += 100) {
    run.keys[i] = {60};
    run.times_ns[i] = NormalTime({60});
  }
  OnlineEngine engine;
  Feed(engine, run, 0, run.keys.size());
  EXPECT_EQ(engine.Totals().outliers, 5u);
  EXPECT_NEAR(OrdinaryTime(engine, {60}) / static_cast<double>(NormalTime({60})), 1, 0.01);
  EXPECT_NEAR(engine.PredictTime({61}) / static_cast<double>(NormalTime({61})), 1, 0.01);
}

TEST(OwnLevelTest, OneStallAmongFiveIterations) {
  for (size_t stall = 1; stall < 5; ++stall) {
    Epoch run = MakeEpoch(63, 2000);
    for (size_t i = 0; i < 5; ++i) {
      run.keys[400 + 300 * i] = {55};
      run.times_ns[400 + 300 * i] = NormalTime({55}) * (i == stall ? 3 : 1);
    }
    OnlineEngine engine;
    Feed(engine, run, 0, run.keys.size());
    EXPECT_EQ(engine.Totals().outliers, 1u) << stall;
    EXPECT_NEAR(OrdinaryTime(engine, {55}) / static_cast<double>(NormalTime({55})), 1, 0.005);
    EXPECT_NEAR(engine.PredictTime({55}) / static_cast<double>(NormalTime({55})), 1, 0.01);
  }
}

// The first iterations of a length were slow by chance: the others outvote them.
TEST(OwnLevelTest, AWrongLevelIsUnlearned) {
  Epoch run = MakeEpoch(64, 3000);
  int seen = 0;
  for (size_t i = 500; i < 3000; i += 50) {
    run.keys[i] = {55};
    run.times_ns[i] = NormalTime({55}) * (++seen <= 5 ? 8 : 5) / 5;
  }
  OnlineEngine engine;
  Feed(engine, run, 0, 701);
  EXPECT_NEAR(OrdinaryTime(engine, {55}) / static_cast<double>(NormalTime({55})), 1.6, 0.01);
  Feed(engine, run, 701, run.keys.size());
  EXPECT_NEAR(OrdinaryTime(engine, {55}) / static_cast<double>(NormalTime({55})), 1, 0.01);
  double excess = 0;
  for (const KeyTimes& times : engine.OrdinaryTimes()) excess -= times.count * times.mean;
  EXPECT_NEAR((excess + run.Total()) / static_cast<double>(NormalTime({55})), 5 * 0.6, 1.5);
}

// What costs more from some iteration on, whatever its length, is the run's level, no key's.
TEST(OwnLevelTest, WhatAllKeysDoIsDrift) {
  for (const double factor : {1.08, 2.0}) {
    Epoch run = MakeEpoch(65, 4000);
    const Epoch before = run;
    for (size_t i = 2000; i < 4000; ++i) {
      run.times_ns[i] = std::llround(factor * static_cast<double>(run.times_ns[i]));
    }
    OnlineEngine engine;
    Feed(engine, run, 0, run.keys.size());
    EXPECT_LT(engine.Totals().outliers, 20u);
    ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram(), 2)).ok());
    const double rest = factor * before.Total();
    EXPECT_TRUE(Covers(engine.ProjectTime(0.95).remaining, rest)) << factor;
  }
}

TEST(ProjectTimeTest, ANewRegimeIsNotAStall) {
  Epoch run = MakeEpoch(10, 2000);
  for (size_t i = 1000; i < 2000; ++i) run.times_ns[i] *= 2;
  OnlineEngine engine;
  Feed(engine, run, 0, 2000);
  EXPECT_LT(engine.Totals().outliers, 20u);
  EXPECT_THAT(engine.ProjectTime(0.95).basis, HasSubstr("that a length takes shifted"));
  EXPECT_GT(engine.PredictTime({30}), 1.2 * static_cast<double>(NormalTime({30})));
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

// -------------------------------------------------------------------------------- degenerate

TEST(DegenerateTest, NothingYet) {
  OnlineEngine engine;
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_FALSE(p.total.has_value());
  EXPECT_EQ(p.so_far->value, 0);
  EXPECT_THAT(engine.SeqPoints({}), IsEmpty());
  EXPECT_THAT(engine.MakePlan({}).entries, IsEmpty());
  EXPECT_EQ(engine.PredictTime({5}), 0);
  EXPECT_EQ(engine.ProjectStatistic(0, 0, 0.95).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(100)).ok());
  EXPECT_FALSE(engine.ProjectTime(0.95).total.has_value());
}

TEST(DegenerateTest, OneIteration) {
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(100)).ok());
  engine.AddIteration({.iteration = 0, .key = {7}, .time_ns = 1000});
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_NEAR(p.total->value, 100'000, 1);
  EXPECT_GT(p.total->high - p.total->low, 0.2 * p.total->value);
  const std::vector<SeqPointInfo> points = engine.SeqPoints({});
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].key, Key{7});
  EXPECT_NEAR(points[0].weight, 100, 1e-9);
}

TEST(DegenerateTest, OneLengthAndEqualTimes) {
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(1000)).ok());
  for (uint64_t i = 0; i < 500; ++i) {
    engine.AddIteration({.iteration = i, .key = {7}, .time_ns = 1'000'000});
  }
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_NEAR(p.total->value, 1e9, 1);
  EXPECT_THAT(p.basis, HasSubstr("time hardly varies"));
  for (const PlanEntry& e : engine.MakePlan({}).entries) {
    EXPECT_EQ(e.low, Key{7});
    EXPECT_EQ(e.high, Key{7});
  }
}

TEST(DegenerateTest, NoTimesButMeasurements) {
  const Epoch run = MakeEpoch(16, 500);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  double truth = 0;
  for (size_t i = 0; i < 500; ++i) {
    engine.AddIteration({.iteration = i, .key = run.keys[i]});
    truth += static_cast<double>(run.keys[i].first);
  }
  EXPECT_FALSE(engine.ProjectTime(0.95).total.has_value());
  EXPECT_THAT(engine.ProjectTime(0.95).basis, HasSubstr("no iteration has a usable time"));
  for (size_t i = 400; i < 430; ++i) {
    const double value = static_cast<double>(run.keys[i].first);
    ASSERT_TRUE(engine.AddMeasurement(1, i, run.keys[i], {&value, 1}).ok());
  }
  const auto p = engine.ProjectStatistic(1, 0, 0.95);
  ASSERT_TRUE(p.ok());
  EXPECT_NEAR(p->total->value / truth, 1, 0.01);
}

TEST(DegenerateTest, HugeAndRefusedInput) {
  OnlineEngine engine;
  engine.AddIteration({.iteration = 0, .key = {-1}, .time_ns = 10});
  engine.AddIteration({.iteration = 1, .key = {1, -5}, .time_ns = 10});
  engine.AddIteration({.iteration = 2, .key = {1}, .time_ns = -10});
  EXPECT_EQ(engine.Totals().rejected, 3u);
  EXPECT_EQ(engine.Totals().iterations, 0u);
  for (uint64_t i = 0; i < 200; ++i) {
    engine.AddIteration({.iteration = i,
                         .key = {static_cast<int64_t>(1'000'000'000 + i % 9), INT64_MAX},
                         .time_ns = static_cast<int64_t>(1'000'000 + i % 9)});
  }
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_TRUE(std::isfinite(p.per_1000->low) && std::isfinite(p.per_1000->high));
  EXPECT_NEAR(p.per_1000->value, 1e9, 1e6);
  EXPECT_THAT(engine.MakePlan({}).entries, Not(IsEmpty()));

  const double nan = NAN;
  EXPECT_EQ(engine.AddMeasurement(0, 100, {1'000'000'000 + 1, INT64_MAX}, {&nan, 1}).code(),
            absl::StatusCode::kInvalidArgument);
  const double one = 1;
  EXPECT_EQ(engine.AddMeasurement(0, 100, {12345}, {&one, 1}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine.Totals().measurements_refused, 2u);

  EXPECT_FALSE(engine.SetHorizon(Horizon::Iterations(-5)).ok());
  EXPECT_FALSE(engine.SetHorizon(Horizon::Histogram({{{-3}, 10}})).ok());
  EXPECT_FALSE(engine.SetHorizon(Horizon::Histogram({{{3}, -10}})).ok());
  EXPECT_FALSE(engine.SetHorizon(Horizon::Histogram({{{3}, INT64_MAX}}, 100)).ok());
}

TEST(DegenerateTest, EveryIterationANewLength) {
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Iterations(4000)).ok());
  double past = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const int64_t length = static_cast<int64_t>((i * 7919) % 100'003);
    engine.AddIteration({.iteration = i, .key = {length}, .time_ns = 1'000'000 + 10 * length});
    past += static_cast<double>(1'000'000 + 10 * length);
  }
  const Projection p = engine.ProjectTime(0.95);
  EXPECT_DOUBLE_EQ(p.so_far->value, past);
  EXPECT_TRUE(Covers(*p.total, 4 * past));
  EXPECT_GT(engine.Explained().explained, 0.99);
}

// ---------------------------------------------------------------------------- plan, SeqPoints

struct Counters {
  static double Bytes(const Key& k) {
    return 1e9 + 1e7 * static_cast<double>(k.first) + 2e7 * static_cast<double>(k.second);
  }
  static double Instructions(const Key& k) {
    return 1e8 + 1e5 * static_cast<double>(k.first * k.second + k.first * k.first);
  }
};

class PlanRunTest : public ::testing::TestWithParam<std::tuple<bool, int>> {};

// Carries plans out as the injected library does, through a whole run.
TEST_P(PlanRunTest, MeasuresAtMostTheBudgetAndProjectsTheCounters) {
  const auto [two_dimensional, kind] = GetParam();
  const Epoch run = MakeEpoch(20 + kind, 3000, two_dimensional);
  OnlineEngine engine;
  const Horizon horizons[] = {Horizon::Unknown(), Horizon::Iterations(3000),
                              Horizon::Histogram(run.Histogram()),
                              Horizon::Distribution(run.Histogram())};
  ASSERT_TRUE(engine.SetHorizon(horizons[kind]).ok());
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  const PlanOptions options{.sets = {4, 9}};
  std::vector<PlanEntry> entries;
  std::set<int64_t> seen[2];
  std::map<uint32_t, int> per_set;
  int measured = 0, early = 0;
  double bytes = 0, instructions = 0;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    const Key& key = run.keys[i];
    bytes += Counters::Bytes(key);
    instructions += Counters::Instructions(key);
    const bool new_first = seen[0].insert(key.first).second;
    const bool new_second = seen[1].insert(key.second).second;
    const bool first = new_first || new_second;
    int set = -1;
    for (PlanEntry& e : entries) {
      if (e.quota == 0 || key.first < e.low.first || key.first > e.high.first ||
          key.second < e.low.second || key.second > e.high.second) {
        continue;
      }
      --e.quota;
      set = static_cast<int>(e.set);
      break;
    }
    engine.AddIteration({.iteration = i,
                         .key = key,
                         .time_ns = run.times_ns[i] + (first ? 8'000'000 : 0),
                         .measured = set >= 0});
    if (set >= 0) {
      EXPECT_FALSE(first) << "iteration " << i;
      const double value = (set == 4 ? Counters::Bytes(key) : Counters::Instructions(key)) *
                           (1 + 0.003 * normal(random));
      ASSERT_TRUE(engine.AddMeasurement(set, i, key, {&value, 1}).ok());
      ++measured;
      ++per_set[set];
      if (i < 300) ++early;
    }
    const Plan plan = engine.MakePlan(options);
    int asked = 0;
    for (const PlanEntry& e : plan.entries) asked += e.quota;
    ASSERT_LE(measured + asked, options.budget);
    entries = plan.entries;
  }
  EXPECT_LE(measured, options.budget);
  EXPECT_GE(measured, options.budget - 8);
  EXPECT_GE(early, options.budget / 4);
  EXPECT_NEAR(per_set[4], per_set[9], 6);

  for (const auto& [set, truth] : std::map<uint32_t, double>{{4, bytes}, {9, instructions}}) {
    const auto p = engine.ProjectStatistic(set, 0, 0.999);
    ASSERT_TRUE(p.ok());
    const Estimate total = p->total ? *p->total : *p->so_far;
    EXPECT_NEAR(total.value / truth, 1, 0.01);
    EXPECT_TRUE(Covers(total, truth));
  }

  double weight = 0;
  int wanted = 0;
  for (const SeqPointInfo& point : engine.SeqPoints(options)) {
    EXPECT_THAT(run.keys, ::testing::Contains(point.key));
    EXPECT_LE(point.measured, point.wanted);
    EXPECT_GE(point.measured, kind == 0 ? 0 : 1);  // where the end is known, the run has ended
    EXPECT_EQ(point.measured_by_set.size(), options.sets.size());
    EXPECT_EQ(std::accumulate(point.measured_by_set.begin(), point.measured_by_set.end(), 0),
              point.measured);
    weight += point.weight;
    wanted += point.wanted;
  }
  EXPECT_NEAR(weight, 3000, 1e-6);
  EXPECT_LE(wanted, options.budget);
}

INSTANTIATE_TEST_SUITE_P(Runs, PlanRunTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Range(0, 4)));

// Sums over several batches hardly ever repeat; where that costs nothing they are like any other.
// The run goes on and changes, and the list stays what was measured.
TEST(PlanTest, WhatWasMeasuredStaysOnceTheBudgetIsSpent) {
  for (const bool known : {false, true}) {
    Epoch run = MakeEpoch(9, 4000);
    for (size_t i = 1500; i < run.keys.size(); ++i) run.keys[i].first += 30;
    OnlineEngine engine;
    ASSERT_TRUE(
        engine.SetHorizon(known ? Horizon::Histogram(run.Histogram()) : Horizon::Iterations(4000))
            .ok());
    const PlanOptions options{.budget = 24, .sets = {1, 2}};
    std::vector<Key> chosen;
    size_t spent_at = 0;
    for (size_t i = 0; i < run.keys.size(); ++i) {
      const Plan plan = engine.MakePlan(options);
      uint32_t set = 0;
      for (const PlanEntry& e : plan.entries) {
        if (e.low <= run.keys[i] && run.keys[i] <= e.high) set = e.set;
      }
      engine.AddIteration({.iteration = i,
                           .key = run.keys[i],
                           .time_ns = NormalTime(run.keys[i]),
                           .measured = set != 0});
      const double value = 1;
      if (set != 0) {
        ASSERT_TRUE(engine.AddMeasurement(set, i, run.keys[i], {&value, 1}).ok());
      }
      if (engine.MakePlan(options).measured < options.budget) continue;
      double weight = 0;
      int wanted = 0;
      std::vector<Key> keys;
      for (const SeqPointInfo& point : engine.SeqPoints(options)) {
        keys.push_back(point.key);
        EXPECT_GT(point.measured, 0);
        weight += point.weight;
        wanted += point.wanted;
      }
      if (spent_at == 0) {
        spent_at = i;
        chosen = keys;
      }
      ASSERT_EQ(keys, chosen) << i;
      EXPECT_NEAR(weight, 4000, 1e-6);
      EXPECT_EQ(wanted, engine.MakePlan(options).wanted);
    }
    EXPECT_GT(spent_at, 0u);
    EXPECT_LT(spent_at, 3500u);
  }
}

TEST(PlanTest, WhereFirstOccurrencesCostNothingTheyAreMeasured) {
  Epoch run;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 400; ++i) {
    const Key key = {std::llround(12'000 + 1000 * normal(random)),
                     std::llround(12'000 + 1000 * normal(random))};
    run.keys.push_back(key);
    run.times_ns.push_back(
        std::llround(static_cast<double>(NormalTime(key)) * std::exp(0.003 * normal(random))));
  }
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Distribution(run.Histogram())).ok());
  double truth = 0;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    const Key& key = run.keys[i];
    truth += Counters::Bytes(key);
    bool measured = false;
    for (const PlanEntry& e : engine.MakePlan({}).entries) {
      measured |= e.quota > 0 && e.low.first <= key.first && key.first <= e.high.first &&
                  e.low.second <= key.second && key.second <= e.high.second;
    }
    engine.AddIteration(
        {.iteration = i, .key = key, .time_ns = run.times_ns[i], .measured = measured});
    if (!measured) continue;
    const double value = Counters::Bytes(key);
    EXPECT_TRUE(engine.AddMeasurement(0, i, key, {&value, 1}).ok());
  }
  EXPECT_GE(engine.Totals().measurements_used, 48u);
  EXPECT_GT(engine.Explained().explained, 0.95);
  const auto p = engine.ProjectStatistic(0, 0, 0.999);
  ASSERT_TRUE(p.ok());
  EXPECT_NEAR(p->total->value / truth, 1, 0.005);
  EXPECT_TRUE(Covers(*p->total, truth));
}

TEST(PlanTest, KeepsAReserveWhileTheRestIsUnknown) {
  const Epoch run = MakeEpoch(30, 300);
  OnlineEngine engine;
  Feed(engine, run, 0, 300);
  int asked = 0;
  for (const PlanEntry& e : engine.MakePlan({}).entries) asked += e.quota;
  EXPECT_LE(asked, 56);
  EXPECT_GE(asked, 32);
}

// Sorted by length, each length is met once and soon gone: neither is all spent on the first ones,
// nor are the later ones missed while their turn lasts.
TEST(PlanTest, KnownLengthsInOrderAreMeasuredAllTheWay) {
  for (const bool two_dimensional : {false, true}) {
    Epoch run = MakeEpoch(35, 1600, two_dimensional);
    std::stable_sort(run.keys.begin(), run.keys.end(), [](const Key& a, const Key& b) {
      return a.first + a.second < b.first + b.second;
    });
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
    std::set<int64_t> seen[2];
    std::vector<PlanEntry> entries;
    double truth = 0, done = 0, whole = 0;
    int measured = 0;
    for (const Key& key : run.keys) whole += static_cast<double>(NormalTime(key));
    for (size_t i = 0; i < run.keys.size(); ++i) {
      const Key& key = run.keys[i];
      truth += Counters::Bytes(key);
      done += static_cast<double>(NormalTime(key)) / whole;
      const bool new_first = seen[0].insert(key.first).second;
      const bool new_second = seen[1].insert(key.second).second;
      const bool first = new_first || new_second;
      bool measure = false;
      for (PlanEntry& e : entries) {
        measure = e.quota > 0 && e.low.first <= key.first && key.first <= e.high.first &&
                  e.low.second <= key.second && key.second <= e.high.second;
        if (!measure) continue;
        --e.quota;
        break;
      }
      engine.AddIteration({.iteration = i,
                           .key = key,
                           .time_ns = NormalTime(key) + (first ? 9'000'000 : 0) +
                                      1000 * static_cast<int64_t>(i % 17),
                           .measured = measure});
      if (measure) {
        ++measured;
        const double value = Counters::Bytes(key) * (0.999 + 0.001 * static_cast<double>(i % 3));
        EXPECT_TRUE(engine.AddMeasurement(0, i, key, {&value, 1}).ok());
      }
      if (i % 8 == 0 || measure) entries = engine.MakePlan({}).entries;
      if (done > 0.2) {
        EXPECT_GE(measured, 64 * (done - 0.2)) << i;
        EXPECT_LE(measured, 64 * (done + 0.25)) << i;
      }
    }
    EXPECT_GE(measured, 52);
    EXPECT_LE(measured, 64);
    const auto p = engine.ProjectStatistic(0, 0, 0.999, StatisticKind::kAmount);
    ASSERT_TRUE(p.ok());
    EXPECT_NEAR(p->total->value / truth, 1, 0.004);
    EXPECT_TRUE(Covers(*p->total, truth));
  }
}

TEST(PlanTest, WhatIsInFlightCounts) {
  const Epoch run = MakeEpoch(31, 4000);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  Feed(engine, run, 0, 500);
  const auto asked = [&](int in_flight) {
    int sum = 0;
    for (const PlanEntry& e : engine.MakePlan({.in_flight = in_flight}).entries) sum += e.quota;
    return sum;
  };
  EXPECT_EQ(asked(0), 64);
  EXPECT_EQ(asked(60), 4);
  EXPECT_EQ(asked(64), 0);
  EXPECT_EQ(asked(100), 0);
}

TEST(PlanTest, ATargetErrorAsksForNoMoreThanItNeeds) {
  const Epoch run = MakeEpoch(32, 2000);
  OnlineEngine engine;
  Feed(engine, run, 0, 2000);
  const Plan strict = engine.MakePlan({.target_error = 1e-6});
  const Plan loose = engine.MakePlan({.target_error = 0.05});
  EXPECT_EQ(strict.wanted, 64);
  EXPECT_LT(loose.wanted, 16);
  EXPECT_GE(loose.wanted, 1);
}

TEST(PlanTest, LimitsAndEmptySets) {
  const Epoch run = MakeEpoch(33, 500, /*two_dimensional=*/true);
  OnlineEngine engine;
  Feed(engine, run, 0, 500);
  EXPECT_LE(engine.MakePlan({.max_entries = 3}).entries.size(), 3u);
  EXPECT_THAT(engine.MakePlan({.sets = {}}).entries, IsEmpty());
  EXPECT_THAT(engine.MakePlan({.budget = 0}).entries, IsEmpty());
  int asked = 0;
  for (const PlanEntry& e : engine.MakePlan({.budget = 2, .sets = {1, 2, 3, 4, 5}}).entries) {
    asked += e.quota;
  }
  EXPECT_LE(asked, 2);
}

TEST(PlanTest, OneIterationInTwoSetsIsOneMeasurement) {
  const Epoch run = MakeEpoch(34, 500);
  OnlineEngine engine;
  Feed(engine, run, 0, 500);
  const double values[] = {1, 2};
  ASSERT_TRUE(engine.AddMeasurement(1, 400, run.keys[400], values).ok());
  ASSERT_TRUE(engine.AddMeasurement(2, 400, run.keys[400], values).ok());
  EXPECT_EQ(engine.MakePlan({}).measured, 1);
}

// -------------------------------------------------------------------------------- statistics

// Every length occurs once, and some of these iterations are slow: nothing else tells what slow is.
TEST(ProjectStatisticTest, SlowIterationsOfLengthsOfTheirOwnLeaveANumber) {
  OnlineEngine engine;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (uint64_t i = 0; i < 300; ++i) {
    const Key key = {static_cast<int64_t>(3'000 + i), 0};
    IterationSample sample{.iteration = i, .key = key};
    sample.time_ns = std::llround(7e6 * std::exp(0.003 * normal(random)));
    if (i % 90 == 40) sample.time_ns += 2'000'000;
    engine.AddIteration(sample);
    if (i % 12 == 5)
      engine.AddMeasurement(0, i, key, {7e6}).IgnoreError();  // the first are refused
  }
  const auto p = engine.ProjectStatistic(0, 0, 0.95, StatisticKind::kTimeLike);
  ASSERT_TRUE(p.ok()) << p.status();
  EXPECT_NEAR(p->so_far->value / (300 * 7e6), 1, 0.03);
}

TEST(ProjectStatisticTest, IntervalsShrinkWithMeasurements) {
  const Epoch run = MakeEpoch(40, 2000, /*two_dimensional=*/true);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  Feed(engine, run, 0, 2000);
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  double truth = 0;
  for (const Key& key : run.keys) truth += Counters::Bytes(key);
  double width = INFINITY;
  size_t at = 1000;
  for (size_t m : {3, 12, 64}) {
    for (; at < 1000 + m; ++at) {
      const double value = Counters::Bytes(run.keys[at]) * (1 + 0.01 * normal(random));
      ASSERT_TRUE(engine.AddMeasurement(3, at, run.keys[at], {&value, 1}).ok());
    }
    const auto p = engine.ProjectStatistic(3, 0, 0.95);
    ASSERT_TRUE(p.ok());
    EXPECT_LT(p->total->high - p->total->low, width) << m;
    EXPECT_TRUE(Covers(*p->total, truth)) << m;
    width = p->total->high - p->total->low;
  }
  EXPECT_LT(width, 0.02 * truth);
}

// One iteration in a hundred is slow, and busy cycles grow with its time; bytes do not.
TEST(ProjectStatisticTest, SlowIterationsWidenWhatTheyMayRaise) {
  for (const bool measure_slow : {false, true}) {
    Epoch run = MakeEpoch(42, 3000, /*two_dimensional=*/true);
    std::mt19937 random(3);
    double cycles = 0, bytes = 0;
    std::vector<bool> slow;
    for (size_t i = 0; i < run.keys.size(); ++i) {
      slow.push_back(random() % 100 == 0);
      if (slow[i]) run.times_ns[i] += run.times_ns[i] * 3 / 10;
      cycles += static_cast<double>(NormalTime(run.keys[i])) * (slow[i] ? 1.3 : 1);
      bytes += Counters::Bytes(run.keys[i]);
    }
    OnlineEngine engine;
    ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
    int measured = 0, slow_measured = 0;
    for (size_t i = 0; i < run.keys.size(); ++i) {
      const bool wanted = measure_slow && slow[i] ? slow_measured < 1 : !slow[i] && i % 40 == 11;
      const bool measure = i >= 300 && measured < 64 && wanted;
      engine.AddIteration(
          {.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i], .measured = measure});
      if (!measure) continue;
      ++measured;
      slow_measured += slow[i];
      const double values[] = {static_cast<double>(NormalTime(run.keys[i])) * (slow[i] ? 1.3 : 1),
                               Counters::Bytes(run.keys[i])};
      ASSERT_TRUE(engine.AddMeasurement(0, i, run.keys[i], values).ok());
    }
    ASSERT_EQ(slow_measured, measure_slow ? 1 : 0);
    const auto p = engine.ProjectStatistic(0, 0, 0.999);
    ASSERT_TRUE(p.ok());
    EXPECT_TRUE(Covers(*p->total, cycles)) << measure_slow;
    EXPECT_NEAR(p->total->value / cycles, 1, 0.0015);
    EXPECT_LT(p->total->high - p->total->low, 0.02 * cycles);
    EXPECT_THAT(p->basis, HasSubstr("are counted in"));
    const auto q = engine.ProjectStatistic(0, 1, 0.999, StatisticKind::kAmount);
    EXPECT_NEAR(q->total->value / bytes, 1, 0.001);
    EXPECT_TRUE(Covers(*q->total, bytes));
    EXPECT_THAT(q->basis, HasSubstr("do not raise it"));
  }
}

// Times grow by 3 % in the second half; all is measured in the first. Cycles grow with the times.
TEST(ProjectStatisticTest, WhatFollowsTimeFollowsItsDrift) {
  Epoch run = MakeEpoch(43, 3000);
  double cycles = 0, bytes = 0;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    if (i >= 1500) run.times_ns[i] += run.times_ns[i] * 3 / 100;
    cycles += static_cast<double>(NormalTime(run.keys[i])) * (i < 1500 ? 1 : 1.03);
    bytes += Counters::Bytes(run.keys[i]);
  }
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  for (size_t i = 0; i < run.keys.size(); ++i) {
    const bool measure = i >= 200 && i < 1400 && i % 20 == 11;
    engine.AddIteration(
        {.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i], .measured = measure});
    if (!measure) continue;
    const double values[] = {static_cast<double>(NormalTime(run.keys[i])),
                             Counters::Bytes(run.keys[i])};
    ASSERT_TRUE(engine.AddMeasurement(0, i, run.keys[i], values).ok());
  }
  const auto p = engine.ProjectStatistic(0, 0, 0.999);
  EXPECT_NEAR(p->total->value / cycles, 1, 0.006);
  EXPECT_TRUE(Covers(*p->total, cycles));
  // By how much it follows was never measured: no level had changed yet.
  EXPECT_LT(p->total->high - p->total->low, 0.16 * cycles);
  const auto q = engine.ProjectStatistic(0, 1, 0.999, StatisticKind::kAmount);
  EXPECT_NEAR(q->total->value / bytes, 1, 0.006);
  EXPECT_TRUE(Covers(*q->total, bytes));
}

// Slow iterations and drift are no more instructions, even where these are proportional to time.
TEST(ProjectStatisticTest, AnAmountDoesNotFollowTime) {
  Epoch run = MakeEpoch(14, 3000);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  double truth = 0;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    const double amount = static_cast<double>(NormalTime(run.keys[i]));
    truth += amount;
    int64_t time = run.times_ns[i] + run.times_ns[i] / 50 * static_cast<int64_t>(i) / 3000;
    if (i % 50 == 25) time += time / 3;
    engine.AddIteration({.iteration = i, .key = run.keys[i], .time_ns = time});
    if (i > 100 && i % 40 == 0) {
      ASSERT_TRUE(engine.AddMeasurement(1, i, run.keys[i], {&amount, 1}).ok());
    }
  }
  const auto marked = engine.ProjectStatistic(1, 0, 0.999, StatisticKind::kAmount);
  const auto unmarked = engine.ProjectStatistic(1, 0, 0.999);
  ASSERT_TRUE(marked.ok() && unmarked.ok());
  EXPECT_NEAR(marked->total->value / truth, 1, 2e-4);
  EXPECT_TRUE(Covers(*marked->total, truth));
  EXPECT_GT(unmarked->total->value / truth, 1.001);
  EXPECT_LT(marked->total->high - marked->total->low, unmarked->total->high - unmarked->total->low);
}

TEST(ProjectStatisticTest, VectorsMayGrow) {
  const Epoch run = MakeEpoch(41, 600);
  OnlineEngine engine;
  Feed(engine, run, 0, 600);
  const std::vector<double> two = {5, 7};
  for (size_t i = 500; i < 510; ++i) {
    ASSERT_TRUE(engine.AddMeasurement(0, i, run.keys[i], {two.data(), i < 505 ? 1u : 2u}).ok());
  }
  EXPECT_TRUE(engine.ProjectStatistic(0, 1, 0.95).ok());
  EXPECT_EQ(engine.ProjectStatistic(0, 2, 0.95).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(engine.ProjectStatistic(0, -1, 0.95).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_NEAR(engine.ProjectStatistic(0, 0, 0.95)->so_far->value / (5 * 600), 1, 0.2);
}

TEST(ProjectStatisticTest, FirstOccurrencesAreNotMeasurements) {
  OnlineEngine engine;
  const double one = 1;
  engine.AddIteration({.iteration = 0, .key = {5, 6}, .time_ns = 100});
  engine.AddIteration({.iteration = 1, .key = {5, 7}, .time_ns = 100});
  engine.AddIteration({.iteration = 2, .key = {5, 7}, .time_ns = 100});
  EXPECT_EQ(engine.AddMeasurement(0, 0, {5, 6}, {&one, 1}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine.AddMeasurement(0, 1, {5, 7}, {&one, 1}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(engine.AddMeasurement(0, 2, {5, 7}, {&one, 1}).ok());
  EXPECT_EQ(engine.Totals().measurements_used, 1u);
  EXPECT_EQ(engine.Totals().measurements_refused, 2u);
}

TEST(RatioOfTest, WidensWithBoth) {
  const auto ratio = RatioOf({50, 49, 51}, {100, 96, 104});
  ASSERT_TRUE(ratio.has_value());
  EXPECT_DOUBLE_EQ(ratio->value, 0.5);
  EXPECT_NEAR(ratio->high, 0.5 + std::hypot(0.01, 0.02), 1e-12);
  EXPECT_FALSE(RatioOf({50, 49, 51}, {1, -1, 3}).has_value());
}

// -------------------------------------------------------------------------------- the state

OnlineEngine BusyEngine(int iterations, bool two_dimensional) {
  Epoch run = MakeEpoch(50, iterations, two_dimensional);
  for (size_t i = 100; i < run.times_ns.size(); i += 97) run.times_ns[i] *= 9;
  for (size_t i = 0; i < run.times_ns.size(); ++i) {
    if (run.keys[i].first == 30) run.times_ns[i] *= 2;  // lengths that the curve misses
  }
  OnlineEngine engine;
  EXPECT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram(), 2)).ok());
  Feed(engine, run, 0, run.keys.size());
  for (const IterationSample& sample : SumsRun(1, true).iterations) {
    if (sample.iteration % 100 != 99) continue;
    IterationSample more = sample;
    more.iteration += 50'000;
    engine.AddIteration(more);
  }
  const double values[] = {1e9, 3};
  for (size_t i = run.keys.size() / 2; i < run.keys.size(); i += 50) {
    engine.AddMeasurement(i % 2, i, run.keys[i], values).IgnoreError();
  }
  return engine;
}

class StateRunTest : public ::testing::TestWithParam<int> {};

TEST_P(StateRunTest, AParsedEngineGivesTheSameAnswers) {
  OnlineEngine engine = BusyEngine(GetParam(), GetParam() % 2 == 0);
  const PlanOptions options{.sets = {0, 1}};
  engine.MakePlan(options);
  auto parsed = OnlineEngine::Parse(engine.Serialize());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Serialize(), engine.Serialize());

  // And goes on alike.
  const Epoch more = MakeEpoch(51, 700, GetParam() % 2 == 0);
  for (OnlineEngine* e : {&engine, &*parsed}) {
    for (size_t i = 0; i < more.keys.size(); ++i) {
      e->AddIteration({.iteration = 100'000 + i, .key = more.keys[i], .time_ns = more.times_ns[i]});
    }
  }
  const Projection a = engine.ProjectTime(0.95), b = parsed->ProjectTime(0.95);
  EXPECT_TRUE(Equal(*a.so_far, *b.so_far));
  EXPECT_TRUE(Equal(a.remaining, b.remaining));
  EXPECT_EQ(a.basis, b.basis);
  const Plan plan_a = engine.MakePlan(options), plan_b = parsed->MakePlan(options);
  ASSERT_EQ(plan_a.entries.size(), plan_b.entries.size());
  for (size_t i = 0; i < plan_a.entries.size(); ++i) {
    EXPECT_EQ(plan_a.entries[i].id, plan_b.entries[i].id);
  }
  if (engine.Totals().measurements_used > 0) {
    const auto x = engine.ProjectStatistic(0, 1, 0.9), y = parsed->ProjectStatistic(0, 1, 0.9);
    ASSERT_EQ(x.ok(), y.ok());
    EXPECT_TRUE(x.ok() && Equal(*x->total, *y->total));
  }
  EXPECT_EQ(parsed->Serialize(), engine.Serialize());
}

INSTANTIATE_TEST_SUITE_P(Iterations, StateRunTest, ::testing::Values(0, 1, 20, 101, 1000, 5001));

TEST(StateTest, TruncatedAndExtended) {
  const std::string bytes = BusyEngine(300, true).Serialize();
  for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 500) {
    EXPECT_FALSE(OnlineEngine::Parse(std::string_view(bytes).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(OnlineEngine::Parse(bytes + "x").ok());
  EXPECT_FALSE(OnlineEngine::Parse("nonsense").ok());
}

// Whatever the bytes are: refused, or an engine that answers.
TEST(StateTest, HostileBytes) {
  OnlineEngine busy = BusyEngine(400, true);
  busy.MakePlan({.sets = {0, 1}});
  const std::string bytes = busy.Serialize();
  std::mt19937_64 random(1);
  int accepted = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    std::string damaged = bytes;
    for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      const size_t at = 8 * (1 + random() % (bytes.size() / 8 - 1));
      uint64_t word = random() >> (random() % 64);
      if (random() % 4 == 0) word = uint64_t{1} << (random() % 64);
      memcpy(&damaged[at], &word, sizeof(word));
    }
    auto engine = OnlineEngine::Parse(damaged);
    if (!engine.ok()) continue;
    ++accepted;
    engine->AddIteration({.iteration = 1, .key = {12, 13}, .time_ns = 1000});
    if (trial % 5 != 0) continue;
    engine->ProjectTime(0.95);
    engine->ProjectStatistic(0, 0, 0.95).IgnoreError();
    engine->MakePlan({.sets = {0, 1}});
    engine->SeqPoints({.sets = {0, 1}});
  }
  EXPECT_GT(accepted, 0);
}

// A run with everything that changes an engine, some of it refused.
class LoggedRun {
 public:
  void Step(OnlineEngine& engine) {
    const int64_t length = 1 + static_cast<int64_t>(random_() % 50);
    const Key key = {length, random_() % 8 == 0 ? 3 : 0};
    const bool slow = random_() % 100 == 0;
    IterationSample sample{.iteration = iteration_,
                           .key = key,
                           .time_ns = static_cast<int64_t>(
                               (1e6 + 1e5 * static_cast<double>(length)) * (slow           ? 9
                                                                            : length == 20 ? 2
                                                                                           : 1) +
                               static_cast<double>(random_() % 20'000)),
                           .distorted = random_() % 40 == 0,
                           .measured = random_() % 30 == 0,
                           .redone = random_() % 60 == 0,
                           .first = random_() % 50 == 0,
                           .combined = random_() % 70 == 0};
    for (uint64_t i = random_() % 5; sample.combined && i > 0; --i) {
      sample.parts.push_back({{length - static_cast<int64_t>(random_() % 9), 3},
                              static_cast<Part::Kind>(random_() % 3)});
    }
    if (random_() % 90 == 0) sample.phase = Phase::kOther;
    if (random_() % 80 == 0) sample.time_ns = -5;
    if (random_() % 80 == 0) sample.key.first = -length;
    engine.AddIteration(sample);
    if (sample.measured) {
      std::vector<double> values(1 + random_() % 4, 1e3 * static_cast<double>(length));
      if (random_() % 5 == 0) values[0] = NAN;
      if (random_() % 9 == 0) values.resize(kMaxValues + 7);
      engine.AddMeasurement(1 + random_() % 2, iteration_, sample.key, values).IgnoreError();
    }
    if (random_() % 100 == 0) {
      std::vector<KeyCount> histogram;
      for (int64_t k = 50; k >= 1; --k) histogram.push_back({{k}, 1 + k % 7});
      engine.SetHorizon(Horizon::Distribution(histogram, 20)).IgnoreError();
      engine.SetHorizon(Horizon::Iterations(-1)).IgnoreError();
    }
    if (random_() % 10 == 0) engine.MakePlan({.budget = 16, .sets = {1, 2}});
    ++iteration_;
  }

 private:
  std::mt19937 random_{5};
  uint64_t iteration_ = 0;
};

TEST(OnlineEngine, ItsStateAndTheLogSinceAreTheSameEngine) {
  OnlineEngine engine;
  engine.KeepLog();
  LoggedRun run;
  std::string base = engine.Serialize(), log;
  for (int i = 0; i < 3000; ++i) {
    run.Step(engine);
    if (i % 7 == 0) log += engine.TakeLog();
    if (i % 500 == 250) {
      engine.TakeLog();  // is in the base
      base = engine.Serialize();
      log.clear();
    }
    if (i % 100 != 99) continue;
    log += engine.TakeLog();
    absl::StatusOr<OnlineEngine> copy = OnlineEngine::Parse(base);
    ASSERT_TRUE(copy.ok());
    ASSERT_TRUE(copy->Replay(log).ok());
    ASSERT_EQ(copy->Serialize(), engine.Serialize()) << i;
    if (i % 200 == 99) {  // a restart
      engine = *std::move(copy);
      engine.KeepLog();
    }
  }
  EXPECT_EQ(engine.TakeLog(), "");
  // Of all that, with a length that the curve misses.
  EXPECT_NEAR(OrdinaryTime(engine, {20}), 6e6, 1e5);
}

TEST(OnlineEngine, ADamagedLogIsRefused) {
  OnlineEngine engine;
  engine.KeepLog();
  LoggedRun run;
  for (int i = 0; i < 300; ++i) run.Step(engine);
  const std::string log = engine.TakeLog();
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string damaged = log.substr(0, random() % log.size());
    for (int k = 0; k < 3 && !damaged.empty(); ++k) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    OnlineEngine other;
    refused += !other.Replay(damaged).ok();
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace seqpoint
