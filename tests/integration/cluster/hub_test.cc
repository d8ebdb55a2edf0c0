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

#include "tests/support/api.h"
#include "tests/support/private_postgres.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kRanks = 4, kRanksOfNode = 2;

class HubTest : public testing::Test {
 protected:
  // `hub_store`: of another backend than SQLite.
  explicit HubTest(std::string hub_store = "") : hub_store_(std::move(hub_store)) {
    for (const char* name : {"hub", "node0", "node1"}) {
      std::filesystem::create_directories(folder_.path() / name);
    }
    StartHub();
    for (int node : {0, 1}) StartNode(node);
  }
  ~HubTest() override {
    for (pid_t& node : nodes_) KillAndWait(&node, SIGKILL);
    KillAndWait(&hub_, SIGKILL);
    if (HasFailure()) folder_.Keep();
  }

  std::filesystem::path Folder(const std::string& name) const { return folder_.path() / name; }
  void StartHub() {
    std::vector<std::string> options = {"--accept-nodes"};
    if (!hub_store_.empty()) options.insert(options.end(), {"--store", hub_store_});
    hub_ = SpawnDaemon(Folder("hub"), {}, options);
  }
  void StartNode(int node) {
    const std::string socket = (Folder("hub") / "run/api.sock").string();
    const std::filesystem::path folder = Folder("node" + std::to_string(node));
    nodes_[node] = SpawnDaemon(folder, {}, {"--hub", "unix:" + socket});
    // Where none answers, `seqpoint run` starts one of its own.
    ASSERT_TRUE(Ask("node" + std::to_string(node)).Call(&v1::Profiler::Stub::ListJobs, {}));
  }
  Api Ask(const std::string& daemon) const { return Api(Folder(daemon) / "run/api.sock"); }

  // The ranks of one node, under its daemon.
  pid_t Launch(int node, const std::string& job, int iterations) {
    const std::filesystem::path folder = Folder("node" + std::to_string(node));
    const int first = node * kRanksOfNode;
    std::vector<std::string> command = {
        "/usr/bin/env",
        "SEQPOINT_DIR=" + (folder / "run").string(),
        "XDG_STATE_HOME=" + (folder / "state").string(),
        "LD_LIBRARY_PATH=" + (BinaryDirectory().parent_path() / "softgpu").string(),
        "SWGPU_SET=gpu.count=4,clock.speed_cap=4",
        (BinaryDirectory() / "seqpoint").string(),
        "run",
        "--job",
        job,
        "--run-id",
        "1",
        "--quiet",
        "--",
        "/bin/sh",
        "-c",
        "pids=; for rank in " + std::to_string(first) + " " + std::to_string(first + 1) +
            "; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=" + std::to_string(kRanks) +
            " LOCAL_WORLD_SIZE=" + std::to_string(kRanks) +
            " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(20'000 + getpid() % 10'000) +
            " \"$@\" & pids=\"$pids $!\"; done; for pid in $pids; do wait $pid || exit 1; done",
        "sh",
        (BinaryDirectory() / "seqpoint_workload").string(),
        "--quiet",
        "--model",
        "transformer",
        "--parallel",
        "tensor",
        "--epochs",
        "100",
        "--max-iterations",
        std::to_string(iterations),
        "--slow",
        "3:kernels:1.3@200-100000"};
    return Spawn(command, folder / "job.log");
  }

  std::optional<v1::Job> Job(const std::string& daemon, const std::string& job) {
    v1::GetJobRequest request;
    request.set_job(job);
    const auto reply = Ask(daemon).Call(&v1::Profiler::Stub::GetJob, request);
    if (!reply) return std::nullopt;
    return reply->job();
  }
  // Until the hub knows that all processes have ended.
  std::optional<v1::Job> AwaitEnd(const std::string& job) {
    std::optional<v1::Job> seen;
    for (int tenth = 0; tenth < 300; ++tenth) {
      seen = Job("hub", job);
      const bool all = seen && seen->processes_size() == kRanks;
      if (all && seen->state() != v1::JOB_STATE_MARKING &&
          seen->state() != v1::JOB_STATE_LEARNING) {
        return seen;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return seen;
  }
  // The hub has the iterations of the nodes, each once, as they were.
  void ExpectSameIterations(const std::string& job) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto expected = Ask("node" + std::to_string(rank / kRanksOfNode)).Iterations(job, rank);
      auto seen = Ask("hub").Iterations(job, rank);
      // A store that was away takes the last ones when it is tried again.
      for (int i = 0; i < 100 && seen && expected && seen->size() < expected->size(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        seen = Ask("hub").Iterations(job, rank);
      }
      ASSERT_TRUE(expected && seen) << rank;
      ASSERT_EQ(seen->size(), expected->size()) << rank;
      for (size_t i = 0; i < seen->size(); ++i) {
        EXPECT_EQ((*seen)[i].number(), (*expected)[i].number());
        EXPECT_EQ((*seen)[i].lengths(0), (*expected)[i].lengths(0)) << rank << " " << i;
        EXPECT_EQ((*seen)[i].start_ns(), (*expected)[i].start_ns()) << rank << " " << i;
        EXPECT_EQ((*seen)[i].duration_ns(), (*expected)[i].duration_ns()) << rank << " " << i;
      }
    }
  }

  const std::string hub_store_;
  TempFolder folder_;
  pid_t hub_ = 0;
  pid_t nodes_[2] = {};
};

TEST_F(HubTest, AJobOnTwoNodesIsOneJobWithASlowRankAndTraces) {
  constexpr int kIterations = 2500;
  const pid_t first = Launch(0, "two", kIterations), second = Launch(1, "two", kIterations);
  ASSERT_EQ(WaitFor(first), 0);
  ASSERT_EQ(WaitFor(second), 0);
  const auto job = AwaitEnd("two");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_ENDED) << job->DebugString();
  EXPECT_EQ(job->iterations(), kIterations);
  EXPECT_EQ(job->error(), "");
  ExpectSameIterations("two");
  // No node sees all ranks; the hub does.
  v1::GetRanksRequest request;
  request.set_job("two");
  const auto ranks = Ask("hub").Call(&v1::Profiler::Stub::GetRanks, request);
  ASSERT_TRUE(ranks);
  ASSERT_THAT(ranks->ranks(), SizeIs(kRanks)) << ranks->DebugString();
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks->ranks(rank).course() == v1::RANK_COURSE_SLOW, rank == 3)
        << ranks->DebugString();
  }

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

  KillAndWait(&nodes_[1], SIGKILL);
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
    KillAndWait(&hub_, SIGKILL);
    pause();
    StartHub();
    pause();
    KillAndWait(&nodes_[round % 2], SIGKILL);
    StartNode(round % 2);
  }
  ASSERT_EQ(WaitFor(first), 0);
  ASSERT_EQ(WaitFor(second), 0);
  const auto job = AwaitEnd("killed");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->iterations(), kIterations) << job->DebugString();
  ExpectSameIterations("killed");
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
  HubOnPostgresTest() : HubTest(address) {}
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
    KillAndWait(&hub_, SIGKILL);
    pause();
    StartHub();
    pause();
    server->Kill();
    pause();
    ASSERT_TRUE(server->Start()) << server->Log();
  }
  ASSERT_EQ(WaitFor(first), 0);
  ASSERT_EQ(WaitFor(second), 0);
  const auto job = AwaitEnd("stored");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->iterations(), kIterations) << job->DebugString();
  ExpectSameIterations("stored");
}

}  // namespace
}  // namespace seqpoint
