// The effect of libseqpoint_inject.so on a process: its exports, its needs, and a program's own
// protobuf and Abseil that stay as they are.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fakes/puppet_daemon.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Names of the dynamic symbols whose nm type is one of `types`, without version.
std::set<std::string> Symbols(const std::string& types) {
  const ProgramResult nm =
      RunProgram({"nm", "-D", "--without-symbol-versions", SEQPOINT_INJECT_LIBRARY}, {});
  EXPECT_EQ(nm.exit_status, 0) << nm.output;
  std::set<std::string> names;
  for (const std::string& line : Lines(nm.output)) {
    const size_t name = line.rfind(' ');
    if (name == std::string::npos || name == 0) continue;
    if (types.find(line[name - 1]) != std::string::npos) names.insert(line.substr(name + 1));
  }
  return names;
}

TEST(LibraryTest, ExportsItsEntryPointsAndNothingElse) {
  EXPECT_EQ(Symbols("TtDdBbRrVWiu"),  // v and w are asked for, not given
            (std::set<std::string>{"InitializeInjection",
                                   "InitializeInjectionNvtx2",
                                   "ncclProfiler_v1",
                                   "ncclProfiler_v2",
                                   "ncclProfiler_v3",
                                   "ncclProfiler_v4",
                                   "ncclProfiler_v5",
                                   "ncclProfiler_v6",
                                   "seqpoint_active",
                                   "seqpoint_attach",
                                   "seqpoint_batches",
                                   "seqpoint_collective_begin",
                                   "seqpoint_collective_end",
                                   "seqpoint_collectives",
                                   "seqpoint_come_back",
                                   "seqpoint_describe",
                                   "seqpoint_distort",
                                   "seqpoint_features",
                                   "seqpoint_forward",
                                   "seqpoint_group",
                                   "seqpoint_group_end",
                                   "seqpoint_iteration_begin",
                                   "seqpoint_iteration_begin2",
                                   "seqpoint_operators",
                                   "seqpoint_rank",
                                   "seqpoint_stand_down",
                                   "seqpoint_step",
                                   "seqpoint_version",
                                   "seqpoint_wants_operators"}));
}

TEST(LibraryTest, BringsNoCxxRuntime) {
  for (const std::string& name : Symbols("Uvw")) {
    EXPECT_NE(name.substr(0, 2), "_Z") << name;      // operator new, std::...
    EXPECT_NE(name.substr(0, 6), "__cxa_") << name;  // exceptions, static guards, atexit
    EXPECT_NE(name.substr(0, 8), "_Unwind_") << name;
    EXPECT_NE(name.substr(0, 5), "__gxx") << name;
    // No heap: everything comes from fixed pools.
    EXPECT_NE(name, "malloc");
    EXPECT_NE(name, "calloc");
    EXPECT_NE(name, "realloc");
    EXPECT_NE(name, "free");
    // No end of the process.
    EXPECT_NE(name, "abort");
    EXPECT_NE(name, "exit");
    EXPECT_NE(name, "__assert_fail");
  }
}

TEST(LibraryTest, NeedsOnlyLibc) {
  const ProgramResult readelf = RunProgram({"readelf", "-d", SEQPOINT_INJECT_LIBRARY}, {});
  ASSERT_EQ(readelf.exit_status, 0) << readelf.output;
  const std::set<std::string> allowed = {"libc.so.6", "libdl.so.2", "libpthread.so.0",
                                         "ld-linux-x86-64.so.2"};
  int needed = 0;
  for (const std::string& line : Lines(readelf.output)) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    ++needed;
    const size_t begin = line.find('[') + 1;
    EXPECT_EQ(allowed.count(line.substr(begin, line.find(']') - begin)), 1u) << line;
  }
  EXPECT_GE(needed, 1);
}

TEST(LibraryTest, AProgramWithoutCudaIsLeftAlone) {
  TempFolder directory;
  const ProgramResult result = RunProgram(
      {"/bin/sh", "-c", "grep -c seqpoint-ring /proc/self/maps; ls /proc/self/task | wc -l"},
      {{"LD_PRELOAD", SEQPOINT_INJECT_LIBRARY}, {"SEQPOINT_DIR", directory.path().string()}});
  EXPECT_EQ(result.output, "0\n1\n");
}

TEST(LibraryTest, LivesBesideTheProgramsOwnProtobufAbseilAndGrpc) {
  if (std::string(SEQPOINT_PROTOBUF_HOST).empty()) GTEST_SKIP() << "built without gRPC";
  TempFolder directory;
  std::map<std::string, std::string> environment = {{"LD_LIBRARY_PATH", SEQPOINT_SOFTGPU_DIR},
                                                    {"SEQPOINT_DIR", directory.path().string()},
                                                    {"CUDA_INJECTION64_PATH", ""},
                                                    {"NVTX_INJECTION64_PATH", ""}};
  const ProgramResult alone = RunProgram({SEQPOINT_PROTOBUF_HOST}, environment);
  ASSERT_EQ(alone.exit_status, 0) << alone.output;
  PuppetDaemon daemon(directory.path().string());
  daemon.Start();
  environment["LD_PRELOAD"] = SEQPOINT_INJECT_LIBRARY;
  const ProgramResult profiled = RunProgram({SEQPOINT_PROTOBUF_HOST}, environment);
  daemon.Stop();
  EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
  EXPECT_EQ(profiled.output, alone.output);
  ASSERT_EQ(daemon.process_count(), 1u);
  EXPECT_GT(daemon.process(0).calls.size(), 0u);
}

}  // namespace
}  // namespace seqpoint
