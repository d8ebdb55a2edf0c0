#include "daemon/ranks/stage_scores.h"

#include <array>
#include <cmath>
#include <map>
#include <random>

#include "gtest/gtest.h"

namespace seqpoint::ranks {
namespace {

// Four stages of a pipeline. Their work scatters by `alone` each, and by `together` on all alike.
class Pipeline {
 public:
  Pipeline(double alone, double together) : alone_(alone), together_(together) {}

  // `factors`: by how much the work of each stage is longer than usual.
  std::map<int32_t, Score> Next(const std::array<double, 4>& factors) {
    constexpr std::array<double, 4> kUsual = {10.8e6, 15.6e6, 1.4e6, 5.9e6};
    JoinedIteration iteration = {.number = number_++};
    const double batch = 1 + together_ * normal_(random_);
    for (int32_t rank = 0; rank < 4; ++rank) {
      const auto at = static_cast<size_t>(rank);
      RankPart& part = iteration.ranks.emplace_back();
      part.rank = rank;
      part.lengths = {512 + 64 * (number_ % 8), 0};
      part.matched = 16;
      part.exclusive_ns = static_cast<int64_t>(kUsual.at(at) * factors.at(at) * batch *
                                               (1 + alone_ * normal_(random_)));
      part.duration_ns = 20'000'000;
    }
    std::map<int32_t, Score> scores;
    for (const Score& score : scores_.Add(iteration, {})) scores[score.rank] = score;
    for (const auto& [rank, score] : scores) scores_.Settle(rank, RankScores::Finding::kOrdinary);
    return scores;
  }

 private:
  const double alone_, together_;
  int64_t number_ = 0;
  std::mt19937 random_{1};
  std::normal_distribution<double> normal_;
  StageScores scores_;
};

constexpr std::array<double, 4> kUsual = {1, 1, 1, 1};

TEST(StageScores, WhatStagesShareCancels) {
  Pipeline pipeline(0.005, 0.1);
  for (int i = 0; i < 100; ++i) pipeline.Next(kUsual);
  const auto scores = pipeline.Next({1, 1.05, 1, 1});
  EXPECT_GT(scores.at(1).excess / scores.at(1).deviation, 4);
  for (const int32_t rank : {0, 2, 3})
    EXPECT_LT(scores.at(rank).excess / scores.at(rank).deviation, 3) << rank;
}

// As on the software GPU with a host that is 20 % late: the others then wait in other places.
TEST(StageScores, AStageIsNotSlowerBecauseOthersAreFaster) {
  Pipeline pipeline(0.02, 0);
  for (int i = 0; i < 100; ++i) pipeline.Next(kUsual);
  for (int i = 0; i < 10; ++i) {
    const auto scores = pipeline.Next({0.56, 1.25, 0.96, 0.79});
    EXPECT_GT(scores.at(1).excess / scores.at(1).deviation, 4);
    for (const int32_t rank : {0, 2, 3}) EXPECT_LE(scores.at(rank).excess, 0) << rank;
  }
}

// Where each stage's work scatters by itself, the unit scatters more than the work of one of them.
TEST(StageScores, AStageIsComparedWithItselfWhereTheOthersScatterMore) {
  Pipeline pipeline(0.02, 0);
  std::mt19937 random(2);
  std::uniform_real_distribution<double> any(0.6, 1.4);
  for (int i = 0; i < 100; ++i) pipeline.Next({any(random), 1, any(random), any(random)});
  const auto scores = pipeline.Next({0.7, 1.25, 0.8, 0.7});
  EXPECT_GT(scores.at(1).excess / scores.at(1).deviation, 4);
}

}  // namespace
}  // namespace seqpoint::ranks
