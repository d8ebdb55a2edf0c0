// One of two nodes fails: its disk is full, its machine is started again, it is killed when its run
// is over, its store goes back in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/integration/cluster/same_iterations.h"
#include "tests/support/api.h"
#include "tests/support/node_jobs.h"
#include "tests/support/small_disk.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;

// The node that something happens to, and its ranks.
constexpr int kFaulty = 1, kFirstRank = 2, kRanksOfBoth = 4;

std::vector<std::string> TensorParallel(int iterations) {
  return {"--model",  "transformer", "--parallel",       "tensor",
          "--epochs", "100",         "--max-iterations", std::to_string(iterations)};
}

// Asks for up to 30 s, until it is true.
template <typename Condition>
bool Await(const Condition& condition) {
  for (int tenth = 0; tenth < 300; ++tenth) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(100));
  }
  return false;
}

class HubFaultsTest : public testing::Test {
 protected:
  explicit HubFaultsTest(NodeJobsOptions options = {})
      : jobs_(folder_.path(), std::move(options)) {}
  ~HubFaultsTest() override {
    if (HasFailure()) folder_.Keep();
  }
  std::string LogOf(const std::string& daemon) const {
    std::ifstream in(jobs_.Folder(daemon) / "daemon.log");
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  TempFolder folder_;
  NodeJobs jobs_;
};

TEST_F(HubFaultsTest, NodesThatAreKilledWhenTheirRunIsOverHaveToldTheHubEverything) {
  constexpr int kIterations = 800;
  ASSERT_TRUE(jobs_.Run("over", TensorParallel(kIterations)));
  jobs_.KillNode(0);
  jobs_.KillNode(1);
  const auto job = jobs_.AwaitEnd("over");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_ENDED) << job->DebugString();
  EXPECT_EQ(job->iterations(), kIterations);
}

TEST_F(HubFaultsTest, ANodeWhoseStoreIsAnOlderCopyTakesANewIdAndTheHubHasAllThatCame) {
  constexpr int kIterations = 100, kMany = 1'000'000;
  const std::filesystem::path node = jobs_.Folder(NodeJobs::NameOf(kFaulty));
  const std::filesystem::path copy = folder_.path() / "copy";
  constexpr auto kReplace = std::filesystem::copy_options::overwrite_existing;
  const std::vector<std::string> files = {"store.db", "store.db-wal"};
  ASSERT_TRUE(jobs_.Run("before", TensorParallel(kIterations)));
  ASSERT_TRUE(jobs_.AwaitEnd("before"));
  jobs_.KillNode(kFaulty);
  std::filesystem::create_directory(copy);
  for (const std::string& file : files) std::filesystem::copy_file(node / file, copy / file);
  ASSERT_TRUE(jobs_.StartNode(kFaulty));
  ASSERT_TRUE(jobs_.Run("between", TensorParallel(kIterations)));
  ASSERT_TRUE(jobs_.AwaitEnd("between"));

  // The copy writes more batches than the hub has, and only then meets it.
  jobs_.KillHub();
  jobs_.KillNode(kFaulty);
  std::filesystem::remove(node / "store.db-shm");
  for (const std::string& file : files) {
    std::filesystem::copy_file(copy / file, node / file, kReplace);
  }
  ASSERT_TRUE(jobs_.StartNode(kFaulty));
  const pid_t first = jobs_.Start(0, "after", TensorParallel(kMany));
  const pid_t second = jobs_.Start(kFaulty, "after", TensorParallel(kMany));
  ASSERT_TRUE(Await([&] {
    return jobs_.Job(NodeJobs::NameOf(kFaulty), "after").value_or(v1::Job()).iterations() > 1000;
  }));
  jobs_.StartHub();
  for (const int each : {0, kFaulty}) {  // a new daemon does not wait until it tries again
    jobs_.KillNode(each);
    ASSERT_TRUE(jobs_.StartNode(each));
  }
  const auto on_hub = [&] { return jobs_.Job("hub", "after").value_or(v1::Job()); };
  ASSERT_TRUE(Await([&] { return on_hub().processes_size() == kRanksOfBoth; }));
  const int64_t when_all = on_hub().iterations();
  EXPECT_TRUE(Await([&] { return on_hub().iterations() > when_all + 100; }));
  const v1::Job running = on_hub();
  EXPECT_EQ(running.live_processes(), kRanksOfBoth) << running.DebugString();
  for (const v1::Process& process : running.processes()) kill(process.pid(), SIGKILL);
  WaitFor(first);
  WaitFor(second);
  ASSERT_TRUE(Await([&] { return on_hub().live_processes() == 0; }));
  ExpectSameIterations(jobs_, "after");
  for (const std::string known : {"before", "between"}) {
    const auto kept = jobs_.Job("hub", known);
    ASSERT_TRUE(kept);
    EXPECT_EQ(kept->processes_size(), kRanksOfBoth) << kept->DebugString();
    EXPECT_EQ(kept->iterations(), kIterations);
  }
  EXPECT_THAT(LogOf("hub"), HasSubstr("was replaced by an older copy"));
  EXPECT_THAT(LogOf(NodeJobs::NameOf(kFaulty)), HasSubstr("the node takes a new one"));
}

// The folder, and then the disk in it, are there before the daemons.
struct FolderWithDisk {
  TempFolder outer;
  SmallDisk disk{outer.path() / NodeJobs::NameOf(kFaulty), /*mib=*/160};
};

class FullDiskTest : public testing::Test, protected FolderWithDisk {
 protected:
  void SetUp() override {
    if (!disk.error().empty()) {
      std::cout << "skipped: " << disk.error() << "\n";
      GTEST_SKIP() << disk.error();
    }
  }
};

TEST_F(FullDiskTest, TracesAreDroppedAndCountedAndNoIterationIs) {
  constexpr int kMany = 1'000'000;
  NodeJobs jobs(outer.path());
  const std::string node = NodeJobs::NameOf(kFaulty);
  const pid_t first = jobs.Start(0, "full", TensorParallel(kMany));
  const pid_t second = jobs.Start(kFaulty, "full", TensorParallel(kMany));
  const auto on_hub = [&] { return jobs.Job("hub", "full").value_or(v1::Job()); };
  ASSERT_TRUE(Await([&] { return on_hub().iterations() > 300; }));
  // Each iteration of the node leaves a trace.
  v1::ControlRequest order;
  order.set_job("full");
  order.set_action(v1::ControlRequest::ACTION_SET_LEVEL);
  order.set_level(v1::LEVEL_TRACE);
  ASSERT_TRUE(jobs.Ask(node).Call(&v1::Profiler::Stub::Control, order));

  disk.Fill();
  EXPECT_EQ(disk.available(), 0u);
  EXPECT_TRUE(Await([&] { return on_hub().losses().unstored_records() > 0; }))
      << on_hub().DebugString();
  EXPECT_THAT(on_hub().error(), HasSubstr("the disk of a daemon's store was full"));
  const int64_t when_full = on_hub().iterations();
  EXPECT_TRUE(Await([&] { return on_hub().iterations() > when_full + 300; }));
  const auto daemon = jobs.Ask(node).Call(&v1::Profiler::Stub::GetDaemon, {});
  ASSERT_TRUE(daemon);
  EXPECT_EQ(daemon->error(), "");  // it can store what is left

  disk.Free();
  const auto stored = [&] {
    std::ifstream in(jobs.Folder(node) / "daemon.log");
    const std::string log(std::istreambuf_iterator<char>(in), {});
    return log.find("traces are stored again") != std::string::npos;
  };
  EXPECT_TRUE(Await(stored));
  const v1::Job running = on_hub();
  EXPECT_EQ(running.live_processes(), kRanksOfBoth) << "too late to store anything";
  for (const v1::Process& process : running.processes()) kill(process.pid(), SIGKILL);
  WaitFor(first);
  WaitFor(second);
  ASSERT_TRUE(Await([&] { return on_hub().live_processes() == 0; }));
  const auto job = jobs.AwaitEnd("full");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->losses().ring_dropped(), 0);
  const auto of_node = jobs.Job(node, "full");
  ASSERT_TRUE(of_node);
  EXPECT_EQ(job->losses().unstored_records(), of_node->losses().unstored_records());
  for (int rank = 0; rank < kRanksOfBoth; ++rank) {
    const auto expected = jobs.OnNode("full", rank);
    ASSERT_TRUE(expected) << rank;
    const auto seen = jobs.OnHub("full", rank, expected->size());
    ASSERT_TRUE(seen) << rank;
    EXPECT_EQ(seen->size(), expected->size()) << rank;
  }
  if (HasFailure()) outer.Keep();
}

// The last node reads the id of its boot from a file.
struct BootFile {
  BootFile() { Set("first"); }
  void Set(const std::string& id) const { std::ofstream(boot.path() / "id") << id << "\n"; }
  TempFolder boot;
};

class RebootTest : public BootFile, public HubFaultsTest {
 protected:
  RebootTest()
      : HubFaultsTest({.last_node = {"LD_PRELOAD=" + (BinaryDirectory().parent_path() /
                                                      "lib/libseqpoint_test_set_boot.so")
                                                         .string(),
                                     "SEQPOINT_TEST_BOOT_ID=" + (boot.path() / "id").string()}}) {}
};

TEST_F(RebootTest, WhatANodeHadReadReachesTheHubItsProcessesEndAndTheRunGoesOn) {
  constexpr int kMany = 1'000'000;
  const pid_t first = jobs_.Start(0, "reboot", TensorParallel(kMany));
  const pid_t second = jobs_.Start(kFaulty, "reboot", TensorParallel(kMany));
  const auto on_hub = [&] { return jobs_.Job("hub", "reboot").value_or(v1::Job()); };
  const auto processes = [&] {
    const v1::Job job = on_hub();
    return std::vector<v1::Process>(job.processes().begin(), job.processes().end());
  };
  ASSERT_TRUE(Await([&] { return on_hub().iterations() > 300; }));
  // Without the hub, so that something waits in the outbox.
  jobs_.KillHub();
  absl::SleepFor(absl::Seconds(1));
  jobs_.KillNode(kFaulty);
  // Its ranks are gone with the machine. They stay here as they are, with their process ids and the
  // times at which they started: the boot alone tells that they are others.
  std::vector<pid_t> ranks;
  const auto before = jobs_.Job("node0", "reboot");
  ASSERT_TRUE(before);
  jobs_.StartHub();
  ASSERT_TRUE(Await([&] { return on_hub().processes_size() == kRanksOfBoth; }));
  for (const v1::Process& process : processes()) {
    if (process.rank() >= kFirstRank) ranks.push_back(process.pid());
  }
  for (const pid_t pid : ranks) kill(pid, SIGSTOP);
  Set("second");
  ASSERT_TRUE(jobs_.StartNode(kFaulty));

  const auto alive = [&](bool of_faulty) {
    int count = 0;
    for (const v1::Process& process : processes()) {
      count += process.end_ns() == 0 && (process.rank() >= kFirstRank) == of_faulty ? 1 : 0;
    }
    return count;
  };
  EXPECT_TRUE(Await([&] { return alive(true) == 0; })) << on_hub().DebugString();
  EXPECT_EQ(alive(false), 2) << "those of the other node go on";
  ExpectSameIterations(jobs_, "reboot");

  // The launcher starts the ranks of both nodes again.
  for (const pid_t pid : ranks) kill(pid, SIGKILL);
  for (const v1::Process& process : processes()) kill(process.pid(), SIGKILL);
  WaitFor(first);
  WaitFor(second);
  constexpr int kIterations = 500;
  ASSERT_TRUE(jobs_.Run("reboot", TensorParallel(kIterations)));
  ASSERT_TRUE(Await([&] {
    return on_hub().processes_size() == 2 * kRanksOfBoth && on_hub().live_processes() == 0;
  })) << on_hub().DebugString();
  EXPECT_EQ(on_hub().run_id(), "1");
  ExpectSameIterations(jobs_, "reboot");
}

}  // namespace
}  // namespace seqpoint
