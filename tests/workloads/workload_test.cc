// The training programs on the software GPU: every model and option for a few iterations, judged by
// the truth file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <ostream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/workloads/truth_lines.h"

namespace seqpoint::workload {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Result {
  int status = 0;
  std::string output;
  std::vector<std::string> iterations;
  std::vector<std::string> evaluations;
  std::vector<std::string> checkpoints;
  std::string totals;
  std::string Digest() const { return Field(totals, "digest"); }
};

class WorkloadTest : public testing::Test {
 protected:
  std::string Path(const std::string& file) const {
    std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(test.begin(), test.end(), '/', '_');
    return testing::TempDir() + "/workload_" + test + "_" + file;
  }

  Result Run(const std::string& arguments) const {
    const std::string truth = Path("truth.jsonl");
    std::remove(truth.c_str());
    const std::string command = "LD_LIBRARY_PATH=" SEQPOINT_SOFTGPU_DIR " " SEQPOINT_WORKLOAD
                                " --truth " +
                                truth + " " + arguments + " 2>&1";
    Result result;
    FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 4096> buffer;
    while (size_t bytes = fread(buffer.data(), 1, buffer.size(), pipe)) {
      result.output.append(buffer.data(), bytes);
    }
    result.status = WEXITSTATUS(pclose(pipe));
    std::ifstream file(truth);
    for (std::string line; std::getline(file, line);) {
      if (line.find(R"({"kind":"iteration")") == 0) result.iterations.push_back(line);
      if (line.find(R"({"kind":"evaluation")") == 0) result.evaluations.push_back(line);
      if (line.find(R"({"kind":"checkpoint")") == 0) result.checkpoints.push_back(line);
      if (line.find(R"({"kind":"totals")") == 0) result.totals = line;
    }
    return result;
  }

  Result RunWell(const std::string& arguments) const {
    const Result result = Run(arguments);
    EXPECT_EQ(result.status, 0) << arguments << "\n" << result.output;
    EXPECT_FALSE(result.totals.empty()) << arguments;
    return result;
  }
};

struct ModelCase {
  const char* name;
  const char* header;
  const char* short_row;
  const char* long_row;
  bool grows;
};

void PrintTo(const ModelCase& model, std::ostream* out) { *out << model.name; }

class ModelTest : public WorkloadTest, public testing::WithParamInterface<ModelCase> {};

TEST_P(ModelTest, TimesFollowTheLengthsOfTheFile) {
  const ModelCase& model = GetParam();
  const std::string file = Path("lengths.csv");
  std::ofstream csv(file);
  csv << model.header << "\n";
  for (int i = 0; i < 64; ++i) csv << (i % 2 == 0 ? model.long_row : model.short_row) << "\n";
  csv.close();
  // Sorted: short, long, short, long over the epochs.
  const Result result = RunWell(std::string("--order sorted --batch 32 --epochs 12 --launch-us 1 "
                                            "--quiet --model ") +
                                model.name + " --lengths " + file);
  ASSERT_EQ(result.iterations.size(), 24u);
  std::vector<double> times[2];
  for (size_t i = 0; i < result.iterations.size(); ++i) {
    const std::string& line = result.iterations[i];
    EXPECT_EQ(Number(line, "iteration"), static_cast<double>(i));
    EXPECT_EQ(Number(line, "epoch"), static_cast<double>(i / 2));
    EXPECT_EQ(Number(line, "batch"), 32);
    EXPECT_EQ(Lengths(line), Lengths(result.iterations[i % 2]));
    EXPECT_GT(Number(line, "kernels"), 30);
    EXPECT_GT(Number(line, "dram_read_bytes"), 0);
    times[i % 2].push_back(Number(line, "gpu_time_ns"));
  }
  EXPECT_EQ(Field(result.iterations[0], "lengths"), std::string("[") + model.short_row);
  EXPECT_EQ(Field(result.iterations[1], "lengths"), std::string("[") + model.long_row);
  for (auto& side : times) std::sort(side.begin(), side.end());
  const double ratio = times[1][6] / times[0][6];
  if (model.grows) {
    EXPECT_GT(ratio, 1.5);
  } else {
    EXPECT_NEAR(ratio, 1, 0.05);
  }
}

TEST_P(ModelTest, TheSeedFixesTheWork) {
  const std::string arguments =
      std::string("--max-iterations 6 --quiet --batch 8 --model ") + GetParam().name;
  const std::string digest = RunWell(arguments + " --seed 5").Digest();
  EXPECT_EQ(digest, RunWell(arguments + " --seed 5").Digest());
  EXPECT_NE(digest, RunWell(arguments + " --seed 6").Digest());
}

TEST_P(ModelTest, TheTruthAddsUp) {
  const Result result =
      RunWell(std::string("--max-iterations 9 --eval-every 4 --eval-batches 2 --batch 8 --quiet "
                          "--checkpoint-every 3 --zero-grad kernel --model ") +
              GetParam().name);
  ASSERT_EQ(result.iterations.size(), 9u);
  ASSERT_EQ(result.evaluations.size(), 2u);
  ASSERT_EQ(result.checkpoints.size(), 3u);
  EXPECT_EQ(Number(result.evaluations[0], "after_iterations"), 4);
  EXPECT_EQ(Number(result.evaluations[1], "after_iterations"), 8);
  EXPECT_EQ(Number(result.checkpoints[0], "after_iterations"), 3);
  double gpu_time = 0, train_time = 0, launches = 0, bytes = 0;
  double train_bytes = 0;
  for (const auto* lines : {&result.iterations, &result.evaluations, &result.checkpoints}) {
    for (const std::string& line : *lines) {
      gpu_time += Number(line, "gpu_time_ns");
      launches += Number(line, "kernels");
      bytes += Number(line, "dram_read_bytes");
      if (lines == &result.iterations) {
        train_time += Number(line, "gpu_time_ns");
        train_bytes += Number(line, "dram_read_bytes");
      }
      EXPECT_EQ(Number(line, "kernels"), Number(line, "launches", "counters"));
    }
  }
  // Each time is rounded to a nanosecond in its line.
  EXPECT_NEAR(gpu_time, Number(result.totals, "gpu_time_ns"), 15);
  EXPECT_NEAR(train_time, Number(result.totals, "train_gpu_time_ns"), 15);
  EXPECT_EQ(launches, Number(result.totals, "launches", "counters"));
  EXPECT_NEAR(bytes, Number(result.totals, "dram_read_bytes", "counters"), 1);
  double kernel_bytes = 0;
  const std::string by_kernel = result.totals.substr(result.totals.find("\"training_kernels\":"));
  const std::regex read("\"dram_read_bytes\":([0-9.]+)");
  for (std::sregex_iterator it(by_kernel.begin(), by_kernel.end(), read), end; it != end; ++it) {
    kernel_bytes += std::stod((*it)[1]);
  }
  EXPECT_NEAR(kernel_bytes, train_bytes, 1);
  for (const std::string& line : result.iterations) {
    // The kernel that clears the gradients comes before the first forward launch.
    EXPECT_EQ(Number(line, "launches", "first_forward") - Number(line, "launches", "begin"), 1);
    EXPECT_GE(Number(line, "host_ns", "first_forward"), Number(line, "host_ns", "begin"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllModels, ModelTest,
    testing::Values(ModelCase{"gnmt", "source,target", "100,90", "300,310", true},
                    ModelCase{"ds2", "frames", "100", "300", true},
                    ModelCase{"transformer", "tokens", "100", "300", true},
                    ModelCase{"fixed", "tokens", "100", "300", false}),
    [](const testing::TestParamInfo<ModelCase>& info) { return std::string(info.param.name); });

// Launching threads and observers leave the work of a training step as it is.
TEST_F(WorkloadTest, WhoLaunchesAndWhoWatchesDoesNotChangeTheWork) {
  const std::string base = "--model gnmt --batch 8 --max-iterations 5 --quiet ";
  const std::string digest = RunWell(base).Digest();
  for (const char* option : {"--nvtx", "--backward-thread", "--fork-helper", "--launch-us 1"}) {
    EXPECT_EQ(RunWell(base + option).Digest(), digest) << option;
  }
}

TEST_F(WorkloadTest, OptionsChangeTheWorkAsTheySay) {
  const std::string base = "--model gnmt --batch 8 --max-iterations 5 --quiet ";
  const Result plain = RunWell(base);
  const double kernels = Number(plain.iterations[0], "kernels");
  std::set<std::string> digests = {plain.Digest()};
  struct {
    const char* option;
    double more_kernels;
  } const options[] = {{"--prefetch", 0},         {"--readback never", 0},
                       {"--readback 2", 0},       {"--zero-grad none", 0},
                       {"--zero-grad kernel", 1}, {"--second-context", 1},
                       {"--optimizer foreach", 0}};
  for (const auto& [option, more_kernels] : options) {
    const Result result = RunWell(base + option);
    ASSERT_EQ(result.iterations.size(), 5u) << option;
    EXPECT_TRUE(digests.insert(result.Digest()).second) << option;
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(Lengths(result.iterations[i]), Lengths(plain.iterations[i])) << option;
    }
    const double difference = Number(result.iterations[0], "kernels") - kernels;
    if (std::string(option) == "--optimizer foreach") {
      EXPECT_GT(difference, 20);
    } else {
      EXPECT_EQ(difference, more_kernels) << option;
    }
  }
}

TEST_F(WorkloadTest, AccumulationMakesOneIterationOfSeveralBatches) {
  const std::string base = "--model gnmt --batch 8 --quiet ";
  const Result plain = RunWell(base + "--max-iterations 6");
  const Result result = RunWell(base + "--accumulate 3 --max-iterations 2");
  ASSERT_EQ(result.iterations.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    std::vector<int> sum(2, 0);
    double kernels = 0;
    for (size_t micro = 0; micro < 3; ++micro) {
      const std::string& part = plain.iterations[3 * i + micro];
      for (size_t d = 0; d < 2; ++d) sum[d] += Lengths(part)[d];
      kernels += Number(part, "kernels");
    }
    EXPECT_EQ(Lengths(result.iterations[i]), sum);
    EXPECT_EQ(Number(result.iterations[i], "batch"), 24);
    EXPECT_THAT(result.iterations[i], HasSubstr("\"micro_lengths\":[["));
    // One optimiser step of three launches instead of three.
    EXPECT_EQ(Number(result.iterations[i], "kernels"), kernels - 6);
  }
}

TEST_F(WorkloadTest, AResumedRunGoesOnWhereTheOtherWas) {
  const std::string base = "--model gnmt --batch 8 --max-iterations 8 --quiet ";
  for (const char* option : {"", "--prefetch", "--accumulate 2"}) {
    const Result whole = RunWell(base + option);
    const Result rest = RunWell(base + option + " --resume-at 5");
    ASSERT_EQ(rest.iterations.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      for (const char* key : {"iteration", "epoch", "lengths", "kernels"}) {
        EXPECT_EQ(Field(rest.iterations[i], key), Field(whole.iterations[5 + i], key));
      }
    }
  }
  const Result past = Run(base + "--resume-at 8");
  EXPECT_EQ(past.status, 2);
  EXPECT_THAT(past.output, HasSubstr("--resume-at: 8 is past the last of 8 iterations"));
}

TEST_F(WorkloadTest, GraphsAreRecordedOncePerShape) {
  const Result result = RunWell(
      "--model transformer --graphs --pad-multiple 64 --batch 4 --max-iterations 30 --drop-last "
      "--quiet");
  std::set<std::vector<int>> shapes;
  for (const std::string& line : result.iterations) {
    EXPECT_EQ(Number(line, "graph_launches"), 1);
    EXPECT_EQ(Number(line, "kernels"), Number(line, "launches", "counters"));
    EXPECT_EQ(Lengths(line)[0] % 64, 0);
    EXPECT_GT(Number(line, "launches", "counters"), 100);
    shapes.insert(Lengths(line));
  }
  const double captured = Number(result.iterations.back(), "captured_launches", "begin");
  const double per_graph = Number(result.iterations[1], "captured_launches", "begin");
  EXPECT_GT(shapes.size(), 2u);
  EXPECT_NEAR(captured / per_graph, static_cast<double>(shapes.size()), 0.2 * shapes.size());
  for (const char* option : {"--prefetch", "--accumulate 2 --backward-thread"}) {
    RunWell(std::string("--model transformer --graphs --pad-multiple 64 --batch 4 --quiet "
                        "--max-iterations 8 ") +
            option);
  }
}

TEST_F(WorkloadTest, PaddingRunsAllLengthsInTheSameTimeButCopiesWhatThereIs) {
  const Result result = RunWell("--model fixed --batch 8 --max-iterations 12 --quiet");
  std::set<std::string> kernels, lengths;
  for (const std::string& line : result.iterations) {
    kernels.insert(Field(line, "kernels"));
    lengths.insert(Field(line, "lengths"));
  }
  EXPECT_EQ(kernels.size(), 1u);
  EXPECT_GT(lengths.size(), 6u);
}

TEST_F(WorkloadTest, BadLengthsEndItBeforeTraining) {
  const std::string file = Path("bad.csv");
  std::ofstream(file) << "frames\n100\n-7\n";
  const Result result = Run("--model ds2 --lengths " + file);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.output, HasSubstr("cannot read " + file + ":3: \"-7\" is not an integer"));
  EXPECT_TRUE(result.iterations.empty());
}

}  // namespace
}  // namespace seqpoint::workload
