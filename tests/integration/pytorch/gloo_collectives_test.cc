// Collectives of gloo, as the adapter for PyTorch tells them: ranks of torchrun on the CPU, under a
// scripted daemon. Without a Python that has PyTorch the tests say that they skip.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "injection/abi/names.h"
#include "tests/fakes/puppet_daemon.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr uint64_t kWaitNs = 100'000'000;  // the slow rank sleeps for 200 ms

// Iterations as the daemon finds them for PyTorch: from the first forward pass after a step.
abi::Control Control(abi::Level level) {
  abi::Control control = {};
  control.level = static_cast<uint8_t>(level);
  control.flush_interval_ms = 20;
  abi::Rule& rule = control.rule;
  rule.generation = 1;
  rule.watched_ops =
      1u << static_cast<uint32_t>(abi::Op::kForward) | 1u << static_cast<uint32_t>(abi::Op::kStep);
  rule.boundary.op = static_cast<uint8_t>(abi::Op::kForward);
  rule.boundary.match = abi::kMatchName;
  rule.boundary.name_hash = abi::NameHash(abi::kForwardName, sizeof(abi::kForwardName) - 1);
  rule.step.op = static_cast<uint8_t>(abi::Op::kStep);
  return control;
}

// One collective of one rank.
struct Told {
  std::string function;
  uint64_t elements;
  int peer;
  uint64_t group, sequence, iteration, arrival_ns, begin_ns, end_ns;
};

bool HasTold(const PuppetProcess& process) {
  return std::any_of(process.collectives.begin(), process.collectives.end(),
                     [](const abi::DataRecord& record) {
                       return record.type == static_cast<uint16_t>(abi::DataType::kCollective);
                     });
}

class GlooCollectivesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (RunProgram({SEQPOINT_PYTHON, "-c", "import torch.distributed as d; d.ProcessGroupGloo"},
                   {{"PYTHONPATH", ""}})
            .exit_status != 0) {
      GTEST_SKIP() << "needs PyTorch with gloo (python3-torch)";
    }
  }

  // Runs ddp_ranks.py on so many ranks; `slow`: the rank that sleeps.
  void Run(int ranks, int iterations, int slow, abi::Level level = abi::Level::kMark) {
    PuppetDaemon daemon(folder_.path().string());
    const std::string controlled = (folder_.path() / "controlled").string();
    std::set<std::string> sent;
    daemon.Always([&](PuppetProcess& process) {
      const std::string rank = process.fields["rank"];
      // A rank that is paused tells something before, however late its first iterations come.
      if (level == abi::Level::kPaused && !HasTold(process)) return;
      if (!sent.insert(rank).second) return;
      process.Send(Control(level));
      std::ofstream(controlled + "." + rank);
    });
    daemon.Start();
    const ProgramResult result = RunProgram(
        {SEQPOINT_PYTHON, "-m", "torch.distributed.run", "--nproc_per_node", std::to_string(ranks),
         "--monitor_interval", "0.1", "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0",
         // Torchrun of Debian's PyTorch 1.13 fails without these.
         "-r", "1", "-t", "1", "--log_dir", (folder_.path() / "log").string(), DDP_RANKS,
         std::to_string(iterations), std::to_string(slow), controlled},
        {{"SEQPOINT_DIR", folder_.path().string()},
         {"SEQPOINT_LIBRARY", SEQPOINT_INJECT_LIBRARY},
         {"PYTHONPATH", SEQPOINT_PYTHON_ADAPTER},
         {"PYTHONDONTWRITEBYTECODE", "1"},
         {"OMP_NUM_THREADS", "1"},
         {"CUDA_INJECTION64_PATH", ""},
         {"LD_PRELOAD", ""}});
    daemon.Stop();
    ASSERT_EQ(result.exit_status, 0) << result.output;
    ASSERT_EQ(daemon.process_count(), static_cast<size_t>(ranks));
    for (int i = 0; i < ranks; ++i) Read(daemon.process(static_cast<size_t>(i)));
  }

  void Read(PuppetProcess& process) {
    EXPECT_EQ(process.stats.lost, 0u);
    EXPECT_EQ(process.stats.rejected, 0u);
    const int rank = std::stoi(process.fields["rank"]);
    std::map<uint16_t, uint64_t> groups;
    for (const CommunicatorResult& communicator : process.communicators) {
      EXPECT_EQ(communicator.event.version, 0u) << "not NCCL's";
      groups[static_cast<uint16_t>(communicator.event.communicator)] = communicator.event.hash;
      group_ranks_[communicator.event.hash].insert(communicator.event.rank);
      sizes_[communicator.event.hash] = communicator.event.ranks;
    }
    std::map<std::tuple<uint64_t, uint64_t, uint16_t>, uint64_t> arrivals;
    for (const abi::DataRecord& record : process.collectives) {
      if (record.type != static_cast<uint16_t>(abi::DataType::kArrivals)) continue;
      const abi::ArrivalsRecord& a = record.arrivals;
      for (int i = 0; i < a.count; ++i) {
        arrivals[{groups[a.communicator], a.sequence[i], a.kind[i]}] = a.base_ns + a.delay_ns[i];
      }
    }
    std::vector<Told>& told = told_[rank];
    for (const abi::DataRecord& record : process.collectives) {
      if (record.type != static_cast<uint16_t>(abi::DataType::kCollective)) continue;
      const abi::CollectiveRecord& c = record.collective;
      EXPECT_EQ(c.channels, 0) << "the host's times";
      const CollectiveKindResult& kind = process.collective_kinds[c.kind];
      const uint64_t group = groups[c.communicator];
      told.push_back({kind.text.substr(0, kind.text.find('\n')), kind.event.elements,
                      kind.event.peer, group, c.sequence, c.iteration,
                      arrivals[{group, c.sequence, c.kind}], c.gpu_start_ns, c.gpu_end_ns});
      EXPECT_EQ(told.back().arrival_ns, c.host_ns);
      EXPECT_LE(c.gpu_start_ns, c.gpu_end_ns);
    }
    EXPECT_EQ(arrivals.size(), told.size());
    std::sort(told.begin(), told.end(),
              [](const Told& a, const Told& b) { return a.arrival_ns < b.arrival_ns; });
    messages_.push_back(process.Message(abi::Feature::kCollectives));
  }

  // The collectives that all ranks of the largest group tell, by their number: by rank.
  std::map<uint64_t, std::map<int, Told>> OfWorld() const {
    std::map<uint64_t, std::map<int, Told>> all;
    for (const auto& [rank, told] : told_) {
      for (const Told& one : told) {
        const bool world = sizes_.at(one.group) == static_cast<int>(told_.size());
        if (world && one.peer < 0) all[one.sequence].emplace(rank, one);
      }
    }
    std::erase_if(all, [this](const auto& entry) { return entry.second.size() != told_.size(); });
    return all;
  }

  TempFolder folder_;
  std::map<int, std::vector<Told>> told_;  // by rank, in the order of arrival
  std::map<uint64_t, std::set<int>> group_ranks_;
  std::map<uint64_t, int> sizes_;
  std::vector<std::string> messages_;
};

class Ranks : public GlooCollectivesTest, public ::testing::WithParamInterface<int> {};

// Starting PyTorch on all ranks takes most of the time: one run serves all that is expected.
TEST_P(Ranks, EachCallIsToldAndTheRankThatSleepsInItsForwardPassArrivesLast) {
  const int ranks = GetParam(), slow = ranks - 1;
  constexpr int kIterations = 6;
  Run(ranks, kIterations, slow);
  if (HasFatalFailure()) return;
  for (const std::string& message : messages_) EXPECT_THAT(message, HasSubstr("(gloo) are seen"));
  EXPECT_EQ(group_ranks_.size(), 3u) << "the world, and one group each of odd and even ranks";
  for (const auto& [group, of_group] : group_ranks_) {
    EXPECT_EQ(of_group.size(), static_cast<size_t>(sizes_[group]));
  }
  for (const auto& [rank, told] : told_) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    std::map<std::string, int> functions;
    std::map<uint64_t, int> in_iteration;
    for (const Told& one : told) {
      ++functions[one.function];
      if (one.function == "AllReduce" && one.elements == 1) ++in_iteration[one.iteration];
    }
    EXPECT_EQ(functions["Barrier"], 1);
    EXPECT_EQ(functions["AllGather"], 1);
    EXPECT_EQ(functions[rank % 2 == 0 ? "Send" : "Recv"], 1);
    EXPECT_EQ(told.back().peer, rank ^ 1);
    EXPECT_EQ(told.back().elements, 4u) << "five, rounded down to a power of two";
    EXPECT_THAT(in_iteration, Contains(Pair(Ge(2u), 2))) << "each iteration has two of one number";
  }
  int late = 0, waited = 0;
  for (const auto& [sequence, by_rank] : OfWorld()) {
    const Told& of_slow = by_rank.at(slow);
    for (const auto& [rank, one] : by_rank) {
      EXPECT_EQ(one.function, of_slow.function) << sequence;
      EXPECT_EQ(one.elements, of_slow.elements) << sequence;
    }
    // Buckets of gradients.
    if (of_slow.function != "AllReduce" || of_slow.elements < 1000) continue;
    const bool is_last = std::all_of(by_rank.begin(), by_rank.end(), [&](const auto& entry) {
      return entry.second.arrival_ns <= of_slow.arrival_ns;
    });
    const uint64_t first_ns = by_rank.at(0).arrival_ns;
    const bool is_first_bucket = of_slow.arrival_ns > first_ns + kWaitNs;
    late += is_last && is_first_bucket;
    waited += by_rank.at(0).end_ns > by_rank.at(0).begin_ns + kWaitNs;
    EXPECT_LE(of_slow.end_ns, by_rank.at(0).end_ns + kWaitNs);
  }
  // The first step is not recorded, as the adapter begins with it. In another one the machine may
  // have been slower than the sleep.
  EXPECT_GE(late, kIterations - 2);
  EXPECT_GE(waited, kIterations - 2);
}

INSTANTIATE_TEST_SUITE_P(Gloo, Ranks, ::testing::Values(2, 4),
                         [](const ::testing::TestParamInfo<int>& ranks) {
                           return "Of" + std::to_string(ranks.param);
                         });

TEST_F(GlooCollectivesTest, NothingIsToldWhilePaused) {
  Run(2, 6, -1, abi::Level::kPaused);
  if (HasFatalFailure()) return;
  for (const auto& [rank, told] : told_) {
    EXPECT_FALSE(told.empty()) << "before the level was set";
    for (const Told& one : told) EXPECT_NE(one.function, "Barrier") << "comes at the end";
  }
}

}  // namespace
}  // namespace seqpoint
