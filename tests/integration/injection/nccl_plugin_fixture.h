// Ranks on the software NCCL, each under a scripted daemon of its own, for tests of the injected
// library as NCCL's profiler plugin.
//
//   Run("", Control(), {"init", "allreduce:10", "destroy"});   // steps of nccl_puppet.cc
//   ExpectSuccess();
//   Arrivals(process(ranks_[0])) ...
#ifndef SEQPOINT_TESTS_INTEGRATION_INJECTION_NCCL_PLUGIN_FIXTURE_H_
#define SEQPOINT_TESTS_INTEGRATION_INJECTION_NCCL_PLUGIN_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "injection/abi/matcher.h"
#include "tests/fakes/puppet_daemon.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {

using Strings = std::vector<std::string>;

inline constexpr char kQuiet[] =
    "noise.kernel=0,noise.slow_share=0,noise.cpu=0,noise.drift=0,noise.counters=0,"
    "noise.search_ns=0,noise.collective=0,clock.speed_cap=0,";

inline Strings Lines(const std::string& path) {
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

inline std::vector<Truth> ReadTruth(const std::string& path) {
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
inline abi::Control Control(uint32_t channel_period = 0, uint32_t channel_phase = 0) {
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
      if (always_) {
        daemon.Always([this, rank](PuppetProcess& process) { always_(rank, process); });
      }
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
      EXPECT_EQ(rank.result.output.find("failed"), std::string::npos) << rank.result.output;
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
  std::function<void(int rank, PuppetProcess& process)> always_;  // in the daemons' threads
  std::vector<Rank> ranks_;
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_INTEGRATION_INJECTION_NCCL_PLUGIN_FIXTURE_H_
