#include "daemon/ranks/stuck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace seqpoint::ranks {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A rank that has made `number` calls of a collective of communicator `hash`, the last one at
// `at_ns`.
RankCalls Rank(int32_t rank, uint64_t hash, int64_t number, int64_t at_ns) {
  RankCalls calls{.rank = rank};
  calls.communicators[hash] = {.rank = rank, .calls = {{{"AllReduce"}, {number, at_ns}}}};
  return calls;
}

TEST(Stuck, RanksThatHaveCalledTheSameWaitForNobody) {
  EXPECT_FALSE(FindStuck({Rank(0, 7, 417, 100), Rank(1, 7, 417, 250)}));
  EXPECT_FALSE(FindStuck({Rank(0, 7, 417, 100), Rank(1, 8, 12, 250)})) << "no common communicator";
  EXPECT_FALSE(FindStuck({}));
}

TEST(Stuck, TheRankThatHasNotCalledIsWaitedForSinceItsLastCall) {
  const auto stuck = FindStuck({Rank(0, 7, 419, 100), Rank(1, 7, 416, 80), Rank(2, 7, 417, 90)});
  ASSERT_TRUE(stuck);
  EXPECT_THAT(stuck->awaited, ElementsAre(1));
  EXPECT_THAT(stuck->waiting, ElementsAre(0, 2));
  EXPECT_EQ(stuck->operation.function, "AllReduce");
  EXPECT_EQ(stuck->number, 417);
  EXPECT_EQ(stuck->since_ns, 80);
}

TEST(Stuck, BehindARankThatWaitsIsTheOneItWaitsFor) {
  // Ranks 0 and 1, and ranks 2 and 3, are pairs; all four reduce over communicator 9. Rank 3 hangs,
  // rank 2 waits for it, and the others wait for both.
  std::vector<RankCalls> ranks = {Rank(0, 1, 50, 500), Rank(1, 1, 50, 500), Rank(2, 2, 50, 480),
                                  Rank(3, 2, 49, 400)};
  for (RankCalls& rank : ranks) {
    rank.communicators[9] = {.rank = rank.rank,
                             .calls = {{{"AllReduce"}, {rank.rank < 2 ? 10 : 9, 300}}}};
  }
  const auto stuck = FindStuck(ranks);
  ASSERT_TRUE(stuck);
  EXPECT_THAT(stuck->awaited, ElementsAre(3));
  EXPECT_THAT(stuck->waiting, ElementsAre(0, 1, 2));
  EXPECT_EQ(stuck->since_ns, 400);
}

TEST(Stuck, ASendWaitsForThePeersReceive) {
  RankCalls first{.rank = 4}, second{.rank = 5};
  first.communicators[3] = {.rank = 0, .calls = {{{"Send", 1}, {8, 70}}, {{"Recv", 1}, {7, 60}}}};
  second.communicators[3] = {.rank = 1, .calls = {{{"Send", 0}, {7, 55}}, {{"Recv", 0}, {7, 50}}}};
  const auto stuck = FindStuck({first, second});
  ASSERT_TRUE(stuck);
  EXPECT_THAT(stuck->awaited, ElementsAre(5));
  EXPECT_EQ(stuck->operation.function, "Recv");
  EXPECT_EQ(stuck->number, 8);
}

TEST(Stuck, RanksThatCallInDifferentOrdersWaitForOneAnother) {
  std::vector<RankCalls> ranks = {Rank(0, 1, 5, 10), Rank(1, 1, 4, 10)};
  ranks[0].communicators[2] = {.rank = 0, .calls = {{{"AllGather"}, {2, 10}}}};
  ranks[1].communicators[2] = {.rank = 1, .calls = {{{"AllGather"}, {3, 10}}}};
  const auto stuck = FindStuck(ranks);
  ASSERT_TRUE(stuck);
  EXPECT_THAT(stuck->awaited, IsEmpty());
  EXPECT_THAT(stuck->waiting, ElementsAre(0, 1));
}

}  // namespace
}  // namespace seqpoint::ranks
