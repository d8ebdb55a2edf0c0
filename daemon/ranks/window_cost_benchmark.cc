// Not timed: computed jobs with a slow rank (tests/support/rank_windows.h) and the same jobs
// without it; what CostShare says of the first from 8 windows against the truth, which is how much
// shorter the second are. Prints a table.
//
//   window_cost_benchmark [JOBS [SEED]]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "daemon/ranks/window_cost.h"
#include "tests/support/rank_windows.h"

namespace seqpoint::ranks {
namespace {

constexpr int kRanks = 4;
constexpr int32_t kSlow = 1;
constexpr size_t kWindows = 8, kIterations = 40;

enum class JobKind : uint8_t { kData, kTensor };
constexpr const char* kKinds[] = {"data", "tensor"};

struct SlowJob {
  std::vector<Programs> slow, even;
};

SlowJob MakeJob(JobKind kind, double factor) {
  const auto program = [&](double by) {
    return kind == JobKind::kTensor ? TensorParallel({.factor = by}) : DataParallel({.factor = by});
  };
  SlowJob job = {.slow = {kIterations, Programs(kRanks, program(1))}, .even = {}};
  job.even = job.slow;
  for (Programs& programs : job.slow) programs[kSlow] = program(factor);
  return job;
}

std::vector<IterationProfiles> FirstWindows(const SimulatedRun& run) {
  std::vector<IterationProfiles> iterations;
  for (size_t i = 1; i <= kWindows; ++i) {  // the first one starts together, and is left out
    const std::vector<RankWindow> windows = run.Windows(i, /*told=*/true);
    iterations.push_back(ProfilesOf(windows, JoinWindows(windows)));
  }
  return iterations;
}

void Judge(JobKind kind, double factor, int jobs, uint64_t first_seed) {
  double sum = 0, squares = 0, worst = 0, truths = 0;
  int covered = 0;
  for (int i = 0; i < jobs; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    const SlowJob programs = MakeJob(kind, factor);
    RankJob job(kRanks);
    job.noise = 0.02;
    job.jitter_us = 3;
    job.seed = seed;
    const double truth = 1 - job.Run(programs.even).total_us / job.Run(programs.slow).total_us;
    job.idle_between = true;
    job.seed = seed + 1'000'000;
    const std::vector<IterationProfiles> now = FirstWindows(job.Run(programs.slow));
    const std::vector<IterationProfiles> earlier = FirstWindows(job.Run(programs.even));
    const Estimate cost = *CostShare({kSlow, {0, 2, 3}, now, earlier}, 0.95);
    const double error = cost.value - truth;
    truths += truth;
    sum += error;
    squares += error * error;
    worst = std::max(worst, std::abs(error));
    covered += cost.low <= truth && truth <= cost.high;
  }
  const double count = jobs;
  std::printf("%-18s %5.2f %8.2f %9.2f %8.2f %8.2f %8d of %d\n", kKinds[static_cast<size_t>(kind)],
              factor, 100 * truths / count, 100 * sum / count, 100 * std::sqrt(squares / count),
              100 * worst, covered, jobs);
}

int Main(int jobs, uint64_t seed) {
  std::printf("%-18s %5s %8s %9s %8s %8s   %s\n", "kind", "slow", "truth %", "mean off", "rms off",
              "most off", "interval holds it");
  for (const JobKind kind : {JobKind::kData, JobKind::kTensor}) {
    for (const double factor : {1.05, 1.1, 1.2, 1.5}) Judge(kind, factor, jobs, seed);
  }
  return 0;
}

}  // namespace
}  // namespace seqpoint::ranks

int main(int argc, char** argv) {
  return seqpoint::ranks::Main(argc > 1 ? std::atoi(argv[1]) : 30,
                               argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
}
