// `seqpoint-place` as a person meets it. PLACE_BINARY is its path.
#include <fcntl.h>
#include <signal.h>
#include <simdjson.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/placement/judge.h"
#include "daemon/placement/problem_json.h"
#include "daemon/placement/split_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/placement_problem.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Result {
  int code = -1;  // exit status; -1: a signal
  std::string out;
  std::string err;
};

class PlaceTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_.path() / name; }
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }

  pid_t Start(const std::vector<std::string>& arguments) const {
    const pid_t child = fork();
    if (child != 0) return child;
    for (const auto& [name, fd] : {std::pair{"out", STDOUT_FILENO}, {"err", STDERR_FILENO}}) {
      dup2(open(Path(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), fd);
    }
    std::vector<const char*> words = {PLACE_BINARY};
    for (const std::string& argument : arguments) words.push_back(argument.c_str());
    words.push_back(nullptr);
    execv(words[0], const_cast<char* const*>(words.data()));
    _exit(127);
  }
  Result Wait(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, Read("out"), Read("err")};
  }
  Result Place(const std::vector<std::string>& arguments) const { return Wait(Start(arguments)); }

  // Chains side by side: (length + 1) ^ chains ideals.
  static placement::Problem Chains(int chains, int length) {
    placement::Problem problem;
    problem.accelerators = 2;
    problem.cpus = 1;
    problem.memory_bytes = 4e9;
    for (int i = 0; i < chains * length; ++i) {
      problem.operators.push_back({.id = 5 * i,
                                   .name = absl::StrCat("op\x1b[31m", i),
                                   .cpu_time = 30.0,
                                   .accelerator_time = 1.0 + i % 5,
                                   .memory_bytes = 1e6,
                                   .transfer_time = 0.1 * (i % 7)});
      if (i % length > 0) problem.edges.push_back({i - 1, i});
    }
    return problem;
  }
  std::string Model(int chains = 2, int length = 4) const {
    return Write("model.json", placement::WriteProblem(Chains(chains, length)));
  }

  TempFolder directory_;
};

TEST_F(PlaceTest, TheTableSaysLoadsAndWhatElseCouldBeDone) {
  const Result result = Place({Model()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("8 operators, 2 accelerators with 4 GB, 1 core"),
                    HasSubstr("method: exact. No contiguous placement is better."),
                    HasSubstr("accelerator 0"), HasSubstr("100.0 %"), HasSubstr("one accelerator"),
                    HasSubstr("equal layers"), HasSubstr("one more accelerator")));
}

// The JSON's loads and the split file say the same, and the judge finds the same value.
TEST_F(PlaceTest, JsonAndSplitAgreeWithTheJudge) {
  const std::string split = Path("split.json");
  const Result result = Place({Model(), "--json", "-o", split});
  ASSERT_EQ(result.code, 0) << result.err;
  simdjson::dom::parser parser;
  const simdjson::dom::element answer = parser.parse(result.out);
  EXPECT_EQ(std::string_view(answer["objective"]), "throughput");
  EXPECT_EQ(std::string_view(answer["method"]), "exact");
  EXPECT_EQ(bool(answer["optimal"]), true);
  EXPECT_EQ(double(answer["value"]), double(answer["lower_bound"]));
  EXPECT_GE(double(answer["seconds"]), 0);

  const placement::Problem problem = Chains(2, 4);
  const auto placement = placement::ReadSplit(Read("split.json"), split, problem);
  ASSERT_TRUE(placement.ok()) << placement.status();
  const placement::Judgement judgement = placement::Judge(problem, *placement);
  EXPECT_EQ(double(answer["value"]), judgement.max_load);
  EXPECT_TRUE(judgement.contiguous);
  size_t device = 0, operators = 0;
  for (const simdjson::dom::element entry : answer["devices"]) {
    const placement::DeviceLoad& load = judgement.devices[device++];
    EXPECT_EQ(double(entry["load"]), load.load());
    EXPECT_EQ(double(entry["compute"]), load.compute);
    EXPECT_EQ(double(entry["communication"]), load.communication);
    EXPECT_EQ(double(entry["memory_bytes"]), load.memory_bytes);
    operators += simdjson::dom::array(entry["operators"]).size();
  }
  EXPECT_EQ(device, 3u);
  EXPECT_EQ(operators, 8u);
}

TEST_F(PlaceTest, DevicesMemoryAndCoresReplaceThoseOfTheFile) {
  EXPECT_THAT(Place({Model(), "--devices", "1", "--cpus", "0"}).out,
              AllOf(HasSubstr("1 accelerator with 4 GB, 0 cores"), Not(HasSubstr("core 0"))));
  const Result small = Place({Model(), "--memory", "0.5MB", "--cpus", "0"});
  EXPECT_EQ(small.code, 1);
  EXPECT_THAT(small.err, HasSubstr("model.json: operator 0 needs 1000000 bytes; an accelerator "
                                   "has 500000, and there is no core"));
  EXPECT_EQ(Place({Model(), "--memory", "1MiB", "--cpus", "0", "--devices", "8"}).code, 0);
}

TEST_F(PlaceTest, AnotherSplitIsComparedAndItsFaultsAreTold) {
  const std::string bad =
      Write("hand.json", R"({"fpgas": [{"nodes": [0, 10, 15, 20, 25, 30, 35]}, {"nodes": [5]}],
                       "cpus": []})");
  EXPECT_THAT(Place({Model(), "--against", bad}).out,
              AllOf(HasSubstr("hand.json"), HasSubstr("not allowed: it is not contiguous")));
  EXPECT_THAT(Place({Model(), "--any", "--against", bad}).out, Not(HasSubstr("not allowed")));
  const std::string part = Write("part.json", R"({"fpgas": [{"nodes": [0]}], "cpus": []})");
  EXPECT_THAT(Place({Model(), "--against", part}).out, HasSubstr("is on no device"));
  const Result unknown =
      Place({Model(), "--against", Write("x.json", R"({"fpgas": [{"nodes": [1]}], "cpus": []})")});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("x.json: operator 1 is not in the problem"));
}

TEST_F(PlaceTest, TheGraphHasEveryOperatorAndNoControlCharacters) {
  ASSERT_EQ(Place({Model(), "--dot", Path("graph.dot")}).code, 0);
  const std::string dot = Read("graph.dot");
  EXPECT_THAT(dot, AllOf(StartsWith("digraph"), HasSubstr("  35 [label="), HasSubstr("0 -> 5;"),
                         Not(HasSubstr("\x1b"))));
}

TEST_F(PlaceTest, LatencyIsAnObjectiveOfItsOwn) {
  const Result result = Place({Model(), "--objective", "latency"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("the time until one sample is through"),
                                Not(HasSubstr("OF SLOWEST"))));
}

TEST_F(PlaceTest, WrongUsageAndFilesThatCannotBeReadAreTold) {
  EXPECT_EQ(Place({}).code, 2);
  EXPECT_EQ(Place({Model(), "--any", "--contiguous"}).code, 2);
  const Result count = Place({Model(), "--devices", "-1"});
  EXPECT_EQ(count.code, 2);
  EXPECT_THAT(count.err, HasSubstr("\"-1\" is not a whole number from 0 to 4,096"));
  for (const char* size : {"16XB", "-1GB", "", "GB", "1e999"}) {
    const Result result = Place({Model(), "--memory", size});
    EXPECT_EQ(result.code, 2) << size;
    EXPECT_THAT(result.err, HasSubstr("is not a size such as")) << size;
  }
  const Result trace = Place({"--trace", "a", "--devices", "1"});
  EXPECT_EQ(trace.code, 2);
  EXPECT_THAT(trace.err, HasSubstr("--trace \"a\": two files are needed, ET,TIMES"));
  const Result nan = Place({Model(), "--any", "--proof", "nan"});
  EXPECT_EQ(nan.code, 2);
  EXPECT_THAT(nan.err, HasSubstr("--proof: \"nan\" is not a number from 0 to 86400"));
  const Result endless = Place({Model(), "--memory", "1e290GB"});
  EXPECT_EQ(endless.code, 2);
  EXPECT_THAT(endless.err, HasSubstr("--memory is 1e+299 bytes; it can be 0 to 9.22337e+18"));
  const std::string model = Model();
  const Result over = Place({model, "-o", model});
  EXPECT_EQ(over.code, 2);
  EXPECT_THAT(over.err, HasSubstr("is the problem; write the answer to another file"));
  EXPECT_EQ(Place({model, "--json", "--dot", "-"}).code, 2);
  EXPECT_EQ(Place({model, "-o", Path("a"), "--dot", Path("a")}).code, 2);
  const Result missing = Place({Path("none.json"), "--json"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr("none.json: No such file or directory"));
  EXPECT_THAT(missing.out, HasSubstr("\"error\""));
  EXPECT_EQ(Place({directory_.path()}).code, 1);
  EXPECT_EQ(Place({Write("bad.json", "{")}).code, 1);
}

TEST_F(PlaceTest, AnOutputThatCannotBeWrittenIsAnError) {
  const Result result = Place({Model(), "-o", "/proc/none/split.json"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write /proc/none/split.json"));
}

// 43 million ideals: the search takes minutes. Ctrl-C ends it with what is there.
TEST_F(PlaceTest, CtrlCEndsWithTheBestSoFar) {
  const std::string model = Model(/*chains=*/60, /*length=*/20);
  const pid_t child = Start({model, "--any", "--json", "-o", Path("split.json")});
  // It handles the signal from the start of planning on; before, it would end without an answer.
  std::string caught;
  while (caught.empty() || (std::stoull(caught, nullptr, 16) & (1ull << (SIGINT - 1))) == 0) {
    std::ifstream status(absl::StrCat("/proc/", child, "/status"));
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigCgt:")) caught = line.substr(7);
    }
    ASSERT_TRUE(status.eof());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  kill(child, SIGINT);
  const Result result = Wait(child);
  ASSERT_EQ(result.code, 0) << result.err;
  simdjson::dom::parser parser;
  const simdjson::dom::element answer = parser.parse(result.out);
  EXPECT_EQ(bool(answer["stopped"]), true);
  EXPECT_LE(double(answer["lower_bound"]), double(answer["value"]));
  EXPECT_TRUE(std::filesystem::exists(Path("split.json")));
}

}  // namespace
}  // namespace seqpoint::client
