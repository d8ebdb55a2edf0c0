// A whole program built by nvcc, run as users run it: libraries found on LD_LIBRARY_PATH, the
// profiler loaded by the driver.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace {

using testing::HasSubstr;

struct Result {
  int status;
  std::string output;
};

Result RunProgram(const std::string& environment) {
  std::string command = "LD_LIBRARY_PATH=" SOFTGPU_DIR " " + environment + " " TEST_PROGRAM " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Result result{0, ""};
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof(buffer), pipe)) result.output.append(buffer, n);
  result.status = WEXITSTATUS(pclose(pipe));
  return result;
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

constexpr char kExpected[] = "elapsed yes, table[5] 25, back same, refused 1";

TEST(Program, RunsUnchanged) {
  Result result = RunProgram("");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr(kExpected));
  EXPECT_THAT(result.output, HasSubstr("major 9"));
}

TEST(Program, RunsInRealTime) {
  Result result = RunProgram("SWGPU_SET=clock.mode=real");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr(kExpected));
}

TEST(Program, RunsOnEveryShippedGpu) {
  for (const char* gpu : {"h200", "a100", "small"}) {
    Result result = RunProgram("SWGPU_CONFIG=" CONFIG_DIR "/" + std::string(gpu) + ".ini");
    EXPECT_EQ(result.status, 0) << gpu << result.output;
    EXPECT_THAT(result.output, HasSubstr(kExpected));
  }
}

TEST(Program, AMistakeInTheSettingsEndsIt) {
  Result unknown = RunProgram("SWGPU_SET=gpu.wings=2");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.output, HasSubstr("unknown key \"gpu.wings\""));
  Result bad = RunProgram("SWGPU_SET=gpu.sms=many");
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.output, HasSubstr("\"many\" is not a whole number"));
  EXPECT_THAT(RunProgram("SWGPU_CONFIG=/nonexistent.ini").output, HasSubstr("cannot read"));
}

TEST(Program, TheDriverLoadsTheInjectedLibrary) {
  std::string out = testing::TempDir() + "softgpu_tool.txt";
  std::string truth = testing::TempDir() + "softgpu_truth.json";
  Result result = RunProgram("CUDA_INJECTION64_PATH=" TEST_TOOL " TEST_TOOL_OUT=" + out +
                             " SWGPU_TRUTH=" + truth);
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr(kExpected));
  std::string seen = Read(out);
  // 10 launches, 2 captured ones and the refused one.
  EXPECT_THAT(seen, HasSubstr("call __cudaLaunchKernel enter 13\n"));
  EXPECT_THAT(seen, HasSubstr("call __cudaLaunchKernel exit 13\n"));
  EXPECT_THAT(seen, HasSubstr("call cuLaunchKernel enter 13\n"));
  EXPECT_THAT(seen, HasSubstr("call cudaGraphLaunch enter 3\n"));
  EXPECT_THAT(seen, HasSubstr("call cuGraphLaunch exit 3\n"));
  EXPECT_THAT(seen, HasSubstr("kernel _Z5ScalePfif 16\n"));
  EXPECT_THAT(seen, HasSubstr("nested with other id 0\n"));
  EXPECT_THAT(seen, HasSubstr("unknown ids 0\n"));
  EXPECT_THAT(seen, HasSubstr("graph nodes 6\n"));
  std::string json = Read(truth);
  EXPECT_THAT(json, HasSubstr("\"_Z5ScalePfif\": {\"launches\": 16,"));
  EXPECT_THAT(json, HasSubstr("\"digest\": \""));
}

TEST(Program, AProfilerDoesNotChangeTheDigest) {
  auto digest = [](const std::string& environment) {
    std::string truth = testing::TempDir() + "softgpu_digest.json";
    RunProgram(environment + " SWGPU_TRUTH=" + truth);
    std::string json = Read(truth);
    return json.substr(json.find("digest"));
  };
  std::string out = testing::TempDir() + "softgpu_tool2.txt";
  EXPECT_EQ(digest(""), digest("CUDA_INJECTION64_PATH=" TEST_TOOL " TEST_TOOL_OUT=" + out));
}

TEST(Program, AnInjectionThatDoesNotLoadIsPassedOver) {
  EXPECT_EQ(RunProgram("CUDA_INJECTION64_PATH=/nonexistent.so").status, 0);
}

}  // namespace
