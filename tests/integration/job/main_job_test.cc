// The main job with real processes: a training program with the injected library on the software
// GPU, a daemon, and a gRPC client; and what must hold when one of them is killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/support/api.h"
#include "tests/support/temp_folder.h"
#include "tests/support/truth.h"

namespace seqpoint {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class MainJob : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SEQPOINT_DIR", (folder_ / "run").c_str(), 1);
    setenv("SWGPU_SET", "clock.speed_cap=4", 1);
  }
  void TearDown() override {
    KillAndWait(&daemon_, SIGKILL);
    if (HasFailure()) temp_folder_.Keep();
  }

  void StartDaemon() { daemon_ = SpawnDaemon(folder_); }

  // A training process; `environment` is added to it alone.
  pid_t Train(const std::string& name, std::vector<std::string> options,
              const std::map<std::string, std::string>& environment = {}, bool injected = true) {
    std::vector<std::string> command = {
        "/usr/bin/env", "LD_LIBRARY_PATH=" + (bin_.parent_path() / "softgpu").string(),
        "SEQPOINT_JOB=" + name, "SEQPOINT_RUN_ID=1"};
    if (injected) {
      command.push_back("LD_PRELOAD=" +
                        (bin_.parent_path() / "lib/libseqpoint_inject.so").string());
    }
    for (const auto& [key, value] : environment) command.push_back(key + "=" + value);
    command.push_back((bin_ / "seqpoint_workload").string());
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"--truth", (folder_ / (name + ".jsonl")).string(), "--quiet"});
    return Spawn(command, folder_ / (name + ".log"));
  }
  Truth TruthOf(const std::string& name) {
    const auto truth = ReadTruth(folder_ / (name + ".jsonl"));
    EXPECT_TRUE(truth.has_value()) << "no truth file of " << name;
    return truth.value_or(Truth{});
  }

  // The job once it has ended; empty when it does not within 20 s.
  v1::Job EndedJob(const std::string& name) {
    Api api(folder_ / "run" / "api.sock");
    v1::GetJobRequest request;
    request.set_job(name);
    for (int i = 0; i < 200; ++i) {
      const auto reply = api.Call(&v1::Profiler::Stub::GetJob, request);
      if (reply && reply->job().end_ns() != 0) return reply->job();
      std::this_thread::sleep_for(milliseconds(100));
    }
    ADD_FAILURE() << "job " << name << " did not end: " << api.error();
    return {};
  }
  // Until the job has had more than `count` iterations, for at most 10 s.
  void AwaitIterations(const std::string& name, int64_t count) {
    Api api(folder_ / "run" / "api.sock");
    v1::GetJobRequest request;
    request.set_job(name);
    for (int i = 0; i < 1000; ++i) {
      const auto reply = api.Call(&v1::Profiler::Stub::GetJob, request);
      if (reply && reply->job().iterations() > count) return;
      std::this_thread::sleep_for(milliseconds(10));
    }
    ADD_FAILURE() << "job " << name << " had not " << count << " iterations after 10 s";
  }
  std::vector<v1::Iteration> IterationsOf(const std::string& name) {
    Api api(folder_ / "run" / "api.sock");
    return api.Iterations(name).value_or(std::vector<v1::Iteration>{});
  }

  void ExpectExact(const std::string& name, size_t dimensions) {
    const Truth truth = TruthOf(name);
    const v1::Job job = EndedJob(name);
    const std::vector<v1::Iteration> iterations = IterationsOf(name);
    ASSERT_EQ(iterations.size(), truth.iterations.size()) << job.rule().DebugString();
    const Boundaries boundaries = MatchBoundaries(truth, iterations);
    EXPECT_EQ(boundaries.exact_share, 1) << job.rule().DebugString();
    EXPECT_EQ(boundaries.recovered_share, 1) << job.rule().DebugString();
    std::set<int64_t> numbers;
    int measured = 0;
    for (const v1::Iteration& iteration : iterations) {
      EXPECT_TRUE(numbers.insert(iteration.number()).second) << iteration.number();
      measured += !iteration.config().empty();
      // A prefetched batch was copied before the first boundary: those lengths are not known.
      if (iteration.number() < 3) continue;
      ASSERT_EQ(static_cast<size_t>(iteration.lengths_size()), dimensions) << iteration.number();
    }
    EXPECT_LE(measured, 64);
    EXPECT_EQ(job.losses().rejected(), 0);
  }

  TempFolder temp_folder_;
  const fs::path& folder_ = temp_folder_.path();
  const fs::path bin_ = BinaryDirectory();
  pid_t daemon_ = 0;
};

struct Variant {
  const char* name;
  std::vector<std::string> options;
  size_t dimensions;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class Boundary : public MainJob, public testing::WithParamInterface<Variant> {};

TEST_P(Boundary, EveryIterationIsFoundOnceAndTheWorkIsTheSame) {
  StartDaemon();
  std::vector<std::string> options = {"--batch", "32", "--max-iterations", "220"};
  options.insert(options.end(), GetParam().options.begin(), GetParam().options.end());
  ASSERT_EQ(WaitFor(Train("job", options)), 0);
  ExpectExact("job", GetParam().dimensions);
  ASSERT_EQ(WaitFor(Train("alone", options, {}, /*injected=*/false)), 0);
  EXPECT_EQ(TruthOf("job").digest, TruthOf("alone").digest);
}

INSTANTIATE_TEST_SUITE_P(
    Variants, Boundary,
    testing::Values(
        Variant{"gnmt", {"--model", "gnmt"}, 2},
        Variant{"gnmt_never", {"--model", "gnmt", "--readback", "never"}, 2},
        Variant{"gnmt_prefetch", {"--model", "gnmt", "--readback", "never", "--prefetch"}, 2},
        Variant{"gnmt_50", {"--model", "gnmt", "--readback", "50", "--order", "bucket"}, 2},
        Variant{"gnmt_eval", {"--model", "gnmt", "--eval-every", "50", "--eval-batches", "4"}, 2},
        Variant{"gnmt_backward_thread", {"--model", "gnmt", "--backward-thread"}, 2},
        Variant{"gnmt_fork", {"--model", "gnmt", "--fork-helper"}, 2},
        Variant{"gnmt_nvtx", {"--model", "gnmt", "--nvtx"}, 2},
        Variant{"gnmt_sorted", {"--model", "gnmt", "--order", "sorted"}, 2},
        Variant{"transformer", {"--model", "transformer"}, 1},
        Variant{"transformer_never", {"--model", "transformer", "--readback", "never"}, 1}),
    [](const auto& info) { return std::string(info.param.name); });

struct Counting {
  const char* name;
  v1::CounterBackend backend;
  std::vector<std::string> sets;
  const char* readback;  // "never": the GPU is far behind the host at a boundary
  const char* metric;    // what the truth calls it, too
};
void PrintTo(const Counting& counting, std::ostream* out) { *out << counting.name; }

class Counted : public MainJob, public testing::WithParamInterface<Counting> {};

TEST_P(Counted, TheRunIsWhatItsMeasuredIterationsSay) {
  StartDaemon();
  Api api(folder_ / "run" / "api.sock");
  v1::PrepareJobRequest prepare;
  prepare.set_name("job");
  prepare.set_run_id("1");
  prepare.set_counter_backend(GetParam().backend);
  prepare.set_overhead_budget_share(0.2);
  for (const std::string& set : GetParam().sets) prepare.add_metric_sets(set);
  for (int i = 0; i < 100; ++i) {  // it may still be starting
    if (api.Call(&v1::Profiler::Stub::PrepareJob, prepare)) break;
    std::this_thread::sleep_for(milliseconds(50));
  }
  ASSERT_EQ(WaitFor(Train("job", {"--model", "transformer", "--batch", "32", "--max-iterations",
                                  "250", "--readback", GetParam().readback})),
            0);
  EndedJob("job");
  v1::GetCountersRequest request;
  request.set_job("job");
  const auto reply = api.Call(&v1::Profiler::Stub::GetCounters, request);
  ASSERT_TRUE(reply.has_value()) << api.error();
  EXPECT_EQ(reply->backend(), GetParam().backend);
  EXPECT_EQ(reply->chip(), "GH100");
  const double truth = TruthOf("job").counters[GetParam().metric];
  ASSERT_GT(truth, 0);
  bool found = false;
  for (const v1::Counter& counter : reply->counters()) {
    if (counter.metric() != GetParam().metric) continue;
    found = true;
    EXPECT_NEAR(counter.projection().so_far().value() / truth, 1, 0.05) << counter.DebugString();
  }
  EXPECT_TRUE(found);
  int complete = 0;
  for (const v1::MeasuredIteration& iteration : reply->iterations()) {
    complete += iteration.complete() ? 1 : 0;
    EXPECT_GT(iteration.usual_duration_ns(), 0);
  }
  EXPECT_GT(complete, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, Counted,
    testing::Values(
        Counting{
            "range", v1::COUNTER_BACKEND_RANGE, {"memory", "tensor"}, "1", "dram__bytes_read.sum"},
        Counting{"pm", v1::COUNTER_BACKEND_PM, {"memory"}, "1", "dram__bytes_read.sum"},
        Counting{"pm_never", v1::COUNTER_BACKEND_PM, {"memory"}, "never", "dram__bytes_read.sum"}),
    [](const auto& info) { return std::string(info.param.name); });

// A measured range is longer than its iteration, here by 20 us and more of 1.5 ms.
TEST_F(MainJob, RatesAreThoseOfTheRunAndNotOfMeasuredRanges) {
  StartDaemon();
  Api api(folder_ / "run" / "api.sock");
  v1::PrepareJobRequest prepare;
  prepare.set_name("job");
  prepare.set_run_id("1");
  prepare.set_overhead_budget_share(0.2);
  prepare.add_metric_sets("memory");
  for (int i = 0; i < 100; ++i) {  // it may still be starting
    if (api.Call(&v1::Profiler::Stub::PrepareJob, prepare)) break;
    std::this_thread::sleep_for(milliseconds(50));
  }
  ASSERT_EQ(WaitFor(Train(
                "job",
                {"--model", "fixed", "--batch", "4", "--max-iterations", "1500", "--readback", "1"},
                {{"SWGPU_SET",
                  "noise.kernel=0,noise.slow_share=0,noise.cpu=0,noise.drift=0,noise.counters=0,"
                  "noise.search_ns=0,clock.speed_cap=1,cupti.range_extra_ns=20000"}})),
            0);
  const v1::Job job = EndedJob("job");
  v1::GetCountersRequest request;
  request.set_job("job");
  const auto reply = api.Call(&v1::Profiler::Stub::GetCounters, request);
  ASSERT_TRUE(reply.has_value()) << api.error();
  double rate = 0, range_ns = 0;
  for (const v1::Counter& counter : reply->counters()) {
    if (counter.metric() == "device memory read") rate = counter.per_iteration().value();
    if (counter.metric() == "gpu__time_duration.sum") range_ns = counter.per_iteration().value();
  }
  const double bytes = TruthOf("job").counters["dram__bytes_read.sum"];
  const double time_ns = job.time().so_far().value();
  EXPECT_NEAR(rate / (bytes / time_ns), 1, 0.01);
  EXPECT_GT(range_ns, 1.005 * time_ns / static_cast<double>(job.iterations()));
}

TEST_F(MainJob, AWorkloadWithoutDependenceIsSaidToHaveNone) {
  StartDaemon();
  ASSERT_EQ(WaitFor(Train("job", {"--model", "fixed", "--batch", "32", "--max-iterations", "250"})),
            0);
  EXPECT_NE(EndedJob("job").rule().verdict(), v1::VERDICT_EXPLAINED);
}

TEST_F(MainJob, KillingTheTrainingKeepsEveryPublishedRecord) {
  StartDaemon();
  const pid_t pid = Train("job", {"--model", "gnmt", "--batch", "32"});
  AwaitIterations("job", 60);
  kill(pid, SIGKILL);
  WaitFor(pid);
  const v1::Job job = EndedJob("job");
  EXPECT_EQ(job.state(), v1::JOB_STATE_LOST);
  EXPECT_EQ(job.losses().ring_dropped() + job.losses().rejected(), 0);
  const std::vector<v1::Iteration> iterations = IterationsOf("job");
  ASSERT_GT(iterations.size(), 30u);
  for (size_t i = 0; i < iterations.size(); ++i) {
    EXPECT_EQ(iterations[i].number(), static_cast<int64_t>(i));
  }
}

TEST_F(MainJob, KillingTheDaemonAgainAndAgainLosesAndDoublesNothing) {
  StartDaemon();
  // Slow enough that the ring holds what comes while no daemon reads it.
  const pid_t pid = Train("job", {"--model", "gnmt", "--batch", "32", "--max-iterations", "500"},
                          {{"SWGPU_SET", "clock.speed_cap=1"}});
  std::mt19937 random(1);
  int status = 0, kills = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(milliseconds(100 + random() % 500));
    KillAndWait(&daemon_, SIGKILL);
    ++kills;
    std::this_thread::sleep_for(milliseconds(100));
    StartDaemon();
  }
  EXPECT_EQ(status, 0);
  EXPECT_GE(kills, 2);
  // A daemon that is dead when the process ends never sees its last records; one that lives does.
  Api api(folder_ / "run" / "api.sock");
  const v1::Job job = EndedJob("job");
  const std::vector<v1::Iteration> iterations = IterationsOf("job");
  const Truth truth = TruthOf("job");
  ASSERT_FALSE(iterations.empty()) << kills << " kills; " << job.error();
  std::set<int64_t> numbers;
  for (const v1::Iteration& iteration : iterations) {
    EXPECT_TRUE(numbers.insert(iteration.number()).second) << "twice: " << iteration.number();
  }
  // Without a gap from the first on.
  EXPECT_EQ(*numbers.rbegin() + 1, static_cast<int64_t>(numbers.size()));
  EXPECT_EQ(job.iterations(), static_cast<int64_t>(iterations.size()));
  std::vector<v1::Iteration> seen(iterations.begin(), iterations.end());
  for (size_t i = 0; i < seen.size() && i < truth.iterations.size(); ++i) {
    EXPECT_GE(seen[i].boundary_ns(), truth.iterations[i].begin_ns) << i;
    EXPECT_LE(seen[i].boundary_ns(), truth.iterations[i].forward_ns) << i;
  }
}

TEST_F(MainJob, AStoppedDaemonDoesNotHoldTheTraining) {
  StartDaemon();
  const pid_t pid =
      Train("job", {"--model", "transformer", "--batch", "32", "--max-iterations", "1500"});
  AwaitIterations("job", 30);
  kill(daemon_, SIGSTOP);
  EXPECT_EQ(WaitFor(pid), 0);
  kill(daemon_, SIGCONT);
  const v1::Job job = EndedJob("job");
  EXPECT_GT(job.iterations(), 30);
}

TEST_F(MainJob, WithoutADaemonTheTrainingIsUntouched) {
  ASSERT_EQ(
      WaitFor(Train("job", {"--model", "transformer", "--batch", "32", "--max-iterations", "50"})),
      0);
  ASSERT_EQ(
      WaitFor(Train("alone", {"--model", "transformer", "--batch", "32", "--max-iterations", "50"},
                    {}, false)),
      0);
  EXPECT_EQ(TruthOf("job").digest, TruthOf("alone").digest);
}

TEST_F(MainJob, TheRooflineOfItsKernelsLasts) {
  StartDaemon();
  const auto ask = [&](auto method, const auto& request) {
    Api api(folder_ / "run" / "api.sock");
    for (int i = 0; i < 100; ++i) {  // it may still be starting
      if (auto reply = api.Call(method, request)) return reply;
      std::this_thread::sleep_for(milliseconds(50));
    }
    ADD_FAILURE() << api.error();
    return api.Call(method, request);
  };
  v1::PrepareJobRequest prepare;
  prepare.set_name("job");
  prepare.set_run_id("1");
  prepare.set_roofline(true);
  prepare.set_overhead_budget_share(0.5);
  ASSERT_TRUE(ask(&v1::Profiler::Stub::PrepareJob, prepare).has_value());
  ASSERT_EQ(WaitFor(Train("job", {"--model", "transformer", "--batch", "32", "--max-iterations",
                                  "400", "--pad-multiple", "8"})),
            0);
  EndedJob("job");
  v1::GetRooflineRequest request;
  request.set_job("job");
  const auto reply = ask(&v1::Profiler::Stub::GetRoofline, request);
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->chip(), "GH100");
  EXPECT_EQ(reply->missing_launches(), 0);
  ASSERT_GE(reply->roofs_size(), 1);
  EXPECT_NEAR(reply->roofs(0).per_s() / 4.8e12, 1, 0.02);  // the software GPU's
  int complete = 0;
  double share = 0;
  for (const v1::RooflineKernel& kernel : reply->kernels()) {
    share += kernel.share();
    if (!kernel.complete()) continue;
    ++complete;
    EXPECT_NEAR(kernel.memory_share() * 4.8e12 / kernel.bytes_per_s(), 1, 0.03) << kernel.name();
    EXPECT_GT(kernel.roof_share(), 0) << kernel.name();
    EXPECT_LT(kernel.roof_share(), 1.1) << kernel.name();
    EXPECT_NE(kernel.bound(), v1::BOUND_UNSPECIFIED) << kernel.name();
  }
  EXPECT_GT(complete, 5);
  EXPECT_NEAR(share, 1, 1e-9);
  KillAndWait(&daemon_, SIGKILL);
  StartDaemon();
  const auto again = ask(&v1::Profiler::Stub::GetRoofline, request);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->kernels_size(), reply->kernels_size());
}

TEST_F(MainJob, AProgramThatNeverUsesAGpuLeavesNoJobWaiting) {
  StartDaemon();
  const auto run = [&](const std::string& job, const std::string& program) {
    return WaitFor(Spawn({(bin_ / "seqpoint").string(), "run", "--job", job, "--", program},
                         folder_ / (job + ".log")));
  };
  EXPECT_EQ(WEXITSTATUS(run("missing", "/nonexistent/program")), 127);
  EXPECT_EQ(WEXITSTATUS(run("plain", "/bin/true")), 0);
  const v1::Job missing = EndedJob("missing"), plain = EndedJob("plain");
  EXPECT_EQ(missing.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(missing.exit_status(), 127);
  EXPECT_EQ(plain.state(), v1::JOB_STATE_ENDED);
  for (const v1::Job& ended : {missing, plain}) EXPECT_NE(ended.error(), "");
}

TEST_F(MainJob, SeveralRanksAreOneJob) {
  StartDaemon();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(Train("job",
                          {"--model", "transformer", "--batch", "32", "--max-iterations", "120",
                           "--seed", std::to_string(rank)},
                          {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "3"}}));
  }
  for (const pid_t pid : ranks) EXPECT_EQ(WaitFor(pid), 0);
  const v1::Job job = EndedJob("job");
  EXPECT_EQ(job.processes_size(), 3);
  EXPECT_EQ(job.iterations(), 120);
}

TEST_F(MainJob, AResumedRunGoesOnWhereItsOrderOfLengthsSays) {
  StartDaemon();
  const std::vector<std::string> options = {"--model", "transformer",      "--batch",
                                            "32",      "--max-iterations", "1200"};
  const pid_t pid = Train("job", options);
  AwaitIterations("job", 120);
  ASSERT_EQ(waitpid(pid, nullptr, WNOHANG), 0) << "ended before it could be killed";
  kill(pid, SIGKILL);
  WaitFor(pid);
  const int64_t before = EndedJob("job").iterations();
  ASSERT_LT(before, 1200);
  std::vector<std::string> resumed = options;
  resumed.insert(resumed.end(), {"--resume-at", "100"});
  ASSERT_EQ(WaitFor(Train("job", resumed)), 0);
  std::this_thread::sleep_for(milliseconds(500));
  const v1::Job job = EndedJob("job");
  const int64_t after = static_cast<int64_t>(TruthOf("job").iterations.size());
  EXPECT_EQ(job.processes_size(), 2);
  EXPECT_EQ(job.iterations(), 100 + after);
  EXPECT_EQ(job.losses().redone_iterations(), before - 100);
  std::set<int64_t> counted;
  for (const v1::Iteration& iteration : IterationsOf("job")) {
    EXPECT_EQ(iteration.redone(), iteration.incarnation() == 1 && iteration.number() < before);
    if (iteration.redone()) continue;
    EXPECT_TRUE(counted.insert(iteration.number()).second);
  }
  EXPECT_EQ(static_cast<int64_t>(counted.size()), 100 + after);
}

TEST_F(MainJob, ARunWithTheSameIdAndAnotherOrderGoesOnCounting) {
  StartDaemon();
  const std::vector<std::string> options = {"--model", "transformer",      "--batch",
                                            "32",      "--max-iterations", "100"};
  ASSERT_EQ(WaitFor(Train("job", options)), 0);
  EXPECT_EQ(EndedJob("job").iterations(), 100);
  std::vector<std::string> other = options;
  other.insert(other.end(), {"--seed", "77"});
  ASSERT_EQ(WaitFor(Train("job", other)), 0);
  std::this_thread::sleep_for(milliseconds(500));
  const v1::Job job = EndedJob("job");
  EXPECT_EQ(job.processes_size(), 2);
  EXPECT_EQ(job.iterations(), 200);
  EXPECT_EQ(job.losses().redone_iterations(), 0);
}

}  // namespace
}  // namespace seqpoint
