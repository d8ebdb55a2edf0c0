// The `seqpoint` binary as a person meets it, against a fake daemon on a real socket.
// CLIENT_BINARY and DAEMON_BINARY are their paths.
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/commands/run.h"
#include "client/commands/trace_import.h"
#include "client/text/figures_text.h"
#include "client/text/format.h"
#include "client/text/job_text.h"
#include "client/text/nothing.h"
#include "client/text/projection_text.h"
#include "client/text/whatif_text.h"
#include "daemon/rpc/fake_backend.h"
#include "daemon/rpc/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Result {
  int code = 0;  // exit code; 1000 + signal
  std::string out;
  std::string err;
};

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    setenv("SEQPOINT_DIR", directory_.c_str(), 1);
    setenv("SEQPOINT_DAEMON", DAEMON_BINARY, 1);
    // Any library that can be preloaded.
    setenv("SEQPOINT_LIBRARY", "libm.so.6", 1);
    setenv("FAKE_JOB_MS", "1", 1);
    setenv("TZ", "UTC", 1);
    for (const char* name : {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH",
                             "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "FAKE_FAILURE"}) {
      unsetenv(name);
    }
  }
  ~ClientTest() override { server_.reset(); }

  void StartServer() {
    auto server = rpc::Server::Start({.socket_path = directory_ / "api.sock"}, &backend_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  pid_t Spawn(const std::vector<std::string>& arguments) {
    std::vector<const char*> pointers = {"seqpoint"};
    for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
    pointers.push_back(nullptr);
    std::string out = directory_ / "out", err = directory_ / "err";
    pid_t child = fork();
    if (child == 0) {
      dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      execv(CLIENT_BINARY, const_cast<char* const*>(pointers.data()));
      _exit(99);
    }
    return child;
  }
  // Files that were left half written.
  int Parts() const {
    const auto is_part = [](const auto& file) {
      return file.path().filename().string().find(".part") != std::string::npos;
    };
    return static_cast<int>(
        std::count_if(std::filesystem::directory_iterator(directory_), {}, is_part));
  }
  static std::string ReadFile(const std::filesystem::path& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  Result Wait(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
            ReadFile(directory_ / "out"), ReadFile(directory_ / "err")};
  }
  Result Client(const std::vector<std::string>& arguments) { return Wait(Spawn(arguments)); }

  const TempFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
  rpc::FakeBackend backend_;
  std::unique_ptr<rpc::Server> server_;
};

TEST_F(ClientTest, QueriesPrintTablesAndEndWithZero) {
  StartServer();
  for (const auto& [words, expected] : std::vector<std::pair<std::string, std::string>>{
           {"jobs", " 1  gnmt  r1   marking  2026-01-02 10:15:00       1,000"},
           {"jobs gnmt", "rank 0, counters: no permission for GPU counters"},
           {"seqpoints gnmt@r1", "8 SeqPoints stand for 1,000 iterations"},
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

TEST_F(ClientTest, JobsAreListedOverAllPages) {
  for (int id = 2; id <= 8; ++id) {
    v1::Job job = rpc::FakeBackend::SampleJob();
    job.set_id(absl::StrCat(id));
    job.set_name(absl::StrCat("job", id));
    if (id % 2 == 0) job.add_tags("even");
    backend_.PutJob(job);
  }
  backend_.SetJobsPerPage(3);
  StartServer();
  Result result = Client({"jobs"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (int id = 2; id <= 8; ++id) EXPECT_THAT(result.out, HasSubstr(absl::StrCat("  job", id)));
  EXPECT_THAT(Client({"jobs", "--json"}).out, HasSubstr("\"job2\""));
  // A limit and a filter are of all jobs, not of a page.
  result = Client({"jobs", "--limit", "4"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("  job5"), Not(HasSubstr("  job4")),
                                HasSubstr("4 earlier jobs left out")));
  EXPECT_THAT(Client({"jobs", "--limit", "4", "--json"}).out,
              AllOf(HasSubstr("\"job5\""), Not(HasSubstr("\"job4\""))));
  result = Client({"jobs", "--tag", "even"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("  job8"), HasSubstr("  job6"), HasSubstr("  job4"),
                                HasSubstr("  job2"), Not(HasSubstr("  job7"))));
  EXPECT_THAT(Client({"complete", "--", "project", "job2"}).out, HasSubstr("job2@"));
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

TEST_F(ClientTest, APlaylistAndItsTimesElsewhereGiveTheRunThere) {
  StartServer();
  const std::string playlist = directory_ / "gnmt.csv", times = directory_ / "times.csv";
  Result result = Client({"playlist", "gnmt", "--points", "5"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, StartsWith("iteration,length,weight,measurements,expected_ns,noise_ns\n"
                                     "100,10,200,1,8000000,400000\n"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("5 measurements of 5 lengths for 1,000 iterations"),
                                HasSubstr("note: what first iterations took on top")));
  result = Client({"playlist", "gnmt", "--output", playlist});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(Parts(), 0);
  EXPECT_THAT(Client({"playlist", "gnmt", "--json"}).out,
              AllOf(StartsWith("{"), HasSubstr("\"expected_duration_ns\": 1")));

  std::ofstream(times) << "length,time_ms\n10,5\n15,10\n20,16\n20,14\n25,20\n11,1\n";
  result = Client({"project", "--playlist", playlist, "--measured", times});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("whole run there (1,000 iterations)  12.500 s  12.450 to 12.550 s"),
                    HasSubstr("speedup"), HasSubstr("2.0000 x"), HasSubstr("95 % INTERVAL")));
  EXPECT_THAT(result.err, HasSubstr("times.csv:7: length 11 is not in the playlist; left out"));
  EXPECT_THAT(Client({"project", "--playlist", playlist, "--measured", times, "--time", "time_ms",
                      "--time-unit", "s", "--confidence", "99%", "--json"})
                  .out,
              AllOf(HasSubstr("\"value\": 12500000000000"), HasSubstr("\"confidence\": 0.99")));
  std::ofstream(times) << "length,time_ms\n10,5\n15,nan\n";
  result = Client({"project", "--playlist", playlist, "--measured", times});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("times.csv:3: \"nan\" in column time_ms"));
  std::ofstream(times) << "length,time_ms\n10,5\n";
  result = Client({"project", "--playlist", playlist, "--measured", times});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("nobody measured length 15"));
  EXPECT_EQ(Client({"playlist", "nope"}).code, 4);

  // As many measurements as a target error needs.
  result = Client({"playlist", "gnmt", "--target-error", "0.5%", "--confidence", "90%"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("8 measurements of 8 lengths for 1,000 iterations; on a run "
                        "like this one they give the total to +-0.5 % (90 % interval)"));
  EXPECT_EQ(Client({"playlist", "gnmt", "--target-error", "1%", "--points", "3"}).code, 2);
}

TEST_F(ClientTest, AnAnalysisWritesItsPointsAsAPlaylist) {
  StartServer();
  const std::string path = directory_ / "steps.csv", playlist = directory_ / "points.csv";
  std::ofstream(path) << "length,took\n5,20\n7,30\n5,20\n";
  const std::string expected =
      "iteration,length,weight,measurements,expected_ns,noise_ns\n"
      "0,5,2,1,20000000,400000\n1,7,1,1,30000000,600000\n";
  Result result =
      Client({"analyze", path, "--time", "took", "--time-unit", "ms", "--playlist", playlist});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(ReadFile(playlist), expected);
  EXPECT_THAT(result.out, HasSubstr("2 SeqPoints, 2 measurements"));
  EXPECT_THAT(result.err, HasSubstr("points.csv: 2 measurements of 2 lengths for 3 iterations; on "
                                    "a run like this one they give the total to +-1 %"));
  result = Client({"analyze", path, "--time", "took", "--time-unit", "ms", "--playlist", "-"});
  EXPECT_EQ(result.out, expected);
  result = Client({"analyze", path, "--time", "took", "--time-unit", "ms"});
  EXPECT_THAT(result.out, HasSubstr("(length), 70 ms in all"));
  EXPECT_FALSE(backend_.last_analysis().playlist());
  EXPECT_THAT(Client({"analyze", path, "--time", "took", "--json"}).out,
              Not(HasSubstr("\"playlist\"")));

  // Nothing is written where it would have no unit, nor asked where it cannot be written.
  std::filesystem::remove(playlist);
  result = Client({"analyze", path, "--time", "took", "--playlist", playlist});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("column took does not end in a unit"), HasSubstr("--time-unit")));
  EXPECT_FALSE(std::filesystem::exists(playlist));
  result = Client({"analyze", directory_ / "nope.csv", "--playlist", "/nonexistent/points.csv"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write /nonexistent/points.csv"));
}

TEST_F(ClientTest, ExitCodesTellWhatWentWrong) {
  StartServer();
  Result result = Client({"project", "nope"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("no job \"nope\""));
  EXPECT_EQ(Client({"run"}).code, 2);
  EXPECT_EQ(Client({"--help"}).code, 0);
  backend_.SetTrouble(absl::FailedPreconditionError("3 of 64 iterations seen; ask again later"));
  result = Client({"project", "1"});
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(result.err, "seqpoint: 3 of 64 iterations seen; ask again later\n");
  backend_.SetTrouble(absl::DataLossError("the store is damaged"));
  EXPECT_EQ(Client({"project", "1"}).code, 1);
}

TEST_F(ClientTest, AMistakeIsNamedWithTheValueAndTheWayOut) {
  StartServer();
  const std::string huge(309, '9');
  for (const auto& [words, expected] : std::vector<std::pair<std::string, std::string>>{
           {"project", "JOB is missing, or --playlist FILE; see seqpoint project --help"},
           {"project 1 --playlist x --measured y", "give JOB or --playlist FILE, not both"},
           {"project --playlist x", "--playlist FILE needs --measured FILE"},
           {"project --measured x", "--measured FILE needs --playlist FILE"},
           {"project 1 --time-unit ms", "--time and --time-unit are of --measured FILE"},
           {"project --playlist x --measured y --time-unit h", "\"h\" is none of ns, us, ms, s"},
           {"project --playlist x --measured y --iterations 5", "neither --metric nor how long"},
           {"project --playlist /nonexistent --measured y", "cannot read /nonexistent: No such"},
           {"playlist", "JOB is missing; see seqpoint playlist --help"},
           {"playlist 1 --points 0", "\"0\" is not a whole number from 1 to 1,000,000"},
           {"frobnicate", "there is no command \"frobnicate\"; there are run, jobs"},
           {"help frobnicate", "there is no command \"frobnicate\""},
           {"project 1 2 3", "\"2\" is one argument too many"},
           {"project 1 --frob", "there is no option \"--frob\""},
           {"project 1 --confidence 200", "--confidence: \"200\" is not a confidence, such as 95"},
           {"jobs --state crashed", "--state: \"crashed\" is none of ended, failed, interrupted"},
           {"jobs --since monday", "--since: \"monday\" is neither a time"},
           {"jobs 1 --limit 3", "--limit, --live) goes without JOB"},
           {"jobs --limit 0", "--limit: \"0\" is not a whole number from 1"},
           {"tag 1", "TAG is missing"},
           {"tag 1 a,b", "tag \"a,b\" is two: it has a comma"},
           {"rename 1", "NAME is missing"},
           {"rename 1 a@b", "contains \"@\", which parts name and run id"},
           {"delete", "JOB is missing"},
           {"project 1 --iterations " + huge, "...\" is not a whole number from 1 to 1,000,000"},
           {"project 1 --metric " + huge, "...\" is longer than 256 characters"},
           {"project 1 --metric", "--metric needs a value"},
           {"project 1 --lengths x --order up", "\"up\" is none of shuffle, bucket, sorted, file"},
           {"control 1 level bogus", "LEVEL: \"bogus\" is none of auto, mark, trace"},
           {"jobs ", "JOB: it is empty"},
           {"project 1 --epochs 3", "--epochs needs --lengths FILE or --iterations N"},
           {"control 1 horizon", "say --iterations N or --lengths FILE"},
           {"run --frob -- ls", "there is no option \"--frob\""},
           {"run --lenghts x -- ls", "no option \"--lenghts\" (did you mean --lengths?)"},
           {"jobs --jsn=1", "there is no option \"--jsn\" (did you mean --json?)"},
           {"runn -- ls -l", "there is no command \"runn\" (did you mean run?)"},
           {"job", "there is no command \"job\" (did you mean jobs?)"},
           {"control 1 puase", "there is no command \"puase\" (did you mean pause?)"},
           {"help dcotor", "there is no command \"dcotor\" (did you mean doctor?)"},
           {"run python3 x.py --lr 1",
            "put -- before the command: seqpoint run [OPTIONS] -- python3 x.py --lr 1"},
           {"run --iterations 5 python3 x.py --lengths a.csv --batch 8 --lr 1",
            "run [OPTIONS] -- python3 x.py --lengths a.csv --batch 8 --lr 1"},
           {"run ls -- ls", "\"ls\" stands before the --"},
           {"metrics --chip foo", "chip: \"foo\" is none of "},
           {"run --metrics foo -- ls", "no metric set \"foo\"; there are: utilisation"},
           {"export 1", "give either --chrome FILE or --csv FILE"},
           {"export 1 --csv /tmp", "cannot write /tmp: it is a folder"}}) {
    Result result = Client(absl::StrSplit(words, ' '));
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_THAT(result.err, HasSubstr(expected)) << words;
    EXPECT_EQ(result.out, "") << words;
    EXPECT_LT(result.err.size(), 400u) << words;
  }
}

TEST_F(ClientTest, CompletionKnowsCommandsOptionsValuesAndJobs) {
  StartServer();
  for (const auto& [words, expected] : std::vector<std::pair<std::string, std::string>>{
           {"ker", "kernels\tKernels by their share of kernel time\n"},
           {"--socket /x ker", "kernels\tKernels by their share of kernel time\n"},
           {"project 1 --conf", "--confidence\tthat the interval holds the truth; default 95%\n"},
           {"project 1 --order b", "bucket\n"},
           {"control gnmt@r1 level t", "trace\n"},
           {"run --lengths x", ":files\n"},
           {"run -- x", ":files\n"},
           {"--json project g", "gnmt@r1\n"},
           {"import a.json b", ":files\n"},
           {"whatif 1 --apply amp", "amp\n"},
           {"whatif 1 --apply ./my", ":files\n"},
           {"whatif --show cuda", "cuda-graphs\n"},
           {"whatif gn", "gnmt@r1\n"},
           {"repl", "replay\tRun a job's traces again as they are: how well they are understood\n"},
           {"watch ", "1\ngnmt@r1\n"}}) {
    std::vector<std::string> arguments = {"complete", "--"};
    for (absl::string_view word : absl::StrSplit(words, ' ')) arguments.emplace_back(word);
    EXPECT_EQ(Client(arguments).out, expected) << words;
  }
}

TEST_F(ClientTest, NoDaemonIsSaidWithTheWayOut) {
  Result result = Client({"jobs", "--no-start"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr(directory_ / "api.sock"), HasSubstr("start seqpointd")));
  setenv("SEQPOINT_DAEMON", "/nonexistent/seqpointd", 1);
  result = Client({"jobs"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("SEQPOINT_DAEMON=/nonexistent/seqpointd: No such file"));
  result = Client({"jobs", "--server", "localhost:1"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("no daemon answers on localhost:1 over TLS"));
  setenv("SEQPOINT_DAEMON", DAEMON_BINARY, 1);
  setenv("FAKE_FAILURE", "store /x is in use by process 12", 1);
  result = Client({"jobs"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("store /x is in use by process 12"));
}

TEST_F(ClientTest, ControlReachesTheDaemon) {
  StartServer();
  Result result = Client({"control", "1", "pause"});
  EXPECT_EQ(result.code, 0) << result.err;
  // A line, not all that is known of the job.
  EXPECT_EQ(result.out, "gnmt@r1 (job 1), paused\n");
  result = Client({"control", "1", "budget", "0.5%"});
  EXPECT_THAT(result.out, HasSubstr(", of the run's time 0.50 % for measurements\n"));
  EXPECT_DOUBLE_EQ(backend_.last_control()->overhead_budget_share(), 0.005);
  EXPECT_EQ(Client({"control", "1", "level", "mark"}).code, 0);
  EXPECT_EQ(backend_.last_control()->action(), v1::ControlRequest::ACTION_SET_LEVEL);
  EXPECT_EQ(backend_.last_control()->level(), v1::LEVEL_MARK);
  EXPECT_EQ(Client({"control", "1", "release"}).code, 0);
  EXPECT_EQ(backend_.last_control()->action(), v1::ControlRequest::ACTION_RELEASE_CUPTI);
  EXPECT_EQ(Client({"control", "1", "end"}).err, "");
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_state(v1::JOB_STATE_ENDED);
  backend_.PutJob(job);
  result = Client({"control", "1", "end"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("gnmt@r1 (job 1) has ended already"));
}

TEST_F(ClientTest, JobsAreTaggedNarrowedRenamedAndDeleted) {
  StartServer();
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_id("2");
  job.set_name("old");
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_start_ns(job.start_ns() + 1);
  job.set_end_ns(job.start_ns() + 1);
  job.set_signal(SIGSEGV);
  backend_.PutJob(job);
  EXPECT_THAT(Client({"jobs", "old"}).out,
              StartsWith("old@r1 (job 2), failed: signal 11 (Segmentation fault)"));
  EXPECT_EQ(Client({"tag", "old", "nightly", "h200"}).out, "old@r1 (job 2), tags h200, nightly\n");
  EXPECT_THAT(Client({"jobs"}).out, AllOf(HasSubstr("TAGS"), HasSubstr("h200, nightly")));
  EXPECT_THAT(Client({"jobs", "old"}).out, HasSubstr("tags:      h200, nightly"));
  for (const auto& [words, shown] :
       std::vector<std::pair<std::string, std::string>>{{"--state failed", "old"},
                                                        {"--state marking", "gnmt"},
                                                        {"--tag nightly,h200", "old"},
                                                        {"--limit 1", "old"}}) {
    std::vector<std::string> arguments = {"jobs"};
    for (absl::string_view word : absl::StrSplit(words, ' ')) arguments.emplace_back(word);
    const Result result = Client(arguments);
    EXPECT_EQ(result.code, 0) << words << result.err;
    EXPECT_THAT(result.out, HasSubstr("  " + shown + " ")) << words;
    EXPECT_THAT(result.out, Not(HasSubstr(shown == "old" ? "  gnmt " : "  old "))) << words;
  }
  EXPECT_EQ(Client({"jobs", "--since", "1h"}).out, "no job is like that\n");
  EXPECT_THAT(Client({"jobs", "--since", "2020-01-01"}).out, HasSubstr("gnmt"));
  EXPECT_EQ(Client({"tag", "old", "h200", "--remove"}).out, "old@r1 (job 2), tags nightly\n");
  EXPECT_EQ(Client({"rename", "old", "new"}).out, "new@r1 (job 2)\n");
  EXPECT_EQ(Client({"rename", "gnmt", "new"}).code, 5);
  EXPECT_EQ(Client({"delete", "gnmt"}).code, 5);
  EXPECT_EQ(Client({"delete", "new"}).out, "new@r1 (job 2) is deleted\n");
  EXPECT_EQ(Client({"delete", "new"}).code, 4);
}

TEST_F(ClientTest, WithoutHomeItSaysWhereTheStoreIs) {
  const char* home = getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  unsetenv("HOME");
  unsetenv("XDG_STATE_HOME");
  Result result = Client({"jobs"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("HOME is not set; jobs are stored in "
                                    "/var/lib/seqpoint/seqpoint.db (XDG_STATE_HOME changes it)"));
  EXPECT_EQ(Client({"jobs"}).err, "");  // said by the one that started it
  setenv("HOME", before.c_str(), 1);
}

TEST_F(ClientTest, ASocketOfAnotherUserIsSaidToBeOne) {
  constexpr uid_t kNobody = 65534;
  const std::string client = directory_ / "seqpoint";
  std::error_code error;
  std::filesystem::copy_file(CLIENT_BINARY, client, error);
  if (getuid() != 0 || error) GTEST_SKIP() << "only root can be another user";
  const std::string theirs = directory_ / "theirs";
  std::filesystem::create_directory(theirs);
  auto server = rpc::Server::Start({.socket_path = theirs + "/api.sock"}, &backend_);
  ASSERT_TRUE(server.ok()) << server.status();
  setenv("SEQPOINT_DIR", theirs.c_str(), 1);
  chmod(theirs.c_str(), 0700);
  chmod(directory_.c_str(), 0755);
  const std::string out = directory_ / "out", err = directory_ / "err";
  const pid_t child = fork();
  if (child == 0) {
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(98);
    execl(client.c_str(), "seqpoint", "jobs", nullptr);
    _exit(99);
  }
  const Result result = Wait(child);
  if (result.code == 98 || result.code == 99) GTEST_SKIP() << "cannot become another user";
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr(theirs + "/api.sock belongs to user root, whose daemon "
                                                   "does not let this user in"),
                                HasSubstr("set SEQPOINT_DIR to a folder of yours"),
                                Not(HasSubstr("ended after its start"))));
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

TEST_F(ClientTest, AnImportedLogIsAJob) {
  StartServer();
  const std::string path = directory_ / "steps.csv";
  std::ofstream(path) << "epoch,length,took\n1,5,2\n1,7,3\n1,x,3\n2,5,2\n";
  Result result = Client({"import", path});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("which column is the time"));
  result = Client({"import", path, "--time", "took"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("does not end in a unit"), HasSubstr("--time-unit")));
  const std::vector<std::string> import = {"import", path,          "--time", "took",     "--group",
                                           "epoch",  "--time-unit", "ms",     "--run-id", "r7"};
  result = Client(import);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("steps.csv:4: \"x\" in column length is not a number"),
                                HasSubstr("1 row left out, 3 can be used")));
  for (const char* expected :
       {"steps@r7 (job 2), ended", "steps.csv, lengths in length, times in took",
        "from:      steps.csv, lengths in length", "has:       3 iterations of 2 lengths",
        "whole run (3 iterations)  7.000 ms", "ask next: seqpoint project 2"}) {
    EXPECT_THAT(result.out, HasSubstr(expected));
  }
  // Nothing ran here.
  for (const char* of_a_run : {"command:", "started:", "so far", "horizon", "begins at"}) {
    EXPECT_THAT(result.out, Not(HasSubstr(of_a_run)));
  }
  EXPECT_THAT(Client({"jobs"}).out, ::testing::ContainsRegex("steps .* 2  +-  7.000 ms"));
  result = Client(import);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("there is a job \"steps@r7\" already"));
  result = Client({"import", path, "--time", "took", "--time-unit", "s", "--name", "x", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"iterations_duration_ns\": \"7000000000\""));
  EXPECT_EQ(Client({"import", path, "--time", "took", "--time-unit", "h"}).code, 2);
  EXPECT_EQ(Client({"import", path, "--name", "a@b"}).code, 2);
}

TEST_F(ClientTest, AnImportedLogMayBeLong) {
  StartServer();
  const std::string path = directory_ / "long.csv";
  std::ofstream file(path);
  file << "length,time_us\n";
  for (int i = 0; i < 100'000; ++i) file << i % 50 << ",1\n";  // several messages
  file.close();
  const Result result = Client({"import", path});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("100,000 iterations of 50 lengths"));
}

// gzip of `text`.
void WriteGzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb1");
  ASSERT_EQ(gzwrite(file, text.data(), text.size()), static_cast<int>(text.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

TEST_F(ClientTest, ImportedTracesAreAJob) {
  StartServer();
  const std::string rank0 = directory_ / "resnet.pt.trace.json", rank1 = directory_ / "log.csv.gz";
  std::string large = "\xEF\xBB\xBF {\"traceEvents\":[";
  while (large.size() < 1'000'000) absl::StrAppend(&large, "{\"ts\":", large.size(), "},");
  std::ofstream(rank0) << large;
  WriteGzip(rank1, "[{\"ts\":1}]");  // the name says nothing
  Result result = Client({"import", rank0, rank1, "--run-id", "r7", "--marker", "step (\\d+)"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("resnet@r7 (job 2), ended\nfrom:      PyTorch (Kineto), "),
            HasSubstr("   0       1,000  annotation ProfilerStep#  52,000    40,000  " + rank0),
            HasSubstr("   1       1,000  annotation ProfilerStep#  52,000    40,000  " + rank1),
            HasSubstr(": the file is cut: only what"), HasSubstr("seqpoint whatif 2 --list")));
  const rpc::FakeBackend::TraceImport import = backend_.last_trace_import();
  EXPECT_EQ(import.name, "resnet");
  EXPECT_EQ(import.marker, "step (\\d+)");
  ASSERT_EQ(import.files.size(), 2u);
  EXPECT_TRUE(import.files[0] == std::pair(rank0, large));
  EXPECT_TRUE(import.files[1] == std::pair(rank1, ReadFile(rank1)));  // as it is, packed
  EXPECT_EQ(import.largest_piece_bytes, 256u << 10);

  // A table of GPU activities is no log.
  const std::string table = directory_ / "gpu.csv";
  std::ofstream(table) << "#names: id\tname\n#0\tgemm\nstart_us,dur_us,stream,name_id,size\n";
  result = Client({"import", table, "--json", "--name", "x"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(StartsWith("{"), HasSubstr("\"gpu_tasks\": \"40000\"")));
  result = Client({"import", table, "--name", "x\x1b"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("name: holds a control character"));
  // Nothing becomes a job twice.
  EXPECT_EQ(Client({"import", rank0, "--run-id", "r7"}).code, 1);
}

TEST_F(ClientTest, WhatIsNoTraceIsSaid) {
  StartServer();
  const std::string trace = directory_ / "t.json", log = directory_ / "steps.csv",
                    binary = directory_ / "report.nsys-rep", plain = directory_ / "plain.txt";
  std::ofstream(plain) << "hello world\n";
  std::ofstream(trace) << "{\"traceEvents\":[]}";
  std::ofstream(log) << "length,time_ms\n5,2\n7,3\n";
  std::ofstream(binary) << "not a trace" << std::string(1, '\0');
  for (const auto& [arguments, expected] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{trace, log}, "several files must be traces, one of each rank; " + log + " is none"},
           {{log, log}, "several files must be traces"},
           {{log, "--marker", "x"}, "--marker is of traces; " + log + " is none"},
           {{trace, "--key", "a"}, "--key is of a log; " + trace + " is none"},
           {{trace, "--time", "a"}, "--time is of a log"},
           {{trace, "--time-unit", "ms"}, "--time-unit is of a log"},
           {{trace, "--group", "a"}, "--group is of a log"},
           {{trace, "--name", "a@b"}, "contains \"@\""},
           {{directory_ / "nope.json"}, "nope.json: No such file"},
           {{trace, directory_ / "nope.json"}, "nope.json: No such file"},
           {{directory_}, "Is a directory"},
           {{binary}, binary + " is not a trace"},
           {{plain}, plain + " is neither a trace nor a CSV with a header of columns"},
           {{}, "FILE is missing"}}) {
    std::vector<std::string> words = {"import"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const Result result = Client(words);
    EXPECT_EQ(result.code, 2) << expected;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_EQ(result.out, "") << expected;
  }
  EXPECT_EQ(backend_.last_trace_import().name, "");
  EXPECT_EQ(Client({"import", log}).code, 0);
}

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
  backend_.SetTrouble(absl::FailedPreconditionError("no iteration was traced"));
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
           {"1 --apply " + empty, "empty.whatif is empty; docs/whatif.md has the form"},
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
  backend_.SetTrouble(absl::InvalidArgumentError("my.whatif: line 3: no such step"));
  EXPECT_EQ(Client({"whatif", "1", "--list"}).code, 2);
}

TEST_F(ClientTest, ALogIsAnalyzed) {
  StartServer();
  const std::string path = directory_ / "steps.csv", other = directory_ / "new.csv";
  std::ofstream(path) << "epoch,length,time_ms\n1,5,20\n1,7,30\n1,x,3\n2,5,20\n2,7,30\n";
  std::ofstream(other) << "epoch,length,time_ms\n1,7,15\n1,5,10\n1,5,10\n";
  Result result = Client({"analyze", path, "--group", "epoch", "--points", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("steps.csv:4: \"x\" in column length is not a number"),
                                HasSubstr("1 row left out, 4 can be used")));
  EXPECT_THAT(result.out, AllOf(HasSubstr("steps.csv: 4 iterations of 2 lengths (length), 100 ms"),
                                HasSubstr("2 SeqPoints, 2 measurements: the total to +-1 %"),
                                HasSubstr("     5       1x         2.0  50.0 %  20 ms  2.00 %")));
  const v1::AnalyzeRequest request = backend_.last_analysis();
  EXPECT_EQ(request.points(), 2);
  EXPECT_FALSE(request.has_against());
  EXPECT_THAT(request.log().lengths(), ::testing::ElementsAre(5, 7, 5, 7));
  EXPECT_THAT(request.log().durations(), ::testing::ElementsAre(20e6, 30e6, 20e6, 30e6));
  EXPECT_THAT(request.log().groups(), ::testing::ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(request.log().second_lengths_size(), 0);

  result = Client(
      {"analyze", path, "--against", other, "--target-error", "0.5%", "--confidence", "99%"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("(99 % interval, asked for +-0.5 %)"),
                                HasSubstr("new.csv: 3 iterations"),
                                HasSubstr("speedup:    2.000 x (1.980 to 2.020)")));
  EXPECT_EQ(backend_.last_analysis().target_error(), 0.005);
  EXPECT_THAT(backend_.last_analysis().against().lengths(), ::testing::ElementsAre(7, 5, 5));

  // Fractions of both logs are in the steps of the first, though the other could do with whole
  // ones.
  std::ofstream(path) << "length,time_ms\n0.5,20\n1.7,30\n";
  std::ofstream(other) << "length,time_ms\n1.7,15\n0.5,10\n90.2,15\n";
  EXPECT_EQ(Client({"analyze", path, "--against", other}).code, 0);
  EXPECT_THAT(backend_.last_analysis().log().lengths(), ::testing::ElementsAre(50, 170));
  EXPECT_THAT(backend_.last_analysis().against().lengths(), ::testing::ElementsAre(170, 50, 9'020));
  std::ofstream(path) << "epoch,length,time_ms\n1,5,20\n1,7,30\n1,x,3\n2,5,20\n2,7,30\n";

  const std::string lengths = directory_ / "lengths.csv";
  std::ofstream(lengths) << "length\n5\n5\n7\n";
  result = Client({"analyze", path, "--lengths", lengths, "--epochs", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(": 6 iterations, 150"));
}

TEST_F(ClientTest, AnAnalysisAsJsonIsTheReply) {
  StartServer();
  const std::string path = directory_ / "steps.csv";
  std::ofstream(path) << "src,dst,took\n5,1,20\n7,2,30\n";
  const Result result = Client({"analyze", path, "--key", "src,dst", "--time", "took", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(StartsWith("{"), HasSubstr("\"verdict\": \"VERDICT_EXPLAINED\""),
                                HasSubstr("\"total\": 50"), HasSubstr("\"explained_share\": 0.987"),
                                HasSubstr("\"slow_iterations\": \"0\"")));
  EXPECT_THAT(backend_.last_analysis().log().second_lengths(), ::testing::ElementsAre(1, 2));
}

TEST_F(ClientTest, AnAnalyzedLogMayBeLongerThanTheOther) {
  StartServer();
  const std::string path = directory_ / "long.csv", other = directory_ / "short.csv";
  for (const auto& [name, rows] : {std::pair(path, 100'000), {other, 40'000}}) {
    std::ofstream file(name);
    file << "length,time_us\n";
    for (int i = 0; i < rows; ++i) file << i % 50 << "," << 1 + i << "\n";
  }
  for (const auto& [log, against] : {std::pair(path, other), {other, path}}) {
    const Result result = Client({"analyze", log, "--against", against});
    EXPECT_EQ(result.code, 0) << result.err;
    const v1::AnalyzeRequest request = backend_.last_analysis();
    for (const v1::IterationLog* sent : {&request.log(), &request.against()}) {
      EXPECT_EQ(sent->lengths_size(), (sent == &request.log()) == (log == path) ? 100'000 : 40'000);
      int wrong = 0;
      for (int i = 0; i < sent->lengths_size(); ++i) {
        wrong += sent->lengths(i) != i % 50 || sent->durations(i) != 1e3 * (1 + i);
      }
      EXPECT_EQ(wrong, 0);
    }
  }
}

TEST_F(ClientTest, AnalyzeNamesAMistake) {
  StartServer();
  const std::string path = directory_ / "steps.csv";
  std::ofstream(path) << "length,time_ms\n5,20\n7,30\n";
  EXPECT_EQ(Client({"analyze", directory_ / "nope.csv"}).code, 2);
  EXPECT_EQ(Client({"analyze", path, "--points", "0"}).code, 2);
  EXPECT_EQ(Client({"analyze", path, "--points", "3", "--target-error", "1%"}).code, 2);
  Result result = Client({"analyze", path, "--key", "size"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("size"));
  const std::string other = directory_ / "other.csv";
  std::ofstream(other) << "len,time_ms\n5,20\n";
  result = Client({"analyze", path, "--against", other});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("other.csv"), HasSubstr("length")));
  backend_.SetTrouble(absl::InvalidArgumentError("log: the backend's sentence"));
  result = Client({"analyze", path});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("log: the backend's sentence"));
  // No name can move the cursor.
  backend_.SetTrouble(absl::OkStatus());
  std::ofstream(path) << "len\x1b[2J,time_ms\n5,20\n7,30\n";
  result = Client({"analyze", path, "--key", "len\x1b[2J"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("(len\\x1b[2J)"), Not(HasSubstr("\x1b"))));
}

TEST_F(ClientTest, WatchEndsWithTheJob) {
  StartServer();
  pid_t child = Spawn({"watch", "1", "--json"});
  for (int i = 0; i < 500 && ReadFile(directory_ / "out").empty(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_state(v1::JOB_STATE_ENDED);
  backend_.PutJob(job);
  Result result = Wait(child);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("JOB_STATE_MARKING"), HasSubstr("JOB_STATE_ENDED")));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2);  // one per message
}

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

TEST_F(ClientTest, DoctorEndsWithOneWhenThereIsAProblem) {
  StartServer();
  Result result = Client({"doctor"});
  EXPECT_EQ(result.code, 1);  // at least: libm is not our library
  EXPECT_THAT(result.out, AllOf(HasSubstr("not SeqPoint's library"), HasSubstr("answers on")));
  EXPECT_THAT(Client({"doctor", "--json"}).out, HasSubstr("\"kind\": \"problem\""));
}

// 1,000 iterations of 40 ms.
void SetTimeSoFar(v1::Projection* time) {
  time->set_metric("time");
  time->set_unit("ns");
  time->set_confidence(0.95);
  time->set_iterations_so_far(1'000);
  time->mutable_so_far()->set_value(40e9);
  time->mutable_so_far()->set_low(40e9);
  time->mutable_so_far()->set_high(40e9);
}

TEST(RunTest, WhatNobodyReadIsNotCalledTheRunsEnd) {
  v1::Job job = rpc::FakeBackend::SampleJob();
  SetTimeSoFar(job.mutable_time());
  job.set_state(v1::JOB_STATE_LOST);
  job.mutable_losses()->set_uncounted_processes(1);
  job.mutable_time()->mutable_so_far()->set_high(std::numeric_limits<double>::infinity());
  job.mutable_time()->clear_total();
  EXPECT_THAT(RunSummary(job, {}, 0),
              AllOf(HasSubstr("what was read (1,000 iterations)"), HasSubstr("or more"),
                    HasSubstr("figures are lower bounds"), Not(HasSubstr("until its end"))));
  // Nobody knows whether it ended before its horizon.
  job.mutable_time()->set_iterations_total(5'000);
  job.mutable_time()->mutable_total()->set_value(200e9);
  EXPECT_THAT(RunSummary(job, {}, 0),
              AllOf(HasSubstr("whole run (5,000 iterations)"), HasSubstr("what was read"),
                    Not(HasSubstr("the run ended after"))));
  v1::ListJobsReply list;
  *list.add_jobs() = job;
  EXPECT_THAT(JobsText(list), HasSubstr("; not read completely"));
}

TEST(RunTest, ATimeThatIsNotKnownIsNotZero) {
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_state(v1::JOB_STATE_ENDED);
  v1::Projection& time = *job.mutable_time();
  time.clear_total();
  time.clear_so_far();
  time.clear_remaining();
  time.clear_per_1000_iterations();
  EXPECT_THAT(RunSummary(job, {}, 0),
              AllOf(HasSubstr("not known"), Not(HasSubstr("exact")), Not(HasSubstr(" 0 ns"))));
  v1::ListJobsReply list;
  *list.add_jobs() = job;
  EXPECT_THAT(JobsText(list), AllOf(HasSubstr("not known"), Not(HasSubstr("0 ns"))));
}

TEST(RunTest, ARunThatIsPastItsHorizonHasNoTotal) {
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_state(v1::JOB_STATE_MARKING);
  job.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
  v1::Projection& time = *job.mutable_time();
  SetTimeSoFar(&time);
  time.set_basis("the run is past the 83 iterations that were expected of it");
  EXPECT_THAT(ProjectionText(time, job),
              AllOf(HasSubstr("so far (1,000 iterations)"), HasSubstr("past the 83"),
                    Not(HasSubstr("whole run"))));
}

TEST(RunTest, TheSummarySaysWhatToKnowOfTheFigures) {
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_state(v1::JOB_STATE_ENDED);
  job.mutable_time()->set_iterations_total(5'000);
  job.mutable_time()->set_iterations_so_far(1'000);
  job.mutable_time()->mutable_total()->set_value(200e9);
  job.mutable_time()->mutable_remaining()->set_value(160e9);
  job.mutable_rule()->set_sentence("the given lengths do not match");
  std::string text = RunSummary(job, {}, 0);
  EXPECT_THAT(text, AllOf(HasSubstr("the run ended after 1,000 of 5,000 iterations, 73 lengths"),
                          HasSubstr("note: the given lengths do not match"),
                          HasSubstr("whole run, had it gone on (5,000 iterations)"),
                          Not(HasSubstr("remaining"))));
  // Only what can be answered.
  EXPECT_THAT(text, HasSubstr("ask next: seqpoint jobs 1, seqpoint project 1\n"));
  EXPECT_THAT(RunSummary(job, {.counters = true}, 0),
              HasSubstr("project 1, seqpoint counters 1\n"));
  job.clear_time();
  EXPECT_THAT(RunSummary(job, {.kernels = true}, 0),
              HasSubstr("jobs 1, seqpoint kernels 1, seqpoint export 1 --chrome trace.json, "
                        "seqpoint whatif 1 --list\n"));
  job.set_time_only("the program does not use a GPU: time only");
  EXPECT_THAT(RunSummary(job, {.kernels = true}, 0), Not(HasSubstr("whatif")));
  job.clear_time_only();
  job.mutable_seqpoints()->set_measurements(0);
  EXPECT_THAT(RunSummary(job, {.kernels = true}, 0), Not(HasSubstr("whatif")));
}

TEST(RunTest, ACommandThatDidNotTrainIsNotSentToTheDoctorForItsOwnError) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_ENDED);
  constexpr int kStatus2 = 2 << 8;  // as waitpid tells it
  EXPECT_THAT(RunSummary(job, {}, kStatus2),
              AllOf(HasSubstr("ended with status 2 before it trained"), Not(HasSubstr("doctor"))));
  EXPECT_THAT(RunSummary(job, {}, SIGKILL), HasSubstr("before it trained"));
  setenv("SEQPOINT_ADAPTER", "/opt/python", 1);
  EXPECT_THAT(RunSummary(job, {}, 0), HasSubstr("was seen to use a GPU or to train with PyTorch"));
  setenv("CUDA_INJECTION64_PATH", "/opt/other.so", 1);
  EXPECT_THAT(RunSummary(job, {}, 0),
              AllOf(HasSubstr("another profiler has the command's GPU work"),
                    HasSubstr("/opt/other.so"), Not(HasSubstr("was seen to use a GPU"))));
  // Whether it trained before it failed, only the other one knows.
  EXPECT_THAT(RunSummary(job, {}, kStatus2),
              AllOf(HasSubstr("another profiler has"), Not(HasSubstr("before it trained"))));
  unsetenv("CUDA_INJECTION64_PATH");
  setenv("SEQPOINT_ADAPTER", "0", 1);
  EXPECT_THAT(RunSummary(job, {}, 0), HasSubstr("there is no adapter"));
  unsetenv("SEQPOINT_ADAPTER");
  // One that trained, and failed then.
  job = rpc::FakeBackend::SampleJob();
  EXPECT_THAT(RunSummary(job, {}, kStatus2), HasSubstr("the command ended with status 2\n"));
}

TEST(TextTest, WhatIsNotKnownYetIsSaidWithItsReason) {
  v1::Job job = rpc::FakeBackend::SampleJob();
  v1::Feature* feature = job.mutable_processes(0)->mutable_features(0);
  feature->set_name("batches");
  feature->set_state(v1::FEATURE_STATE_IGNORED);
  feature->set_code(2);
  feature->set_sentence("it is not known how many batches an iteration takes");
  job.mutable_horizon()->set_kind(v1::Horizon::KIND_DISTRIBUTION);
  job.mutable_horizon()->set_source("train.csv");
  EXPECT_THAT(
      JobText(job),
      AllOf(HasSubstr("\nrank 0, batches: it is not known how many batches an iteration takes\n"),
            HasSubstr("\nhorizon:   not known, from train.csv\n")));
  job.mutable_horizon()->set_iterations(500);
  EXPECT_THAT(JobText(job), HasSubstr("\nhorizon:   500 iterations from train.csv\n"));
  job.set_state(v1::JOB_STATE_LEARNING);
  job.clear_rule();
  job.set_iterations(0);
  EXPECT_THAT(JobText(job),
              HasSubstr("so far:    not known yet, because it is still learned where"));
  feature->set_name("framework");
  feature->set_state(v1::FEATURE_STATE_READY);
  EXPECT_THAT(JobText(job), HasSubstr("learned which of the told numbers is"));
}

TEST(TextTest, WithoutAGpuNoMeasurementIsShownAsIfItWereToCome) {
  v1::Job job = rpc::FakeBackend::SampleJob();
  job.set_time_only("the program does not use a GPU: time only");
  v1::Feature* feature = job.mutable_processes(0)->mutable_features(0);
  feature->set_name("cupti");
  feature->set_state(v1::FEATURE_STATE_IGNORED);
  feature->set_sentence(job.time_only());
  job.mutable_processes(0)->set_cupti_version("0");
  EXPECT_THAT(JobText(job),
              AllOf(HasSubstr("measured:  the program does not use a GPU: time only\n"),
                    Not(HasSubstr("SeqPoints:")), Not(HasSubstr("measuring:")),
                    Not(HasSubstr("ignored")), Not(HasSubstr("CUPTI"))));
  EXPECT_THAT(RunSummary(job, {}, 0), AllOf(HasSubstr("1,000 iterations, 73 lengths\n"),
                                            HasSubstr("time only"), Not(HasSubstr("SeqPoint,"))));
  EXPECT_THAT(ProgressLine(job, 1'000), HasSubstr("73 lengths, time only"));
  v1::ListJobsReply list;
  *list.add_jobs() = job;
  EXPECT_THAT(JobsText(list), Not(HasSubstr("8/8")));
}

TEST(TextTest, WhatTheFrameworkToldIsShownOnce) {
  v1::Job job = rpc::FakeBackend::SampleJob();
  v1::Feature* feature = job.mutable_processes(0)->add_features();
  feature->set_name("framework");
  feature->set_state(v1::FEATURE_STATE_READY);
  feature->set_sentence("PyTorch 2.1.0: told are src.shape[1]");
  *job.add_processes() = job.processes(0);
  const std::string text = JobText(job);
  const size_t first = text.find("told by:   PyTorch 2.1.0: told are src.shape[1]\n");
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("told by:", first + 1), std::string::npos) << text;
}

TEST(TextTest, CommandsThatDidNotTrainAreListedWhenAskedFor) {
  v1::ListJobsReply reply;
  *reply.add_jobs() = rpc::FakeBackend::SampleJob();
  v1::Job* unused = reply.add_jobs();
  unused->set_name("ls");
  unused->set_unused(true);
  EXPECT_THAT(JobsText(reply),
              AllOf(HasSubstr("gnmt"), Not(HasSubstr("  ls")),
                    HasSubstr("1 command that did not train is left out; --all shows it")));
  EXPECT_THAT(JobsText(reply, /*all=*/true), AllOf(HasSubstr("  ls"), Not(HasSubstr("left out"))));
}

TEST(TraceImportTextTest, WithoutCallsThereIsNothingToReplay) {
  v1::ImportTraceReply reply;
  reply.mutable_job()->set_id("7");
  reply.add_traces()->set_gpu_tasks(5);
  EXPECT_THAT(TraceImportText(reply, 0),
              AllOf(HasSubstr("\nask next: seqpoint kernels 7, seqpoint export 7 --chrome"),
                    Not(HasSubstr("whatif")), Not(HasSubstr("replay"))));
  reply.add_traces()->set_calls(1);
  EXPECT_THAT(TraceImportText(reply, 0),
              HasSubstr("ask next: seqpoint replay 7, seqpoint whatif 7 --list,\n"));
}

TEST(WhatIfTextTest, WhatIsNotKnownIsNotShown) {
  v1::ReplayReply replay;
  EXPECT_NE(NothingIn(replay), "");
  v1::ReplayedIteration& iteration = *replay.add_iterations();
  iteration.set_measured_duration_ns(2e6);
  iteration.set_replayed_duration_ns(2e6);
  EXPECT_EQ(NothingIn(replay), "");
  EXPECT_THAT(ReplayText(replay, false),
              AllOf(StartsWith("ITERATION  MEASURED  REPLAYED   ERROR\n"),
                    HasSubstr("2 ms      2 ms  0.00 %\n"), Not(HasSubstr("CRITICAL"))));

  v1::WhatIfReply reply;
  reply.set_confidence(0.95);
  EXPECT_THAT(WhatIfListText(reply, false, 0), StartsWith("no preset would change anything"));
  v1::WhatIfAnswer& answer = *reply.add_answers();
  answer.set_name("steps");
  answer.add_steps()->set_text("remove copies");
  EXPECT_THAT(WhatIfText(reply, false, 0),
              AllOf(StartsWith("steps: it changes nothing in these traces\n"),
                    HasSubstr(" none  remove copies\n"), Not(HasSubstr("CHANGE"))));
  // What takes longer has a plus; a gain of nothing has no sign.
  answer.set_applies(true);
  answer.mutable_before()->set_value(4e9);
  answer.mutable_after()->set_value(5e9);
  answer.mutable_saved()->set_value(-1e9);
  reply.set_whole_run(true);
  reply.set_iterations(100);
  EXPECT_THAT(WhatIfText(reply, false, 0),
              StartsWith("steps: the run (100 iterations) would take 5 s instead of 4 s "
                         "(+25.0 %)\n"));
  answer.mutable_saved()->set_value(0);
  EXPECT_THAT(WhatIfText(reply, false, 0), HasSubstr("(0.0 %)\n"));
  // A small change has more digits, and a large table of lengths a short sentence.
  answer.mutable_saved()->set_value(1e6);
  answer.mutable_saved()->set_low(0.5e6);
  answer.mutable_saved()->set_high(1.5e6);
  for (int i = 0; i < 20; ++i) {
    v1::WhatIfSeqPoint& point = *answer.add_seqpoints();
    point.add_lengths(i);
    point.set_weight(5);
    point.set_before_duration_ns(1e6);
    point.set_after_duration_ns(i < 10 ? 1.1e6 : 0.9e6);
  }
  EXPECT_THAT(WhatIfText(reply, false, 0),
              AllOf(HasSubstr("(-0.03 %, 95 %: -0.04 to -0.01 %)"), HasSubstr("2, 3, 4, 5, ...)")));
}

TEST(WhatIfTextTest, WhatMattersIsSaidFirst) {
  v1::WhatIfReply reply;
  reply.set_confidence(0.95);
  reply.set_basis("2 traces");
  v1::WhatIfAnswer& answer = *reply.add_answers();
  answer.set_name("amp");
  answer.set_applies(true);
  answer.set_assumption("tensor cores");
  answer.set_source("Daydream");
  answer.set_guessed_bounds(3);
  answer.add_warnings("doubtful for < 0.1 % of the time of kernels: half");
  answer.add_warnings("doubtful for 0.1 % of the time of copies: small");
  answer.mutable_before()->set_value(4e9);
  answer.mutable_after()->set_value(3e9);
  answer.mutable_saved()->set_value(1e9);
  for (int i = 1; i <= 20; ++i) {
    v1::WhatIfSeqPoint& point = *answer.add_seqpoints();
    point.add_lengths(i);
    point.set_weight(i % 2 == 0 ? 100 : i);
    point.set_before_duration_ns(4e6);
    point.set_after_duration_ns(3e6);
    v1::WhatIfKernel& kernel = *answer.add_kernels();
    kernel.set_name(absl::StrCat("kernel_", i, "_", std::string(200, 'x'), "_end"));
    kernel.set_before_duration_ns(4e6);
    kernel.set_after_duration_ns(3e6);
  }
  for (auto* path : {answer.mutable_critical_path_before(), answer.mutable_critical_path_after()}) {
    path->Add()->set_what("kernels");
    (*path)[0].set_duration_ns(1e6);
  }
  answer.add_steps()->set_text("remove copies");
  std::string text = WhatIfText(reply, /*all=*/false, 0);
  size_t at = 0;
  for (const char* next :
       {"amp: the 0 iterations", "\nwarning: doubtful for < 0.1 % of the time of kernels: half\n",
        "\nwarning: doubtful for 0.1 % of the time of copies",
        "\nassumes (not in the interval): ", "\nbounds: ", "\nCRITICAL PATH", "\nLENGTH",
        "\n     2         100", "\n    17          17", "\n    20         100",
        "\n8 more lengths with less weight; --all shows them\n", "  KERNEL\n", "  kernel_10_",
        "\n10 more kernels whose time changes less; --all shows them\n", "  STEP\n",
        "\nsource: ", "\nbasis: "}) {
    const size_t found = text.find(next, at);
    ASSERT_NE(found, std::string::npos) << next << " is not behind the one before in\n" << text;
    at = found;
  }
  EXPECT_EQ(text.find("warning: ", text.find("0.1 % of the time of copies")), std::string::npos);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    EXPECT_LE(line.size(), 100u) << line;
  }
  text = WhatIfText(reply, /*all=*/true, 80);
  EXPECT_THAT(text, AllOf(HasSubstr("x_end\n"), HasSubstr("kernel_20_"), HasSubstr("\n     1   "),
                          Not(HasSubstr("more"))));
  // Nothing is known of the width of an interval.
  EXPECT_THAT(
      WhatIfListText(reply, false, 0),
      AllOf(HasSubstr("-25.0 %  -  "), HasSubstr("doubtful for < 0.1 % of the time of kernels\n"),
            Not(HasSubstr("exact"))));
}

TEST(WhatIfTextTest, WhatDoesNotApplySaysWhy) {
  v1::WhatIfReply reply;
  v1::WhatIfAnswer& answer = *reply.add_answers();
  answer.set_name("gist");
  answer.set_title("compressed activations");
  answer.add_warnings("there is nothing in the trace: no relu");
  EXPECT_THAT(WhatIfText(reply, false, 0),
              AllOf(StartsWith("gist does not apply: there is nothing in the trace: no relu\n"),
                    Not(HasSubstr("warning:"))));
  EXPECT_THAT(WhatIfListText(reply, /*all=*/true, 0),
              HasSubstr("  there is nothing in the trace: no relu\n"));
  answer.clear_warnings();
  EXPECT_THAT(WhatIfText(reply, false, 0),
              StartsWith("compressed activations (gist): it changes nothing in these traces\n"));
}

TEST(TextTest, LaunchesAreWholeNumbers) {
  v1::GetKernelsReply reply;
  EXPECT_NE(NothingIn(reply), "");
  for (const double launches : {0.3, 940.3, 12345.6, 23.456e6}) {
    v1::Kernel* kernel = reply.add_kernels();
    kernel->set_name("gemm");
    kernel->set_launches(launches);
  }
  EXPECT_EQ(NothingIn(reply), "");
  EXPECT_THAT(KernelsText(reply, v1::Job(), 0),
              AllOf(HasSubstr(" 1  gemm"), HasSubstr(" 940  gemm"), HasSubstr(" 12,346  gemm"),
                    HasSubstr(" 23.46 M  gemm")));
}

TEST(TextTest, KernelsThatFewTracedIterationsHadAreSaid) {
  v1::GetKernelsReply reply;
  reply.set_measured_iterations(32);
  v1::Kernel* kernel = reply.add_kernels();
  kernel->set_name("gemm");
  kernel->set_launches(1084.3);
  kernel->set_launches_low(950.2);
  kernel->set_launches_high(1664.1);
  kernel->set_measured_iterations(6);
  kernel = reply.add_kernels();
  kernel->set_name("adam");
  kernel->set_launches(3125);
  kernel->set_launches_low(3125);
  kernel->set_launches_high(3125);
  kernel->set_measured_iterations(32);
  const std::string text = KernelsText(reply, v1::Job(), 0);
  EXPECT_THAT(text, AllOf(HasSubstr(" 1,084 (950 to 1,664)  gemm"), HasSubstr(" 3,125  adam"),
                          HasSubstr("gemm: seen in 6 of the 32 traced iterations; which of the "
                                    "others have it is an")));
  EXPECT_THAT(text, Not(HasSubstr("adam: seen")));
}

TEST(TextTest, TheRooflineSaysWhatBoundsAKernel) {
  v1::GetRooflineReply reply;
  EXPECT_NE(NothingIn(reply), "");
  reply.set_chip("GH100");
  v1::RooflineKernel* kernel = reply.add_kernels();
  kernel->set_name("_Z4gemmv");
  kernel->set_launches(800);
  kernel->set_share(0.75);
  kernel->set_complete(true);
  kernel->set_operations_per_byte(50.25);
  kernel->set_operations_per_s(5e13);
  kernel->set_bytes_per_s(1e12);
  kernel->set_roof_share(0.8);
  kernel->set_bound(v1::BOUND_COMPUTE);
  kernel = reply.add_kernels();
  kernel->set_name("copy");
  kernel->set_share(0.25);
  kernel->set_sentence("not measured with every configuration yet");
  v1::RooflineLength* length = reply.add_lengths();
  length->add_lengths(32);
  length->set_measured_iterations(5);
  length->set_wanted_iterations(6);
  v1::Roof* roof = reply.add_roofs();
  roof->set_name("device memory");
  roof->set_unit("B/s");
  roof->set_per_s(4.8e12);
  reply.set_kernel_names(3);
  reply.set_missing_launches(402);
  EXPECT_EQ(NothingIn(reply), "");
  EXPECT_THAT(
      RooflineText(reply, 0),
      AllOf(HasSubstr(" 50.25   50,000  1,000  compute"), HasSubstr("  gemm()"),
            HasSubstr("-  not measured with every configuration yet  copy"),
            HasSubstr("1 more kernels; --all"),
            HasSubstr("GH100, lengths 32: 5 of 6 iterations measured"),
            HasSubstr("roofs  device memory 4,800 GB/s"), HasSubstr("the last 402 launches")));
}

TEST(TextTest, CountersThatWereNotMeasuredHaveNoFigure) {
  v1::GetCountersReply reply;
  v1::Counter* counter = reply.add_counters();
  counter->set_metric("dram__bytes.sum");
  counter->set_sentence("0 iterations were measured");
  EXPECT_EQ(NothingIn(reply), "no counter was measured: 0 iterations were measured");
  counter = reply.add_counters();
  counter->set_metric("tensor_share");
  counter->set_ratio(true);
  counter->set_complete(true);
  counter->set_unit("%");
  counter->mutable_per_iteration()->set_value(25);
  EXPECT_EQ(NothingIn(reply), "");
  EXPECT_THAT(CountersText(reply, v1::Job(), 0),
              AllOf(HasSubstr("not measured: 0 iterations were measured"), HasSubstr("derived"),
                    Not(HasSubstr("0 ns"))));
  // What was measured, by what, and what that cost.
  reply.set_metric_sets("tensor");
  reply.set_chip("GH100");
  reply.set_backend(v1::COUNTER_BACKEND_PM);
  reply.set_sentence("PM sampling counts the whole GPU");
  reply.set_slowdown(1.25);
  v1::MeasuredIteration* iteration = reply.add_iterations();
  iteration->set_number(12345);
  iteration->add_lengths(37);
  iteration->set_config("tensor");
  iteration->set_duration_ns(125'000'000);
  iteration->set_usual_duration_ns(1e8);
  const std::string text = CountersText(reply, v1::Job(), 0);
  EXPECT_THAT(text, AllOf(HasSubstr("tensor, by PM sampling of the whole GPU, on GH100"),
                          HasSubstr("note: PM sampling counts the whole GPU"),
                          HasSubstr("1.25 times as long as usual"), Not(HasSubstr("12,345"))));
  EXPECT_THAT(CountersText(reply, v1::Job(), 0, /*list_measured=*/true),
              AllOf(HasSubstr("12,345"), HasSubstr("+25.0 %"), HasSubstr("came to nothing")));
}

TEST(RunTest, JobsAreNamedAfterTheScript) {
  EXPECT_EQ(JobNameFor({"python3", "-u", "src/train.py", "--lr", "1"}), "train");
  EXPECT_EQ(JobNameFor({"./build/gnmt", "--x"}), "gnmt");
  EXPECT_EQ(JobNameFor({"torchrun", "--nproc", "2", "a@b.py"}), "a_b");
}

TEST(RunTest, RunIdsComeFromTheLauncher) {
  unsetenv("SLURM_JOB_ID");
  setenv("TORCHELASTIC_RUN_ID", "none", 1);
  EXPECT_THAT(RunIdFromEnvironment(), ::testing::MatchesRegex("[0-9]{8}-[0-9]{6}-[0-9a-f]{4}"));
  setenv("SLURM_JOB_ID", "77", 1);
  EXPECT_EQ(RunIdFromEnvironment(), "slurm-77");
  setenv("TORCHELASTIC_RUN_ID", "abc", 1);
  EXPECT_EQ(RunIdFromEnvironment(), "abc");
}

TEST(RunTest, AnotherProfilerKeepsItsPlace) {
  setenv("LD_PRELOAD", "/lib/other.so", 1);
  setenv("CUDA_INJECTION64_PATH", "/opt/nsys.so", 1);
  unsetenv("NVTX_INJECTION64_PATH");
  std::vector<std::string> warnings;
  std::vector<std::string> environment =
      ChildEnvironment("/lib/ours.so", true, "", "/run/seqpoint", "job", "run", &warnings);
  EXPECT_THAT(environment, Contains("LD_PRELOAD=/lib/ours.so:/lib/other.so"));
  EXPECT_THAT(environment, Contains("CUDA_INJECTION64_PATH=/opt/nsys.so"));
  EXPECT_THAT(environment, Contains("NVTX_INJECTION64_PATH=/lib/ours.so"));
  EXPECT_THAT(environment, Not(Contains("LD_PRELOAD=/lib/other.so")));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("/opt/nsys.so"));
  unsetenv("LD_PRELOAD");
}

TEST(RunTest, ALibraryThatLdPreloadCannotNameIsLeftOutThereAndSaid) {
  unsetenv("LD_PRELOAD");
  unsetenv("CUDA_INJECTION64_PATH");
  for (const char* library : {"/opt/my tools/ours.so", "/opt/a:b/ours.so"}) {
    std::vector<std::string> warnings;
    const std::vector<std::string> environment =
        ChildEnvironment(library, true, "", "/run/seqpoint", "job", "run", &warnings);
    EXPECT_THAT(environment, Not(Contains(::testing::StartsWith("LD_PRELOAD="))));
    EXPECT_THAT(environment, Contains(absl::StrCat("CUDA_INJECTION64_PATH=", library)));
    EXPECT_THAT(warnings, ::testing::ElementsAre(
                              AllOf(HasSubstr(library), HasSubstr("only once it uses CUDA"))));
  }
}

TEST(RunTest, OnlyACommandThatCallsTheLibraryHasItFromItsStart) {
  TempFolder folder;
  const std::string program = folder.path() / "program", script = folder.path() / "train.py",
                    other = folder.path() / "other.py";
  std::ofstream(program) << std::string((1 << 20) - 3, 'x') << "seqpoint_iteration_begin";
  std::ofstream(script) << "ctypes.CDLL(None).seqpoint_iteration_begin(8)\n";
  std::ofstream(other) << "import torch\n";
  EXPECT_TRUE(CallsTheLibrary({program, "--epochs", "3"}));
  EXPECT_TRUE(CallsTheLibrary({"sh", script}));
  EXPECT_TRUE(CallsTheLibrary({"sh", "-n", "2", "/proc/self/exe"}));  // as mpirun starts it
  EXPECT_FALSE(CallsTheLibrary({"sh", other, "--seqpoint_like", "/"}));
  EXPECT_FALSE(CallsTheLibrary({"no-such-program"}));
  EXPECT_FALSE(CallsTheLibrary({}));
  std::vector<std::string> warnings;
  EXPECT_THAT(ChildEnvironment("/my tools/ours.so", false, "", "", "job", "run", &warnings),
              AllOf(Contains("CUDA_INJECTION64_PATH=/my tools/ours.so"),
                    Contains("SEQPOINT_LIBRARY=/my tools/ours.so"),
                    Not(Contains(::testing::StartsWith("LD_PRELOAD=")))));
  EXPECT_THAT(warnings, ::testing::IsEmpty());
}

TEST(RunTest, TheAdapterComesFirstForPython) {
  std::vector<std::string> warnings;
  setenv("PYTHONPATH", "/home/me/lib", 1);
  EXPECT_THAT(ChildEnvironment("/lib/ours.so", false, "/opt/python", "", "job", "run", &warnings),
              Contains("PYTHONPATH=/opt/python:/home/me/lib"));
  EXPECT_THAT(ChildEnvironment("/lib/ours.so", false, "", "", "job", "run", &warnings),
              Contains("PYTHONPATH=/home/me/lib"));
  unsetenv("PYTHONPATH");
  EXPECT_THAT(ChildEnvironment("/lib/ours.so", false, "/opt/python", "", "job", "run", &warnings),
              Contains("PYTHONPATH=/opt/python"));
  // For seqpoint.pth, where Python does not look at PYTHONPATH.
  EXPECT_THAT(ChildEnvironment("/lib/ours.so", false, "/opt/python", "", "job", "run", &warnings),
              Contains("SEQPOINT_ADAPTER=/opt/python"));
  setenv("SEQPOINT_ADAPTER", "0", 1);
  EXPECT_EQ(FindAdapter(), "");
  unsetenv("SEQPOINT_ADAPTER");
}

TEST(RunTest, AnAdapterThatDidNotGetIntoAPythonIsMissed) {
  for (const char* option : {"-I", "-E", "-uE", "-Im"}) {
    EXPECT_THAT(AdapterMissing({"python3", option, "train.py"}, ""),
                AllOf(HasSubstr(std::string("started with -") + (strchr(option, 'I') ? "I" : "E")),
                      HasSubstr("seqpoint.pth")));
  }
  EXPECT_THAT(AdapterMissing({"/usr/bin/python3.12", "-S", "train.py"}, ""),
              AllOf(HasSubstr("with -S"), Not(HasSubstr("seqpoint.pth"))));
  EXPECT_THAT(AdapterMissing({"python3", "-u", "-X", "dev", "train.py", "-I"}, ""),
              AllOf(HasSubstr("OpenTelemetry"), Not(HasSubstr("started with"))));
  // A launcher that has it starts a Python that has not (opentelemetry-instrument).
  EXPECT_THAT(AdapterMissing({"python3", "train.py"}, "p"), HasSubstr("imported torch"));
  EXPECT_THAT(AdapterMissing({"/bin/sh", "-c", "python3 train.py"}, "pp"),
              HasSubstr("imported torch"));
  EXPECT_THAT(AdapterMissing({"python3", "train.py"}, "ptu"), HasSubstr("two lines"));
  // One that was heard, and programs of other kinds.
  EXPECT_EQ(AdapterMissing({"python3", "-I", "train.py"}, "ppt"), "");
  EXPECT_EQ(AdapterMissing({"/bin/sh", "-c", "python3 train.py"}, ""), "");
  EXPECT_EQ(AdapterMissing({"no-such-program"}, ""), "");
  // A script has its interpreter in its first line.
  const std::string script = testing::TempDir() + "/train";
  std::ofstream(script) << "#!/usr/bin/env -S python3 -E\nprint(1)\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EXPECT_THAT(AdapterMissing({script}, ""), HasSubstr("with -E"));
  EXPECT_EQ(AdapterMissing({script}, "pt"), "");
}

TEST(TextTest, WhatIsApartHasItsShareOfTheTime) {
  v1::Job job;
  v1::PhaseSummary& phase = *job.add_phases();
  phase.set_name("evaluation");
  phase.set_iterations(100);
  phase.set_duration_ns(3'000'000'000);
  EXPECT_THAT(ApartText(job), AllOf(HasSubstr("evaluation or rollouts 3"), Not(HasSubstr("%"))));
  job.set_iterations_duration_ns(1'000'000'000);
  EXPECT_THAT(ApartText(job), HasSubstr("(75.0 % of the time seen)"));
  // The time of several ranks is a sum, and may be in the iterations of ranks that wait for it.
  for (const int rank : {0, 1}) job.add_processes()->set_rank(rank);
  EXPECT_THAT(ApartText(job), AllOf(HasSubstr("of 2 ranks together"), Not(HasSubstr("%"))));
  job.clear_processes();
  job.set_iterations_duration_ns(3'000'000'000'000);
  EXPECT_THAT(ApartText(job), Not(HasSubstr("%")));
}

TEST(RunTest, ARunThatMissesItsAdapterSaysSo) {
  const std::string missing = AdapterMissing({"python3", "-I"}, "");
  v1::Job nothing;
  EXPECT_THAT(RunSummary(nothing, {}, 0, missing),
              AllOf(HasSubstr("started with -I"), HasSubstr("nothing was profiled")));
  const v1::Job job = rpc::FakeBackend::SampleJob();
  EXPECT_THAT(RunSummary(job, {}, 0, missing), HasSubstr("PyTorch was not asked"));
  EXPECT_THAT(RunSummary(job, {}, 0), Not(HasSubstr("PyTorch was not asked")));
}

}  // namespace
}  // namespace seqpoint::client
