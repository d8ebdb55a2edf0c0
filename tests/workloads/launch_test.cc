// seqpoint_launch as a person meets it: the variables of the ranks, statuses and signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A launcher of shells that run `script`.
std::vector<std::string> Launch(const std::string& options, const std::string& script) {
  std::vector<std::string> command = {SEQPOINT_LAUNCH};
  std::istringstream words(options);
  for (std::string word; words >> word;) command.push_back(word);
  command.insert(command.end(), {"/bin/sh", "-c", script});
  return command;
}

std::vector<std::string> SortedLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(LaunchTest, RanksHaveTheVariablesOfTorchrun) {
  const ProgramResult result = RunProgram(
      Launch("-n 2 --run-id mine --master-port 12345",
             "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
             "$MASTER_PORT $TORCHELASTIC_RUN_ID $TORCHELASTIC_RESTART_COUNT"),
      {});
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_THAT(SortedLines(result.output),
              ElementsAre("0 0 2 2 0 127.0.0.1 12345 mine 0", "1 1 2 2 0 127.0.0.1 12345 mine 0"));
}

TEST(LaunchTest, RunsHaveNamesAndPortsOfTheirOwn) {
  const std::vector<std::string> command = Launch("-n 1", "echo $TORCHELASTIC_RUN_ID $MASTER_PORT");
  const ProgramResult first = RunProgram(command, {}), second = RunProgram(command, {});
  EXPECT_EQ(first.exit_status, 0);
  EXPECT_NE(first.output, second.output);
  EXPECT_THAT(first.output, testing::MatchesRegex("[^ ]+ [0-9]+\n"));
}

TEST(LaunchTest, ItPassesArgumentsOnAsTheyAre) {
  const ProgramResult result =
      RunProgram({SEQPOINT_LAUNCH, "-n", "1", "/bin/echo", "-n", "4", "--grace", "a b"}, {});
  EXPECT_EQ(result.output, "4 --grace a b");
}

TEST(LaunchTest, TheStatusOfTheRankThatFailsIsReturnedAndTheOthersAreEnded) {
  const ProgramResult result = RunProgram(
      Launch(
          "-n 3",
          "trap 'echo asked; exit 0' TERM; [ $RANK = 1 ] && exit 7; while :; do sleep 0.02; done"),
      {});
  EXPECT_EQ(result.exit_status, 7);
  EXPECT_THAT(result.output, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(result.output, HasSubstr("ended with status 7"));
}

TEST(LaunchTest, ARankThatDoesNotEndIsKilled) {
  const ProgramResult result =
      RunProgram(Launch("-n 2 --grace 0.2",
                        "if [ $RANK = 1 ]; then kill -SEGV $$; fi; trap '' TERM; "
                        "while :; do sleep 0.05; done"),
                 {});
  EXPECT_EQ(result.exit_status, 128 + SIGSEGV);
  EXPECT_THAT(result.output, HasSubstr("ended with signal 11; the other ranks are ended"));
}

TEST(LaunchTest, ProgramsThatAreMissingAreSaid) {
  const ProgramResult result = RunProgram({SEQPOINT_LAUNCH, "-n", "2", "/nonexistent/program"}, {});
  EXPECT_EQ(result.exit_status, 127);
  EXPECT_THAT(result.output, HasSubstr("cannot start /nonexistent/program: No such file"));
  EXPECT_EQ(RunProgram({SEQPOINT_LAUNCH, "-n", "0", "true"}, {}).exit_status, 2);
  EXPECT_EQ(RunProgram({SEQPOINT_LAUNCH, "-n", "2"}, {}).exit_status, 2);
}

class SignalledTest : public testing::TestWithParam<int> {};

// Starts a launcher whose ranks note which signal they got, and sends it one.
TEST_P(SignalledTest, SignalsReachEveryRank) {
  TempFolder folder;
  const std::string script =
      "cd " + folder.path().string() +
      "; for s in TERM INT HUP USR1; do trap \"echo $s > got.$RANK; exit 0\" "
      "$s; done; touch ready.$RANK; while :; do sleep 0.02; done";
  std::vector<std::string> command = Launch("-n 2", script);
  const pid_t pid = fork();
  if (pid == 0) {
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  const auto all = [&](const std::string& name) {
    return std::filesystem::exists(folder.path() / (name + ".0")) &&
           std::filesystem::exists(folder.path() / (name + ".1"));
  };
  for (int i = 0; i < 1000 && !all("ready"); ++i) usleep(10'000);
  kill(pid, GetParam());
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  for (const char* rank : {"0", "1"}) {
    std::string name;
    std::ifstream(folder.path() / (std::string("got.") + rank)) >> name;
    EXPECT_EQ(name, sigabbrev_np(GetParam())) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SignalledTest, testing::Values(SIGTERM, SIGINT, SIGHUP, SIGUSR1),
                         [](const auto& info) { return std::string(sigabbrev_np(info.param)); });

TEST(LaunchTest, RanksDoNotOutliveTheLauncher) {
  TempFolder folder;
  const std::string file = (folder.path() / "pid").string();
  std::vector<std::string> command =
      Launch("-n 1", "echo $$ > " + file + "; while :; do sleep 0.02; done");
  const pid_t pid = fork();
  if (pid == 0) {
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  pid_t rank = 0;
  for (int i = 0; i < 1000 && rank == 0; ++i, usleep(10'000)) std::ifstream(file) >> rank;
  ASSERT_GT(rank, 0);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  // Gone, or a zombie whose new parent has not looked yet.
  const auto runs = [rank] {
    std::ifstream in("/proc/" + std::to_string(rank) + "/stat");
    std::string number, name, state;
    return static_cast<bool>(in >> number >> name >> state) && state != "Z";
  };
  for (int i = 0; i < 1000 && runs(); ++i) usleep(10'000);
  EXPECT_FALSE(runs());
}

}  // namespace
}  // namespace seqpoint
