#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/client_fixture.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ClientTest, RunStartsADaemonPassesTheStatusOnAndSumsUp) {
  setenv("FAKE_JOB_MS", "300", 1);
  Result result = Client({"run", "--iterations", "5000", "--job", "mine", "--", "sh", "-c",
                          "echo out; echo err >&2; env | grep -E 'SEQPOINT_JOB|INJECTION|PRELOAD'; "
                          "exit 7"});
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.out, AllOf(StartsWith("out\n"), HasSubstr("SEQPOINT_JOB=mine\n"),
                                Not(HasSubstr("LD_PRELOAD=")),  // no child pays for it
                                HasSubstr("CUDA_INJECTION64_PATH=libm.so.6\n"),
                                HasSubstr("NVTX_INJECTION64_PATH=libm.so.6\n")));
  EXPECT_THAT(result.err,
              AllOf(StartsWith("err\n"), HasSubstr("whole run, had it gone on (5,000 iterations)"),
                    HasSubstr("ask next: seqpoint jobs 2, seqpoint project 2, seqpoint counters 2, "
                              "seqpoint kernels 2, seqpoint export 2 --chrome trace.json, "
                              "seqpoint whatif 2 --list")));
  EXPECT_THAT(result.err, Not(HasSubstr("\033")));  // no terminal, no progress line
  // How the program ended is known of the job.
  EXPECT_THAT(Client({"jobs", "2", "--no-start", "--json"}).out, HasSubstr("\"exit_status\": 7"));
  // Its daemon answers the next question, without another one.
  EXPECT_THAT(Client({"jobs", "--no-start"}).out, HasSubstr("mine"));
}

TEST_F(ClientTest, RunEndsByTheSignalThatEndedTheCommand) {
  EXPECT_EQ(Client({"run", "--quiet", "--", "sh", "-c", "kill -9 $$"}).code, 1000 + SIGKILL);
  Result result = Client({"run", "--", "sh", "-c", "kill -2 $$"});
  EXPECT_EQ(result.code, 1000 + SIGINT);
  EXPECT_THAT(result.err, HasSubstr("interrupted by Ctrl-C"));
}

// The client ignores SIGXFSZ; the command that it starts does not.
TEST_F(ClientTest, RunLeavesTheCommandItsFileSizeLimit) {
  EXPECT_EQ(Client({"run", "--quiet", "--", "sh", "-c", "kill -XFSZ $$"}).code, 1000 + SIGXFSZ);
}

TEST_F(ClientTest, RunPassesSignalsOn) {
  std::string ready = directory_ / "ready";
  pid_t child =
      Spawn({"run", "--", "sh", "-c",
             "trap 'echo got it; exit 3' TERM; touch " + ready + "; while :; do sleep 0.05; done"});
  for (int i = 0; i < 1000 && !std::filesystem::exists(ready); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  kill(child, SIGTERM);
  Result result = Wait(child);
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.out, "got it\n");
  // It was stopped, and did not fail.
  EXPECT_THAT(result.err, HasSubstr("interrupted by signal 15 (Terminated)"));
  EXPECT_THAT(Client({"jobs", "2", "--no-start", "--json"}).out, HasSubstr("\"signal\": 15"));
}

// A command run in a terminal of 24 rows, with what a person types; returns what it showed.
class TerminalTest : public ClientTest {
 protected:
  std::string RunInTerminal(const std::string& script, const std::string& wait_for,
                            const std::string& keys, int* code) {
    winsize size = {.ws_row = 24, .ws_col = 120, .ws_xpixel = 0, .ws_ypixel = 0};
    int terminal = -1;
    pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
    if (child == 0) {
      setenv("TERM", "xterm", 1);
      execl(CLIENT_BINARY, "seqpoint", "run", "--iterations", "5000", "--", "sh", "-c",
            script.c_str(), nullptr);
      _exit(99);
    }
    std::string shown;
    bool typed = false;
    char buffer[4096];
    while (true) {
      ssize_t count = read(terminal, buffer, sizeof(buffer));
      if (count <= 0) break;  // the other side is closed
      shown.append(buffer, count);
      if (!typed && shown.find(wait_for) != std::string::npos) {
        typed = true;
        EXPECT_EQ(write(terminal, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
      }
    }
    close(terminal);
    int status = 0;
    waitpid(child, &status, 0);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    return shown;
  }
};

TEST_F(TerminalTest, ProgressKeepsTheLastLineAndGivesItBack) {
  int code = 0;
  std::string shown = RunInTerminal("sleep 0.8; stty size", "SeqPoints", "", &code);
  EXPECT_EQ(code, 0);
  size_t taken = shown.find("\033[1;23r");
  size_t drawn = shown.find("\033[24;1H");
  size_t given_back = shown.find("\033[r");
  size_t summary = shown.find("ask next");
  EXPECT_LT(taken, drawn);
  EXPECT_LT(drawn, given_back);
  EXPECT_LT(given_back, summary);
  EXPECT_NE(summary, std::string::npos);
  EXPECT_THAT(shown, HasSubstr("1,000 of 5,000 iterations"));
  EXPECT_THAT(shown, HasSubstr("24 120"));  // the command has the terminal
}

TEST_F(TerminalTest, InterruptReachesTheCommandOnceAndItsStatusIsKept) {
  int code = 0;
  std::string shown = RunInTerminal(
      "trap 'n=$((n+1))' INT; echo ready; sleep 0.5; sleep 0.3; echo interrupted $n; exit 4",
      "ready", "\x03", &code);
  EXPECT_EQ(code, 4);
  EXPECT_THAT(shown, HasSubstr("interrupted 1"));
  EXPECT_THAT(shown, HasSubstr("ask next"));
}

TEST_F(ClientTest, RunRunsTheCommandWhateverFails) {
  setenv("SEQPOINT_DAEMON", "/nonexistent/seqpointd", 1);
  Result result = Client({"run", "--", "sh", "-c", "echo trained; exit 5"});
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(result.out, "trained\n");
  EXPECT_THAT(result.err, HasSubstr("the command runs without a profile"));
}

TEST_F(ClientTest, RunSaysWhereItsLibraryIsMissing) {
  setenv("SEQPOINT_LIBRARY", "/nonexistent.so", 1);
  Result result = Client({"run", "--", "echo", "trained"});
  EXPECT_EQ(result.out, "trained\n");
  EXPECT_THAT(result.err, HasSubstr("SEQPOINT_LIBRARY=/nonexistent.so: No such file"));
  EXPECT_THAT(Client({"run", "--json", "--", "true"}).out, HasSubstr("\"UNAVAILABLE\""));
}

TEST_F(ClientTest, RunRefusesAMistakeBeforeTheCommandRuns) {
  Result result = Client({"run", "--lengths", "/nonexistent.csv", "--", "echo", "ran"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("/nonexistent.csv"));
  EXPECT_EQ(Client({"run", "--job", "a@b", "--", "echo", "ran"}).code, 2);
}

TEST_F(ClientTest, RunHasARecordingsFolderForOperators) {
  const std::filesystem::path kept = std::filesystem::current_path();
  std::filesystem::current_path(directory_);
  const auto run = [&](const std::string& command) {
    return Client(
        {"run", "--operators", "--job", "a/b", "--run-id", "1", "--", "sh", "-c", command});
  };
  const std::filesystem::path folder = std::filesystem::canonical(directory_) / "a%2Fb@1.operators";
  Result result = run("echo $SEQPOINT_OPERATORS; touch $SEQPOINT_OPERATORS/5.graph.json");
  EXPECT_EQ(result.out, folder.string() + "\n");
  EXPECT_TRUE(std::filesystem::exists(folder / "5.graph.json"));
  EXPECT_THAT(result.err, HasSubstr("seqpoint place "));
  std::filesystem::remove(folder / "5.graph.json");
  EXPECT_THAT(run("true").err, Not(HasSubstr("seqpoint place ")));
  EXPECT_FALSE(std::filesystem::exists(folder));  // it was empty
  // A file in its place: said before the command runs.
  std::ofstream(folder.string()) << "mine";
  result = run("echo ran");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("--operators: cannot make the folder"), HasSubstr(folder.string())));
  std::filesystem::current_path(kept);
}

TEST_F(ClientTest, RunSaysWhenTheCommandCannotBeRun) {
  Result result = Client({"run", "--", "/nonexistent/train"});
  EXPECT_EQ(result.code, 127);
  EXPECT_THAT(result.err, HasSubstr("cannot run /nonexistent/train: No such file"));
  EXPECT_EQ(Client({"run", "--", "/etc/passwd"}).code, 126);
}

}  // namespace
}  // namespace seqpoint::client
