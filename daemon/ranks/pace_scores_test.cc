#include "daemon/ranks/pace_scores.h"

#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "daemon/base/statistics.h"
#include "gtest/gtest.h"

namespace seqpoint::ranks {
namespace {

// A job whose iterations have eight pieces of work, of which the first takes 1.2 to 2.2 times as
// long in iterations of new lengths.
class Job {
 public:
  // 1 ms for 1,024 units of length and piece; `slow`: how many times as long on rank 2. The others
  // wait for `last`; -1: for any of them.
  std::map<int32_t, Score> Next(const std::vector<int64_t>& lengths, double slow, int32_t last) {
    JoinedIteration iteration = {.number = number_++};
    for (int32_t rank = 0; rank < static_cast<int32_t>(lengths.size()); ++rank) {
      RankPart& part = iteration.ranks.emplace_back();
      part.rank = rank;
      part.lengths = {lengths[static_cast<size_t>(rank)], 0};
      part.new_length = true;
      part.matched = 8;
      part.last = last < 0 || rank == last ? 8 : 0;
      const double factor = rank == 2 ? slow : 1;
      for (int piece = 0; piece < 8; ++piece) {
        const double first = piece == 0 ? 1.2 + uniform_(random_) : 1;
        const double work_ns = 1e6 * static_cast<double>(part.lengths[0]) / 1024 * factor * first *
                               (1 + 0.01 * normal_(random_));
        part.duration_ns += static_cast<int64_t>(work_ns);
        if (piece == 0) {
          part.outside_ns = static_cast<int64_t>(work_ns);
        } else {
          part.gaps_ns.push_back(static_cast<int64_t>(work_ns));
        }
      }
      part.wait_ns = part.last > 0 ? 0 : part.duration_ns / 2;
    }
    iteration.communicators = {{1, {0, 1, 2, 3}}};
    roles_.Learn(iteration);
    std::map<int32_t, Score> scores;
    for (const Score& score : scores_.Add(iteration, roles_)) scores[score.rank] = score;
    scores_.Settle(slow > 1);
    return scores;
  }
  int64_t AnyLength() { return 512 + static_cast<int64_t>(1024 * uniform_(random_)); }

 private:
  int64_t number_ = 0;
  std::mt19937 random_{1};
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  Roles roles_;
  PaceScores scores_;
};

TEST(MiddlesOfOthers, AreThoseWithoutEachValue) {
  EXPECT_EQ(MiddlesOfOthers({5}), std::vector<double>({0}));
  EXPECT_EQ(MiddlesOfOthers({5, 1}), std::vector<double>({1, 5}));
  EXPECT_EQ(MiddlesOfOthers({3, 1, 7}), std::vector<double>({4, 5, 2}));
  EXPECT_EQ(MiddlesOfOthers({3, 1, 7, 4}), std::vector<double>({4, 4, 3, 3}));
}

TEST(PaceScores, RanksOfEqualLengthsAreComparedInIterationsOfNewLengths) {
  Job job;
  for (int i = 0; i < 20; ++i) {
    const int64_t length = job.AnyLength();
    job.Next({length, length, length, length}, 1, -1);
  }
  const int64_t length = job.AnyLength();
  const auto scores = job.Next({length, length, length, length}, 1.1, -1);
  ASSERT_EQ(scores.size(), 4u);
  for (const auto& [rank, score] : scores) {
    EXPECT_NEAR(score.excess, rank == 2 ? std::log(1.1) : 0, 0.03) << rank;
    EXPECT_GT(score.deviation, 0.001);
    EXPECT_LT(score.deviation, 0.01) << "the first piece would scatter by 0.2";
  }
}

TEST(PaceScores, RanksOfOwnLengthsAreComparedWhereOthersWaitForThem) {
  Job job;
  const auto next = [&](int32_t last, double slow) {
    return job.Next({job.AnyLength(), job.AnyLength(), job.AnyLength(), job.AnyLength()}, slow,
                    last);
  };
  for (int i = 0; i < 80; ++i) next(i % 4, 1);
  next(0, 1.1);
  const auto scores = next(2, 1.1);
  ASSERT_EQ(scores.size(), 1u) << "the others wait, and work may hide in that";
  EXPECT_NEAR(scores.at(2).excess, std::log(1.1), 0.03);
  EXPECT_GT(scores.at(2).deviation, 0.001);
  EXPECT_LT(scores.at(2).deviation, 0.02);
  // What is common to all ranks since then counts once: nobody has a newer value.
  const auto again = next(2, 1.1);
  EXPECT_TRUE(again.empty() || again.at(2).deviation == 0);
}

}  // namespace
}  // namespace seqpoint::ranks
