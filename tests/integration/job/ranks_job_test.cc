// A training of several ranks under `seqpoint run`, with real processes: a launcher, a rank on each
// software GPU, collectives of the software NCCL between them, a daemon.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/api.h"
#include "tests/support/temp_folder.h"
#include "tests/support/truth.h"

namespace seqpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;
constexpr int kIterations = 150;

struct Training {
  const char* name;
  std::vector<std::string> options;
  size_t dimensions;  // lengths
};

void PrintTo(const Training& training, std::ostream* out) { *out << training.name; }

class RanksJob : public testing::Test {
 protected:
  RanksJob() {
    setenv("SEQPOINT_DIR", (folder_ / "run").c_str(), 1);
    setenv("SWGPU_SET", "clock.speed_cap=4", 1);
    setenv("LD_LIBRARY_PATH", (bin_.parent_path() / "softgpu").c_str(), 1);
    daemon_ = SpawnDaemon(folder_);
    // `seqpoint run` would start another one where none answers.
    Api api(folder_ / "run" / "api.sock");
    EXPECT_TRUE(api.Call(&v1::Profiler::Stub::ListJobs, v1::ListJobsRequest())) << api.error();
  }
  ~RanksJob() override {
    KillAndWait(&daemon_, SIGKILL);
    if (HasFailure()) temp_folder_.Keep();
  }

  // The wait status of `seqpoint run` with a launcher and its ranks, as job "job".
  int RunRanks(std::vector<std::string> launcher, const std::vector<std::string>& options) {
    std::vector<std::string> command = {(bin_ / "seqpoint").string(), "run", "--job", "job", "--"};
    command.insert(command.end(), launcher.begin(), launcher.end());
    command.insert(command.end(),
                   {(bin_ / "seqpoint_workload").string(), "--quiet", "--max-iterations",
                    std::to_string(kIterations), "--truth", (folder_ / "truth.%r").string()});
    command.insert(command.end(), options.begin(), options.end());
    return WaitFor(Spawn(command, folder_ / "job.log"));
  }
  int Launch(const std::vector<std::string>& options) {
    return RunRanks({(bin_ / "seqpoint_launch").string(), "-n", std::to_string(kRanks)}, options);
  }

  v1::Job Ended() {
    Api api(folder_ / "run" / "api.sock");
    v1::GetJobRequest request;
    request.set_job("job");
    for (int i = 0; i < 200; ++i) {
      const auto reply = api.Call(&v1::Profiler::Stub::GetJob, request);
      if (reply && reply->job().end_ns() != 0) return reply->job();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ADD_FAILURE() << "the job did not end: " << api.error();
    return {};
  }

  std::vector<v1::Iteration> IterationsOf(int rank) {
    Api api(folder_ / "run" / "api.sock");
    v1::ListIterationsRequest request;
    request.set_job("job");
    request.set_rank(rank);
    const auto reply = api.Call(&v1::Profiler::Stub::ListIterations, request);
    if (!reply) {
      ADD_FAILURE() << "no iterations of rank " << rank << ": " << api.error();
      return {};
    }
    return {reply->iterations().begin(), reply->iterations().end()};
  }

  // One job, whose ranks have exactly the iterations that their truth files have.
  void ExpectExact(size_t dimensions) {
    const v1::Job job = Ended();
    Api api(folder_ / "run" / "api.sock");
    const auto jobs = api.Call(&v1::Profiler::Stub::ListJobs, v1::ListJobsRequest());
    ASSERT_TRUE(jobs.has_value());
    EXPECT_EQ(jobs->jobs_size(), 1);
    EXPECT_EQ(job.state(), v1::JOB_STATE_ENDED);
    EXPECT_EQ(job.processes_size(), kRanks);
    EXPECT_EQ(job.iterations(), kIterations);
    EXPECT_EQ(job.losses().rejected(), 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const auto truth = ReadTruth(folder_ / ("truth." + std::to_string(rank)));
      ASSERT_TRUE(truth.has_value());
      const std::vector<v1::Iteration> iterations = IterationsOf(rank);
      ASSERT_EQ(iterations.size(), truth->iterations.size()) << job.rule().DebugString();
      const Boundaries boundaries = MatchBoundaries(*truth, iterations);
      EXPECT_EQ(boundaries.exact_share, 1) << job.rule().DebugString();
      EXPECT_EQ(boundaries.recovered_share, 1) << job.rule().DebugString();
      for (size_t i = 3; i < iterations.size(); ++i) {
        ASSERT_EQ(static_cast<size_t>(iterations[i].lengths_size()), dimensions) << i;
      }
    }
  }

  TempFolder temp_folder_;
  const fs::path& folder_ = temp_folder_.path();
  const fs::path bin_ = BinaryDirectory();
  pid_t daemon_ = 0;
};

class Shared : public RanksJob, public testing::WithParamInterface<Training> {};

TEST_P(Shared, RanksAreOneJobWithTheIterationsThatTheyHad) {
  ASSERT_EQ(Launch(GetParam().options), 0);
  ExpectExact(GetParam().dimensions);
}

INSTANTIATE_TEST_SUITE_P(
    All, Shared,
    testing::Values(
        Training{"data_gnmt", {"--parallel", "data", "--model", "gnmt"}, 2},
        Training{"data_ds2", {"--parallel", "data", "--model", "ds2"}, 1},
        Training{"data_never",
                 {"--parallel", "data", "--model", "transformer", "--readback", "never"},
                 1},
        Training{
            "data_accumulate",
            {"--parallel", "data", "--model", "transformer", "--batch", "16", "--accumulate", "2"},
            1},
        Training{"sharded", {"--parallel", "sharded", "--model", "transformer"}, 1},
        Training{"tensor", {"--parallel", "tensor", "--model", "transformer"}, 1},
        Training{
            "pipeline", {"--parallel", "pipeline", "--model", "transformer", "--batch", "16"}, 1}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(RanksJob, MpirunStartsOneJobToo) {
  if (!fs::exists("/usr/bin/mpirun")) GTEST_SKIP() << "Open MPI (openmpi-bin) is not installed";
  ASSERT_EQ(RunRanks({"/usr/bin/mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
                      std::to_string(kRanks)},
                     {"--parallel", "data", "--model", "transformer"}),
            0);
  ExpectExact(1);
}

TEST_F(RanksJob, ARankThatDiesEndsTheJobWithItsStatus) {
  EXPECT_EQ(WEXITSTATUS(Launch({"--parallel", "data", "--model", "gnmt", "--die", "1@100"})),
            128 + SIGKILL);
  const v1::Job job = Ended();
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.exit_status(), 128 + SIGKILL);
  EXPECT_EQ(job.processes_size(), kRanks);
  // Nobody got further than the iteration in which it died.
  EXPECT_GT(job.iterations(), 90);
  EXPECT_LE(job.iterations(), 101);
}

}  // namespace
}  // namespace seqpoint
