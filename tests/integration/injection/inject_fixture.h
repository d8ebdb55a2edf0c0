// Shared by the tests of the injected library: the trainer under the puppet daemon, and rules and
// plans that fit the trainer.
#ifndef SEQPOINT_TESTS_INTEGRATION_INJECTION_INJECT_FIXTURE_H_
#define SEQPOINT_TESTS_INTEGRATION_INJECTION_INJECT_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "injection/abi/matcher.h"
#include "tests/fakes/puppet_daemon.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {

inline constexpr int kBytesPerStep = 64;  // of the trainer's batch

inline uint32_t Bit(abi::Op op) { return 1u << static_cast<uint32_t>(op); }

// The rule of the trainer's loop: an iteration begins with the batch copy, which also gives its
// length and its GPU start, and ends with the optimiser.
inline abi::Rule CopyRule(uint32_t generation) {
  abi::Rule rule = {};
  rule.generation = generation;
  rule.watched_ops = Bit(abi::Op::kCopyH2D) | Bit(abi::Op::kLaunch) | Bit(abi::Op::kStreamSync);
  rule.boundary.op = static_cast<uint8_t>(abi::Op::kCopyH2D);
  rule.clock = rule.boundary;
  rule.step.op = static_cast<uint8_t>(abi::Op::kLaunch);
  rule.step.match = abi::kMatchName;
  rule.step.name_hash = abi::NameHash("adam", 4);
  rule.length_count = 1;
  rule.length[0].pattern = rule.boundary;
  rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kBytes);
  return rule;
}

inline abi::Control MarkControl(const abi::Rule& rule) {
  abi::Control control = {};
  control.level = static_cast<uint8_t>(abi::Level::kMark);
  control.flush_interval_ms = 20;
  control.measurement_cap = 1000;
  control.rule = rule;
  return control;
}

// The same loop, but its length is known only with the fifth forward kernel.
inline abi::Rule FifthKernelRule(uint32_t generation) {
  abi::Rule rule = CopyRule(generation);
  rule.length[0].pattern.op = static_cast<uint8_t>(abi::Op::kLaunch);
  rule.length[0].pattern.match = abi::kMatchName;
  rule.length[0].pattern.name_hash = abi::NameHash("forward_layer", 13);
  rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kGridX);
  rule.length[0].ordinal = 4;
  return rule;
}

// `unit`: what the rule's length counts in, for each step of the trainer's lengths.
inline void AddEntry(abi::Control* control, uint64_t entry_id, int64_t length, uint16_t config_id,
                     uint32_t quota, int64_t unit = kBytesPerStep) {
  abi::PlanEntry& entry = control->plan[control->plan_count++];
  entry.low[0] = entry.high[0] = length * unit;
  entry.low[1] = INT64_MIN;
  entry.high[1] = INT64_MAX;
  entry.config_id = config_id;
  entry.quota = quota;
  entry.entry_id = entry_id;
}

inline void AddConfig(abi::Control* control, uint16_t config_id, const std::string& names,
                      abi::Ranges ranges = abi::Ranges::kIteration) {
  abi::MetricConfig& config = control->config[control->config_count++];
  config.config_id = config_id;
  config.metric_count = static_cast<uint8_t>(1 + std::count(names.begin(), names.end(), '\n'));
  config.ranges = static_cast<uint8_t>(ranges);
  config.text_bytes = static_cast<uint32_t>(names.size());
  memcpy(config.names, names.data(), names.size());
}

// Nothing is traced on a CUPTI that does not survive it (cupti_release.h).
#define SEQPOINT_NEEDS_TRACES()                                                 \
  do {                                                                          \
    const char* version = getenv("SWGPU_CUPTI_VERSION");                        \
    if (version != nullptr && strcmp(version, "130000") == 0) {                 \
      GTEST_SKIP() << "no iteration is traced on CUPTI 130000, which may hang"; \
    }                                                                           \
  } while (false)

class InjectTest : public ::testing::Test {
 protected:
  std::map<std::string, std::string> Environment(bool profiled) const {
    std::map<std::string, std::string> environment = {{"LD_LIBRARY_PATH", SEQPOINT_SOFTGPU_DIR},
                                                      {"SEQPOINT_DIR", directory_.path().string()},
                                                      {"SWGPU_SEED", "1"},
                                                      {"SEQPOINT_LOG", ""},
                                                      {"CUDA_INJECTION64_PATH", ""},
                                                      {"NVTX_INJECTION64_PATH", ""},
                                                      {"LD_PRELOAD", ""}};
    if (profiled) environment["LD_PRELOAD"] = SEQPOINT_INJECT_LIBRARY;
    for (const auto& [key, value] : extra_) environment[key] = value;
    return environment;
  }

  ProgramResult Run(std::vector<std::string> arguments, bool profiled = true) {
    arguments.insert(arguments.begin(), SEQPOINT_INJECTION_TRAINER);
    return RunProgram(arguments, Environment(profiled));
  }

  // Runs the trainer under the puppet, and once more alone: the work must be the same.
  ProgramResult RunAndCompare(const std::vector<std::string>& arguments) {
    daemon_.Start();
    const ProgramResult profiled = Run(arguments);
    daemon_.Stop();
    const ProgramResult alone = Run(arguments, false);
    EXPECT_EQ(profiled.exit_status, alone.exit_status) << profiled.output;
    EXPECT_EQ(profiled.signal, alone.signal) << profiled.output;
    EXPECT_EQ(profiled.Value("digest"), alone.Value("digest")) << profiled.output;
    EXPECT_EQ(daemon_.process_count(), 1u) << profiled.output;
    return profiled;
  }

  PuppetProcess& process() { return daemon_.process(0); }

  TempFolder directory_;
  std::map<std::string, std::string> extra_;
  PuppetDaemon daemon_{directory_.path().string()};
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_INTEGRATION_INJECTION_INJECT_FIXTURE_H_
