// The injected library in the workloads: every launch pattern that they have must come through, and
// the work must be the same with and without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/fakes/puppet_daemon.h"
#include "tests/integration/injection/inject_fixture.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using abi::Op;

struct Workload {
  const char* name;
  std::vector<std::string> arguments;
  const char* settings;  // of the software GPU
};

class WorkloadTest : public ::testing::TestWithParam<Workload> {};

TEST_P(WorkloadTest, DoesTheSameWorkAndIsSeenWhole) {
  std::vector<std::string> command = {SEQPOINT_WORKLOAD, "--max-iterations", "12"};
  command.insert(command.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  TempFolder directory;
  std::map<std::string, std::string> environment = {{"LD_LIBRARY_PATH", SEQPOINT_SOFTGPU_DIR},
                                                    {"SEQPOINT_DIR", directory.path().string()},
                                                    {"SWGPU_SET", GetParam().settings},
                                                    {"CUDA_INJECTION64_PATH", ""},
                                                    {"NVTX_INJECTION64_PATH", ""}};
  const ProgramResult alone = RunProgram(command, environment);
  ASSERT_EQ(alone.exit_status, 0) << alone.output;
  environment["LD_PRELOAD"] = SEQPOINT_INJECT_LIBRARY;
  PuppetDaemon daemon(directory.path().string());
  daemon.Start();
  const ProgramResult profiled = RunProgram(command, environment);
  daemon.Stop();
  EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
  ASSERT_NE(alone.Value("work"), "") << alone.output;
  EXPECT_EQ(profiled.Value("work"), alone.Value("work"));

  ASSERT_EQ(daemon.process_count(), 1u);
  PuppetProcess& process = daemon.process(0);
  EXPECT_EQ(process.fields["job"], "seqpoint_workload");
  EXPECT_EQ(process.calls_missing, 0u);
  EXPECT_EQ(process.stats.records_dropped, 0u);
  EXPECT_EQ(process.stats.invalid_timestamps, 0u);
  EXPECT_TRUE(process.stats.closed);
  std::map<Op, size_t> count;
  uint64_t sequence = 0;
  std::map<uint32_t, uint64_t> last_ns;  // per thread
  for (const abi::CallRecord& call : process.calls) {
    ++count[static_cast<Op>(call.op)];
    EXPECT_EQ(call.sequence, sequence++);
    if (static_cast<Op>(call.op) == Op::kLaunch) {
      EXPECT_EQ(process.names.count(call.name_id), 1u);
    }
    // A call begins after the one before it on its thread; a blocking call is listed at its end.
    EXPECT_GE(call.api_ns, last_ns[call.thread_id]);
    last_ns[call.thread_id] = call.api_ns;
  }
  EXPECT_GE(count[Op::kCopyH2D], 12u);
  EXPECT_GE(count[Op::kLaunch] + count[Op::kGraphLaunch], 12u);
  if (count[Op::kGraphLaunch] > 0) SEQPOINT_NEEDS_TRACES();
  // Each copy and memset the program asked for left its GPU times.
  EXPECT_EQ(
      process.CountRecords(abi::DataType::kCopy) + process.CountRecords(abi::DataType::kMemset),
      count[Op::kCopyH2D] + count[Op::kCopyD2H] + count[Op::kCopyD2D] + count[Op::kCopyOther] +
          count[Op::kMemset]);
  EXPECT_EQ(process.CountRecords(abi::DataType::kGraph), count[Op::kGraphLaunch]);
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkloadTest,
    ::testing::Values(
        Workload{"gnmt", {}, ""}, Workload{"gnmt_real_clock", {}, "clock.mode=real"},
        Workload{"gnmt_two_threads", {"--backward-thread"}, ""},
        Workload{"gnmt_prefetch_fork", {"--prefetch", "--fork-helper", "--readback", "never"}, ""},
        Workload{"ds2", {"--model", "ds2", "--batch", "8"}, ""},
        Workload{"transformer", {"--model", "transformer", "--nvtx"}, ""},
        Workload{"transformer_graphs", {"--model", "transformer", "--graphs"}, ""},
        Workload{"transformer_micro_batches", {"--model", "transformer", "--accumulate", "3"}, ""},
        Workload{"fixed", {"--model", "fixed", "--optimizer", "foreach"}, ""}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace seqpoint
