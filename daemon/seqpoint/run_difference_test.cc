#include "daemon/seqpoint/run_difference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>

namespace seqpoint {
namespace {

// The time of an iteration without noise, ns.
double Cost(int64_t length) {
  const auto x = static_cast<double>(length);
  return 1e6 + 8e4 * x + 300 * x * x;
}

struct Made {
  int iterations = 1500;
  double mean = 3.2, spread = 0.35;  // of the logarithm of lengths
  double scale = 1;                  // of the cost of an iteration
  double noise = 0.02;
  double stalls = 0.01;
  double stall = 2;  // what one takes on top, of an iteration
  double drift = 0;  // amplitude of a sine of two periods, of any phase
  double untimed = 0;
};

struct MadeRun {
  RunToCompare run;
  double truth = 0;     // of all times, those that are not usable too
  double expected = 0;  // mean cost of one, without noise
};

MadeRun Make(const Made& made, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> lengths(made.mean, made.spread);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const double phase = 2 * M_PI * uniform(random);
  MadeRun run;
  for (int i = 0; i < made.iterations; ++i) {
    const Key key{std::clamp<int64_t>(std::llround(lengths(random)), 1, 200)};
    const double usual = made.scale * Cost(key.first);
    const double level = 1 + made.drift * std::sin(phase + 4 * M_PI * i / made.iterations);
    double time = usual * level * (1 + made.noise * normal(random));
    if (uniform(random) < made.stalls) time += made.stall * usual;
    run.truth += time;
    run.expected += usual / made.iterations;
    if (uniform(random) < made.untimed) {
      run.run.untimed.push_back(key);
    } else {
      run.run.log.keys.push_back(key);
      run.run.log.times.push_back(time);
    }
  }
  return run;
}

// The mean cost of one iteration with this distribution of lengths.
double MeanCost(Made made) {
  made.iterations = 200'000;
  return Make(made, 99).expected;
}

bool Holds(const Estimate& e, double truth) { return e.low <= truth && truth <= e.high; }
bool Proven(const Estimate& e) { return e.low > 0 || e.high < 0; }

double SumOf(const RunDifference& d) {
  return d.iterations.value + (d.lengths ? d.lengths->value : 0) + d.cost.value +
         (d.disturbances ? d.disturbances->value : 0);
}

TEST(CompareRunsTest, PartsAddUpToTheDifference) {
  const MadeRun a = Make({.untimed = 0.05}, 1);
  const MadeRun b = Make({.iterations = 1000, .mean = 3.4, .scale = 1.1, .untimed = 0.02}, 2);
  const RunDifference d = CompareRuns(a.run, b.run, {});
  ASSERT_EQ(d.not_known, "");
  ASSERT_EQ(d.not_comparable, "");
  EXPECT_NEAR(SumOf(d) / d.difference.value, 1, 1e-9);
  EXPECT_NEAR(d.other.value - d.base.value, d.difference.value, 1);
  // Those without a usable time have what their lengths take.
  EXPECT_TRUE(Holds(d.base, a.truth)) << d.base.low << " " << d.base.high << " " << a.truth;
  EXPECT_TRUE(Holds(d.other, b.truth));
}

// Batches that are padded to their longest example have few lengths, and none of the other run's.
TEST(CompareRunsTest, SlowIterationsDoNotBendTheCurveTowardsLengthsThatTheRunLacks) {
  const Made base = {
      .iterations = 2000, .mean = 4.74, .spread = 0.05, .noise = 0.003, .stall = 0.3};
  Made longer = base;
  longer.mean = 5.13;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const RunDifference d = CompareRuns(Make(base, seed).run, Make(longer, seed + 1000).run, {});
    ASSERT_EQ(d.not_comparable, "");
    EXPECT_NEAR(d.lengths->value / d.difference.value, 1, 0.05) << seed;
    EXPECT_TRUE(Holds(d.cost, 0)) << seed;
  }
}

TEST(CompareRunsTest, OneKnownChangeIsNamedWithItsShare) {
  struct Case {
    const char* name;
    Made other;
    Estimate (*cause)(const RunDifference&);
  };
  const Case cases[] = {
      {"cost", {.scale = 1.1}, [](const RunDifference& d) { return d.cost; }},
      {"a smaller cost", {.scale = 0.97}, [](const RunDifference& d) { return d.cost; }},
      {"number", {.iterations = 2000}, [](const RunDifference& d) { return d.iterations; }},
      {"lengths", {.mean = 3.35}, [](const RunDifference& d) { return *d.lengths; }},
  };
  const double base = MeanCost({});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const double truth = c.other.iterations * MeanCost(c.other) - 1500 * base;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      const RunDifference d = CompareRuns(Make({}, seed).run, Make(c.other, seed + 1000).run, {});
      ASSERT_EQ(d.not_comparable, "");
      const Estimate part = c.cause(d);
      EXPECT_TRUE(Proven(part)) << seed;
      // The lengths were drawn: of 1,500 the mean cost is off by 1 % or so.
      const double drawn = std::string(c.name) == "lengths" ? 0.3 : 0.05;
      EXPECT_NEAR(part.value / truth, 1, drawn) << seed;
      // Whatever else there is has no other proven cause as large.
      const double share = part.value / (d.difference.value - d.disturbances->value);
      if (std::string(c.name) == "lengths" || std::string(c.name) == "number") {
        EXPECT_NEAR(d.cost_ratio, 1, 0.01) << seed;
      }
      if (std::string(c.name) == "lengths") {
        EXPECT_NEAR(share, 1, 0.05) << seed;
      }
    }
  }
}

// Each interval of the cost at equal lengths holds what the true costs make of these lengths.
void ExpectCoverage(const Made& base, const Made& other, int seeds, double least) {
  int held = 0, lengths_held = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const MadeRun a = Make(base, 2 * seed + 1), b = Make(other, 2 * seed + 2);
    const RunDifference d = CompareRuns(a.run, b.run, {.confidence = 0.95});
    ASSERT_EQ(d.not_comparable, "") << seed;
    double truth = 0;
    for (const KeyWeight& at : d.at)
      truth += at.weight * (other.scale - base.scale) * Cost(at.key.first);
    held += Holds(d.cost, truth);
    const double n = (base.iterations + other.iterations) / 2.0;
    const double of_lengths =
        n * (base.scale + other.scale) / 2 * (b.expected / other.scale - a.expected / base.scale);
    lengths_held += Holds(*d.lengths, of_lengths);
  }
  EXPECT_GE(held, least * seeds);
  // Where the numbers of iterations are equal the symmetric split has this truth.
  if (base.iterations == other.iterations) {
    EXPECT_GE(lengths_held, least * seeds);
  }
}

TEST(CompareRunsTest, IntervalsHoldTheTruth) {
  ExpectCoverage({}, {.scale = 1.02}, 150, 0.93);
  ExpectCoverage({.mean = 3.1}, {.mean = 3.3, .scale = 1.05, .noise = 0.05}, 150, 0.93);
  ExpectCoverage({.iterations = 120, .stalls = 0}, {.iterations = 300, .scale = 1.1, .stalls = 0},
                 150, 0.93);
}

TEST(CompareRunsTest, IntervalsHoldTheTruthOfRunsThatDrift) {
  ExpectCoverage({.drift = 0.01}, {.scale = 1.02, .drift = 0.01}, 150, 0.93);
}

TEST(CompareRunsTest, NothingIsProvenOfRunsOfTheSameWork) {
  int cost = 0, lengths = 0;
  for (int seed = 0; seed < 200; ++seed) {
    const RunDifference d = CompareRuns(Make({}, 2 * seed + 1).run, Make({}, 2 * seed + 2).run, {});
    cost += Proven(d.cost);
    lengths += Proven(*d.lengths);
    EXPECT_EQ(d.iterations.value, 0);
  }
  EXPECT_LE(cost, 14);  // 5 % of 200 are 10
  // Lengths are facts: that these were drawn from one distribution is not asked.
  EXPECT_GT(lengths, 50);
}

TEST(CompareRunsTest, LengthsThatTheOtherRunLacksAreNotPricedByItsCurve) {
  const RunDifference apart = CompareRuns(Make({.mean = 2, .spread = 0.1}, 1).run,
                                          Make({.mean = 4, .spread = 0.1}, 2).run, {});
  EXPECT_NE(apart.not_comparable, "");
  EXPECT_FALSE(apart.lengths.has_value());
  EXPECT_TRUE(apart.at.empty());
  EXPECT_NEAR(SumOf(apart) / apart.difference.value, 1, 1e-9);
  EXPECT_GT(apart.base_alone, 0.9);
}

// Both intervals hold the truth where curves are asked for lengths beyond or between their own.
TEST(CompareRunsTest, WhatLiesBeyondARunsLengthsIsUncertain) {
  struct Case {
    Made base, other;
  };
  for (const Case& c :
       {Case{{.mean = 3, .spread = 0.15}, {.mean = 3.6, .spread = 0.15}},
        Case{{.mean = 3, .spread = 0.2}, {.mean = 3.2, .spread = 0.4, .scale = 1.1}},
        Case{{.mean = 3.6, .spread = 0.15}, {.mean = 3, .spread = 0.15}}}) {
    int known = 0, cost_held = 0, lengths_held = 0;
    for (int seed = 0; seed < 50; ++seed) {
      const MadeRun a = Make(c.base, 2 * seed + 1), b = Make(c.other, 2 * seed + 2);
      const RunDifference d = CompareRuns(a.run, b.run, {});
      if (!d.not_comparable.empty()) continue;
      ++known;
      double truth = 0;
      for (const KeyWeight& at : d.at) {
        truth += at.weight * (c.other.scale - c.base.scale) * Cost(at.key.first);
      }
      cost_held += Holds(d.cost, truth);
      const double usual = 1500 * (b.expected - a.expected);
      lengths_held += Holds(*d.lengths, usual - truth);
      EXPECT_GT(d.cost.high - d.cost.low, 0.01 * d.base.value);
    }
    EXPECT_GE(known, 45);
    EXPECT_GE(cost_held, 0.93 * known);
    EXPECT_GE(lengths_held, 0.93 * known);
  }
}

TEST(CompareRunsTest, FirstIterationsOfALengthAreNoDrift) {
  MadeRun a = Make({.stalls = 0}, 1), b = Make({.scale = 1.02, .stalls = 0}, 2);
  for (MadeRun* run : {&a, &b}) {
    std::set<int64_t> seen;
    double& excess = run->truth;
    excess = 0;
    for (size_t i = 0; i < run->run.log.size(); ++i) {
      if (!seen.insert(run->run.log.keys[i].first).second || seen.size() % 3 != 0) continue;
      excess += 0.3 * run->run.log.times[i];
      run->run.log.times[i] *= 1.3;
    }
  }
  const RunDifference d = CompareRuns(a.run, b.run, {});
  EXPECT_NEAR(d.cost_ratio, 1.02, 0.003);
  EXPECT_TRUE(Proven(d.cost)) << d.cost.low;
  EXPECT_NEAR(d.disturbances->value, b.truth - a.truth, 0.15 * a.truth);
}

TEST(CompareRunsTest, AnEndThatIsNotKnownWidensWhatRestsOnIt) {
  MadeRun a = Make({}, 1), b = Make({}, 2);
  const RunDifference closed = CompareRuns(a.run, b.run, {});
  a.run.rest = 5e6;
  b.run.rest = 3e6;
  const RunDifference open = CompareRuns(a.run, b.run, {});
  EXPECT_NEAR(open.base.high - closed.base.high, 5e6, 1);
  EXPECT_NEAR(closed.difference.low - open.difference.low, 5e6, 1);
  EXPECT_NEAR(open.difference.high - closed.difference.high, 3e6, 1);
  EXPECT_NEAR(open.disturbances->high - open.disturbances->low, 8e6, 1);
  EXPECT_EQ(open.difference.value, closed.difference.value);
  const CompareRunsOptions apart = {.incomparable = "bytes and tokens"};
  EXPECT_NEAR(CompareRuns(a.run, b.run, apart).cost.high -
                  CompareRuns(Make({}, 1).run, Make({}, 2).run, apart).cost.high,
              3e6, 1);
}

TEST(CompareRunsTest, LengthsThatMeanOtherThingsAreNotLaidSideBySide) {
  const RunDifference d = CompareRuns(Make({}, 1).run, Make({.scale = 1.1}, 2).run,
                                      {.incomparable = "bytes and tokens"});
  EXPECT_EQ(d.not_comparable, "bytes and tokens");
  EXPECT_FALSE(d.lengths.has_value());
  EXPECT_FALSE(d.disturbances.has_value());  // these have stalls, which lengths would tell
  EXPECT_NEAR(SumOf(d) / d.difference.value, 1, 1e-9);
}

TEST(CompareRunsTest, WithoutTimesNothingIsKnown) {
  MadeRun none = Make({.untimed = 1}, 1);
  EXPECT_NE(CompareRuns(none.run, Make({}, 2).run, {}).not_known, "");
  EXPECT_NE(CompareRuns(Make({}, 2).run, RunToCompare{}, {}).not_known, "");
}

TEST(CompareRunsTest, OneLengthNeedsNoCurve) {
  const Made fixed = {.spread = 0}, slower = {.spread = 0, .scale = 1.05};
  const RunDifference d = CompareRuns(Make(fixed, 1).run, Make(slower, 2).run, {});
  EXPECT_EQ(d.not_comparable, "");
  EXPECT_NEAR(d.lengths->value, 0, 1);
  EXPECT_NEAR(d.cost_ratio, 1.05, 0.005);
  EXPECT_TRUE(Proven(d.cost));
}

TEST(CompareRunsTest, IterationsWithoutALengthAreInTheTotal) {
  MadeRun a = Make({}, 1);
  a.run.unkeyed = 3;
  a.run.unkeyed_time = 1e9;
  const RunDifference d = CompareRuns(a.run, Make({}, 2).run, {});
  EXPECT_NEAR(d.base.value, a.truth + 1e9, 1);
  EXPECT_NEAR(SumOf(d) / d.difference.value, 1, 1e-6);
}

TEST(DifferenceOfTest, ErrorsOfIndependentEstimatesAddUpInSquares) {
  const Estimate d = DifferenceOf({10, 7, 14}, {4, 1, 8});
  EXPECT_EQ(d.value, 6);
  EXPECT_EQ(d.low, 6 - 5);
  EXPECT_EQ(d.high, 6 + 5);
}

}  // namespace
}  // namespace seqpoint
