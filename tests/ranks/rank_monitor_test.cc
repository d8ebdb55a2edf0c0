// What RankMonitor says about jobs whose truth is known.
#include "daemon/ranks/rank_monitor.h"

#include <gtest/gtest.h>

#include <ostream>
#include <set>
#include <string>

#include "tests/ranks/monitored_job.h"

namespace seqpoint::ranks {
namespace {

JobConfig Config(Parallel parallel, bool own_lengths = false, int32_t ranks = 4) {
  JobConfig config;
  config.parallel = parallel;
  config.own_lengths = own_lengths;
  config.ranks = ranks;
  config.seed = 4711;
  return config;
}

// Ranks with an episode.
std::set<int32_t> Named(const Verdicts& verdicts) {
  std::set<int32_t> ranks;
  for (const RankVerdict& verdict : verdicts.ranks)
    if (verdict.episode_count > 0) ranks.insert(verdict.rank);
  return ranks;
}

struct Shape {
  friend void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

  std::string name;
  Parallel parallel;
  bool own_lengths;
};
class RankMonitorOf : public testing::TestWithParam<Shape> {};

TEST_P(RankMonitorOf, NamesTheSlowRankSoonAndSaysByHowMuch) {
  JobConfig config = Config(GetParam().parallel, GetParam().own_lengths);
  config.faults = {{.kind = FaultKind::kKernels, .rank = 2, .size = 0.2, .first = 200}};
  MonitoredJob job(config);
  job.Run(220);
  EXPECT_EQ(Named(job.verdicts()), std::set<int32_t>{2});
  job.Run(400);
  const RankVerdict& slow = job.rank(2);
  EXPECT_EQ(Named(job.verdicts()), std::set<int32_t>{2});
  EXPECT_EQ(slow.course, Course::kSlow);
  ASSERT_EQ(slow.episodes.size(), 1U);
  EXPECT_NEAR(static_cast<double>(slow.episodes[0].first), 200, 8);
  EXPECT_EQ(slow.episodes[0].last, -1);
  EXPECT_NEAR(slow.episodes[0].excess.value, 0.2, 0.05);
  EXPECT_EQ(job.rank(0).course, Course::kEven);
  EXPECT_TRUE(job.verdicts().links.empty());
}

TEST_P(RankMonitorOf, SaysNothingAboutEvenRanks) {
  MonitoredJob job(Config(GetParam().parallel, GetParam().own_lengths));
  job.Run(1500);
  EXPECT_EQ(job.named(), 0);
  for (const RankVerdict& verdict : job.verdicts().ranks)
    EXPECT_EQ(verdict.course, Course::kEven) << verdict.rank;
  EXPECT_EQ(job.verdicts().imbalance.found, GetParam().own_lengths);
  EXPECT_FALSE(job.monitor().wants_every_iteration());
  EXPECT_LT(job.observed(), 1500 / 4);
}

INSTANTIATE_TEST_SUITE_P(Jobs, RankMonitorOf,
                         testing::Values(Shape{"Data", Parallel::kData, false},
                                         Shape{"DataOwnLengths", Parallel::kData, true},
                                         Shape{"Sharded", Parallel::kSharded, false},
                                         Shape{"ShardedOwnLengths", Parallel::kSharded, true},
                                         Shape{"Pipeline", Parallel::kPipeline, false},
                                         Shape{"Tensor", Parallel::kTensor, false}),
                         [](const auto& shape) { return shape.param.name; });

TEST(RankMonitor, ARankThatIsSlowFromTheStartIsNamedByItsPeers) {
  JobConfig config = Config(Parallel::kTensor);
  config.faults = {{.kind = FaultKind::kKernels, .rank = 0, .size = 0.1}};
  MonitoredJob job(config);
  job.Run(300);
  EXPECT_EQ(Named(job.verdicts()), std::set<int32_t>{0});
  const Episode& episode = job.rank(0).episodes.at(0);
  EXPECT_TRUE(episode.maybe_before);
  EXPECT_NEAR(episode.excess.value, 0.1, 0.02);
  EXPECT_EQ(episode.cost_doubt, Doubt::kNoBaseline);
}

TEST(RankMonitor, OfTwoRanksTheSlowOneIsNamed) {
  JobConfig config = Config(Parallel::kData, false, 2);
  config.faults = {{.kind = FaultKind::kHost, .rank = 1, .size = 0.1, .first = 150}};
  MonitoredJob job(config);
  job.Run(400);
  EXPECT_EQ(Named(job.verdicts()), std::set<int32_t>{1});
}

// Its gaps hold nothing of it: only the times of iterations that wait for it show it.
TEST(RankMonitor, AKernelThatCollectivesHideIsNamed) {
  JobConfig config = Config(Parallel::kSharded, /*own_lengths=*/true);
  config.faults = {{.kind = FaultKind::kOneKernel, .rank = 1, .size = 0.1, .first = 300}};
  MonitoredJob job(config);
  job.Run(500);
  EXPECT_EQ(Named(job.verdicts()), std::set<int32_t>{1});
}

// All stages meet a new length together.
TEST(RankMonitor, AStageIsNamedWhileLengthsAreNew) {
  JobConfig config = Config(Parallel::kPipeline);
  config.new_lengths = true;
  config.faults = {{.kind = FaultKind::kKernels, .rank = 1, .size = 0.2, .first = 100}};
  MonitoredJob job(config);
  job.Run(140);
  EXPECT_EQ(Named(job.verdicts()), std::set<int32_t>{1});
}

TEST(RankMonitor, OthersAreNotBlamedForTheirStallsWhileOneIsSlow) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    for (const bool own_lengths : {false, true}) {
      JobConfig config = Config(Parallel::kData, own_lengths, 2);
      config.seed = seed;
      config.stall_probability = 0.02;
      config.faults = {{.kind = FaultKind::kLoader, .rank = 0, .size = 0.1, .first = 300}};
      MonitoredJob job(config);
      job.Run(3000);
      EXPECT_EQ(Named(job.verdicts()), std::set<int32_t>{0}) << seed << own_lengths;
    }
  }
}

TEST(RankMonitor, AnEpisodeThatIsOverEnds) {
  JobConfig config = Config(Parallel::kSharded);
  config.faults = {{.kind = FaultKind::kLoader, .rank = 3, .size = 0.2, .first = 200, .last = 499}};
  MonitoredJob job(config);
  job.Run(700);
  const RankVerdict& verdict = job.rank(3);
  EXPECT_EQ(verdict.course, Course::kWasSlow);
  ASSERT_EQ(verdict.episodes.size(), 1U);
  EXPECT_NEAR(static_cast<double>(verdict.episodes[0].first), 200, 8);
  EXPECT_NEAR(static_cast<double>(verdict.episodes[0].last), 499, 8);
  EXPECT_FALSE(job.verdicts().rotating);
}

TEST(RankMonitor, RanksThatAreSlowInTurnAreNotCalledSlow) {
  JobConfig config = Config(Parallel::kTensor);
  for (int turn = 0; turn < 4; ++turn)
    config.faults.push_back({.kind = FaultKind::kKernels,
                             .rank = turn % 3,
                             .size = 0.2,
                             .first = 200 + 100 * turn,
                             .last = 299 + 100 * turn});
  MonitoredJob job(config);
  job.Run(590);
  EXPECT_TRUE(job.verdicts().rotating);
  EXPECT_EQ(job.rank(0).course, Course::kRotating);
  EXPECT_EQ(job.rank(1).course, Course::kRotating);
  EXPECT_EQ(job.rank(3).course, Course::kEven);
}

TEST(RankMonitor, TheCostIsWhatTheRunWouldBeShorterBy) {
  JobConfig config = Config(Parallel::kTensor);
  config.faults = {{.kind = FaultKind::kKernels, .rank = 1, .size = 0.2, .first = 300}};
  MonitoredJob job(config);
  SimulatedJob same(config);
  config.faults.clear();
  SimulatedJob without(config);
  for (int i = 0; i < 300; ++i) same.Next(false), without.Next(false);
  const double before = same.elapsed_ns();
  for (int i = 0; i < 700; ++i) same.Next(false), without.Next(false);
  job.Run(1000);
  const double truth = 1 - (without.elapsed_ns() - before) / (same.elapsed_ns() - before);
  const Range& cost = job.rank(1).episodes.at(0).cost;
  EXPECT_NEAR(cost.value, truth, 0.05 * truth);
  EXPECT_LE(cost.low, truth);
  EXPECT_GE(cost.high, truth);
}

TEST(RankMonitor, UnequalLengthsAreAnImbalanceAndItsLossIsKnown) {
  JobConfig config = Config(Parallel::kData, true);
  MonitoredJob job(config);
  job.Run(1000);
  double balanced_ns = 0;
  for (config.lengths_of = 0; config.lengths_of < config.ranks; ++config.lengths_of) {
    SimulatedJob balanced(config);
    for (int i = 0; i < 1000; ++i) balanced.Next(false);
    balanced_ns += balanced.elapsed_ns() / config.ranks;
  }
  const double truth = 1 - balanced_ns / job.elapsed_ns();
  const Imbalance& imbalance = job.verdicts().imbalance;
  EXPECT_TRUE(imbalance.found);
  EXPECT_NEAR(imbalance.loss.value, truth, 0.05 * truth);
  EXPECT_LE(imbalance.loss.low, truth);
  EXPECT_GE(imbalance.loss.high, truth);
  EXPECT_EQ(job.named(), 0);
}

TEST(RankMonitor, WhatUnequalLengthsCostIsNotSaidBeforeItIsKnown) {
  for (const Parallel parallel : {Parallel::kData, Parallel::kSharded}) {
    for (const bool slow : {false, true}) {
      JobConfig config = Config(parallel, /*own_lengths=*/true);
      config.new_lengths = true;
      if (slow)
        config.faults = {{.kind = FaultKind::kKernels, .rank = 2, .size = 0.2, .first = 100}};
      MonitoredJob job(config);
      for (int i = 0; i < 700; ++i) {
        job.Run(1);
        const Imbalance& imbalance = job.verdicts().imbalance;
        if (imbalance.doubt != Doubt::kNone) continue;
        EXPECT_GE(imbalance.loss.value, imbalance.loss.low) << i;
        EXPECT_LT(imbalance.loss.high, 0.6) << i;
      }
      // Nothing is learned while a rank is slow.
      if (!slow) {
        EXPECT_EQ(job.verdicts().imbalance.doubt, Doubt::kNone);
      }
    }
  }
}

TEST(RankMonitor, ASlowLinkIsNamedByItsPairWherePairsTell) {
  JobConfig config = Config(Parallel::kPipeline);
  config.faults = {{.kind = FaultKind::kLink, .rank = 1, .size = 1, .first = 200}};
  MonitoredJob job(config);
  job.Run(300);
  ASSERT_EQ(job.verdicts().links.size(), 1U);
  const LinkVerdict& link = job.verdicts().links[0];
  EXPECT_TRUE(link.pair);
  EXPECT_EQ(link.ranks, (std::vector<int32_t>{1, 2}));
  EXPECT_NEAR(link.factor.value, 1.95, 0.1);
  EXPECT_EQ(Named(job.verdicts()), std::set<int32_t>());
}

TEST(RankMonitor, ASlowLinkOfARingIsNamedByItsCommunicator) {
  JobConfig config = Config(Parallel::kData, true);
  config.faults = {{.kind = FaultKind::kLink, .size = 1, .first = 200, .last = 399}};
  MonitoredJob job(config);
  job.Run(600);
  ASSERT_EQ(job.verdicts().links.size(), 1U);
  const LinkVerdict& link = job.verdicts().links[0];
  EXPECT_FALSE(link.pair);
  EXPECT_EQ(link.ranks.size(), 4U);
  EXPECT_NEAR(static_cast<double>(link.last), 399, 8);
  EXPECT_EQ(Named(job.verdicts()), std::set<int32_t>());
}

TEST(RankMonitor, SuspicionAsksForEachIteration) {
  JobConfig config = Config(Parallel::kTensor);
  config.faults = {{.kind = FaultKind::kKernels, .rank = 1, .size = 0.2, .first = 400}};
  MonitoredJob job(config);
  job.Run(400);
  EXPECT_FALSE(job.monitor().wants_every_iteration());
  job.Run(1);  // iteration 400 is observed: 400 % 8 == 0
  EXPECT_TRUE(job.monitor().wants_every_iteration());
  job.Run(200);
  EXPECT_FALSE(job.monitor().wants_every_iteration());
}

TEST(RankMonitor, ARankThatIsGoneIsUnderNoSuspicion) {
  JobConfig config = Config(Parallel::kTensor);
  config.faults = {{.kind = FaultKind::kKernels, .rank = 1, .size = 0.2, .first = 400}};
  MonitoredJob job(config);
  job.Run(402);
  ASSERT_TRUE(job.monitor().wants_every_iteration());
  job.monitor().SetRanks({0, 2, 3});
  EXPECT_FALSE(job.monitor().wants_every_iteration());

  MonitoredJob slow(config);
  slow.Run(500);
  ASSERT_EQ(slow.rank(1).course, Course::kSlow);
  slow.monitor().SetRanks({0, 2, 3});
  EXPECT_EQ(slow.rank(1).episodes.at(0).last, 499);
}

TEST(RankMonitor, AStateThatIsLoadedGoesOnAsIfNothingHadHappened) {
  JobConfig config = Config(Parallel::kData, true);
  config.faults = {{.kind = FaultKind::kKernels, .rank = 1, .size = 0.05, .first = 300}};
  MonitoredJob whole(config), parts(config);
  whole.Run(800);
  for (int i = 0; i < 8; ++i) {
    parts.Run(100);
    RankMonitor next;
    next.SetRanks({0, 1, 2, 3});
    next.Load(parts.monitor().Save());
    parts.monitor() = std::move(next);
  }
  ASSERT_EQ(parts.rank(1).episodes.size(), 1U);
  const Episode &expected = whole.rank(1).episodes.at(0), &found = parts.rank(1).episodes[0];
  EXPECT_EQ(found.first, expected.first);
  EXPECT_EQ(found.named, expected.named);
  EXPECT_DOUBLE_EQ(found.excess.value, expected.excess.value);
  EXPECT_DOUBLE_EQ(parts.verdicts().imbalance.loss.value, whole.verdicts().imbalance.loss.value);
  EXPECT_EQ(parts.monitor().changes(), whole.monitor().changes());
}

TEST(RankMonitor, ADamagedStateIsLearnedAgain) {
  JobConfig config = Config(Parallel::kTensor);
  config.faults = {{.kind = FaultKind::kKernels, .rank = 1, .size = 0.2, .first = 100}};
  MonitoredJob job(config);
  job.Run(200);
  RankMonitorState state = job.monitor().Save();
  for (const size_t size : {size_t{0}, state.learned.size() / 2, state.learned.size() - 1}) {
    RankMonitorState damaged = state;
    damaged.learned.resize(size);
    RankMonitor monitor;
    monitor.Load(damaged);
    EXPECT_EQ(monitor.verdicts().ranks.at(1).episodes.at(0).last, 199) << size;
    EXPECT_TRUE(monitor.wants_every_iteration()) << size;
  }
  state.version += 1;
  RankMonitor monitor;
  monitor.Load(state);
  job.monitor() = std::move(monitor);
  job.Run(200);
  EXPECT_EQ(job.rank(1).course, Course::kSlow);  // by its peers
}

TEST(RankMonitor, MemoryDoesNotGrowWithTheRun) {
  MonitoredJob job(Config(Parallel::kSharded, true, 4));
  job.Run(8000);  // until windows of noise are full
  const size_t early = job.monitor().Save().learned.size();
  job.Run(8000);
  EXPECT_EQ(job.monitor().Save().learned.size(), early);
}

TEST(RankMonitor, SaysWhyNothingIsKnown) {
  RankMonitor monitor;
  monitor.SetRanks({0, 1});
  EXPECT_EQ(monitor.verdicts().ranks.at(0).course, Course::kUnknown);
  EXPECT_EQ(monitor.verdicts().ranks.at(0).doubt, Doubt::kNoCollectives);
  EXPECT_TRUE(monitor.wants_every_iteration());

  MonitoredJob young(Config(Parallel::kPipeline));
  young.Run(10);
  EXPECT_EQ(young.rank(1).course, Course::kUnknown);
  EXPECT_EQ(young.rank(1).doubt, Doubt::kUnlike);
  EXPECT_TRUE(young.rank(1).own_baseline);

  SimulatedJob job(Config(Parallel::kTensor));
  RankMonitor one;
  one.SetRanks({2});
  for (int i = 0; i < 200; ++i) one.Add(job.Next()[2]);
  EXPECT_EQ(one.verdicts().ranks.at(0).doubt, Doubt::kOneRank);
  EXPECT_EQ(DoubtText(Doubt::kOneRank), "only one rank is seen");
}

TEST(RankMonitor, DroppedRecordsOfOneRankDoNotMakeItSlow) {
  SimulatedJob job(Config(Parallel::kTensor));
  RankMonitor monitor;
  monitor.SetRanks({0, 1, 2, 3});
  for (int i = 0; i < 400; ++i) {
    std::vector<RankIteration> reports = job.Next();
    for (RankIteration& report : reports) {
      // Its iterations lose a third of their collectives, which would look like work.
      if (report.rank == 1 && i % 2 == 0)
        report.collectives.resize(report.collectives.size() * 2 / 3);
      monitor.Add(report);
    }
  }
  EXPECT_EQ(Named(monitor.verdicts()), std::set<int32_t>());
  EXPECT_GT(monitor.losses().missed, 0);
}

}  // namespace
}  // namespace seqpoint::ranks
