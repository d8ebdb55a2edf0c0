// seqpoint-sgd as people run it: mpirun, ranks that exchange messages, files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace seqpoint::sgd {
namespace {

using ::testing::AllOf;
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

TEST_F(SgdTest, WhatCannotBeRunIsSaidOnce) {
  const Ran none = OnRanks(2, "");
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, HasSubstr("seqpoint-sgd: no network: give files of matrices"));
  EXPECT_EQ(none.output.find("no network"), none.output.rfind("no network"));
  const std::string for_four = RandomOwners(2, 4);
  const Ran two = OnRanks(2, "--radixnet 64x2 --owners " + for_four);
  EXPECT_EQ(two.status, 1);
  EXPECT_THAT(two.output, AllOf(HasSubstr(for_four), HasSubstr("there are 2 ranks")));
  EXPECT_EQ(OnRanks(2, "--radixnet 64x2 --samples 0").status, 2);
}

}  // namespace
}  // namespace seqpoint::sgd
