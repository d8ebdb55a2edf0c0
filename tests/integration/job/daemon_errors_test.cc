// The daemon under a machine's faults: the clock is set while a training runs, descriptors are used
// up, the daemon is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/api.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class DaemonErrorTest : public testing::Test {
 protected:
  ~DaemonErrorTest() override { Kill(); }

  // `environment`: of "KEY=VALUE".
  void StartDaemon(const std::vector<std::string>& environment = {}) {
    daemon_ = SpawnDaemon(folder_.path(), environment);
  }
  void Kill() { KillAndWait(&daemon_, SIGKILL); }
  // `clock_set_by`: seconds by which the clock of the training is set when it runs; empty: it is
  // not.
  pid_t Train(int iterations, const std::string& clock = "clock.speed_cap=0.5",
              const std::string& clock_set_by = "") {
    const fs::path build = bin_.parent_path();
    std::string preload = build / "lib/libseqpoint_inject.so";
    if (!clock_set_by.empty())
      preload += ":" + (build / "lib/libseqpoint_test_set_clock.so").string();
    return Spawn(
        {"/usr/bin/env", "LD_LIBRARY_PATH=" + (build / "softgpu").string(), "SWGPU_SET=" + clock,
         "SEQPOINT_DIR=" + directory_.string(), "SEQPOINT_JOB=j", "SEQPOINT_RUN_ID=1",
         "SEQPOINT_TEST_SET_CLOCK=2," + clock_set_by, "LD_PRELOAD=" + preload,
         (bin_ / "seqpoint_workload").string(), "--model", "gnmt", "--examples", "100000",
         "--batch", "8", "--max-iterations", std::to_string(iterations), "--quiet"},
        folder_.path() / "training.log");
  }
  v1::Job Job() {
    Api api(directory_ / "api.sock");
    v1::GetJobRequest request;
    request.set_job("j");
    const auto reply = api.Call(&v1::Profiler::Stub::GetJob, request);
    return reply ? reply->job() : v1::Job();
  }

  const TempFolder folder_;
  const fs::path bin_ = BinaryDirectory();
  const fs::path directory_ = folder_.path() / "run";
  pid_t daemon_ = 0;
};

class ClockIsSetTest : public DaemonErrorTest, public testing::WithParamInterface<const char*> {};

TEST_P(ClockIsSetTest, WhatWasReadIsInTheStoreWhenTheDaemonIsKilled) {
  StartDaemon(
      {"SEQPOINT_TEST_SET_CLOCK=2," + std::string(GetParam()),
       "LD_PRELOAD=" + (bin_.parent_path() / "lib/libseqpoint_test_set_clock.so").string()});
  Api(directory_ / "api.sock").Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest());
  const pid_t training = Train(600);
  EXPECT_EQ(WaitFor(training), 0);
  v1::Job job;
  for (int i = 0; i < 200 && job.end_ns() == 0; ++i) {
    job = Job();
    std::this_thread::sleep_for(milliseconds(50));
  }
  ASSERT_NE(job.end_ns(), 0);
  const auto said = Api(directory_ / "api.sock").Iterations("j");
  ASSERT_TRUE(said.has_value());
  EXPECT_EQ(static_cast<int64_t>(said->size()), job.iterations());
  std::this_thread::sleep_for(milliseconds(500));
  Kill();
  StartDaemon();
  const auto stored = Api(directory_ / "api.sock").Iterations("j");
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->size(), said->size());
  EXPECT_GE(stored->size(), 599u);
}

// An hour that nobody trained is in no figure, and the answer says why some iterations are left
// out.
TEST_P(ClockIsSetTest, TheIterationsAroundItStayOutOfProjections) {
  StartDaemon();
  Api api(directory_ / "api.sock");
  api.Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest());
  const auto begin = std::chrono::steady_clock::now();
  const pid_t training = Train(500, "clock.mode=real", GetParam());
  EXPECT_EQ(WaitFor(training), 0);
  const double wall_ns =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
  for (int i = 0; i < 200 && Job().end_ns() == 0; ++i)
    std::this_thread::sleep_for(milliseconds(50));
  const v1::Job job = Job();
  EXPECT_EQ(job.losses().clock_steps(), 1);
  const auto rows = Api(directory_ / "api.sock").Iterations("j");
  ASSERT_TRUE(rows.has_value());
  int64_t distorted = 0;
  for (const v1::Iteration& row : *rows) {
    EXPECT_LT(static_cast<double>(row.duration_ns()), wall_ns / 4) << row.number();
    distorted += row.distorted();
  }
  EXPECT_GE(distorted, 1);
  EXPECT_LT(distorted, 250);
  v1::ProjectRequest request;
  request.set_job("j");
  const auto projection = api.Call(&v1::Profiler::Stub::Project, request);
  ASSERT_TRUE(projection.has_value());
  EXPECT_LT(projection->projection().so_far().value(), wall_ns);
  EXPECT_GT(projection->projection().so_far().value(), wall_ns / 4);
  EXPECT_EQ(projection->losses().clock_steps(), 1);
}

INSTANTIATE_TEST_SUITE_P(BySeconds, ClockIsSetTest, testing::Values("-30", "-3600", "3600"),
                         [](const auto& info) {
                           const std::string by = info.param;
                           return by[0] == '-' ? "Back" + by.substr(1) : "Forward" + by;
                         });

TEST_F(DaemonErrorTest, ThousandsOfConnectionsThatSayNothingEndAndItAnswers) {
  // As on a machine with a limit that cannot be raised.
  daemon_ = Spawn(
      {"/bin/sh", "-c", "ulimit -n 1024; exec \"$0\" --dir \"$1\" --store \"$2\"",
       (bin_ / "seqpointd").string(), directory_.string(), (folder_.path() / "store.db").string()},
      folder_.path() / "daemon.log");
  const auto answers = [&] {
    Api api(directory_ / "api.sock");
    return api.Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest()).has_value();
  };
  ASSERT_TRUE(answers());
  for (const char* name : {"api.sock", "inject.sock"}) {
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    const std::string path = directory_ / name;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int type = std::string(name) == "api.sock" ? SOCK_STREAM : SOCK_SEQPACKET;
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    std::vector<int> idle;
    for (int i = 0; i < 3000; ++i) {
      const int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (fd < 0) break;
      connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
      idle.push_back(fd);
      if (i % 100 == 0) std::this_thread::sleep_for(milliseconds(5));
    }
    EXPECT_TRUE(answers()) << name << ", " << idle.size() << " connections";
    for (const int fd : idle) close(fd);
    EXPECT_TRUE(answers()) << name;
  }
}

TEST_F(DaemonErrorTest, OneThatIsStartedRightAfterAKillServes) {
  for (int i = 0; i < 5; ++i) {
    StartDaemon();
    {
      Api api(directory_ / "api.sock");  // its connection is not what the second one is asked on
      ASSERT_TRUE(api.Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest())) << api.error();
    }
    kill(daemon_, SIGKILL);
    const pid_t killed = daemon_;
    StartDaemon();  // before the kernel has taken the first one apart
    WaitFor(killed);
    Api again(directory_ / "api.sock");
    EXPECT_TRUE(again.Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest()))
        << again.error();
    Kill();
  }
}

TEST_F(DaemonErrorTest, OneThatWasRestartedLearnsHowTheProgramEnded) {
  StartDaemon();
  {
    Api api(directory_ / "api.sock");  // `run` starts none of its own beside it
    ASSERT_TRUE(api.Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest())) << api.error();
  }
  const fs::path prepared = folder_.path() / "prepared", go = folder_.path() / "go";
  const pid_t run = Spawn({"/usr/bin/env", "SEQPOINT_DIR=" + directory_.string(),
                           (bin_ / "seqpoint").string(), "run", "--job", "j", "--", "sh", "-c",
                           "touch " + prepared.string() + "; while ! test -e " + go.string() +
                               "; do sleep 0.1; done; exit 3"},
                          folder_.path() / "run.log");
  while (!fs::exists(prepared)) std::this_thread::sleep_for(milliseconds(5));
  Kill();  // at once: what `run` asked for is stored by now
  std::this_thread::sleep_for(milliseconds(6000));  // the client tries in vain in between
  StartDaemon();
  while (Job().id().empty()) std::this_thread::sleep_for(milliseconds(50));
  std::ofstream(go.string()) << "";
  EXPECT_EQ(WEXITSTATUS(WaitFor(run)), 3);
  const v1::Job job = Job();
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED) << job.error();
  EXPECT_EQ(job.exit_status(), 3);
}

}  // namespace
}  // namespace seqpoint
