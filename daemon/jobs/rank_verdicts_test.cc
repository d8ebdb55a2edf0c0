#include "daemon/jobs/rank_verdicts.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "daemon/jobs/rank_diagnosis.h"

namespace seqpoint::jobs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ranks::Verdicts SlowRank() {
  return {.ranks = {{.rank = 0, .course = ranks::Course::kEven, .iterations = 8, .duration_ns = 80},
                    {.rank = 3,
                     .course = ranks::Course::kSlow,
                     .doubt = ranks::Doubt::kNone,
                     .episodes = {{.first = 412,
                                   .named = 430,
                                   .excess = {0.2, 0.18, 0.22},
                                   .cost_doubt = ranks::Doubt::kHidden}},
                     .episode_count = 1,
                     .iterations = 8,
                     .duration_ns = 800,
                     .exclusive_ns = 400,
                     .wait_ns = 8,
                     .collectives = 64,
                     .last = 60}},
          .links = {{.communicator = 0xFEDCBA9876543210,
                     .ranks = {1, 2},
                     .pair = true,
                     .first = 100,
                     .named = 120,
                     .factor = {2, 1.9, 2.1}}},
          .imbalance = {.doubt = ranks::Doubt::kNone, .found = true, .loss = {0.08, 0.07, 0.09}},
          .observed = 50,
          .first = 8,
          .last = 400};
}

TEST(RankVerdicts, AStoredReplySaysTheSame) {
  v1::GetRanksReply reply, again;
  SetVerdicts(SlowRank(), &reply);
  SetVerdicts(VerdictsOf(reply), &again);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(reply, again))
      << reply.DebugString() << again.DebugString();
  EXPECT_EQ(reply.links(0).communicator(), "fedcba9876543210");
  EXPECT_FALSE(reply.ranks(1).episodes(0).has_cost());
  EXPECT_THAT(reply.ranks(1).episodes(0).cost_message(), HasSubstr("not known, because"));
}

TEST(RankVerdicts, TheSummaryHasTheGravestFirst) {
  v1::GetRanksReply reply;
  SetVerdicts(SlowRank(), &reply);
  EXPECT_EQ(SummaryOf(reply),
            "rank 3 is slow since iteration 412: its own work takes 20 % (18 to 22 %) longer than "
            "expected");
  reply.mutable_ranks(1)->mutable_episodes(0)->clear_excess();
  EXPECT_EQ(SummaryOf(reply), "rank 3 is slow since iteration 412");
  reply.mutable_ranks(1)->mutable_episodes(0)->set_maybe_before(true);
  EXPECT_THAT(SummaryOf(reply), HasSubstr("slow since iteration 412 or before"));
  reply.mutable_ranks(1)->set_course(v1::RANK_COURSE_WAS_SLOW);
  EXPECT_EQ(SummaryOf(reply),
            "transfers from rank 1 to rank 2 take 2.00 times as long (1.90 to 2.10) since "
            "iteration 100, although all ranks have come");
  reply.clear_links();
  EXPECT_THAT(SummaryOf(reply),
              AllOf(HasSubstr("equal lengths"), HasSubstr("8.0 % (7.0 to 9.0 %)")));
  reply.clear_imbalance();
  EXPECT_EQ(SummaryOf(reply), "");
  reply.mutable_standstill()->set_message("rank 1 waits");
  EXPECT_EQ(SummaryOf(reply), "rank 1 waits");
}

TEST(RankVerdictsTest, WhereNoGpuDoesTheWorkTheReasonSaysSo) {
  v1::GetRanksReply reply;
  reply.add_ranks()->add_episodes()->set_first_iteration(7);
  const v1::SlowEpisode& episode = reply.ranks(0).episodes(0);
  RankDiagnosis diagnosis;
  diagnosis.SetReasons({}, /*host_times=*/true, &reply);
  EXPECT_THAT(episode.reason_message(), testing::HasSubstr("not known, because no GPU"));
  diagnosis.SetReasons({}, /*host_times=*/false, &reply);
  EXPECT_THAT(episode.reason_message(), testing::HasSubstr("the ranks were not traced"));
}

}  // namespace
}  // namespace seqpoint::jobs
