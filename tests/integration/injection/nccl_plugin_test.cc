// The injected library as NCCL's profiler plugin: what it records is compared with the truth of the
// software NCCL.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/integration/injection/nccl_plugin_fixture.h"

namespace seqpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Versions : public NcclPluginTest, public ::testing::WithParamInterface<int> {};

TEST_P(Versions, EveryOperationArrivesOnceAndInOrder) {
  const int version = GetParam();
  Strings steps = {"init_named"};
  constexpr int kIterations = 6;
  for (int i = 0; i < kIterations; ++i) {
    for (const char* step :
         {"compute:50000", "follow", "1=host:30000", "allreduce:1000", "allreduce:500000",
          "allgather:1000", "group", "0=send:1:100", "1=recv:0:100", "end", "sync", "sleep:2"}) {
      steps.push_back(step);
    }
  }
  steps.push_back("destroy");
  Run("nccl.profiler_version=" + std::to_string(version) + ",", Control(2, 1), steps);
  ExpectSuccess();
  for (int r = 0; r < 2; ++r) {
    SCOPED_TRACE("rank " + std::to_string(r));
    PuppetProcess& seen = process(ranks_[static_cast<size_t>(r)]);
    ASSERT_EQ(seen.communicators.size(), 1u);
    const abi::CommunicatorEvent& communicator = seen.communicators[0].event;
    EXPECT_EQ(communicator.version, static_cast<uint32_t>(version));
    EXPECT_EQ(communicator.rank, r);
    EXPECT_EQ(communicator.ranks, version >= 4 ? 2 : 0);
    EXPECT_NE(communicator.hash, 0u);
    EXPECT_EQ(seen.communicators[0].name, "world");
    EXPECT_THAT(seen.Message(abi::Feature::kNccl),
                HasSubstr("interface version " + std::to_string(version)));

    const std::vector<Truth> truth = TruthOf(r);
    const std::vector<Seen> arrivals = Arrivals(seen);
    ASSERT_EQ(arrivals.size(), truth.size());
    ASSERT_EQ(truth.size(), size_t{4 * kIterations});
    for (size_t i = 0; i < truth.size(); ++i) {
      EXPECT_EQ(arrivals[i].function, truth[i].function) << i;
      if (truth[i].function == "AllReduce" || truth[i].function == "AllGather") {
        EXPECT_EQ(arrivals[i].sequence, truth[i].sequence) << i;
      }
      EXPECT_EQ(arrivals[i].iteration, arrivals[0].iteration + i / 4) << i;
    }

    std::vector<abi::CollectiveRecord> times;
    for (const abi::DataRecord& record : seen.collectives) {
      if (record.type == static_cast<uint16_t>(abi::DataType::kCollective)) {
        times.push_back(record.collective);
      }
    }
    if (version < 4) {
      EXPECT_TRUE(times.empty());
      continue;
    }
    std::stable_sort(times.begin(), times.end(), [](const auto& a, const auto& b) {
      return std::tie(a.host_ns, a.gpu_start_ns) < std::tie(b.host_ns, b.gpu_start_ns);
    });
    size_t next = 0;
    for (size_t i = 0; i < truth.size(); ++i) {
      if (arrivals[i].iteration % 2 != 1) continue;
      ASSERT_LT(next, times.size());
      const abi::CollectiveRecord& time = times[next++];
      EXPECT_EQ(time.iteration, arrivals[i].iteration) << i;
      EXPECT_EQ(time.sequence, arrivals[i].sequence) << i;
      EXPECT_EQ(time.kind, arrivals[i].kind) << i;
      EXPECT_EQ(time.host_ns, arrivals[i].at_ns) << i;
      EXPECT_EQ(time.gpu_start_ns, truth[i].arrival_ns) << i;
      EXPECT_EQ(time.gpu_end_ns, truth[i].end_ns) << i;
    }
    EXPECT_EQ(next, times.size());
    EXPECT_EQ(next, truth.size() / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Plugin, Versions, ::testing::Range(1, 7),
                         [](const ::testing::TestParamInfo<int>& version) {
                           return "V" + std::to_string(version.param);
                         });

TEST_F(NcclPluginTest, CommunicatorsComeAndGo) {
  Strings steps = {"init", "compute:1000"};
  for (int i = 0; i < 70; ++i) {
    steps.insert(steps.end(), {"use:0", "split:0:0", "allreduce:10", "destroy"});
  }
  steps.insert(steps.end(), {"use:0", "allreduce:20", "sync", "destroy"});
  Run("", Control(), steps);
  ExpectSuccess();
  for (Rank& rank : ranks_) {
    EXPECT_EQ(process(rank).communicators.size(), 71u);
    std::set<uint16_t> communicators;
    for (const Seen& seen : Arrivals(process(rank))) communicators.insert(seen.communicator);
    EXPECT_EQ(communicators.size(), 71u);
    EXPECT_EQ(Arrivals(process(rank)).size(), 71u);
  }
}

TEST_F(NcclPluginTest, MoreCommunicatorsThanThereIsRoomForAreSaid) {
  Strings steps = {"init", "compute:1000"};
  for (int i = 0; i < 258; ++i) steps.insert(steps.end(), {"use:0", "split:0:0", "allreduce:10"});
  steps.insert(steps.end(), {"use:0", "allreduce:20", "sync"});
  Run("", Control(), steps);
  ExpectSuccess();
  for (Rank& rank : ranks_) {
    EXPECT_EQ(Arrivals(process(rank)).size(), 256u);
    const auto said = std::any_of(
        process(rank).features.begin(), process(rank).features.end(), [](const auto& feature) {
          return feature.feature == abi::Feature::kNccl &&
                 feature.state == abi::FeatureState::kFailed &&
                 feature.message.find("more than 256 communicators") != std::string::npos;
        });
    EXPECT_TRUE(said);
  }
}

// CUDA is another tool's, and the framework's adapter brings the profiler after NCCL began.
TEST_F(NcclPluginTest, ACommunicatorThatIsOlderThanTheProfilerIsRecorded) {
  extra_["CUDA_INJECTION64_PATH"] = "";
  RunOnly("", Control(),
          {"init_named", "allreduce:10", "sync", "attach", "allreduce:10", "allreduce:20",
           "split:0:0", "allreduce:30", "sync", "destroy", "use:0", "destroy"});
  ExpectSuccess();
  for (Rank& rank : ranks_) {
    ASSERT_EQ(process(rank).communicators.size(), 2u);
    EXPECT_EQ(process(rank).communicators[0].name, "world");
    EXPECT_EQ(process(rank).communicators[0].event.ranks, 2);
    std::vector<std::pair<uint16_t, uint32_t>> seen;
    for (const Seen& one : Arrivals(process(rank))) {
      seen.emplace_back(one.communicator, one.sequence);
    }
    EXPECT_THAT(seen, ElementsAre(std::pair(1, 1u), std::pair(1, 2u), std::pair(2, 0u)));
    EXPECT_THAT(process(rank).Message(abi::Feature::kNccl), HasSubstr("NCCL tells its operations"));
  }
}

class Quiet : public NcclPluginTest, public ::testing::WithParamInterface<abi::Level> {};

TEST_P(Quiet, NothingIsTold) {
  abi::Control control = Control(1, 0);
  control.level = static_cast<uint8_t>(GetParam());
  Run("", control, {"init", "allreduce:10", "allreduce:10", "sync", "destroy"});
  ExpectSuccess();
  for (Rank& rank : ranks_) {
    EXPECT_TRUE(process(rank).collectives.empty());
    EXPECT_TRUE(process(rank).communicators.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Level, Quiet,
                         ::testing::Values(abi::Level::kPaused, abi::Level::kReleased),
                         [](const ::testing::TestParamInfo<abi::Level>& level) {
                           return level.param == abi::Level::kPaused ? "Paused" : "Released";
                         });

TEST_F(NcclPluginTest, ARankThatIsKilledHasToldItsFullRecordsAndWhoWaitsForItAllOfThem) {
  // Rank 1 dies in its tenth, to which it has come. Rank 0 waits in the eleventh for ever, until
  // the daemon knows of it.
  constexpr size_t kOperations = 11;  // the last record is not full
  Strings steps = {"init", "compute:10", "0=kill_when:told"};
  for (size_t i = 0; i < kOperations; ++i) steps.push_back("allreduce:10");
  always_ = [&](int rank, PuppetProcess& seen) {
    if (rank == 0 && Arrivals(seen).size() >= kOperations) {
      std::ofstream file(shared_.path() / "told.0");
    }
  };
  Run("nccl.kill=1:9,", Control(), steps);
  EXPECT_EQ(ranks_[0].result.signal, SIGKILL) << ranks_[0].result.output;
  EXPECT_EQ(ranks_[1].result.signal, SIGKILL) << ranks_[1].result.output;
  EXPECT_GE(Arrivals(process(ranks_[1])).size(), 8u);
  EXPECT_LE(Arrivals(process(ranks_[1])).size(), 10u);
  EXPECT_EQ(Arrivals(process(ranks_[0])).size(), kOperations);
}

TEST_F(NcclPluginTest, AFullRingDropsAndCounts) {
  extra_["SEQPOINT_RING_BYTES"] = "65536";
  Strings steps = {"init", "compute:10"};
  constexpr size_t kOperations = 4000;
  for (size_t i = 0; i < kOperations; ++i) steps.push_back("allreduce:10");
  steps.insert(steps.end(), {"sync", "destroy"});
  for (int rank = 0; rank < 2; ++rank) {
    ranks_.emplace_back();
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    ranks_[static_cast<size_t>(rank)].daemon->ReadOnlyAfterTheEnd();
    ranks_[static_cast<size_t>(rank)].daemon->Start();
    threads.emplace_back([this, rank, &steps] {
      Rank& own = ranks_[static_cast<size_t>(rank)];
      auto environment = Environment(rank, "");
      environment["SEQPOINT_DIR"] = own.folder->path().string();
      own.result = RunProgram(Command(rank, 2, shared_.path().string(), steps), environment);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Rank& rank : ranks_) rank.daemon->Stop();
  for (Rank& rank : ranks_) {
    EXPECT_EQ(rank.result.exit_status, 0) << rank.result.output;
    const size_t arrivals = Arrivals(process(rank)).size();
    EXPECT_GT(process(rank).stats.records_dropped, 0u);
    EXPECT_LT(arrivals, kOperations);
    EXPECT_GT(arrivals, 0u);
  }
}

TEST_F(NcclPluginTest, AForkedChildRecordsNothing) {
  Run("", Control(),
      {"init", "compute:10", "allreduce:10", "fork", "allreduce:10", "sync", "destroy"});
  ExpectSuccess();
  for (Rank& rank : ranks_) EXPECT_EQ(Arrivals(process(rank)).size(), 2u);
}

TEST_F(NcclPluginTest, AnotherToolsPluginIsSaid) {
  extra_["NCCL_PROFILER_PLUGIN"] = "none";
  Run("", Control(), {"init", "compute:10", "allreduce:10", "sync", "destroy"});
  ExpectSuccess();
  for (Rank& rank : ranks_) {
    EXPECT_TRUE(process(rank).collectives.empty());
    EXPECT_THAT(process(rank).Message(abi::Feature::kNccl),
                HasSubstr("NCCL loads no profiler plugin (NCCL_PROFILER_PLUGIN=none)"));
  }
}

}  // namespace
}  // namespace seqpoint
