// The daemon's price of one rank's iteration: joined, scored and tested.
// build/release/bin/rank_monitor_benchmark
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "daemon/ranks/rank_monitor.h"
#include "tests/ranks/simulated_job.h"

namespace seqpoint::ranks {
namespace {

// Iterations of all ranks, made before the clock starts.
std::vector<std::vector<RankIteration>> Make(const JobConfig& config, bool observed, int count) {
  SimulatedJob job(config);
  std::vector<std::vector<RankIteration>> iterations;
  for (int i = 0; i < count; ++i) iterations.push_back(job.Next(observed));
  return iterations;
}

void Add(benchmark::State& state, Parallel parallel, bool observed) {
  JobConfig config;
  config.parallel = parallel;
  config.own_lengths = parallel == Parallel::kData;
  config.ranks = static_cast<int32_t>(state.range(0));
  const auto iterations = Make(config, observed, 512);
  RankMonitor monitor;
  std::set<int32_t> ranks;
  for (int32_t rank = 0; rank < config.ranks; ++rank) ranks.insert(rank);
  monitor.SetRanks(ranks);
  int64_t number = 0;
  for (auto _ : state) {
    for (RankIteration report : iterations[static_cast<size_t>(number) % iterations.size()]) {
      report.number = number;
      monitor.Add(std::move(report));
    }
    ++number;
  }
  state.SetItemsProcessed(number * config.ranks);
  state.counters["collectives"] =
      static_cast<double>(iterations.front().front().collectives.size());
  state.counters["state_bytes"] = static_cast<double>(monitor.Save().learned.size() * 8);
}

void BM_DataObserved(benchmark::State& state) { Add(state, Parallel::kData, true); }
void BM_TensorObserved(benchmark::State& state) { Add(state, Parallel::kTensor, true); }
void BM_NotObserved(benchmark::State& state) { Add(state, Parallel::kData, false); }

BENCHMARK(BM_DataObserved)->Arg(2)->Arg(8)->Arg(64);
BENCHMARK(BM_TensorObserved)->Arg(2)->Arg(8)->Arg(64);
BENCHMARK(BM_NotObserved)->Arg(8)->Arg(64);

}  // namespace
}  // namespace seqpoint::ranks

BENCHMARK_MAIN();
