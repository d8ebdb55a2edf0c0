#include "daemon/jobs/rank_losses.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

using ::testing::HasSubstr;

v1::SlowEpisode* AddEpisode(int64_t first, double cost, v1::RankSummary& rank) {
  v1::SlowEpisode* const episode = rank.add_episodes();
  episode->set_first_iteration(first);
  episode->mutable_cost()->set_value(cost);
  episode->mutable_cost()->set_low(cost - 0.02);
  episode->mutable_cost()->set_high(cost + 0.02);
  rank.set_episode_count(rank.episodes_size());
  return episode;
}

TEST(RankLossesTest, AnEpisodeCountsByItsShareOfTheRun) {
  v1::GetRanksReply ranks;
  ranks.add_ranks()->set_course(v1::RANK_COURSE_EVEN);
  v1::RankSummary& slow = *ranks.add_ranks();
  slow.set_course(v1::RANK_COURSE_SLOW);
  AddEpisode(100, 0.1, slow)->set_last_iteration(199);
  AddEpisode(500, 0.2, slow);  // it goes on
  const v1::RankLosses losses = LossesOf(ranks, 1000);
  EXPECT_NEAR(losses.slow_ranks().value(), 0.1 * 0.1 + 0.5 * 0.2, 1e-9);
  EXPECT_NEAR(losses.slow_ranks().high() - losses.slow_ranks().value(), 0.02 * std::hypot(0.1, 0.5),
              1e-9);
  EXPECT_EQ(losses.message(), "");
}

TEST(RankLossesTest, ACostThatIsNotKnownIsNoSmallOne) {
  v1::GetRanksReply ranks;
  v1::RankSummary& slow = *ranks.add_ranks();
  slow.set_course(v1::RANK_COURSE_SLOW);
  AddEpisode(0, 0.1, slow)->clear_cost();
  slow.mutable_episodes(0)->set_cost_message("too few");
  EXPECT_FALSE(LossesOf(ranks, 10).has_slow_ranks());
  EXPECT_THAT(LossesOf(ranks, 10).message(), HasSubstr("too few"));
  v1::GetRanksReply unknown;
  unknown.set_message("no operation of NCCL was seen");
  EXPECT_FALSE(LossesOf(unknown, 10).has_slow_ranks());
  EXPECT_EQ(LossesOf(unknown, 10).message(), "no operation of NCCL was seen");
}

}  // namespace
}  // namespace seqpoint::jobs
