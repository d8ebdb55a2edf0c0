// The injected library as NCCL's profiler plugin: ranks on the software NCCL, each under a scripted
// daemon of its own. What the library records is compared with the truth of the software NCCL.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "injection/abi/matcher.h"
#include "tests/fakes/puppet_daemon.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using Strings = std::vector<std::string>;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kQuiet[] =
    "noise.kernel=0,noise.slow_share=0,noise.cpu=0,noise.drift=0,noise.counters=0,"
    "noise.search_ns=0,noise.collective=0,clock.speed_cap=0,";

Strings Lines(const std::string& path) {
  Strings lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// A line of nccl.truth_file.
struct Truth {
  std::string communicator, function;
  uint64_t kernel, sequence, bytes, arrival_ns, start_ns, end_ns;
};

std::vector<Truth> ReadTruth(const std::string& path) {
  std::vector<Truth> all;
  Strings lines = Lines(path);
  for (size_t i = 1; i < lines.size(); ++i) {
    std::replace(lines[i].begin(), lines[i].end(), ',', ' ');
    std::istringstream in(lines[i]);
    Truth t;
    int rank = 0;
    in >> t.communicator >> t.kernel >> t.function >> t.sequence >> t.bytes >> rank >>
        t.arrival_ns >> t.start_ns >> t.end_ns;
    EXPECT_FALSE(in.fail()) << lines[i];
    all.push_back(t);
  }
  return all;
}

// One arrival, unpacked.
struct Seen {
  uint16_t communicator;
  uint64_t iteration, at_ns;
  uint32_t sequence;
  std::string function;
  uint16_t kind;
};

// Iterations begin with the puppet's step "compute".
abi::Control Control(uint32_t channel_period = 0, uint32_t channel_phase = 0) {
  abi::Control control = {};
  control.level = static_cast<uint8_t>(abi::Level::kMark);
  control.flush_interval_ms = 20;
  abi::Rule& rule = control.rule;
  rule.generation = 1;
  rule.watched_ops = 1u << static_cast<uint32_t>(abi::Op::kLaunch);
  rule.boundary.op = static_cast<uint8_t>(abi::Op::kLaunch);
  rule.boundary.match = abi::kMatchName;
  rule.boundary.name_hash = abi::NameHash("compute", 7);
  control.channel_period = channel_period;
  control.channel_phase = channel_phase;
  return control;
}

class NcclPluginTest : public ::testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<TempFolder> folder = std::make_unique<TempFolder>();
    std::unique_ptr<PuppetDaemon> daemon = std::make_unique<PuppetDaemon>(folder->path().string());
    ProgramResult result;
  };

  std::map<std::string, std::string> Environment(int rank, const std::string& settings) const {
    const auto path = [&](const std::string& name) {
      return (shared_.path() / (name + "." + std::to_string(rank))).string();
    };
    std::map<std::string, std::string> environment = {
        {"LD_LIBRARY_PATH", SEQPOINT_SOFTGPU_DIR},
        {"SWGPU_SEED", std::to_string(1 + rank)},
        {"SWGPU_SET", kQuiet + settings + "nccl.truth_file=" + path("truth")},
        {"RECORD_FILE", path("record")},
        {"SEQPOINT_LOG", ""},
        {"SEQPOINT_NCCL_PLUGIN", ""},
        {"NVTX_INJECTION64_PATH", ""},
        {"LD_PRELOAD", ""},
        {"CUDA_INJECTION64_PATH", SEQPOINT_INJECT_LIBRARY},
        {"NCCL_PROFILER_PLUGIN", SEQPOINT_INJECT_LIBRARY}};
    for (const auto& [key, value] : extra_) environment[key] = value;
    return environment;
  }

  static Strings Command(int rank, int ranks, const std::string& folder, const Strings& steps) {
    Strings command = {NCCL_PUPPET, std::to_string(rank), std::to_string(ranks), folder};
    command.insert(command.end(), steps.begin(), steps.end());
    return command;
  }

  // What the library does at once when the control block was sent: while learning it looks at the
  // block with the first call after 0.1 s.
  static constexpr const char* kTakeControl[] = {"await:sent", "host:200000000", "compute:10"};

  // Runs the steps on two ranks. The daemons send the control block at once; the steps wait for it.
  void Run(const std::string& settings, const abi::Control& control, const Strings& steps) {
    Strings all(std::begin(kTakeControl), std::end(kTakeControl));
    all.insert(all.end(), steps.begin(), steps.end());
    RunOnly(settings, control, all);
  }

  void RunOnly(const std::string& settings, const abi::Control& control, const Strings& steps) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      ranks_.emplace_back();
      PuppetDaemon& daemon = *ranks_.back().daemon;
      const std::string sent = (shared_.path() / ("sent." + std::to_string(rank))).string();
      std::filesystem::remove(sent);
      daemon.When([](const PuppetProcess&) { return true; },
                  [control, sent](PuppetProcess& process) {
                    process.Send(control);
                    std::ofstream file(sent);
                  });
      daemon.Start();
    }
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([this, rank, settings, steps] {
        Rank& own = ranks_[static_cast<size_t>(rank)];
        auto environment = Environment(rank, settings);
        environment["SEQPOINT_DIR"] = own.folder->path().string();
        own.result = RunProgram(Command(rank, 2, shared_.path().string(), steps), environment);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Rank& rank : ranks_) rank.daemon->Stop();
  }

  void ExpectSuccess() {
    for (Rank& rank : ranks_) {
      EXPECT_EQ(rank.result.exit_status, 0) << rank.result.output;
      EXPECT_THAT(rank.result.output, Not(HasSubstr("failed"))) << rank.result.output;
      ASSERT_EQ(rank.daemon->process_count(), 1u);
      const ingest::RingStats& stats = process(rank).stats;
      EXPECT_EQ(stats.lost, 0u);
      EXPECT_EQ(stats.rejected, 0u);
    }
  }

  static PuppetProcess& process(Rank& rank) { return rank.daemon->process(0); }

  // In the order of iterations and times.
  static std::vector<Seen> Arrivals(PuppetProcess& process) {
    std::vector<Seen> all;
    for (const abi::DataRecord& record : process.collectives) {
      if (record.type != static_cast<uint16_t>(abi::DataType::kArrivals)) continue;
      const abi::ArrivalsRecord& a = record.arrivals;
      for (int i = 0; i < a.count; ++i) {
        const std::string text = process.collective_kinds[a.kind[i]].text;
        all.push_back({a.communicator, a.iteration, a.base_ns + a.delay_ns[i], a.sequence[i],
                       text.substr(0, text.find('\n')), a.kind[i]});
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Seen& a, const Seen& b) { return a.at_ns < b.at_ns; });
    return all;
  }

  std::vector<Truth> TruthOf(int rank) const {
    return ReadTruth((shared_.path() / ("truth." + std::to_string(rank))).string());
  }
  Strings Recorded(int rank) const {
    return Lines((shared_.path() / ("record." + std::to_string(rank))).string());
  }

  TempFolder shared_;
  std::map<std::string, std::string> extra_;
  std::vector<Rank> ranks_;
};

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

// A plugin of the user's, with and without ours in front.
TEST_P(Versions, AUsersPluginSeesWhatItSeesAlone) {
  const int version = GetParam();
  const Strings steps = {
      "init_named",  "compute:1000",  "allreduce:1000",   "finalize",    "compute:1000", "group",
      "0=send:1:10", "0=recv:1:20",   "1=recv:0:10",      "1=send:0:20", "end",          "finalize",
      "split:0:0",   "allgather:100", "allreduce:400000", "destroy",     "use:0",        "destroy"};
  struct Case {
    const char* plugin;
    std::map<std::string, std::string> settings;
  };
  std::vector<Case> cases = {
      {NCCL_TEST_PLUGIN, {}},
      {NCCL_TEST_PLUGIN, {{"RECORD_MASK", "64"}, {"RECORD_NO_CONTEXT", "1"}}},
      {NCCL_TEST_PLUGIN, {{"RECORD_MASK", "4"}}},
      {NCCL_TEST_PLUGIN, {{"RECORD_MASK", "0"}}},
      {NCCL_TEST_PLUGIN, {{"RECORD_MASK", "512"}, {"RECORD_MASK_AFTER", "4:0"}}},
      {NCCL_TEST_PLUGIN, {{"RECORD_MASK", "32767"}, {"RECORD_MASK_AFTER", "6:2"}}},
      {NCCL_TEST_PLUGIN_V4, {{"RECORD_MASK", "4067"}}}};
  // Versions 2 and 5 have the code of their neighbours.
  if (version == 2 || version == 5) cases.resize(2);
  const std::string settings =
      "nccl.proxy=1,nccl.profiler_version=" + std::to_string(version) + ",";
  // Threads of NCCL and of the program take turns as they like, so handles are numbered again in
  // each thread's order of lines.
  const auto split = [](const Strings& lines) {
    std::pair<std::string, std::string> parts;
    std::map<std::string, std::string> numbers[2];
    static const std::regex handle(
        "^(start|stop|state) (\\d+)( in (\\d+))?(.*?)(group=(\\d+))?( .other thread.)?$");
    for (const std::string& line : lines) {
      const bool other = line.ends_with("(other thread)");
      std::smatch match;
      std::string text = line;
      if (std::regex_match(line, match, handle)) {
        auto& names = numbers[other ? 1 : 0];
        const auto name = [&](const std::string& number) {
          if (number.empty() || number == "0") return number;
          return names.try_emplace(number, std::to_string(names.size() + 1)).first->second;
        };
        std::string rest = std::regex_replace(match[5].str(), std::regex(" at=\\d+"), " at");
        text =
            match[1].str() + " " + name(match[2]) + " in " + name(match[4]) + rest + name(match[7]);
      }
      (other ? parts.second : parts.first) += text + "\n";
    }
    return parts;
  };
  for (const Case& one : cases) {
    std::string name = one.plugin;
    for (const auto& [key, value] : one.settings) name += " " + key + "=" + value;
    SCOPED_TRACE(name);
    Strings alone[2], with[2];
    for (const bool ours : {false, true}) {
      extra_ = one.settings;
      extra_["NCCL_PROFILER_PLUGIN"] = ours ? SEQPOINT_INJECT_LIBRARY : one.plugin;
      if (ours) extra_["SEQPOINT_NCCL_PLUGIN"] = one.plugin;
      ranks_.clear();
      for (int rank = 0; rank < 2; ++rank) {
        std::filesystem::remove(shared_.path() / ("record." + std::to_string(rank)));
      }
      std::filesystem::remove(shared_.path() / "id");
      Run(settings, Control(1, 0), steps);
      ExpectSuccess();
      for (int rank = 0; rank < 2; ++rank) (ours ? with : alone)[rank] = Recorded(rank);
    }
    for (int rank = 0; rank < 2; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      EXPECT_EQ(split(with[rank]).first, split(alone[rank]).first);
      EXPECT_EQ(split(with[rank]).second, split(alone[rank]).second);
      // Ours sees all the same.
      EXPECT_EQ(Arrivals(process(ranks_[static_cast<size_t>(rank)])).size(), 5u);
    }
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

// Also where the plugin has no context, and where there is no room for a communicator.
TEST_F(NcclPluginTest, AUsersPluginIsUnloadedWithTheLastCommunicator) {
  extra_["SEQPOINT_NCCL_PLUGIN"] = NCCL_TEST_PLUGIN;
  extra_["RECORD_NO_CONTEXT"] = "1";
  extra_["RECORD_UNLOAD"] = "1";
  Strings steps = {"init"};
  for (int i = 0; i < 257; ++i) steps.insert(steps.end(), {"use:0", "split:0:0"});
  for (int i = 0; i <= 257; ++i) {
    steps.insert(steps.end(), {"use:" + std::to_string(i), "destroy"});
  }
  steps.insert(steps.end(), {"init:again", "allreduce:10", "destroy"});
  Run("", Control(), steps);
  ExpectSuccess();
  for (int rank = 0; rank < 2; ++rank) {
    const Strings lines = Recorded(rank);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "unloaded"), 2);
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

TEST_F(NcclPluginTest, ARankThatIsKilledHasToldItsFullRecords) {
  Strings steps = {"init", "compute:10"};
  for (int i = 0; i < 10; ++i) steps.push_back("allreduce:10");
  // The survivor waits for ever, and its open record is written all the same.
  steps.insert(steps.end(), {"0=abort_after:3500", "allreduce:10", "sync"});
  Run("nccl.kill=1:10,", Control(), steps);
  EXPECT_EQ(ranks_[1].result.signal, SIGKILL);
  EXPECT_GE(Arrivals(process(ranks_[1])).size(), 8u);
  EXPECT_LE(Arrivals(process(ranks_[1])).size(), 11u);
  EXPECT_GE(Arrivals(process(ranks_[0])).size(), 10u);
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
