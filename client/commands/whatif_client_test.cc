#include <filesystem>
#include <fstream>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/client_fixture.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ClientTest, AReplayShowsHowWellTheTracesAreUnderstood) {
  StartServer();
  Result result = Client({"replay", "gnmt"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(StartsWith("ITERATION  RANK  LENGTH  MEASURED  REPLAYED    ERROR\n"
                               "       17     1      22     40 ms  38.80 ms  -3.00 %\n"),
                    HasSubstr("the 10 worst; --all shows all 60\n"),
                    HasSubstr("60 iterations, 123,456 tasks: replayed +0.24 % off in all, -3.00 % "
                              "in the worst\n"),
                    HasSubstr("kernels                30 ms  75.0 %  ######"),
                    HasSubstr("data loading                    5 ms  12.5 %  #####\n"),
                    HasSubstr("note: 12 tasks begin later")));
  result = Client({"replay", "gnmt", "--all"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("\n        0     1       5     40 ms  40.00 ms  +0.01 %"),
                                Not(HasSubstr("worst;"))));
  EXPECT_THAT(Client({"replay", "gnmt", "--json"}).out,
              AllOf(StartsWith("{"), HasSubstr("\"worst_error\": -0.03")));

  const std::string path = directory_ / "replay.json";
  result = Client({"replay", "gnmt", "--chrome", path});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(ReadFile(path), StartsWith("{\"traceEvents\":["));
  EXPECT_THAT(result.err, HasSubstr("replay.json: "));
  EXPECT_THAT(result.out, HasSubstr("CRITICAL PATH"));
  EXPECT_THAT(Client({"replay", "gnmt", "--chrome", "-"}).out,
              AllOf(StartsWith("{\"traceEvents\":["), Not(HasSubstr("CRITICAL PATH"))));
  std::filesystem::remove(path);
  EXPECT_EQ(Client({"replay", "nope", "--chrome", path}).code, 4);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(Client({"replay", "nope"}).code, 4);
  backend_.SetError(absl::FailedPreconditionError("no iteration was traced"));
  EXPECT_EQ(Client({"replay", "gnmt"}).code, 5);
}

TEST_F(ClientTest, AWhatIfSaysWhatTheRunWouldTake) {
  StartServer();
  const std::string own = directory_ / "my.whatif";
  std::ofstream(own) << "scale kernels by 1/2\n";
  Result result =
      Client({"whatif", "gnmt", "--iterations", "5000", "--apply", "amp,compute=4", "--steps",
              "capture launches", "--apply", own + ",times=2,x=3", "--confidence", "99%"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* expected :
       {"mixed precision (amp,compute=4 + steps + ",
        "iterations) would take 2 min 30.00 s instead of 3 min 20.00 s",
        "(-25.0 %, 99 %: -26.0 to -24.0 %)\nwarning: doubtful for 7 % of the time of kernels",
        "     5         625   20 ms  21 ms   +5.0 %  not traced: from lengths near it\n",
        "12.5 % of the iterations would take longer (length 5)",
        " 100 s   50 s  -50.0 %  lstm_gemm", "   gone  adam\n",
        "kernels         30 ms  75.0 %  20 ms  50.0 %\n", "4,200  scale kernels where bound",
        "was measured for 12, told by its name and time for 30",
        "assumes (not in the interval): kernels bound by compute", "source:  Daydream",
        "basis:   12 traced iterations, replayed as they are +0.30 % off"}) {
    EXPECT_THAT(result.out, HasSubstr(expected));
  }
  const v1::WhatIfRequest request = backend_.last_what_if();
  ASSERT_EQ(request.changes_size(), 3);
  EXPECT_EQ(request.changes(0).preset(), "amp,compute=4");
  EXPECT_EQ(request.changes(1).text(), "capture launches");
  EXPECT_EQ(request.changes(2).text(), "scale kernels by 1/2\n");
  EXPECT_EQ(request.changes(2).name(), own);
  EXPECT_EQ(request.changes(2).parameters(), "times=2,x=3");
  EXPECT_EQ(request.horizon().iterations(), 5'000);
  EXPECT_EQ(request.confidence(), 0.99);
  EXPECT_THAT(Client({"whatif", "1", "--apply", "cuda-graphs"}).out,
              HasSubstr("): the 1,000 iterations so far would have taken 30.00 s instead of"));
  EXPECT_THAT(Client({"whatif", "1", "--apply", "amp", "--json"}).out,
              AllOf(StartsWith("{"), HasSubstr("\"guessed_bounds\": \"30\"")));
}

TEST_F(ClientTest, PresetsAreRankedByWhatTheySave) {
  StartServer();
  Result result = Client({"whatif", "gnmt", "--list"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(StartsWith("the 1,000 iterations so far took 40.00 s; with one change:\n"),
            HasSubstr("amp          -25.0 %  -26.0 to -24.0 %      30.00 s\n"),
            HasSubstr("-12.0 %      35.00 s  doubtful for 12.5 % of the time of launches\n"),
            HasSubstr("1 preset does not apply; --all shows it"), Not(HasSubstr("batch-norm"))));
  EXPECT_TRUE(backend_.last_what_if().list());
  EXPECT_THAT(Client({"whatif", "gnmt", "--list", "--all"}).out, HasSubstr("batch-norm"));
  EXPECT_THAT(Client({"whatif", "gnmt", "--list", "--json"}).out, HasSubstr("\"applies\": false"));
}

TEST_F(ClientTest, WhatThereIsIsShownWhereNoDaemonRuns) {
  EXPECT_THAT(Client({"whatif", "--presets"}).out, HasSubstr("amp: mixed precision\n"));
  EXPECT_THAT(Client({"metrics"}).out, HasSubstr("utilisation     1 pass      1 pass"));
}

TEST_F(ClientTest, PresetsAreShown) {
  StartServer();
  Result result = Client({"whatif", "--presets"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(StartsWith("amp: mixed precision\n  compute=3: how many times"),
                                HasSubstr("  compute=NUMBER: operations per second"),
                                HasSubstr("  packing=50us: "), HasSubstr("  source: Daydream"),
                                HasSubstr("  assumes kernels bound by compute")));
  EXPECT_THAT(Client({"whatif", "--presets", "--json"}).out,
              AllOf(StartsWith("{"), HasSubstr("\"name\": \"cuda-graphs\"")));
  // What is shown, saved and applied is taken as it is.
  result = Client({"whatif", "--show", "amp"});
  EXPECT_THAT(result.out,
              AllOf(StartsWith("title: mixed precision\n"), HasSubstr("\nsteps:\nscale kernels")));
  const std::string own = directory_ / "mine";
  std::ofstream(own) << result.out;
  EXPECT_EQ(Client({"whatif", "1", "--apply", own}).code, 0);
  EXPECT_EQ(backend_.last_what_if().changes(0).text(), result.out);
}

TEST_F(ClientTest, AMistakenWhatIfIsNamed) {
  StartServer();
  const std::string empty = directory_ / "empty.whatif", large = directory_ / "large",
                    latin = directory_ / "latin";
  std::ofstream(empty).flush();
  std::ofstream(large) << std::string(70'000, '#');
  std::ofstream(latin) << "# \xE4\n";
  for (const auto& [words, expected] : std::vector<std::pair<std::string, std::string>>{
           {"1", "say --apply PRESET or FILE, or --list"},
           {"--list", "JOB is missing"},
           {"1 --list --apply amp", "go one at a time"},
           {"1 --presets", "--presets and --show take no JOB"},
           {"--show ampp", "no preset \"ampp\"; there are: amp, batch-norm"},
           {"1 --apply ampp", "neither a preset nor a file \"ampp\" (did you mean amp?)"},
           {"1 --apply amp,speed=4", "amp has no parameter \"speed\"; it has compute, memory"},
           {"1 --apply amp,compute=fast", "compute: \"fast\" is not a number"},
           {"1 --apply other-gpu", "other-gpu needs compute"},
           {"1 --apply x.whatif", "cannot read x.whatif: No such file"},
           {"1 --apply /tmp", "cannot read /tmp: Is a directory"},
           {"1 --apply " + empty,
            "empty.whatif is empty; docs/formats/whatif-steps.md has the form"},
           {"1 --apply " + large, "large has more than 65536 bytes"},
           {"1 --apply " + latin, "latin is not UTF-8"},
           {"1 --apply amp cuda-graphs", "\"cuda-graphs\" is one argument too many"},
           {"1 --apply amp --confidence 200", "\"200\" is not a confidence"}}) {
    std::vector<std::string> arguments = {"whatif"};
    for (absl::string_view word : absl::StrSplit(words, ' ')) arguments.emplace_back(word);
    const Result result = Client(arguments);
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_THAT(result.err, HasSubstr(expected)) << words;
    EXPECT_EQ(result.out, "") << words;
  }
  EXPECT_EQ(Client({"whatif", "nope", "--list"}).code, 4);
  // `fleet` refuses it, too, also where there is no job.
  const Result fleet = Client({"fleet", "--whatif", "nosuch"});
  EXPECT_EQ(fleet.code, 2);
  EXPECT_THAT(fleet.err, HasSubstr("neither a preset nor a file \"nosuch\"; presets are amp, "));
  EXPECT_EQ(fleet.out, "");
  EXPECT_EQ(Client({"fleet", "--whatif", "amp"}).code, 0);
  backend_.SetError(absl::InvalidArgumentError("my.whatif: line 3: no such step"));
  EXPECT_EQ(Client({"whatif", "1", "--list"}).code, 2);
}

}  // namespace
}  // namespace seqpoint::client
