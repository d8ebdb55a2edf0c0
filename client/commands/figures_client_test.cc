#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_split.h"
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

TEST_F(ClientTest, QueriesPrintTablesAndEndWithZero) {
  StartServer();
  for (const auto& [words, expected] : std::vector<std::pair<std::string, std::string>>{
           {"jobs", " 1  gnmt  r1   marking  2026-01-02 10:15:00       1,000"},
           {"jobs gnmt", "rank 0, counters: no permission for GPU counters"},
           {"seqpoints gnmt@r1", "8 SeqPoints stand for 1,000 iterations"},
           {"seqpoints gnmt@r1", "8/8  dram 8/8"},
           {"seqpoints gnmt@r1", "BY METRIC SET"},
           {"project 1 --iterations 5000", "whole run (5,000 iterations)"},
           {"project 1 --iterations 50 --epochs 100 --confidence 99%", "99 % INTERVAL"},
           {"project 1 --confidence 99", "99 % INTERVAL"},
           {"project 1 --confidence 0.99", "99 % INTERVAL"},
           {"project 1 --confidence 99 %", "99 % INTERVAL"},
           {"playlist 1 --target-error 5% --confidence 99 % --json", "\"confidence\": 0.99"},
           {"counters 1", "incomplete: 2 of 3 configurations were measured"},
           {"kernels 1 --limit 2", "1 more kernels"},
           {"roofline 1", "compute    75.0 %  lstm_gemm_128x128_f32"},
           {"compare gnmt 1",
            "cause:      kernel lstm_gemm_128x128_f32, +15.8 % at equal lengths: "
            "+3.800 s, 95 % of the"},
           {"compare gnmt 1", "not proven               lengths"},
           {"iterations 1 --measured", "dram"},
           {"version", "seqpointd 0.1.0"},
           {"completion bash", "complete -F _seqpoint seqpoint"},
           {"help control level", "seqpoint control JOB level LEVEL"},
           {"help run --json", "Usage: seqpoint run"},
           {"help --json", "Usage: seqpoint COMMAND"},
           {"jobs gnmt", "measuring: stops took 0.04 % of the run's time, of 1.00 % allowed"},
           {"complete -- --json project gn", "gnmt@r1"}}) {
    Result result = Client(absl::StrSplit(words, ' '));
    EXPECT_EQ(result.code, 0) << words << "\n" << result.err;
    EXPECT_THAT(result.out, HasSubstr(expected)) << words;
    EXPECT_EQ(result.err, "") << words;
  }
}

TEST_F(ClientTest, JsonIsTheReply) {
  StartServer();
  Result result = Client({"project", "1", "--json"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(StartsWith("{"), HasSubstr("\"per_1000_iterations\": {"),
                                HasSubstr("\"iterations_so_far\": \"1000\""),
                                HasSubstr("\"ring_dropped\": \"0\"")));
  EXPECT_THAT(Client({"export", "1", "--csv", directory_ / "x.csv", "--json"}).out,
              HasSubstr("\"bytes\": "));
  result = Client({"project", "nope", "--json"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.out, AllOf(StartsWith("{\n \"error\""), HasSubstr("\"NOT_FOUND\"")));
  EXPECT_THAT(Client({"project", "--json"}).out, HasSubstr("\"INVALID_ARGUMENT\""));
  result = Client({"--json", "jobs"});
  EXPECT_THAT(result.out, HasSubstr("\"state\": \"JOB_STATE_MARKING\""));
}

TEST_F(ClientTest, WithoutAHorizonThereIsNoTotal) {
  StartServer();
  Result result = Client({"project", "1"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("per 1,000 iterations"), HasSubstr("so far"),
                                HasSubstr("whole run: unknown; say how long it is")));
  EXPECT_THAT(result.out, Not(HasSubstr("remaining")));
  // Saying it once is enough for later questions.
  EXPECT_THAT(Client({"control", "1", "horizon", "--iterations", "5000"}).out,
              HasSubstr(", horizon 5,000 iterations\n"));
  EXPECT_THAT(Client({"project", "1"}).out, HasSubstr("whole run (5,000 iterations)"));
}

TEST_F(ClientTest, ALongReadShowsHowFarItIs) {
  StartServer();
  const std::string pipe = directory_ / "lengths.csv";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const pid_t child = Spawn({"project", "1", "--lengths", pipe});
  std::ofstream file(pipe);
  file << "length\n5\n" << std::flush;
  absl::SleepFor(absl::Milliseconds(1'100));
  file << "6\n7\n" << std::flush;
  file.close();
  const Result result = Wait(child);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("whole run (3 iterations)"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("lengths.csv: "), HasSubstr(" B read, "),
                                HasSubstr("/s\n"), Not(HasSubstr("\r"))));
}

TEST_F(ClientTest, ALengthsFileSaysHowLongTheRunIs) {
  StartServer();
  std::string path = directory_ / "train.csv";
  std::ofstream(path) << "length\n5\n6\n7\n";
  Result result = Client({"project", "1", "--lengths", path, "--epochs", "1000"});
  EXPECT_THAT(result.out, HasSubstr("whole run (3,000 iterations)"));
  std::ofstream(path) << "length\n5\nabc\n";
  result = Client({"project", "1", "--lengths", path});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("train.csv:3: \"abc\""));
}

TEST_F(ClientTest, IterationsGoThroughAllPages) {
  backend_.SetIterations(25'000);
  StartServer();
  Result result = Client({"iterations", "1", "--all"});
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 25'001);
  result = Client({"iterations", "1", "--limit", "3"});
  EXPECT_THAT(result.out, HasSubstr("25,000 iterations in all"));
  result = Client({"iterations", "1", "--from", "30000"});
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("there is none of these iterations"),
                    HasSubstr("the run has 25,000 iterations, which are counted from 0"),
                    Not(HasSubstr("was found"))));
  backend_.SetIterations(0);
  EXPECT_EQ(Client({"iterations", "1"}).code, 5);
  result = Client({"iterations", "1", "--rank", "7"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("has no rank 7; there are 0"));
}

TEST_F(ClientTest, ExportAppearsOnlyWhenItIsWhole) {
  StartServer();
  std::string path = directory_ / "trace.json";
  Result result = Client({"export", "1", "--chrome", path});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(ReadFile(path), AllOf(StartsWith("{\"traceEvents\":["), ::testing::EndsWith("]}\n")));
  result = Client({"export", "1", "--csv", "-"});
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2'501);
  std::filesystem::remove(path);
  EXPECT_EQ(Client({"export", "nope", "--chrome", path}).code, 4);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(Parts(), 0);
  EXPECT_EQ(Client({"export", "1", "--chrome", "/nonexistent/x"}).code, 1);
  EXPECT_EQ(Client({"export", "1"}).code, 2);
}

TEST_F(ClientTest, AnExportBeyondTheFileSizeLimitIsAnErrorAndLeavesNothing) {
  StartServer();
  const std::string path = directory_ / "big.csv";
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = 8192, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const pid_t child = Spawn({"export", "1", "--csv", path});
  setrlimit(RLIMIT_FSIZE, &before);
  const Result result = Wait(child);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write " + path + ": File too large"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(Parts(), 0);
}

}  // namespace
}  // namespace seqpoint::client
