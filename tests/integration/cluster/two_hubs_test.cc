// Two hubs on one PostgreSQL, and a job on two nodes, each of which goes to another hub first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/cluster/same_iterations.h"
#include "tests/support/api.h"
#include "tests/support/node_jobs.h"
#include "tests/support/private_postgres.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class TwoHubsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = PrivatePostgres::Missing(); !missing.empty()) {
      std::cout << "skipped: " << missing << "\n";
      GTEST_SKIP() << missing;
    }
    server_ = std::make_unique<PrivatePostgres>();
    ASSERT_TRUE(server_->Start() && server_->CreateDatabase("hub")) << server_->Log();
    NodeJobsOptions options;
    options.hub_store = server_->AddressOf("hub");
    options.hubs = 2;
    jobs_ = std::make_unique<NodeJobs>(folder_.path(), options);
  }
  ~TwoHubsTest() override {
    if (HasFailure()) folder_.Keep();
  }

  // The hub that answers when this one is asked, once it is not `but`. -1: nobody does.
  int Leader(int asked, int but = -1) {
    for (int tenth = 0; tenth < 200; ++tenth) {
      const auto daemon =
          jobs_->Ask(NodeJobs::HubName(asked)).Call(&v1::Profiler::Stub::GetDaemon, {});
      for (int hub : {0, 1}) {
        if (daemon && daemon->pid() == jobs_->hub(hub) && hub != but) return hub;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return -1;
  }
  // The address of the hub that leads, as `seqpoint nodes` shows it to who asks this one.
  std::string ShownLeader(int asked) {
    const auto nodes =
        jobs_->Ask(NodeJobs::HubName(asked)).Call(&v1::Profiler::Stub::ListNodes, {});
    return nodes ? nodes->leader() : "nobody answers";
  }
  std::string LogOf(int hub) const {
    std::ifstream in(jobs_->Folder(NodeJobs::HubName(hub)) / "daemon.log");
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  TempFolder folder_;
  std::unique_ptr<PrivatePostgres> server_;
  std::unique_ptr<NodeJobs> jobs_;
};

TEST_F(TwoHubsTest, OneLeadsBothAnswerAndTheLossOfEitherLosesNothingAndCountsNothingTwice) {
  constexpr int kIterations = 6000;
  const int first_leader = Leader(0);
  ASSERT_NE(first_leader, -1) << LogOf(0);
  EXPECT_EQ(Leader(1), first_leader);
  for (const int asked : {0, 1}) {
    EXPECT_THAT(ShownLeader(asked),
                HasSubstr("/" + NodeJobs::HubName(first_leader) + "/run/api.sock"));
  }
  EXPECT_THAT(LogOf(first_leader), ContainsRegex("ready: .*; at most [0-9]+ clients\n"));
  const std::vector<std::string> workload = {
      "--model",  "transformer", "--parallel",       "tensor",
      "--epochs", "100",         "--max-iterations", std::to_string(kIterations)};
  const pid_t first = jobs_->Start(0, "shared", workload);
  const pid_t second = jobs_->Start(1, "shared", workload);
  std::this_thread::sleep_for(std::chrono::seconds(2));

  // The one that leads is killed.
  const int other = 1 - first_leader;
  jobs_->KillHub(first_leader);
  ASSERT_EQ(Leader(other, first_leader), other) << LogOf(other);
  EXPECT_THAT(LogOf(other), HasSubstr("this hub leads from now on"));
  jobs_->StartHub(first_leader);
  EXPECT_EQ(Leader(first_leader), other);

  // Its successor is paused for longer than its lease, and goes on.
  kill(jobs_->hub(other), SIGSTOP);
  EXPECT_EQ(Leader(first_leader, other), first_leader) << LogOf(first_leader);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  kill(jobs_->hub(other), SIGCONT);
  EXPECT_EQ(Leader(other, other), first_leader) << LogOf(other);
  EXPECT_THAT(LogOf(other), HasSubstr("this hub forgets what it knows"));
  const auto running = jobs_->Job(NodeJobs::HubName(other), "shared");
  ASSERT_TRUE(running);
  EXPECT_NE(running->live_processes(), 0) << "too late to lose anything";

  ASSERT_EQ(WaitFor(first), 0);
  ASSERT_EQ(WaitFor(second), 0);
  const auto job = jobs_->AwaitEnd("shared");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->iterations(), kIterations) << job->DebugString();
  EXPECT_THAT(job->processes(), SizeIs(jobs_->ranks()));
  for (const int hub : {0, 1}) ExpectSameIterations(*jobs_, "shared", NodeJobs::HubName(hub));
  EXPECT_EQ(jobs_->Job("hub2", "shared")->DebugString(),
            jobs_->Job("hub", "shared")->DebugString());
}

}  // namespace
}  // namespace seqpoint
