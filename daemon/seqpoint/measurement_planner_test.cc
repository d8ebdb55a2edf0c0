#include "daemon/seqpoint/measurement_planner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_runs.h"
#include "tests/support/estimates.h"

namespace seqpoint {
namespace {

using ::testing::IsEmpty;

// Hardly anything else could be measured early in a run.
TEST(PlanTest, SumsThatHoldFirstOccurrencesAreMeasured) {
  const SumsRun run(3);
  OnlineEngine engine;
  run.ErrorAt(200, true, engine);
  EXPECT_GT(engine.Totals().cold_iterations, 20u);
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_TRUE(engine.AddMeasurement(0, i, run.iterations[i].key, {1.0}).ok()) << i;
  }
}

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

// Eight ranks measure at a time: each of them something else.
TEST(PlanTest, WhatWasStartedIsNotAskedForAgain) {
  const Epoch run = MakeEpoch(31, 4000);
  OnlineEngine engine;
  ASSERT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram())).ok());
  Feed(engine, run, 0, 500);
  PlanOptions options = {.budget = 8, .sets = {3, 4}};
  const auto asked = [&] {
    std::map<std::pair<uint32_t, Key>, int> quotas;
    for (const PlanEntry& e : engine.MakePlan(options).entries) quotas[{e.set, e.low}] += e.quota;
    return quotas;
  };
  const auto all = asked();
  ASSERT_GT(all.size(), 4u);
  for (const auto& [what, quota] : all) {
    options.started.push_back({what.first, what.second});
    ++options.in_flight;
    auto left = all;
    for (const StartedMeasurement& started : options.started) {
      if (--left[{started.set, started.key}] == 0) left.erase({started.set, started.key});
    }
    EXPECT_EQ(asked(), left) << options.in_flight << " started";
  }
}

// Eight ranks with the same lengths have eight iterations of each step, and know no more lengths
// than one. What one rank would not ask for yet, they do not either, but for the first of each
// kind.
TEST(PlanTest, RanksWithTheSameLengthsKeepTheirBudgetForLengthsToCome) {
  OnlineEngine engine;
  for (uint64_t i = 0; i < 160; ++i) {
    const int64_t length = 10 * static_cast<int64_t>(1 + i / 8 % 3);
    engine.AddIteration({.iteration = i,
                         .key = {length, 0},
                         .time_ns = 1000 * length + static_cast<int64_t>(i % 8)});
  }
  const auto asked = [&](int iterations_per_draw) {
    std::map<std::pair<uint32_t, Key>, int> quotas;
    const PlanOptions options = {.iterations_per_draw = iterations_per_draw,
                                 .sets = {1, 2, 3, 4, 5, 6, 7, 8}};
    for (const PlanEntry& e : engine.MakePlan(options).entries) quotas[{e.set, e.low}] += e.quota;
    return quotas;
  };
  int all = 0;
  for (const auto& [what, quota] : asked(1)) all += quota;
  EXPECT_GT(all, 24);
  const auto alike = asked(8);
  EXPECT_EQ(alike.size(), 24u) << "each set of each length";
  for (const auto& [what, quota] : alike) EXPECT_EQ(quota, 1);
}

// Two lengths for long: no set spends all on them, so that each one measures a third one, too.
TEST(PlanTest, EachSetKeepsAMeasurementForALengthToCome) {
  OnlineEngine engine;
  const PlanOptions options = {.iterations_per_draw = 8, .sets = {1, 2, 3, 4, 5, 6, 7, 8}};
  std::map<int64_t, std::set<uint32_t>> measured;  // sets by length
  uint64_t next = 0;
  const auto draw = [&](int64_t length) {
    std::vector<PlanEntry> entries = engine.MakePlan(options).entries;
    for (int rank = 0; rank < 8; ++rank, ++next) {
      engine.AddIteration({.iteration = next, .key = {length, 0}, .time_ns = 1000 * length + rank});
      for (PlanEntry& e : entries) {
        if (e.quota == 0 || length < e.low.first || length > e.high.first) continue;
        --e.quota;
        ASSERT_TRUE(engine.AddMeasurement(e.set, next, {length, 0}, {1.0}).ok());
        measured[length].insert(e.set);
        break;
      }
    }
  };
  for (int i = 0; i < 200; ++i) draw(10 * (1 + i % 2));
  for (int i = 0; i < 60; ++i) draw(i % 3 == 0 ? 30 : 10);
  for (const int64_t length : {10, 20, 30}) EXPECT_EQ(measured[length].size(), 8u) << length;
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

}  // namespace
}  // namespace seqpoint
