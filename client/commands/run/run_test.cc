#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/commands/run/adapter.h"
#include "client/commands/run/environment.h"
#include "client/commands/run/summary.h"
#include "client/text/job_text.h"
#include "client/text/projection_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/fake_backend.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

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
  job.mutable_rule()->set_message("the given lengths do not match");
  std::string text = RunSummary(job, {}, 0);
  EXPECT_THAT(text, AllOf(HasSubstr("the run ended after 1,000 of 5,000 iterations, 73 lengths"),
                          HasSubstr("note: the given lengths do not match"),
                          HasSubstr("whole run, had it gone on (5,000 iterations)"),
                          Not(HasSubstr("remaining"))));
  // Only what can be answered.
  EXPECT_THAT(text, HasSubstr("ask next: seqpoint jobs 1, seqpoint project 1\n"));
  EXPECT_THAT(RunSummary(job, {.hub = "hub:7443"}, 0),
              HasSubstr("all nodes' ranks: seqpoint --server hub:7443 jobs " + job.name() + "@"));
  EXPECT_THAT(RunSummary(job, {.hub = "unix:/tmp/hub/api.sock"}, 0),
              HasSubstr("seqpoint --socket /tmp/hub/api.sock jobs "));
  EXPECT_THAT(RunSummary(job, {}, 0), Not(HasSubstr("all nodes")));
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

TEST(RunTest, TheUsersNcclPluginIsCalledByOurs) {
  unsetenv("CUDA_INJECTION64_PATH");
  const auto with = [](const char* plugin, std::vector<std::string>* warnings) {
    plugin == nullptr ? unsetenv("NCCL_PROFILER_PLUGIN")
                      : setenv("NCCL_PROFILER_PLUGIN", plugin, 1);
    const auto environment =
        ChildEnvironment("/lib/ours.so", false, "", "", "job", "run", warnings);
    unsetenv("NCCL_PROFILER_PLUGIN");
    return environment;
  };
  const auto named = Contains(::testing::StartsWith("SEQPOINT_NCCL_PLUGIN="));
  std::vector<std::string> warnings;
  for (const char* none : {static_cast<const char*>(nullptr), "", "/lib/ours.so"}) {
    EXPECT_THAT(with(none, &warnings),
                AllOf(Contains("NCCL_PROFILER_PLUGIN=/lib/ours.so"), Not(named)));
  }
  EXPECT_THAT(with("inspector", &warnings), AllOf(Contains("NCCL_PROFILER_PLUGIN=/lib/ours.so"),
                                                  Contains("SEQPOINT_NCCL_PLUGIN=inspector")));
  EXPECT_THAT(warnings, ::testing::IsEmpty());
  for (const char* left : {"none", "NONE", "STATIC_PLUGIN", "static"}) {
    warnings.clear();
    EXPECT_THAT(with(left, &warnings),
                AllOf(Contains(absl::StrCat("NCCL_PROFILER_PLUGIN=", left)), Not(named)));
    EXPECT_THAT(warnings, ::testing::ElementsAre(HasSubstr("is not seen")));
  }
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

TEST(RunTest, ARunThatMissesItsAdapterSaysSo) {
  const std::string missing = AdapterMissing({"python3", "-I"}, "");
  v1::Job nothing;
  EXPECT_THAT(RunSummary(nothing, {}, 0, missing),
              AllOf(HasSubstr("started with -I"), HasSubstr("nothing was profiled")));
  const v1::Job job = rpc::FakeBackend::SampleJob();
  EXPECT_THAT(RunSummary(job, {}, 0, missing), HasSubstr("from CUDA calls alone"));
  EXPECT_THAT(RunSummary(job, {}, 0), Not(HasSubstr("from CUDA calls alone")));
}

}  // namespace
}  // namespace seqpoint::client
