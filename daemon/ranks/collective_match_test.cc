#include "daemon/ranks/collective_match.h"

#include <gtest/gtest.h>

#include <vector>

namespace seqpoint::ranks {
namespace {

constexpr uint64_t kAll = 77;

// A rank whose clock shows `clock_ns` when the others' shows 0.
RankIteration Report(int32_t rank, int64_t duration_ns, int64_t clock_ns,
                     std::vector<Collective> collectives) {
  for (Collective& c : collectives) {
    c.start_ns += clock_ns;
    c.end_ns += clock_ns;
  }
  RankIteration report;
  report.rank = rank;
  report.duration_ns = duration_ns;
  report.collectives = std::move(collectives);
  return report;
}

Collective AllReduce(uint32_t sequence, int64_t start_ns, int64_t end_ns) {
  Collective c;
  c.communicator = kAll;
  c.kind = 1;
  c.sequence = sequence;
  c.start_ns = start_ns;
  c.end_ns = end_ns;
  return c;
}

Collective Transfer(int32_t peer, bool receives, uint32_t sequence, int64_t start_ns,
                    int64_t end_ns, uint32_t kind = 2) {
  Collective c = AllReduce(sequence, start_ns, end_ns);
  c.kind = kind;
  c.peer = peer;
  c.receives = receives;
  return c;
}

JoinedIteration Match(const std::vector<RankIteration>& reports) {
  return MatchCollectives(reports, {}, {});
}

TEST(CollectiveMatch, TheLastRankWaitsForNobodyWhateverItsClockShows) {
  // Rank 1 comes 30 later to the first all-reduce, rank 0 comes 5 later to the second.
  const JoinedIteration joined =
      Match({Report(0, 200, 0, {AllReduce(0, 50, 100), AllReduce(1, 150, 170)}),
             Report(1, 200, 1'000'000, {AllReduce(0, 80, 100), AllReduce(1, 145, 170)})});
  const RankPart &first = joined.ranks[0], &second = joined.ranks[1];
  EXPECT_EQ(first.wait_ns, 30);
  EXPECT_EQ(second.wait_ns, 5);
  EXPECT_EQ(first.delay_ns, 5);  // the others waited for it
  EXPECT_EQ(second.delay_ns, 30);
  EXPECT_EQ(first.last, 1);
  EXPECT_EQ(second.last, 1);
  EXPECT_EQ(first.exclusive_ns, 200 - 50 - 20);
  EXPECT_EQ(first.outside_ns, 200 - (170 - 50));
  ASSERT_EQ(joined.transfers.size(), 1U);
  EXPECT_EQ(joined.transfers[0].count, 2);
  EXPECT_EQ(joined.transfers[0].transfer_ns, 20 + 20);
  EXPECT_TRUE(joined.transfers[0].complete);
}

TEST(CollectiveMatch, CollectivesOfTwoCommunicatorsThatOverlapCountOnce) {
  Collective other = AllReduce(0, 60, 120);
  other.communicator = 78;
  const JoinedIteration joined = Match({Report(0, 200, 0, {AllReduce(0, 50, 100), other})});
  EXPECT_EQ(joined.ranks[0].collective_ns, 70);
}

TEST(CollectiveMatch, ARankThatMissesARecordLeavesTheOthersAlone) {
  const JoinedIteration joined =
      Match({Report(0, 200, 0, {AllReduce(0, 50, 100), AllReduce(1, 150, 170)}),
             Report(1, 200, 0, {AllReduce(0, 80, 100), AllReduce(1, 145, 170)}),
             Report(2, 200, 0, {AllReduce(1, 140, 170)})});
  EXPECT_EQ(joined.ranks[2].missed, 1);
  EXPECT_EQ(joined.ranks[0].missed, 0);
  EXPECT_EQ(joined.ranks[0].wait_ns, 30);
  EXPECT_FALSE(joined.transfers[0].complete);
}

TEST(CollectiveMatch, TransfersOfAPairMatchInTheirOrder) {
  // Each rank has numbers of its own. The receiver of the first comes late, then the sender of the
  // second.
  const JoinedIteration joined =
      Match({Report(0, 100, 0, {Transfer(1, false, 7, 10, 30), Transfer(1, false, 9, 55, 60)}),
             Report(1, 100, 0, {Transfer(0, true, 3, 25, 30), Transfer(0, true, 4, 40, 60)})});
  EXPECT_EQ(joined.ranks[0].wait_ns, 15);
  EXPECT_EQ(joined.ranks[1].wait_ns, 15);
  ASSERT_EQ(joined.transfers.size(), 1U);
  EXPECT_EQ(joined.transfers[0].from, 0);
  EXPECT_EQ(joined.transfers[0].to, 1);
  EXPECT_EQ(joined.transfers[0].transfer_ns, 10);
  EXPECT_TRUE(joined.communicators.empty());  // of collectives
}

TEST(CollectiveMatch, APairThatDisagreesIsNotGuessed) {
  const JoinedIteration joined =
      Match({Report(0, 100, 0, {Transfer(1, false, 7, 10, 30), Transfer(1, false, 9, 55, 60)}),
             Report(1, 100, 0, {Transfer(0, true, 4, 40, 60)})});
  EXPECT_EQ(joined.ranks[0].unmatched, 2);
  EXPECT_EQ(joined.ranks[1].unmatched, 1);
  EXPECT_EQ(joined.ranks[0].wait_ns, 0);
  EXPECT_TRUE(joined.transfers.empty());
}

TEST(CollectiveMatch, WhereRanksAreUnseenATransferMayContainTheirDelay) {
  const JoinedIteration joined =
      MatchCollectives(std::vector<RankIteration>{Report(0, 200, 0, {AllReduce(0, 50, 100)}),
                                                  Report(1, 200, 0, {AllReduce(0, 80, 100)})},
                       {{kAll, 16}}, {});
  EXPECT_FALSE(joined.transfers[0].complete);
  EXPECT_EQ(joined.ranks[0].wait_ns, 30);  // at least
}

TEST(CollectiveMatch, RanksThatRunOtherCollectivesHaveOtherSignatures) {
  const JoinedIteration joined =
      Match({Report(0, 200, 0, {AllReduce(0, 50, 100), AllReduce(1, 150, 170)}),
             Report(1, 200, 0, {AllReduce(0, 80, 100), AllReduce(1, 145, 170)}),
             Report(2, 200, 0, {AllReduce(0, 80, 100), Transfer(1, true, 0, 145, 170)})});
  EXPECT_EQ(joined.ranks[0].signature, joined.ranks[1].signature);
  EXPECT_NE(joined.ranks[0].signature, joined.ranks[2].signature);
}

TEST(CollectiveMatch, RanksThatSendToEachOtherAreNoPeers) {
  const JoinedIteration joined =
      Match({Report(0, 200, 0, {AllReduce(0, 50, 100), Transfer(1, false, 0, 145, 170)}),
             Report(1, 200, 0, {AllReduce(0, 80, 100), Transfer(0, true, 0, 145, 170)})});
  EXPECT_NE(joined.ranks[0].signature, joined.ranks[1].signature);
}

}  // namespace
}  // namespace seqpoint::ranks
