#include "daemon/jobs/standstill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace seqpoint::jobs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kTickNs = 1'000'000'000;

// A rank that has made `number` calls; `end`: how it ended.
Standstill::Rank Rank(int32_t rank, int64_t number, const std::string& end = "") {
  Standstill::Rank to;
  to.calls.rank = rank;
  to.calls.communicators[1] = {.rank = rank, .calls = {{{"AllReduce"}, {number, 1'000 * kTickNs}}}};
  to.calls.ended = !end.empty();
  to.lost = end == "was killed or crashed";
  return to;
}

TEST(Standstill, ARankThatDoesNotComeIsNamedOnceNothingMoves) {
  Standstill standstill;
  int64_t now_ns = kTickNs;
  for (int i = 0; i < 100; ++i) {
    now_ns += kTickNs;
    EXPECT_FALSE(standstill.Check(now_ns, i, {Rank(0, i + 3), Rank(1, i)}, true))
        << "the host of rank 0 runs ahead";
  }
  EXPECT_FALSE(standstill.Check(now_ns + 9 * kTickNs, 99, {Rank(0, 102), Rank(1, 99)}, true));
  ASSERT_TRUE(standstill.Check(now_ns + 12 * kTickNs, 99, {Rank(0, 102), Rank(1, 99)}, true));
  EXPECT_THAT(standstill.found()->message(),
              AllOf(HasSubstr("rank 0 waits for rank 1, which has not called AllReduce number 100"),
                    HasSubstr("nothing has moved for 12 s"), HasSubstr("00:16:40 UTC")));
  EXPECT_FALSE(standstill.Check(now_ns + 13 * kTickNs, 99, {Rank(0, 102), Rank(1, 99)}, true))
      << "said once";
  EXPECT_TRUE(standstill.Check(now_ns + 14 * kTickNs, 100, {Rank(0, 102), Rank(1, 100)}, true));
  EXPECT_FALSE(standstill.found()) << "it goes on";
}

TEST(Standstill, LongPausesOfTheJobItselfAreWaitedForButNeverBeyondHalfAMinute) {
  Standstill standstill;
  const std::vector<Standstill::Rank> ranks = {Rank(0, 5), Rank(1, 4)};
  standstill.Check(kTickNs, 1, ranks, true);
  standstill.Check(9 * kTickNs, 2, ranks, true);  // a pause of 8 s
  EXPECT_FALSE(standstill.Check(24 * kTickNs, 2, ranks, true));
  EXPECT_TRUE(standstill.Check(26 * kTickNs, 2, ranks, true));
  standstill.Check(100 * kTickNs, 3, ranks, true);  // one of 91 s
  EXPECT_TRUE(standstill.Check(126 * kTickNs, 3, ranks, true));
}

TEST(Standstill, ADeadRankIsNamedWhetherItCameOrNot) {
  for (const bool came : {true, false}) {
    Standstill standstill;
    const std::vector<Standstill::Rank> ranks = {
        Rank(0, 7), Rank(1, came ? 7 : 6, "was killed or crashed"), Rank(2, 7)};
    standstill.Check(kTickNs, 1, ranks, false);
    ASSERT_TRUE(standstill.Check(12 * kTickNs, 1, ranks, false));
    EXPECT_THAT(standstill.found()->message(),
                AllOf(HasSubstr("rank 1 was killed or crashed"), HasSubstr("ranks 0, 2 wait")));
    EXPECT_THAT(standstill.found()->awaited(), testing::ElementsAre(1));
  }
}

// After the last iteration one rank saves what was learned.
TEST(Standstill, ARankThatEndedInOrderWaitsForNobodyAndNobodyForIt) {
  for (const int64_t calls : {7, 8}) {
    Standstill standstill;
    const std::vector<Standstill::Rank> ranks = {Rank(0, 7), Rank(1, calls, "has ended")};
    standstill.Check(kTickNs, 1, ranks, true);
    EXPECT_FALSE(standstill.Check(100 * kTickNs, 1, ranks, true)) << calls;
  }
  Standstill standstill;
  const std::vector<Standstill::Rank> ranks = {Rank(0, 7), Rank(1, 6, "has ended")};
  standstill.Check(kTickNs, 1, ranks, true);
  ASSERT_TRUE(standstill.Check(100 * kTickNs, 1, ranks, true));
  EXPECT_THAT(standstill.found()->message(), HasSubstr("rank 0 waits for rank 1"));
}

TEST(Standstill, RanksThatPauseTogetherWaitForNobody) {
  Standstill standstill;
  const std::vector<Standstill::Rank> ranks = {Rank(0, 7), Rank(1, 7)};
  standstill.Check(kTickNs, 1, ranks, true);
  EXPECT_FALSE(standstill.Check(100 * kTickNs, 1, ranks, true));
}

}  // namespace
}  // namespace seqpoint::jobs
