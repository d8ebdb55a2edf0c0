// seqpoint-sgd as people run it: mpirun, ranks that exchange messages, files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "simdjson.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::sgd {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Ran {
  int status = -1;
  std::string output;  // both streams
};

class SgdTest : public testing::Test {
 protected:
  void SetUp() override {
    // Tests may run as root, in a container, on fewer cores than there are ranks.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_btl", "self,vader", 1);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    if (system("mpirun -n 2 true >/dev/null 2>&1 </dev/null") != 0) {
      GTEST_SKIP() << "mpirun cannot start two processes here: mpirun -n 2 true says why";
    }
  }

  Ran OnRanks(int ranks, const std::string& arguments) {
    const std::string command =
        "mpirun -n " + std::to_string(ranks) + " " SGD_BINARY " " + arguments + " 2>&1 </dev/null";
    Ran run;
    FILE* pipe = popen(command.c_str(), "r");
    char piece[4096];
    while (size_t size = fread(piece, 1, sizeof piece, pipe)) run.output.append(piece, size);
    const int status = pclose(pipe);
    run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return run;
  }

  struct Lines {
    std::string out, err;
  };
  // The lines of rank 0 and those of rank 1, apart.
  Lines OnTwoRanks(const std::string& arguments) {
    const std::string out = folder_.path() / "out", err = folder_.path() / "err";
    const std::string command =
        "mpirun -n 2 " SGD_BINARY " " + arguments + " >" + out + " 2>" + err + " </dev/null";
    std::ignore = system(command.c_str());
    return {Text(out), Text(err)};
  }

  static std::string Text(const std::filesystem::path& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  // On a terminal; `interrupt` comes when the program says how far it is.
  Ran OnTerminal(const std::string& arguments,
                 const std::function<void(pid_t mpirun, int terminal)>& interrupt) {
    winsize size = {.ws_row = 24, .ws_col = 100};
    int terminal = -1;
    const pid_t mpirun = forkpty(&terminal, nullptr, nullptr, &size);
    if (mpirun == 0) {
      setenv("TERM", "xterm", 1);
      // Seconds; a busy machine takes longer for a step than mpirun waits for it by itself.
      setenv("OMPI_MCA_odls_base_sigkill_timeout", "3", 1);
      const std::string command = "exec mpirun -n 2 " SGD_BINARY " " + arguments;
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(99);
    }
    Ran run;
    bool interrupted = false;
    char piece[4096];
    ssize_t count = 0;
    while ((count = read(terminal, piece, sizeof piece)) > 0) {
      run.output.append(piece, static_cast<size_t>(count));
      if (!interrupted && run.output.find("seqpoint-sgd: step ") != std::string::npos) {
        interrupted = true;
        interrupt(mpirun, terminal);
      }
    }
    int status = 0;
    waitpid(mpirun, &status, 0);
    close(terminal);
    run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return run;
  }

  // Each neuron of 64 x `layers` on a rank by lot.
  std::string RandomOwners(int layers, int ranks) {
    const std::string path = folder_.path() / ("owners" + std::to_string(ranks));
    std::ofstream file(path);
    std::mt19937 random(7);
    for (int row = 0; row <= layers; ++row) {
      for (int i = 0; i < 64; ++i) file << random() % ranks << (i == 63 ? "\n" : " ");
    }
    return path;
  }

  std::vector<double> Weights(const std::string& folder, int layers) {
    std::vector<double> weights;
    for (int layer = 1; layer <= layers; ++layer) {
      std::ifstream file(folder + "/layer" + std::to_string(layer) + ".tsv");
      int row = 0, column = 0;
      double weight = 0;
      while (file >> row >> column >> weight) weights.push_back(weight);
    }
    return weights;
  }

  const TempFolder folder_;
};

TEST_F(SgdTest, RanksLearnTheSameWeightsAsOneAlone) {
  for (const std::string loss : {"squares", "cross-entropy"}) {
    const std::string what = "--radixnet 64x6 --steps 100 --samples 8 --rate 0.5 --loss " + loss;
    const std::string one = folder_.path() / ("one-" + loss);
    const Ran alone = OnRanks(1, what + " --write " + one);
    ASSERT_EQ(alone.status, 0) << alone.output;
    const std::vector<double> expected = Weights(one, 6);
    ASSERT_EQ(expected.size(), 6u * 64 * 32);
    double largest = 0;
    for (double weight : expected) largest = std::max(largest, std::abs(weight));
    for (int ranks : {2, 4}) {
      const std::string many = folder_.path() / ("many-" + loss + std::to_string(ranks));
      const Ran run =
          OnRanks(ranks, what + " --owners " + RandomOwners(6, ranks) + " --write " + many);
      ASSERT_EQ(run.status, 0) << run.output;
      EXPECT_THAT(run.output, HasSubstr("sent as the plan says, in every layer"));
      const std::vector<double> weights = Weights(many, 6);
      ASSERT_EQ(weights.size(), expected.size());
      double worst = 0;
      for (size_t i = 0; i < weights.size(); ++i) {
        worst = std::max(worst, std::abs(weights[i] - expected[i]) / largest);
      }
      EXPECT_LT(worst, 1e-5) << ranks << " ranks, " << loss;
    }
  }
}

TEST_F(SgdTest, TheLossFalls) {
  const Ran run = OnRanks(2, "--radixnet 64x2 --steps 400 --samples 32 --rate 2 --json " +
                                 std::string(folder_.path() / "figures.json"));
  ASSERT_EQ(run.status, 0) << run.output;
  std::ifstream file(folder_.path() / "figures.json");
  std::stringstream text;
  text << file.rdbuf();
  const size_t at = text.str().find("\"loss\"");
  ASSERT_NE(at, std::string::npos) << text.str();
  double first = 0, last = 0;
  ASSERT_EQ(
      sscanf(text.str().c_str() + at, "\"loss\": {\"first\": %lf, \"last\": %lf", &first, &last),
      2);
  EXPECT_LT(last, 0.8 * first);
}

TEST_F(SgdTest, ARunThatDivergesIsNoSuccess) {
  const std::string json = folder_.path() / "figures.json";
  const Ran run = OnRanks(2,
                          "--radixnet 64x3 --rate 1e38 --activation relu --loss cross-entropy "
                          "--json " +
                              json);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, HasSubstr("the loss is no finite number any more in step"));
  EXPECT_FALSE(std::filesystem::exists(json));
}

TEST_F(SgdTest, InferenceIsThatOfOneRank) {
  const std::string what = "--radixnet 1024x6 --inference --steps 2 --samples 8 --bias -0.05";
  std::vector<std::string> sums;
  for (int ranks : {1, 3}) {
    const std::string json = folder_.path() / ("figures" + std::to_string(ranks));
    const Ran run = OnRanks(ranks, what + " --json " + json);
    ASSERT_EQ(run.status, 0) << run.output;
    std::ifstream file(json);
    std::string line;
    while (std::getline(file, line)) {
      if (line.find("output_sum") != std::string::npos) sums.push_back(line);
    }
  }
  ASSERT_EQ(sums.size(), 2u);
  double one = 0, three = 0;
  ASSERT_EQ(sscanf(sums[0].c_str(), " \"output_sum\": %lf", &one), 1);
  ASSERT_EQ(sscanf(sums[1].c_str(), " \"output_sum\": %lf", &three), 1);
  EXPECT_GT(one, 0);
  EXPECT_NEAR(one, three, 1e-5 * one);
}

TEST_F(SgdTest, WhereThereIsNoGpuThatIsSaid) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "a GPU is here";
  const Ran run = OnRanks(2, "--radixnet 64x2 --gpu");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, HasSubstr("seqpoint-sgd: --gpu"));
  EXPECT_THAT(run.output, HasSubstr("leave --gpu out"));
  EXPECT_EQ(run.output.find("--gpu:"), run.output.rfind("--gpu:"));
}

TEST_F(SgdTest, WhatCannotBeRunIsSaidOnce) {
  const Ran none = OnRanks(2, "");
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.output, HasSubstr("seqpoint-sgd: no network: give files of matrices"));
  EXPECT_EQ(none.output.find("no network"), none.output.rfind("no network"));
  const std::string for_four = RandomOwners(2, 4);
  const Ran two = OnRanks(2, "--radixnet 64x2 --owners " + for_four);
  EXPECT_EQ(two.status, 1);
  EXPECT_THAT(two.output, AllOf(HasSubstr(for_four), HasSubstr("there are 2 ranks")));
}

TEST_F(SgdTest, ATerminalShowsTheStepAndASignalEndsTheRunAfterOne) {
  const std::string json = folder_.path() / "figures.json";
  const std::string what = "--radixnet 64x2 --steps 1000000000 --json " + json;
  // mpirun makes SIGTERM of it, for all ranks, and says 1 itself.
  const auto ctrl_c = [](pid_t, int terminal) { std::ignore = write(terminal, "\x03", 1); };
  const auto to_one_rank = [](pid_t mpirun, int) {
    const std::string self = std::to_string(mpirun);
    const std::string ranks = Text("/proc/" + self + "/task/" + self + "/children");
    kill(std::stoi(ranks), SIGINT);
  };
  for (const auto& [interrupt, status] :
       {std::pair<std::function<void(pid_t, int)>, int>{ctrl_c, 1}, {to_one_rank, 0}}) {
    std::filesystem::remove(json);
    const Ran run = OnTerminal(what, interrupt);
    EXPECT_EQ(run.status, status);
    EXPECT_THAT(run.output, ContainsRegex("seqpoint-sgd: step [0-9]+ of 1000000000, loss [0-9.]+, "
                                          "[0-9.e-]+ ms \\(Ctrl-C: end after this step\\)"));
    EXPECT_THAT(run.output, ContainsRegex("stopped: after [0-9]+ of 1000000000 steps"));
    // All ranks made the same steps.
    EXPECT_THAT(run.output, HasSubstr("sent as the plan says, in every layer"));
    EXPECT_THAT(Text(json), AllOf(HasSubstr("\"stopped\": true"), HasSubstr("\"loss\"")));
  }
}

TEST_F(SgdTest, WithoutATerminalNothingIsSaidOfSteps) {
  const Ran run = OnRanks(2, "--radixnet 1024x12 --steps 60");  // a second or more
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.output.find("seqpoint-sgd: step"), std::string::npos) << run.output;
}

TEST_F(SgdTest, JsonOnStandardOutputIsAlone) {
  const Lines run = OnTwoRanks("--radixnet 64x2 --steps 3 --json -");
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(run.out).get(json), simdjson::SUCCESS) << run.out << run.err;
  EXPECT_EQ(int64_t{json["steps"]}, 3);
  EXPECT_FALSE(bool{json["stopped"]});
  EXPECT_LE(double{json["step_seconds"]["lower_quartile"]}, double{json["step_seconds"]["median"]});
  EXPECT_LE(double{json["step_seconds"]["median"]}, double{json["step_seconds"]["upper_quartile"]});
  // Blocks on two ranks: 32 neurons of a layer each way.
  EXPECT_EQ(int64_t{json["largest_sender"]["words"]}, 2 * 2 * 32);
  EXPECT_EQ(int64_t{json["largest_sender"]["messages"]}, 2 * 2);
  const Lines wrong = OnTwoRanks("--radixnet 7x2 --json -");
  ASSERT_EQ(parser.parse(wrong.out).get(json), simdjson::SUCCESS) << wrong.out << wrong.err;
  EXPECT_EQ(json["error"]["code"].get_string().value(), "INVALID_ARGUMENT");
}

TEST_F(SgdTest, OutputsAreCheckedBeforeTheFirstStep) {
  const std::string folder = folder_.path();
  const std::string owners = RandomOwners(2, 2);
  const std::string before = Text(owners);
  std::ofstream(folder + "/file") << "text";
  std::filesystem::create_directories(folder + "/taken/layer2.tsv");
  // More steps than this test has time for.
  const std::string what = "--radixnet 64x2 --steps 1000000000 --owners " + owners;
  const std::pair<std::string, std::string> wrong[] = {
      {"--json " + folder, "cannot write " + folder + ": Is a directory"},
      {"--json " + folder + "/none/a", "cannot write " + folder + "/none/a: No such file"},
      {"--json " + owners, "cannot write " + owners + ": it is read, or written already"},
      {"--write " + folder + "/file", "cannot write " + folder + "/file/layer1.tsv: Not a dir"},
      {"--write " + folder + "/none/a", "cannot write " + folder + "/none/a/layer1.tsv: No such"},
      {"--write " + folder + "/taken", "/taken/layer2.tsv: Is a directory"},
      {"--write " + folder + "/w --json " + folder + "/w/layer1.tsv", "written already"}};
  for (const auto& [arguments, message] : wrong) {
    const Ran run = OnRanks(2, what + " " + arguments);
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.output, HasSubstr(message));
  }
  EXPECT_EQ(Text(owners), before);
  EXPECT_EQ(Text(folder + "/file"), "text");
}

TEST_F(SgdTest, NumbersThatAreNoneAreWrongUsage) {
  const std::pair<const char*, const char*> wrong[] = {
      {"--bias nan", "--bias: \"nan\" is not a number"},
      {"--bias inf", "--bias: \"inf\" is not a number"},
      {"--bias 1e39", "--bias: \"1e39\" is not a number"},
      {"--rate nan", "--rate: \"nan\" is not a number from 0 to 3.4"},
      {"--rate -1", "--rate: \"-1\" is not a number from 0 to 3.4"},
      {"--steps -3", "--steps: \"-3\" is not a whole number from 1"},
      {"--samples 0", "--samples: \"0\" is not a whole number from 1 to 65,536"}};
  for (const auto& [arguments, message] : wrong) {
    const Ran run = OnRanks(2, std::string("--radixnet 64x2 --steps 2 ") + arguments);
    EXPECT_EQ(run.status, 2) << arguments;
    EXPECT_THAT(run.output, AllOf(HasSubstr(message), HasSubstr("see seqpoint-sgd --help")));
  }
}

TEST_F(SgdTest, AMessageThatMpiCannotCountIsRefused) {
  // Each neuron is needed by the other rank.
  constexpr int kNeurons = 66'000;
  const std::string path = folder_.path() / "crossed.tsv";
  {
    std::ofstream file(path);
    for (int i = 0; i < kNeurons; ++i) {
      file << i + 1 << '\t' << (i + kNeurons / 2) % kNeurons + 1 << "\t1\n";
    }
  }
  const Ran run = OnRanks(2, path + " --steps 1 --samples 65536");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output,
              AllOf(HasSubstr("in layer 1 33,000 neurons of 65,536 samples"),
                    HasSubstr("2,147,483,647 numbers at most; take --samples 65075 or fewer")));
}

TEST_F(SgdTest, CrossEntropyNeedsAnOutputForEachClass) {
  const std::string path = folder_.path() / "small.mtx";
  std::ofstream(path) << "%%MatrixMarket matrix coordinate real general\n"
                         "3 2 4\n1 1 0.5\n2 1 0.25\n2 2 -1\n3 2 0.125\n";
  const Ran run = OnRanks(2, path + " --loss cross-entropy --steps 2");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, HasSubstr("--loss cross-entropy needs an output for each of the 10 "
                                    "classes of the samples, and the last layer has 3 neurons; "
                                    "take --loss squares"));
  EXPECT_EQ(OnRanks(2, path + " --steps 2").status, 0);
}

}  // namespace
}  // namespace seqpoint::sgd
