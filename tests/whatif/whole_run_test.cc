// What-ifs for whole runs on the software GPU, as a user asks them, against the changed job run in
// full. `./dev bench whatif --software` has more of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cmath>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "simdjson.h"
#include "tests/support/temp_folder.h"
#include "tests/whatif/software_runs.h"

namespace seqpoint::whatif {
namespace {

using ::testing::HasSubstr;

// One iteration in a hundred is not slow by a third: whether it is traced would be chance.
constexpr char kSteady[] = "noise.slow_share=0";

double ChangeOf(const v1::WhatIfSeqPoint& point) {
  return point.after_duration_ns() / point.before_duration_ns() - 1;
}

// The kernels of a graph that serves any input are slower, its launches cheaper: short iterations,
// bound by launching, gain by it, and long ones lose.
TEST(WholeRunTest, WhatShortIterationsGainAndLongOnesLose) {
  const TempFolder folder;
  const std::string lengths = folder.path() / "lengths.csv";
  {
    std::ofstream file(lengths);
    file << "len\n";
    // 60 % short, 30 % long, and a few as long as the mean of all.
    for (int i = 0; i < 8000; ++i) file << (i % 10 < 6 ? 64 : i % 10 < 7 ? 128 : 256) << "\n";
  }
  SoftwareRuns runs;
  std::vector<std::string> options = {"--model", "transformer", "--lengths", lengths,
                                      "--batch", "4",           "--order",   "bucket"};
  const auto base = runs.Train("base", options, kSteady);
  ASSERT_TRUE(base.ok()) << base.status();
  const auto reply =
      runs.WhatIf("base", {"scale kernels by 1.8; scale memsets by 1.8", "cuda-graphs"});
  ASSERT_TRUE(reply.ok()) << reply.status();
  options.push_back("--graphs");
  const auto changed = runs.Train(
      "changed", options, absl::StrCat(kSteady, ",gpu.efficiency=0.33333,gpu.kernel_min_ns=3240"));
  ASSERT_TRUE(changed.ok()) << changed.status();

  const v1::WhatIfAnswer& answer = reply->answers(0);
  const double change = changed->watched_ns / base->watched_ns - 1;
  EXPECT_GT(change, 0.02);
  EXPECT_GT(answer.after().value(), answer.before().value());
  EXPECT_NEAR(answer.after().value() / changed->watched_ns, 1, 0.01);

  ASSERT_EQ(answer.seqpoints_size(), 3);
  const double shortest = ChangeOf(answer.seqpoints(0)), mean = ChangeOf(answer.seqpoints(1)),
               longest = ChangeOf(answer.seqpoints(2));
  printf(
      "the run %+.1f %%, predicted %+.1f %%; by one iteration of the shortest length %+.1f %%, "
      "of the mean one %+.1f %%, of the longest %+.1f %%\n",
      100 * change, 100 * (answer.after().value() / answer.before().value() - 1), 100 * shortest,
      100 * mean, 100 * longest);
  EXPECT_LT(shortest, -0.05);
  EXPECT_LT(mean, 0);
  EXPECT_GT(longest, 4 * change);
}

// Runs `seqpoint` with --json and reads its output.
class Asking : public testing::Test {
 protected:
  simdjson::dom::element Ask(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const SoftwareRuns::Said said = runs_.Seqpoint(arguments);
    EXPECT_EQ(said.status, 0) << said.text;
    return parser_.parse(said.text);  // throws, which fails the test, where it is no JSON
  }
  // After over before.
  double TimeShare(const std::string& job, const std::vector<std::string>& change) {
    std::vector<std::string> arguments = {"whatif", job};
    arguments.insert(arguments.end(), change.begin(), change.end());
    const simdjson::dom::element answer = Ask(arguments)["answers"].at(0);
    return Real(answer["after"]["value"]) / Real(answer["before"]["value"]);
  }
  static double Real(simdjson::simdjson_result<simdjson::dom::element> value) {
    double number = NAN;
    EXPECT_EQ(value.get(number), simdjson::SUCCESS);
    return number;
  }
  void ExpectUnderstood(const std::string& job) {
    const simdjson::dom::element replay = Ask({"replay", job});
    EXPECT_LT(std::abs(Real(replay["mean_error"])), 0.01);
    for (const simdjson::dom::element iteration : simdjson::dom::array(replay["iterations"])) {
      EXPECT_NEAR(Real(iteration["replayed_duration_ns"]) / Real(iteration["measured_duration_ns"]),
                  1, 0.05);
    }
    double path = 0;
    for (const simdjson::dom::element share : simdjson::dom::array(replay["critical_path"])) {
      path += Real(share["share"]);
    }
    EXPECT_NEAR(path, 1, 1e-3);
    EXPECT_NEAR(TimeShare(job, {"--steps", "scale kernels by 1"}), 1, 1e-9);
    // All but the gaps between kernels and the loading of data is theirs.
    EXPECT_NEAR(TimeShare(job, {"--steps", "scale kernels by 2; scale memsets by 2"}), 1.95, 0.05);
    EXPECT_NEAR(TimeShare(job, {"--apply", "other-gpu,compute=1,bandwidth=1"}), 1, 1e-9);
  }

  SoftwareRuns runs_;
  simdjson::dom::parser parser_;
};

// A traced iteration that is slow by a third, as one in a hundred is, is not what its length takes.
constexpr char kNoSlowPeriods[] = "noise.slow_share=0";

std::vector<std::string> Training(const std::string& iterations) {
  return {"--model",        "transformer", "--batch",          "32",
          "--pad-multiple", "16",          "--max-iterations", iterations};
}

// CUPTI records no calls where none was wanted when the first context was created.
TEST_F(Asking, TracesWithoutCallsTellNothing) {
  ASSERT_TRUE(runs_.Train("mute", Training("300"), "cupti.fail=cuptiActivityEnableDriverApi").ok());
  const SoftwareRuns::Said said = runs_.Seqpoint({"whatif", "mute", "--apply", "amp"});
  EXPECT_NE(said.status, 0);
  EXPECT_THAT(said.text, HasSubstr("CUPTI recorded no calls of the CPU in its traced iterations"));
}

TEST_F(Asking, AJobThatEndedAndWhatThereIsToGain) {
  ASSERT_TRUE(runs_.Train("job", Training("400"), kNoSlowPeriods).ok());
  ExpectUnderstood("job");
  const simdjson::dom::element list = Ask({"whatif", "job", "--list"});
  double last = INFINITY;
  bool amp = false;
  for (const simdjson::dom::element answer : simdjson::dom::array(list["answers"])) {
    bool applies = false;
    if (answer["applies"].get(applies) != simdjson::SUCCESS || !applies) continue;
    const double saved = Real(answer["saved"]["value"]);
    EXPECT_LE(saved, last);
    last = saved;
    std::string_view name;
    EXPECT_EQ(answer["name"].get(name), simdjson::SUCCESS);
    amp |= name == "amp" && saved > 0;
  }
  EXPECT_TRUE(amp);
  const SoftwareRuns::Said wrong = runs_.Seqpoint({"whatif", "job", "--steps", "scale kernels"});
  EXPECT_NE(wrong.status, 0);
}

TEST_F(Asking, AJobThatRuns) {
  const pid_t pid = runs_.StartTraining("job", Training("20000"), "");
  v1::GetJobRequest request;
  request.set_job("job");
  SoftwareRuns::Said said;
  std::string before_any_trace;
  for (int i = 0; i < 100; ++i) {
    said = runs_.Seqpoint({"replay", "job"});
    if (said.status == 0) break;
    before_any_trace = said.text;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(said.status, 0) << said.text;
  EXPECT_NEAR(TimeShare("job", {"--steps", "scale kernels by 2; scale memsets by 2"}), 1.95, 0.05);
  const auto reply = runs_.api().Call(&v1::Profiler::Stub::GetJob, request);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->job().end_ns(), 0);
  kill(pid, SIGTERM);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_NE(before_any_trace, "");
}

TEST_F(Asking, SeveralRanks) {
  std::vector<pid_t> ranks;
  for (const char* rank : {"RANK=0", "RANK=1"}) {
    ranks.push_back(runs_.StartTraining("job", Training("400"), kNoSlowPeriods,
                                        {rank, "WORLD_SIZE=2", "SEQPOINT_RUN_ID=1"}));
  }
  for (const pid_t pid : ranks) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  ExpectUnderstood("job");
}

TEST_F(Asking, WithoutATracedIterationAMessage) {
  ASSERT_TRUE(runs_.Train("job", Training("10"), "").ok());
  for (const std::vector<std::string>& question :
       {std::vector<std::string>{"replay", "job"}, {"whatif", "job", "--list"}}) {
    const SoftwareRuns::Said said = runs_.Seqpoint(question);
    EXPECT_NE(said.status, 0);
    EXPECT_THAT(said.text, HasSubstr("no iteration was traced yet"));
  }
}

}  // namespace
}  // namespace seqpoint::whatif
