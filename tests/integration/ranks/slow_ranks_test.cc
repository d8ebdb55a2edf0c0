// Jobs of several ranks: who is slow, who is waited for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/rank_jobs.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::SizeIs;

class SlowRanksTest : public testing::Test {
 protected:
  ~SlowRanksTest() override {
    if (HasFailure()) folder_.Keep();
  }
  // Tensor parallel: all ranks have the same lengths and wait in each layer.
  static RankJobOptions Options(const std::string& name, int ranks, int iterations) {
    return {.name = name,
            .ranks = ranks,
            .workload = {"--model", "transformer", "--parallel", "tensor", "--epochs", "100",
                         "--max-iterations", std::to_string(iterations)},
            .settings = {"clock.speed_cap=4"}};
  }
  // Asks until the job stands still.
  v1::Standstill AwaitStandstill(const std::string& name) {
    for (int tenth = 0; tenth < 600; ++tenth) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto reply = jobs_.Ranks(name);
      if (reply && reply->has_standstill()) return reply->standstill();
    }
    ADD_FAILURE() << "nothing was said of " << name;
    return {};
  }

  TempFolder folder_;
  RankJobs jobs_{folder_.path()};
};

TEST_F(SlowRanksTest, ASlowRankIsNamedWithItsReasonAndEvenOnesAreNot) {
  RankJobOptions options = Options("slow", 2, 2500);
  options.workload.insert(options.workload.end(), {"--slow", "1:kernels:1.2@200-10000"});
  ASSERT_TRUE(jobs_.Run(options)) << jobs_.Log("slow");
  const auto reply = jobs_.Ranks("slow");
  ASSERT_TRUE(reply);
  ASSERT_THAT(reply->ranks(), SizeIs(2));
  EXPECT_NE(reply->ranks(0).course(), v1::RANK_COURSE_SLOW) << reply->DebugString();
  EXPECT_THAT(reply->ranks(0).episodes(), SizeIs(0));
  EXPECT_THAT(reply->links(), SizeIs(0));
  const v1::RankSummary& slow = reply->ranks(1);
  // One of its episodes was traced on both ranks.
  const auto traced = std::find_if(
      slow.episodes().begin(), slow.episodes().end(),
      [](const auto& episode) { return episode.reason() != v1::SLOW_REASON_UNSPECIFIED; });
  ASSERT_NE(traced, slow.episodes().end()) << reply->DebugString();
  EXPECT_EQ(traced->reason(), v1::SLOW_REASON_CLOCKS) << traced->reason_message();
  EXPECT_GE(traced->named_iteration(), 200);
  EXPECT_NEAR(traced->excess().value(), 0.15, 0.03) << "0.2 of its kernels' time";
  EXPECT_NEAR(traced->cost().value(), 0.13, 0.03);
  EXPECT_LT(slow.mean_wait_ns(), reply->ranks(0).mean_wait_ns());
  EXPECT_GT(slow.last(), slow.collectives() / 2);
  const auto job = jobs_.Job("slow");
  ASSERT_TRUE(job);
  if (slow.course() == v1::RANK_COURSE_SLOW) {
    EXPECT_THAT(job->ranks(), HasSubstr("rank 1 is slow"));
  }
  EXPECT_EQ(job->error(), "");

  // The ranks' windows are one timeline, in which the rank that waited has an arrow from the other.
  const std::filesystem::path file = folder_.path() / "trace.json";
  ASSERT_EQ(WaitFor(Spawn({(BinaryDirectory() / "seqpoint").string(), "export", "slow", "--chrome",
                           file.string()},
                          jobs_.Log("export"))),
            0);
  std::ifstream stream(file);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  EXPECT_THAT(text, AllOf(HasSubstr(R"("cat":"waits for")"), HasSubstr("rank 0, GPU 0"),
                          HasSubstr("rank 1, GPU 1")));
}

TEST_F(SlowRanksTest, InAnEvenJobNobodyIsNamed) {
  ASSERT_TRUE(jobs_.Run(Options("even", 4, 800)));
  const auto reply = jobs_.Ranks("even");
  ASSERT_TRUE(reply);
  ASSERT_THAT(reply->ranks(), SizeIs(4));
  EXPECT_THAT(reply->ranks(), Each(Property(&v1::RankSummary::course, v1::RANK_COURSE_EVEN)))
      << reply->DebugString();
  EXPECT_EQ(reply->summary(), "");
  EXPECT_GT(reply->iterations(), 60);
}

TEST_F(SlowRanksTest, ARankThatDoesNotComeIsWaitedForAndARestartedDaemonSaysSoToo) {
  RankJobOptions options = Options("hangs", 2, 100'000);
  options.workload.insert(options.workload.end(), {"--hang", "1@150"});
  pid_t job = jobs_.Start(options);
  const v1::Standstill found = AwaitStandstill("hangs");
  EXPECT_THAT(found.awaited(), testing::ElementsAre(1));
  EXPECT_THAT(found.message(),
              AllOf(HasSubstr("rank 0 waits for rank 1, which has not called AllReduce number"),
                    HasSubstr("nothing has moved for")));
  jobs_.RestartDaemon();
  EXPECT_THAT(AwaitStandstill("hangs").awaited(), testing::ElementsAre(1));
  KillAndWait(&job, SIGTERM);
}

TEST_F(SlowRanksTest, ARankThatDiesInACollectiveIsNamed) {
  RankJobOptions options = Options("dies", 2, 100'000);
  options.workload.insert(options.workload.end(), {"--die", "0@150"});
  options.by_hand = true;
  pid_t job = jobs_.Start(options);
  const v1::Standstill found = AwaitStandstill("dies");
  EXPECT_THAT(found.message(),
              AllOf(HasSubstr("rank 0 was killed or crashed"), HasSubstr("rank 1 waits")));
  KillAndWait(&job, SIGTERM);
}

}  // namespace
}  // namespace seqpoint
