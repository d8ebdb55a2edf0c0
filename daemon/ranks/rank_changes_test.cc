#include "daemon/ranks/rank_changes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/rank_windows.h"

namespace seqpoint::ranks {
namespace {

constexpr size_t kIterations = 8;

RankJob JobOf(const Programs& programs) {
  RankJob job(static_cast<int32_t>(programs.size()));
  for (size_t r = 0; r < programs.size(); ++r) job.clock_us[r] = 1e5 * static_cast<double>(r);
  job.noise = 0.02;
  job.events_told = false;  // as in our own windows
  return job;
}

double SteadyMeanUs(const std::vector<Programs>& iterations) {
  const RankJob job = JobOf(iterations[0]);
  std::vector<Programs> many;
  for (int i = 0; i < 20; ++i) many.insert(many.end(), iterations.begin(), iterations.end());
  const std::vector<Programs> half(many.begin(), many.begin() + static_cast<long>(many.size()) / 2);
  return (job.Run(many).total_us - job.Run(half).total_us) / static_cast<double>(half.size());
}

// The mean over windows of these iterations, before and after a change.
struct Answer {
  double before_us = 0, after_us = 0;
  std::string error;
  std::vector<std::string> assumptions;
};
Answer Ask(const std::string& text, const std::vector<Programs>& iterations,
           const std::vector<std::vector<int64_t>>& lengths = {}) {
  RankJob job = JobOf(iterations[0]);
  job.idle_between = true;
  std::vector<Programs> recorded;
  std::vector<std::vector<int64_t>> of_recorded;
  while (recorded.size() <= kIterations) {
    of_recorded.push_back(lengths.empty() ? std::vector<int64_t>(iterations[0].size())
                                          : lengths[recorded.size() % lengths.size()]);
    recorded.push_back(iterations[recorded.size() % iterations.size()]);
  }
  const SimulatedRun run = job.Run(recorded, of_recorded);
  std::vector<RankRecording> recordings;
  for (size_t i = 1; i < recorded.size(); ++i) {
    const std::vector<RankWindow> windows = run.Windows(i, /*told=*/true);
    recordings.push_back(RecordRanks(windows, JoinWindows(windows)));
  }
  Answer answer;
  const absl::StatusOr<RankChange> change = ParseRankChange(text);
  if (!change.ok()) {
    answer.error = std::string(change.status().message());
    return answer;
  }
  const auto count = static_cast<double>(recordings.size());
  for (const RankRecording& recording : recordings) {
    std::vector<const RankRecording*> others;
    for (const RankRecording& other : recordings) {
      if (&other != &recording) others.push_back(&other);
    }
    std::vector<whatif::Graph> graphs = recording.recording.graphs;
    answer.before_us += recording.IterationNs(graphs) / 1000 / count;
    const absl::StatusOr<RankEffect> effect = ApplyToRanks(*change, recording, others, &graphs);
    if (!effect.ok()) {
      answer.error = std::string(effect.status().message());
      return answer;
    }
    answer.assumptions = effect->assumptions;
    answer.after_us += recording.IterationNs(graphs) / 1000 / count;
  }
  return answer;
}

void ExpectJob(const std::string& change, const std::vector<Programs>& before,
               const std::vector<Programs>& after, double within = 0.01,
               const std::vector<std::vector<int64_t>>& lengths = {}) {
  const Answer answer = Ask(change, before, lengths);
  ASSERT_EQ(answer.error, "") << change;
  const double truth_us = SteadyMeanUs(after);
  EXPECT_NEAR(answer.after_us, truth_us, within * truth_us)
      << change << ", before " << answer.before_us;
}

Programs With(Programs programs, size_t rank, const Program& program) {
  programs[rank] = program;
  return programs;
}

TEST(RankChangesTest, WithoutTheSlowRank) {
  const Programs data(4, DataParallel({})), tensor(4, TensorParallel({}));
  const StepShape host = {.kernel_us = 10, .host_us = 25};
  StepShape late = host;
  late.host_us = 35;
  const Programs bound(4, DataParallel(host));
  for (const double factor : {1.05, 1.3}) {
    ExpectJob("without-slow-rank,rank=1", {With(data, 1, DataParallel({.factor = factor}))},
              {data});
    ExpectJob("without-slow-rank,rank=1", {With(tensor, 1, TensorParallel({.factor = factor}))},
              {tensor});
  }
  ExpectJob("without-slow-rank,rank=2",
            {With(data, 2, DataParallel({.slow = "gemm_128x64_backward", .slow_factor = 1.5}))},
            {data});
  // A host that waits for its GPU cannot load the batch meanwhile.
  const auto loading = [](double us) {
    Program program = DataParallel({.loader_us = us});
    program.push_back({Op::kSync});
    return program;
  };
  const Programs waiting(4, loading(100));
  ExpectJob("without-slow-rank,rank=0", {With(waiting, 0, loading(3000))}, {waiting});
  ExpectJob("without-slow-rank,rank=3", {With(bound, 3, DataParallel(late))}, {bound});
}

TEST(RankChangesTest, OtherBuckets) {
  // A bucket of three layers is 24 MiB; 5 do not divide 12, so that two sizes are seen.
  for (const double link : {1.0, 4.0}) {
    const auto programs = [&](int layers) {
      return std::vector<Programs>{
          Programs(4, DataParallel({.layers_per_bucket = layers, .link = link}))};
    };
    ExpectJob("bucket-size,bytes=40MiB", programs(5), programs(5));
    ExpectJob("bucket-size,bytes=80MiB", programs(5), programs(10));
    ExpectJob("bucket-size,bytes=16MiB", programs(5), programs(2));
    ExpectJob("bucket-size,bytes=1GB", programs(5), programs(12));
  }
}

// The GPUs wait for the hosts all the time.
TEST(RankChangesTest, OtherBucketsCostTheHostTime) {
  const auto programs = [&](int layers) {
    return std::vector<Programs>{Programs(4, DataParallel({.kernel_us = 2,
                                                           .layers_per_bucket = layers,
                                                           .latency_us = 5,
                                                           .us_per_mib = 0.2,
                                                           .host_us = 4}))};
  };
  ExpectJob("bucket-size,bytes=16MiB", programs(5), programs(2));
  ExpectJob("bucket-size,bytes=8MiB", programs(5), programs(1));
}

TEST(RankChangesTest, AnotherBandwidth) {
  const auto programs = [](double us_per_mib) {
    return std::vector<Programs>{
        Programs(4, DataParallel({.layers_per_bucket = 5, .us_per_mib = us_per_mib}))};
  };
  ExpectJob("bandwidth,factor=2", programs(60), programs(30));
  ExpectJob("bandwidth,factor=0.5", programs(30), programs(60));
}

TEST(RankChangesTest, AnotherNumberOfRanks) {
  // In a ring of n the latency is in proportion to n - 1, the time per byte to (n - 1) / n.
  const auto shape = [](double n) {
    return StepShape{
        .layers_per_bucket = 5, .latency_us = 40 * (n - 1), .us_per_mib = 60 * (n - 1) / n};
  };
  ExpectJob("ranks,count=8", {Programs(4, DataParallel(shape(4)))},
            {Programs(8, DataParallel(shape(8)))}, 0.015);
}

// Each rank holds a share of the parameters, and updates that alone.
Program Sharded(int ranks) {
  constexpr int kLayers = 8;
  Program program = {{Op::kBatch, 50}};
  const auto add = [&](Op::Kind kind, const char* function, int layer) {
    const uint64_t mib = layer == 0 ? 8 : 4;
    const double us = 10.0 * (ranks - 1) + 40.0 * static_cast<double>(mib) * (ranks - 1) / ranks;
    program.push_back({kind, us, function, 1, mib << 20});
  };
  for (int layer = 0; layer < kLayers; ++layer) {
    add(Op::kBlocking, "AllGather", layer);
    program.push_back({Op::kKernel, 500, "forward"});
  }
  for (int layer = kLayers - 1; layer >= 0; --layer) {
    add(Op::kBlocking, "AllGather", layer);
    program.push_back({Op::kKernel, 1000, "backward"});
    add(Op::kCollective, "ReduceScatter", layer);
  }
  program.push_back({Op::kWait});
  program.push_back({Op::kKernel, 8000.0 / ranks, "adam"});
  return program;
}

TEST(RankChangesTest, OptimizersOfShardsHaveSoMuchLessToDo) {
  for (const int count : {2, 8}) {
    ExpectJob("ranks,count=" + std::to_string(count), {Programs(4, Sharded(4))},
              {Programs(static_cast<size_t>(count), Sharded(count))});
  }
}

TEST(RankChangesTest, WhatTheWindowsDoNotTellIsRefused) {
  const std::vector<Programs> even = {Programs(4, DataParallel({}))};
  EXPECT_EQ(Ask("without-slow-rank,rank=7", even).error,
            "rank 7 is none of the traced ranks: 0, 1, 2, 3");
  EXPECT_EQ(Ask("bucket-size,bytes=50MB", even).error,
            "all-reduces among 4 ranks all have the same size, so nothing says how long others "
            "would take");
  EXPECT_EQ(Ask("bucket-size,bytes=50MB", {Programs(4, TensorParallel({}))}).error,
            "the windows have no two all-reduces of known bytes that nothing waits for in between, "
            "as those of gradients are; NCCL 2.26 or later tells the bytes");
  std::vector<Programs> stages(1);
  for (int r = 0; r < 4; ++r) stages[0].push_back(Pipeline({}, r, 4, 4));
  EXPECT_EQ(Ask("without-slow-rank,rank=1", stages).error,
            "no other rank does the same work as rank 1, so nothing says how fast it should be");
  EXPECT_EQ(Ask("ranks,count=8", stages).error,
            "how 8 ranks would share the work is not known: ranks send to each other, as a "
            "pipeline's stages");
  EXPECT_EQ(
      Ask("ranks,count=8", {Programs(4, TensorParallel({}))}).error,
      "how 8 ranks would share the work is not known: most all-reduces and reduce-scatters are "
      "waited for one by one, as those of activations");
}

// Tensor parallel, with the activations between two layers split by their sequence.
TEST(RankChangesTest, ActivationsThatAreGatheredAndScatteredAreNoShards) {
  Program program = {{Op::kBatch, 50}};
  for (const char* pass : {"forward", "backward"}) {
    for (int layer = 0; layer < 8; ++layer) {
      program.push_back({Op::kBlocking, 100, "AllGather", 1, 4 << 20});
      program.push_back({Op::kKernel, 500, pass});
      program.push_back({Op::kBlocking, 110, "ReduceScatter", 1, 4 << 20});
      program.push_back({Op::kKernel, 50, "layer_norm"});
      program.push_back({Op::kBlocking, 200, "AllGather", 1, 8 << 20});
      program.push_back({Op::kKernel, 500, pass});
      program.push_back({Op::kBlocking, 210, "ReduceScatter", 1, 8 << 20});
      program.push_back({Op::kKernel, 50, "layer_norm"});
    }
  }
  program.push_back({Op::kKernel, 1000, "adam"});
  EXPECT_EQ(
      Ask("ranks,count=8", {Programs(4, program)}).error,
      "how 8 ranks would share the work is not known: most all-reduces and reduce-scatters are "
      "waited for one by one, as those of activations");
}

TEST(RankChangesTest, OtherTextIsRefused) {
  for (const char* text : {"", "without-slow-rank", "without-slow-rank,rank=x", "ranks,count=2.5",
                           "ranks,count=1", "bucket-size,bytes=-1MB", "bucket-size,bytes=5",
                           "bandwidth,factor=0", "balance-lengths,rank=1", "faster"}) {
    EXPECT_FALSE(ParseRankChange(text).ok()) << text;
  }
  EXPECT_EQ(ParseRankChange("bucket-size,bytes=50MB")->value, 50e6);
}

}  // namespace
}  // namespace seqpoint::ranks
