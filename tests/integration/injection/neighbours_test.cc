// The library beside what else lives in a training process: other versions of CUDA's libraries, the
// static runtime, children, memory checkers. The program must behave as without us.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/integration/injection/inject_fixture.h"

namespace seqpoint {
namespace {

namespace fs = std::filesystem;
using abi::Feature;
using ::testing::HasSubstr;

constexpr char kRealCupti[] = "/usr/local/cuda/lib64/libcupti.so.13";

class NeighboursTest : public InjectTest {
 protected:
  // All that can be under way: learning, then counters on one length and traces of the other.
  void SendEverything() {
    abi::Control control = MarkControl(CopyRule(1));
    AddConfig(&control, 2, "gpu__time_duration.sum");
    AddEntry(&control, 100, 16, 2, 1000);
    AddEntry(&control, 101, 32, abi::kConfigTrace, 1000);
    AddConfig(&control, 3, "dram__bytes_read.sum", abi::Ranges::kKernels);
    AddEntry(&control, 102, 48, 3, 1000);
    daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  }

  // A library of the software GPU as if it came from CUDA 12.
  std::string OfCuda12(const std::string& name) {
    const std::string old_soname = "lib" + name + ".so.13", soname = "lib" + name + ".so.12";
    const fs::path copy = directory_.path() / soname;
    fs::copy_file(std::string(SEQPOINT_SOFTGPU_DIR) + "/" + old_soname, copy);
    const ProgramResult patched =
        RunProgram({SEQPOINT_PATCHELF, "--set-soname", soname, copy.string()}, {});
    EXPECT_EQ(patched.exit_status, 0) << patched.output;
    return copy.string();
  }
};

TEST_F(NeighboursTest, OfTwoVersionsOfCuptiTheProgramsOwnIsTaken) {
  if (std::string(SEQPOINT_PATCHELF).empty()) GTEST_SKIP() << "no patchelf: install it";
  const std::string cupti12 = OfCuda12("cupti"), cudart12 = OfCuda12("cudart");
  const std::string cupti13 = std::string(SEQPOINT_SOFTGPU_DIR) + "/libcupti.so.13";
  const std::string cudart13 = std::string(SEQPOINT_SOFTGPU_DIR) + "/libcudart.so.13";
  const struct {
    std::string open, taken;
  } cases[] = {{cupti13 + ":" + cupti12 + ":" + cudart12, "libcupti.so.12"},
               {cupti12 + ":" + cupti13 + ":" + cudart13, "libcupti.so.13"},
               {cudart12, "libcupti.so.12"},  // beside its runtime, on disk
               {cupti12, "libcupti.so.12"},
               {cupti12 + ":" + cupti13, "libcupti.so.13"}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.open);
    const TempFolder directory;
    extra_ = {{"SEQPOINT_DIR", directory.path().string()}};
    PuppetDaemon daemon(directory.path().string());
    daemon.Start();
    const ProgramResult result = Run({"iterations=30", "open=" + one.open});
    daemon.Stop();
    EXPECT_EQ(result.exit_status, 0) << result.output;
    ASSERT_EQ(daemon.process_count(), 1u);
    EXPECT_THAT(daemon.process(0).Message(Feature::kCupti), HasSubstr(one.taken));
    EXPECT_GT(daemon.process(0).calls.size(), 30u * 9);
    EXPECT_EQ(daemon.process(0).CountRecords(abi::DataType::kCopy), 30u);
  }
}

// Beside a libcupti of a pip package lies libnvperf_host.so, which libcupti opens by its bare name
// and therefore does not find, or finds another one.
TEST_F(NeighboursTest, TheRealCountersLibraryIsFoundInAPipPackage) {
  const fs::path real = fs::path(kRealCupti).parent_path() / "libnvperf_host.so";
  if (!fs::exists(kRealCupti) || !fs::exists(real)) {
    GTEST_SKIP() << kRealCupti << " and libnvperf_host.so are not there: install CUDA 13";
  }
  const fs::path package = directory_.path() / "nvidia" / "cu13" / "lib";
  fs::create_directories(package);
  fs::create_symlink(kRealCupti, package / "libcupti.so.13");
  fs::create_symlink(real, package / "libnvperf_host.so");
  const std::vector<std::string> arguments = {
      "iterations=5", "open=" + (package / "libcupti.so.13").string(), "host_profiler=1"};
  const ProgramResult profiled = Run(arguments);
  EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
  EXPECT_EQ(profiled.Value("host_profiler"), "0");
  EXPECT_EQ(profiled.Value("nvperf"), (package / "libnvperf_host.so").string());
}

// NVIDIA's own runtime, linked statically, without a driver and with one that it does not know.
TEST_F(NeighboursTest, AProgramWithTheStaticRuntimeEndsAsWithoutUs) {
  if (!fs::exists(SEQPOINT_STATIC_PROGRAM)) GTEST_SKIP() << "built without nvcc";
  for (const char* libraries : {"", SEQPOINT_SOFTGPU_DIR}) {
    auto environment = Environment(false);
    environment["LD_LIBRARY_PATH"] = libraries;
    const ProgramResult alone = RunProgram({SEQPOINT_STATIC_PROGRAM}, environment);
    environment = Environment(true);
    environment["LD_LIBRARY_PATH"] = libraries;
    const ProgramResult profiled = RunProgram({SEQPOINT_STATIC_PROGRAM}, environment);
    EXPECT_EQ(profiled.exit_status, alone.exit_status);
    EXPECT_EQ(profiled.signal, alone.signal);
    EXPECT_EQ(profiled.output, alone.output);
    EXPECT_NE(alone.output, "");
  }
}

// cuInit, where the library looks at all loaded objects, beside a thread that loads and unloads
// one.
TEST_F(NeighboursTest, AProgramThatLoadsLibrariesMeanwhile) {
  daemon_.Start();
  for (int i = 0; i < 50; ++i) {
    const ProgramResult result = Run({"iterations=2", "load=libBrokenLocale.so.1"});
    ASSERT_EQ(result.exit_status, 0) << result.output;
  }
  daemon_.Stop();
}

class ChildTest : public NeighboursTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(ChildTest, IsAProcessOfItsOwn) {
  SendEverything();
  const std::string how = GetParam();
  daemon_.Start();
  const ProgramResult profiled =
      Run({"iterations=200", "lengths=16,32", "sleep_us=300", "child=150", "how=" + how});
  daemon_.Stop();
  const ProgramResult alone =
      Run({"iterations=200", "lengths=16,32", "child=150", "how=" + how}, false);
  EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
  EXPECT_EQ(profiled.output, alone.output);
  ASSERT_EQ(daemon_.process_count(), 2u);
  EXPECT_EQ(daemon_.process(1).CountRecords(abi::DataType::kCopy), 10u);
  EXPECT_TRUE(daemon_.process(1).stats.closed);
  if (how == "exec") return;
  EXPECT_EQ(profiled.Value("child"), "0");
  EXPECT_EQ(process().steps.back().iteration + 1, process().steps.size());
  EXPECT_TRUE(process().stats.closed);
}

INSTANTIATE_TEST_SUITE_P(All, ChildTest, ::testing::Values("posix_spawn", "fork", "vfork", "exec"),
                         [](const auto& info) { return std::string(info.param); });

// Memcheck sees every byte that the library reads and writes, all levels included. It has no heap
// that could leak.
TEST_F(NeighboursTest, ValgrindFindsNothing) {
  SEQPOINT_NEEDS_TRACES();
  if (std::string(SEQPOINT_VALGRIND).empty()) GTEST_SKIP() << "no valgrind: install it";
  SendEverything();
  daemon_.Start();
  const ProgramResult result =
      RunProgram({SEQPOINT_VALGRIND, "-q", "--error-exitcode=99", SEQPOINT_INJECTION_TRAINER,
                  "iterations=200", "lengths=16,32,48", "sync=2", "mark=1", "nvtx=1",
                  "sleep_us=1000", "tool=120", "tool_end=149", "fork=60", "capture=80"},
                 Environment(true));
  daemon_.Stop();
  EXPECT_EQ(result.exit_status, 0) << result.output;
  EXPECT_THAT(result.output, ::testing::Not(HasSubstr("==")));
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_GT(process().counters.size(), 5u);
  EXPECT_GT(process().kernel_counters.size(), 5u);
  EXPECT_GT(process().CountRecords(abi::DataType::kKernel), 50u);
}

// Named for the driver alone, and preloaded behind the checker's runtime, which must come first.
TEST_F(NeighboursTest, AddressSanitizerFindsNothing) {
  SEQPOINT_NEEDS_TRACES();
  const ProgramResult runtime = RunProgram({"gcc", "-print-file-name=libasan.so"}, {});
  const std::string libasan = runtime.output.substr(0, runtime.output.find('\n'));
  for (const bool preloaded : {false, true}) {
    SCOPED_TRACE(preloaded);
    if (preloaded && !fs::exists(libasan)) GTEST_SKIP() << "no libasan.so beside gcc";
    const TempFolder directory;
    auto environment = Environment(false);
    environment["SEQPOINT_DIR"] = directory.path().string();
    // The software GPU leaks a little by itself; what CUPTI keeps for us must not be added to it.
    const auto leaks = [](const ProgramResult& result) {
      return result.output.find("libcupti") != std::string::npos;
    };
    EXPECT_FALSE(leaks(RunProgram({SEQPOINT_TRAINER_ASAN, "iterations=5"}, environment)));
    environment["CUDA_INJECTION64_PATH"] = SEQPOINT_INJECT_LIBRARY;
    environment["NVTX_INJECTION64_PATH"] = SEQPOINT_INJECT_LIBRARY;
    if (preloaded) environment["LD_PRELOAD"] = libasan + ":" + SEQPOINT_INJECT_LIBRARY;
    PuppetDaemon daemon(directory.path().string());
    abi::Control control = MarkControl(CopyRule(1));
    AddConfig(&control, 2, "gpu__time_duration.sum");
    AddEntry(&control, 100, 16, 2, 1000);
    AddEntry(&control, 101, 32, abi::kConfigTrace, 1000);
    // Both backends, one in each run.
    if (preloaded) control.counter_backend = static_cast<uint8_t>(abi::CounterBackend::kPm);
    daemon.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
    daemon.Start();
    const ProgramResult result =
        RunProgram({SEQPOINT_TRAINER_ASAN, "iterations=300", "lengths=16,32", "sync=2", "mark=1",
                    "nvtx=1", "sleep_us=500", "fork=60", "capture=80"},
                   environment);
    daemon.Stop();
    EXPECT_FALSE(leaks(result)) << result.output;
    EXPECT_THAT(result.output, ::testing::Not(HasSubstr("ERROR: AddressSanitizer")));
    EXPECT_NE(result.Value("digest"), "") << result.output;
    ASSERT_EQ(daemon.process_count(), 1u) << result.output;
    EXPECT_GT(daemon.process(0).counters.size(), 5u);
    EXPECT_GT(daemon.process(0).CountRecords(abi::DataType::kKernel), 50u);
  }
}

}  // namespace
}  // namespace seqpoint
