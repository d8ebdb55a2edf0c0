// The injected library in a training process on the software GPU, with a scripted daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "injection/abi/matcher.h"
#include "tests/integration/injection/puppet_daemon.h"
#include "tests/integration/injection/run_program.h"

namespace seqpoint {
namespace {

using abi::Op;
using ::testing::HasSubstr;

constexpr int kBytesPerStep = 64;  // of the trainer's batch

[[maybe_unused]] uint32_t Bit(Op op) { return 1u << static_cast<uint32_t>(op); }

class InjectTest : public ::testing::Test {
 protected:
  std::map<std::string, std::string> Environment(bool profiled) const {
    std::map<std::string, std::string> environment = {{"LD_LIBRARY_PATH", SEQPOINT_SOFTGPU_DIR},
                                                      {"SEQPOINT_DIR", directory_.path()},
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

  TemporaryDirectory directory_;
  std::map<std::string, std::string> extra_;
  PuppetDaemon daemon_{directory_.path()};
};

TEST_F(InjectTest, LearnsEveryCallInOrder) {
  RunAndCompare({"iterations=20", "lengths=16,32", "sync=5", "layers=3"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  std::map<Op, int> count;
  for (size_t i = 0; i < process().calls.size(); ++i) {
    const abi::CallRecord& call = process().calls[i];
    EXPECT_EQ(call.sequence, i);
    ++count[static_cast<Op>(call.op)];
  }
  EXPECT_EQ(count[Op::kCopyH2D], 20);
  EXPECT_EQ(count[Op::kMemset], 20);
  EXPECT_EQ(count[Op::kLaunch], 20 * (3 + 2));
  EXPECT_EQ(count[Op::kCopyD2H], 4);
  EXPECT_EQ(count[Op::kStreamSync], 4);
  EXPECT_EQ(count[Op::kContextSync], 1);
  EXPECT_EQ(process().calls_missing, 0u);

  // One iteration, call by call.
  const std::vector<abi::CallRecord>& calls = process().calls;
  size_t at = 0;
  while (static_cast<Op>(calls[at].op) != Op::kCopyH2D) ++at;
  EXPECT_EQ(calls[at].bytes, 16u * kBytesPerStep);
  EXPECT_EQ(static_cast<Op>(calls[at + 1].op), Op::kMemset);
  EXPECT_EQ(calls[at + 1].bytes, 4096u);
  const abi::CallRecord& launch = calls[at + 2];
  EXPECT_EQ(process().names[launch.name_id], "forward_layer");
  EXPECT_EQ(launch.grid_x, 16u);
  EXPECT_EQ(launch.grid_y, 1u);
  EXPECT_EQ(launch.block_x, 128u);
  EXPECT_NE(launch.stream, 0u);
  EXPECT_NE(launch.context, 0u);
  EXPECT_NE(launch.thread_id, 0u);
  EXPECT_GT(launch.api_ns, calls[at].api_ns);
  EXPECT_EQ(process().names[calls[at + 6].name_id], "adam");

  // Copies and memsets leave GPU times that join by correlation id.
  std::map<uint32_t, const abi::CopyRecord*> gpu;
  for (const abi::DataRecord& record : process().records) {
    if (record.type == static_cast<uint16_t>(abi::DataType::kCopy)) {
      gpu[record.copy.correlation_id] = &record.copy;
    }
  }
  ASSERT_EQ(gpu.count(calls[at].correlation_id), 1u);
  EXPECT_EQ(gpu[calls[at].correlation_id]->bytes, calls[at].bytes);
  EXPECT_GT(gpu[calls[at].correlation_id]->start_ns, calls[at].api_ns);
  EXPECT_EQ(process().CountRecords(abi::DataType::kCopy), 24u);
  EXPECT_EQ(process().CountRecords(abi::DataType::kMemset), 20u);
  EXPECT_TRUE(process().stats.closed);
}

}  // namespace
}  // namespace seqpoint
