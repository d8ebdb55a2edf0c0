// One job on two nodes, each with a daemon of its own, told to a hub.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/cluster/same_iterations.h"
#include "tests/support/api.h"
#include "tests/support/node_jobs.h"
#include "tests/support/private_postgres.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kRanks = 4;

class HubTest : public testing::Test {
 protected:
  explicit HubTest(NodeJobsOptions options = {}) : jobs_(folder_.path(), std::move(options)) {}
  ~HubTest() override {
    if (HasFailure()) folder_.Keep();
  }

  std::filesystem::path Folder(const std::string& name) const { return jobs_.Folder(name); }
  Api Ask(const std::string& daemon) const { return jobs_.Ask(daemon); }
  static std::vector<std::string> Workload(int iterations) {
    return {"--model",          "transformer",
            "--parallel",       "tensor",
            "--epochs",         "100",
            "--max-iterations", std::to_string(iterations),
            "--slow",           "3:kernels:1.3@200-100000"};
  }
  pid_t Launch(int node, const std::string& job, int iterations) {
    return jobs_.Start(node, job, Workload(iterations));
  }
  // The hub knows the slow rank, and no other.
  void ExpectSlowRank(const std::string& job) {
    v1::GetRanksRequest request;
    request.set_job(job);
    const auto ranks = Ask("hub").Call(&v1::Profiler::Stub::GetRanks, request);
    ASSERT_TRUE(ranks);
    ASSERT_THAT(ranks->ranks(), SizeIs(kRanks)) << ranks->DebugString();
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(ranks->ranks(rank).course() == v1::RANK_COURSE_SLOW, rank == 3)
          << ranks->DebugString();
    }
  }

  TempFolder folder_;
  NodeJobs jobs_;
};

TEST_F(HubTest, AJobOnTwoNodesIsOneJobWithASlowRankAndTraces) {
  constexpr int kIterations = 2500;
  ASSERT_TRUE(jobs_.Run("two", Workload(kIterations)));
  const auto job = jobs_.AwaitEnd("two");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_ENDED) << job->DebugString();
  EXPECT_EQ(job->iterations(), kIterations);
  EXPECT_EQ(job->error(), "");
  ExpectSameIterations(jobs_, "two");
  ExpectSlowRank("two");  // no node sees all ranks

  // Traces stay on the nodes until somebody asks the hub.
  const auto traced = [&](const std::string& daemon) {
    const std::string file = (Folder(daemon) / "two.json").string();
    const pid_t export_pid =
        Spawn({"/usr/bin/env", "SEQPOINT_DIR=" + (Folder(daemon) / "run").string(),
               (BinaryDirectory() / "seqpoint").string(), "export", "two", "--chrome", file},
              Folder(daemon) / "export.log");
    EXPECT_EQ(WaitFor(export_pid), 0) << daemon;
    std::ifstream in(file);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    int steps = 0;
    for (size_t at = text.find("ProfilerStep#"); at != std::string::npos;
         at = text.find("ProfilerStep#", at + 1)) {
      ++steps;
    }
    return std::pair(steps, text);
  };
  const int on_nodes = traced("node0").first + traced("node1").first;
  EXPECT_GT(on_nodes, 0);
  EXPECT_EQ(traced("hub").first, on_nodes);
  EXPECT_EQ(traced("hub").first, on_nodes) << "each is fetched once";
  EXPECT_THAT(traced("hub").second, Not(HasSubstr("missing")));

  // A what-if over ranks needs the traces of all of them.
  v1::WhatIfRequest what_if;
  what_if.set_job("two");
  what_if.add_changes()->set_preset("without-slow-rank,rank=3");
  Api hub = Ask("hub");
  const auto answer = hub.Call(&v1::Profiler::Stub::WhatIf, what_if);
  ASSERT_TRUE(answer) << hub.error();
  EXPECT_THAT(answer->basis(), Not(HasSubstr("missing")));

  v1::ListNodesReply nodes = *Ask("hub").Call(&v1::Profiler::Stub::ListNodes, {});
  ASSERT_THAT(nodes.nodes(), SizeIs(2));
  EXPECT_TRUE(nodes.nodes(0).connected() && nodes.nodes(1).connected()) << nodes.DebugString();
  const auto node = Ask("node1").Call(&v1::Profiler::Stub::GetDaemon, {});
  EXPECT_TRUE(node->hub().connected()) << node->DebugString();
  EXPECT_EQ(node->hub().waiting_batches(), 0);

  jobs_.KillNode(1);
  EXPECT_THAT(traced("hub").second, HasSubstr("traces of ranks 2, 3 are missing: node "));
  nodes = *Ask("hub").Call(&v1::Profiler::Stub::ListNodes, {});
  ASSERT_THAT(nodes.nodes(), SizeIs(2));
  EXPECT_NE(nodes.nodes(0).connected(), nodes.nodes(1).connected()) << nodes.DebugString();
}

TEST_F(HubTest, KilledDaemonsLoseNothingAndCountNothingTwice) {
  constexpr int kIterations = 4000;
  const pid_t first = Launch(0, "killed", kIterations), second = Launch(1, "killed", kIterations);
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(700)); };
  pause();
  for (int round = 0; round < 3; ++round) {
    pause();
    jobs_.KillHub();
    pause();
    jobs_.StartHub();
    pause();
    jobs_.KillNode(round % 2);
    EXPECT_TRUE(jobs_.StartNode(round % 2));
  }
  ASSERT_EQ(WaitFor(first), 0);
  ASSERT_EQ(WaitFor(second), 0);
  const auto job = jobs_.AwaitEnd("killed");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->iterations(), kIterations) << job->DebugString();
  ExpectSameIterations(jobs_, "killed");
}

// Its daemon and its ranks are five seconds ahead, and become so while they run.
class HubWithALateNodeTest : public HubTest {
 protected:
  HubWithALateNodeTest()
      : HubTest({.last_node = {"LD_PRELOAD=" + (BinaryDirectory().parent_path() /
                                                "lib/libseqpoint_test_set_clock.so")
                                                   .string(),
                               "SEQPOINT_TEST_SET_CLOCK=3,5"}}) {}
};

TEST_F(HubWithALateNodeTest, ANodeWhoseClockIsSetIsInTheJobAsBefore) {
  constexpr int kIterations = 2500;
  ASSERT_TRUE(jobs_.Run("late", Workload(kIterations)));
  const auto job = jobs_.AwaitEnd("late");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_ENDED) << job->DebugString();
  EXPECT_EQ(job->iterations(), kIterations);
  ExpectSameIterations(jobs_, "late");
  ExpectSlowRank("late");
}

// The server of a hub's store, before the hub.
struct HubServer {
  HubServer() {
    if (!PrivatePostgres::Missing().empty()) return;
    server.emplace();
    if (server->Start() && server->CreateDatabase("hub")) address = server->AddressOf("hub");
  }
  std::optional<PrivatePostgres> server;
  std::string address;
};

class HubOnPostgresTest : public HubServer, public HubTest {
 protected:
  HubOnPostgresTest() : HubTest({.hub_store = address}) {}
  void SetUp() override {
    if (const std::string missing = PrivatePostgres::Missing(); !missing.empty()) {
      std::cout << "skipped: " << missing << "\n";
      GTEST_SKIP() << missing;
    }
    ASSERT_NE(address, "") << server->Log();
  }
};

TEST_F(HubOnPostgresTest, AKilledHubAndAKilledServerLoseNothingAndCountNothingTwice) {
  constexpr int kIterations = 4000;
  const pid_t first = Launch(0, "stored", kIterations), second = Launch(1, "stored", kIterations);
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(700)); };
  for (int round = 0; round < 2; ++round) {
    pause();
    jobs_.KillHub();
    pause();
    jobs_.StartHub();
    pause();
    server->Kill();
    pause();
    ASSERT_TRUE(server->Start()) << server->Log();
  }
  ASSERT_EQ(WaitFor(first), 0);
  ASSERT_EQ(WaitFor(second), 0);
  const auto job = jobs_.AwaitEnd("stored");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->iterations(), kIterations) << job->DebugString();
  ExpectSameIterations(jobs_, "stored");
}

TEST_F(HubOnPostgresTest, AHubThatStartsBeforeItsServerWaitsForIt) {
  jobs_.KillHub();
  server->Kill();
  jobs_.StartHub();
  ASSERT_TRUE(jobs_.Run("waited", Workload(100)));  // nodes need no hub
  EXPECT_FALSE(Ask("hub").Call(&v1::Profiler::Stub::ListJobs, {}));
  ASSERT_TRUE(server->Start()) << server->Log();
  const auto job = jobs_.AwaitEnd("waited");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->iterations(), 100) << job->DebugString();
}

}  // namespace
}  // namespace seqpoint
