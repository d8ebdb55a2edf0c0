// Two runs on the software GPU that differ by one known change: `compare` names it, and its share.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/api.h"
#include "tests/support/temp_folder.h"
#include "tests/support/truth.h"

namespace seqpoint {
namespace {

namespace fs = std::filesystem;

class CompareTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("SEQPOINT_DIR", (folder_ / "run").c_str(), 1);
    daemon_ = SpawnDaemon(folder_);
  }
  void TearDown() override {
    KillAndWait(&daemon_, SIGKILL);
    if (HasFailure()) temp_folder_.Keep();
  }

  // Lengths of examples from `shortest` to `longest`.
  fs::path WriteLengths(const std::string& name, int shortest, int longest) {
    const fs::path path = folder_ / name;
    std::ofstream file(path);
    file << "len\n";
    for (int i = 0; i < 20'000; ++i) {
      const double u = std::fmod(0.5 + 0.618033988749895 * i, 1);
      file << shortest + std::lround((longest - shortest) * u * u) << "\n";
    }
    return path;
  }

  // Under `seqpoint run`, until it has ended.
  void Train(const std::string& name, const fs::path& lengths, int batch, int iterations,
             const std::string& settings = "") {
    const std::string truth = (folder_ / (name + ".jsonl")).string();
    const std::vector<std::string> command = {
        "/usr/bin/env",
        "LD_LIBRARY_PATH=" + (bin_.parent_path() / "softgpu").string(),
        "SWGPU_SET=clock.speed_cap=8," + settings,
        (bin_ / "seqpoint").string(),
        "run",
        "--job",
        name,
        "--lengths",
        lengths.string(),
        "--batch",
        std::to_string(batch),
        "--epochs",
        "10",
        "--quiet",
        "--",
        (bin_ / "seqpoint_workload").string(),
        "--model",
        "transformer",
        "--launch-us",
        "0.5",
        "--hidden",
        "768",
        "--lengths",
        lengths.string(),
        "--batch",
        std::to_string(batch),
        "--epochs",
        "10",
        "--max-iterations",
        std::to_string(iterations),
        "--truth",
        truth,
        "--quiet"};
    ASSERT_EQ(WaitFor(Spawn(command, folder_ / (name + ".log"))), 0) << name;
    const auto read = ReadTruth(truth);
    ASSERT_TRUE(read.has_value()) << name;
    truth_[name] = *read;
  }

  v1::CompareReply Compare(const std::string& base, const std::string& other) {
    Api api(folder_ / "run" / "api.sock");
    v1::CompareRequest request;
    request.set_base(base);
    request.set_other(other);
    const auto reply = api.Call(&v1::Profiler::Stub::Compare, request);
    EXPECT_TRUE(reply.has_value()) << api.error();
    return reply.value_or(v1::CompareReply{});
  }

  // By the workload's own truth.
  double TrueDifference(const std::string& base, const std::string& other) {
    return truth_[other].epoch_time_ns - truth_[base].epoch_time_ns;
  }

  TempFolder temp_folder_;
  const fs::path& folder_ = temp_folder_.path();
  const fs::path bin_ = BinaryDirectory();
  pid_t daemon_ = 0;
  std::map<std::string, Truth> truth_;
};

double PartOf(const v1::CompareReply& reply, v1::DifferenceCause cause) {
  for (const v1::DifferencePart& part : reply.parts()) {
    if (part.cause() == cause) return part.duration_ns().value();
  }
  return NAN;
}

TEST_F(CompareTest, ASlowerKernelOtherLengthsAndAnotherBatchAreNamed) {
  const fs::path lengths = WriteLengths("lengths.csv", 8, 120);
  // The difference that a slower kernel makes is 1.5 % of the runs. What the iterations that we
  // measured would have taken is known to 0.05 % of a run of 2,000, and of longer ones the better.
  Train("base", lengths, 32, 6000);
  // The kernel that takes most of the time.
  std::string kernel;
  for (const auto& [name, time_ns] : truth_["base"].kernel_time) {
    if (kernel.empty() || time_ns > truth_["base"].kernel_time[kernel]) kernel = name;
  }
  Train("slower", lengths, 32, 6000,
        "noise.seed=2,gpu.slow_kernel=" + kernel + ",gpu.slow_kernel_factor=1.1");
  const v1::CompareReply slower = Compare("base", "slower");
  EXPECT_EQ(slower.main_cause().cause(), v1::DIFFERENCE_CAUSE_KERNEL) << slower.DebugString();
  EXPECT_EQ(slower.main_cause().name(), kernel);
  const double true_share =
      (truth_["slower"].kernel_time[kernel] - truth_["base"].kernel_time[kernel]) /
      TrueDifference("base", "slower");
  // 32 traced iterations of each run know the kernel's times so well.
  const v1::Estimate& share = slower.main_cause().share();
  EXPECT_LT(share.low(), true_share) << slower.DebugString();
  EXPECT_GT(share.high(), true_share) << slower.DebugString();
  EXPECT_LT(share.high() - share.low(), 0.5) << slower.DebugString();

  const fs::path longer = WriteLengths("longer.csv", 8, 180);
  Train("longer", longer, 32, 6000, "noise.seed=3");
  const v1::CompareReply lengths_reply = Compare("base", "longer");
  EXPECT_EQ(lengths_reply.main_cause().cause(), v1::DIFFERENCE_CAUSE_LENGTHS)
      << lengths_reply.DebugString();
  // Nearly all lengths of the one run are beyond those of the other: the interval says so.
  EXPECT_NEAR(lengths_reply.main_cause().share().value(), 1, 0.05) << lengths_reply.DebugString();
  EXPECT_LT(lengths_reply.main_cause().share().low(), 1);
  EXPECT_GT(lengths_reply.main_cause().share().high(), 1);

  Train("batch", lengths, 16, 12'000, "noise.seed=4");
  const v1::CompareReply batch = Compare("base", "batch");
  EXPECT_EQ(batch.main_cause().cause(), v1::DIFFERENCE_CAUSE_BATCH) << batch.DebugString();
  EXPECT_NEAR(batch.main_cause().share().value(), 1, 0.05) << batch.DebugString();
  EXPECT_GT(PartOf(batch, v1::DIFFERENCE_CAUSE_ITERATIONS), 0);
  EXPECT_LT(PartOf(batch, v1::DIFFERENCE_CAUSE_LENGTHS), 0);

  // The time of a part is at least that of its iterations in the log.
  Api api(folder_ / "run" / "api.sock");
  const auto log = api.Iterations("base");
  ASSERT_TRUE(log.has_value());
  double sum = 0;
  for (const v1::Iteration& i : *log) {
    const bool usable = i.duration_ns() > 0 && !i.distorted() && i.config().empty();
    if (i.number() >= 400 && i.number() <= 449 && usable) {
      sum += static_cast<double>(i.duration_ns());
    }
  }
  v1::ProjectRequest part;
  part.set_job("base");
  part.mutable_part()->set_from(400);
  part.mutable_part()->set_to(449);
  const auto time = api.Call(&v1::Profiler::Stub::Project, part);
  ASSERT_TRUE(time.has_value()) << api.error();
  EXPECT_EQ(time->projection().iterations_total(), 50);
  EXPECT_GE(time->projection().total().value(), sum * (1 - 1e-9));
  v1::GetKernelsRequest kernels;
  kernels.set_job("base");
  *kernels.mutable_part() = part.part();
  const auto of_part = api.Call(&v1::Profiler::Stub::GetKernels, kernels);
  ASSERT_TRUE(of_part.has_value()) << api.error();
  double kernel_time = 0;
  for (const v1::Kernel& k : of_part->kernels()) kernel_time += k.duration_ns().value();
  EXPECT_GT(kernel_time, 0);
  EXPECT_LT(kernel_time, time->projection().total().value());

  v1::GetCountersRequest counters;
  counters.set_job("base");
  counters.mutable_part()->set_from(400);
  const auto late = api.Call(&v1::Profiler::Stub::GetCounters, counters);
  ASSERT_TRUE(late.has_value()) << api.error();
  EXPECT_GT(late->measured_iterations(), late->iterations_size());
  for (const v1::MeasuredIteration& i : late->iterations()) EXPECT_GE(i.number(), 400);

  // All epochs of shuffled batches have as many: 20,000 / 32. The run ended within the tenth.
  part.mutable_part()->Clear();
  part.mutable_part()->set_epoch(2);
  const auto epoch = api.Call(&v1::Profiler::Stub::Project, part);
  ASSERT_TRUE(epoch.has_value()) << api.error();
  EXPECT_EQ(epoch->part(), "epoch 2, iterations 625 to 1249");
  EXPECT_EQ(epoch->projection().iterations_total(), 625);
  part.mutable_part()->set_epoch(11);
  EXPECT_FALSE(api.Call(&v1::Profiler::Stub::Project, part).has_value());

  // The same work again.
  Train("again", lengths, 32, 6000, "noise.seed=5");
  const v1::CompareReply again = Compare("base", "again");
  EXPECT_FALSE(again.main_cause().cause() == v1::DIFFERENCE_CAUSE_KERNEL) << again.DebugString();
}

}  // namespace
}  // namespace seqpoint
