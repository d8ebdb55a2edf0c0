// seqpoint partition as people run it: options, files, messages, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "client/planners/sparse_input.h"
#include "daemon/sparse/owners_text.h"
#include "daemon/sparse/volume.h"
#include "simdjson.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Ran {
  int status = -1;
  std::string out, err;
};

class PartitionTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.path() / name; }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() / name) << text;
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(folder_.path() / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Ran Run(const std::string& arguments) const {
    const std::string command = "cd '" + folder_.path().string() + "' && " PARTITION_BINARY " " +
                                arguments + " >out.txt 2>err.txt </dev/null";
    const int status = system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, Read("out.txt"), Read("err.txt")};
  }

  TempFolder folder_;
};

TEST_F(PartitionTest, TheJsonSaysWhatTheWrittenOwnersSend) {
  const Ran run = Run("--radixnet 128x6 --parts 4 --effort 0.1 -o plan --json");
  ASSERT_EQ(run.status, 0) << run.err;
  SparseInputOptions input{.radixnet = "128x6"};
  const auto network = ReadSparseInput(input);
  ASSERT_TRUE(network.ok());
  const auto owners = sparse::ReadOwners(Read("plan/owners.txt"), "owners.txt");
  ASSERT_TRUE(owners.ok()) << owners.status();
  ASSERT_TRUE(sparse::CheckOwners(*network, *owners, 4).ok());
  const sparse::Volume volume = sparse::CountVolume(*network, *owners, 4);

  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(run.out).get(json), simdjson::SUCCESS) << run.out;
  EXPECT_EQ(int64_t{json["words"]}, volume.words);
  EXPECT_EQ(int64_t{json["messages"]}, volume.messages);
  EXPECT_EQ(int64_t{json["largest_sender_words"]}, volume.largest_sender_words);
  EXPECT_EQ(double{json["imbalance"]}, volume.imbalance);
  int64_t words = 0, messages = 0;
  for (const simdjson::dom::element layer : json["layers"].get_array()) {
    words += int64_t{layer["words"]};
    messages += int64_t{layer["messages"]};
  }
  EXPECT_EQ(words, volume.words);
  EXPECT_EQ(messages, volume.messages);
  EXPECT_GE(int64_t{json["baselines"]["random"]}, volume.words);
  EXPECT_GE(int64_t{json["baselines"]["blocks"]}, volume.words);
  EXPECT_GE(double{json["seconds"]}, 0);
  EXPECT_EQ(json["stopped"].get_bool().value(), false);

  std::istringstream sends(Read("plan/sends.txt"));
  int64_t rows = 0, sent = 0;
  for (std::string line; std::getline(sends, line); ++rows) {
    std::istringstream row(line);
    sent += std::distance(std::istream_iterator<int>(row), {}) - 3;
  }
  EXPECT_EQ(rows, volume.messages);
  EXPECT_EQ(sent, volume.words);
}

TEST_F(PartitionTest, TrainingSendsTwiceAsMuch) {
  const Ran forward = Run("--radixnet 64x4 --parts 2 --effort 0.1 --json");
  const Ran training = Run("--radixnet 64x4 --parts 2 --effort 0.1 --json --training");
  simdjson::dom::parser one, two;
  EXPECT_EQ(2 * int64_t{one.parse(forward.out)["words"]},
            int64_t{two.parse(training.out)["words"]});
  EXPECT_EQ(2 * int64_t{one.parse(forward.out)["messages"]},
            int64_t{two.parse(training.out)["messages"]});
}

TEST_F(PartitionTest, WhatItWritesIsReadInTheOrderOfTheLayers) {
  ASSERT_EQ(Run("--radixnet 64x12 --write net").status, 0);
  EXPECT_THAT(Read("net/n64-l1.tsv"), StartsWith("1\t1\t6.250000e-02\n2\t1\t6.250000e-02\n"));
  // The shell puts l10 before l2.
  const Ran files = Run("net/*.tsv --parts 4 --effort 0.1");
  ASSERT_EQ(files.status, 0) << files.err;
  EXPECT_THAT(files.out, HasSubstr("12 layers, 24,576 nonzeros, 4 parts"));
  EXPECT_THAT(files.out, HasSubstr("in the order of the numbers in their names"));
  const Ran same = Run("net/*.tsv --parts 4 --effort 0.1 --json -o a");
  const Ran generated = Run("--radixnet 64x12 --parts 4 --effort 0.1 --json -o b");
  EXPECT_EQ(Read("a/owners.txt"), Read("b/owners.txt"));
}

TEST_F(PartitionTest, BadInputIsOneMessageAndNothingIsWritten) {
  Write("a.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 3 1\n");
  Ran run = Run("a.mtx --parts 2 -o plan --json");
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.err, "seqpoint partition: a.mtx:4: the column is 3; it is from 1 to 2\n");
  EXPECT_THAT(run.out, HasSubstr("\"error\": {\"code\": \"INVALID_ARGUMENT\""));
  EXPECT_FALSE(std::filesystem::exists(Path("plan")));

  run = Run("nowhere.mtx --parts 2");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cannot read nowhere.mtx: No such file"));
  run = Run(". --parts 2");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cannot read .: it is a folder"));
  run = Run("--radixnet 64x4 --parts 65");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("layer 1 has 64 neurons, fewer than the 65 parts"));
  Write("file", "");
  run = Run("--radixnet 64x4 --parts 2 --effort 0.1 -o file");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cannot make the folder file"));
}

TEST_F(PartitionTest, WrongUsageIsToldApart) {
  EXPECT_EQ(Run("--radixnet 64x4").status, 2);
  EXPECT_EQ(Run("--radixnet 64x4 --parts 0").status, 2);
  EXPECT_EQ(Run("--radixnet 64x4 --parts 2 --imbalance 3").status, 2);
  EXPECT_EQ(Run("--radixnet 64x4 --parts 2 --nonsense").status, 2);
  const Ran two = Run("a.mtx --radixnet 64x4 --parts 2");
  EXPECT_EQ(two.status, 2);
  EXPECT_THAT(two.err, HasSubstr("two networks: give files of matrices or --radixnet, not both"));
  EXPECT_EQ(Run("--parts 2").status, 2);
  const Ran nan = Run("--radixnet 64x4 --parts 2 --effort nan");
  EXPECT_EQ(nan.status, 2);
  EXPECT_THAT(nan.err, HasSubstr("--effort: \"nan\" is not a number from 0.001 to 1000"));
  EXPECT_EQ(Run("--help").status, 0);
}

TEST_F(PartitionTest, CtrlCEndsItWithTheBestSoFar) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string out = Path("out.json"), plan = Path("plan");
    if (freopen(out.c_str(), "w", stdout) == nullptr) _exit(99);
    execl(PARTITION_BINARY, PARTITION_BINARY, "--radixnet", "1024x30", "--parts", "8", "--effort",
          "1000", "--json", "-o", plan.c_str(), nullptr);
    _exit(99);
  }
  // The search has begun when the program catches the signal: it is asked until it does.
  int status = 0;
  while (true) {
    std::ifstream proc("/proc/" + std::to_string(child) + "/status");
    const std::string text((std::istreambuf_iterator<char>(proc)), {});
    const size_t at = text.find("SigCgt:");
    if (at != std::string::npos && (strtoull(text.c_str() + at + 7, nullptr, 16) & 2) != 0) break;
    ASSERT_EQ(waitpid(child, &status, WNOHANG), 0) << "it ended by itself";
    usleep(10'000);
  }
  kill(child, SIGINT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(Read("out.json"),
              AllOf(HasSubstr("\"stopped\": true"), HasSubstr("stopped: this is the best so far")));
  EXPECT_TRUE(sparse::ReadOwners(Read("plan/owners.txt"), "owners.txt").ok());
}

TEST(SparseInputTest, NumbersInNamesOrderFiles) {
  std::vector<std::string> files = {"n/l1.tsv", "n/l10.tsv", "n/l11.tsv", "n/l2.tsv"};
  EXPECT_TRUE(OrderByNumber(&files));
  EXPECT_THAT(files, ElementsAre("n/l1.tsv", "n/l2.tsv", "n/l10.tsv", "n/l11.tsv"));
  EXPECT_FALSE(OrderByNumber(&files));
  files = {"n1024-l100.tsv", "n1024-l20.tsv"};
  EXPECT_TRUE(OrderByNumber(&files));
  EXPECT_THAT(files, ElementsAre("n1024-l20.tsv", "n1024-l100.tsv"));
  files = {"l2-b.tsv", "l1-a.tsv"};
  EXPECT_FALSE(OrderByNumber(&files));
  EXPECT_THAT(files, ElementsAre("l2-b.tsv", "l1-a.tsv"));
  files = {"encoder", "decoder"};
  EXPECT_FALSE(OrderByNumber(&files));
}

}  // namespace
}  // namespace seqpoint::client
