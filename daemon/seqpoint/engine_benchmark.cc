// Cost of the online engine: iterations per second, plan updates, projections, state.
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "daemon/seqpoint/analysis.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/engine_codec.h"

namespace seqpoint {
namespace {

std::vector<IterationSample> Samples(int64_t unique_keys, int iterations) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int64_t> length(1, unique_keys);
  std::normal_distribution<double> normal;
  std::vector<IterationSample> samples;
  for (int i = 0; i < iterations; ++i) {
    const int64_t l = length(random);
    const double share = static_cast<double>(l) / static_cast<double>(unique_keys);
    samples.push_back(
        {.iteration = static_cast<uint64_t>(i),
         .key = {l},
         .time_ns = static_cast<int64_t>((1e7 + 4e7 * share) * (1 + 0.01 * normal(random)))});
  }
  return samples;
}

OnlineEngine Filled(int64_t unique_keys) {
  OnlineEngine engine;
  for (const IterationSample& s : Samples(unique_keys, 20 * unique_keys)) engine.AddIteration(s);
  return engine;
}

void BM_AddIteration(benchmark::State& state) {
  std::vector<IterationSample> samples = Samples(state.range(0), 1 << 20);
  OnlineEngine engine;
  size_t next = 0;
  uint64_t iteration = 0;
  for (auto _ : state) {
    IterationSample& sample = samples[next++ & ((1 << 20) - 1)];
    sample.iteration = iteration++;
    engine.AddIteration(sample);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_AddIteration)->Arg(10)->Arg(1000)->Arg(100000);

// One iteration and the plan after it: the selection is made again now and then, which is in the
// mean.
void BM_IterationAndPlan(benchmark::State& state) {
  const std::vector<IterationSample> samples = Samples(state.range(0), 1 << 16);
  OnlineEngine engine = Filled(state.range(0));
  uint64_t iteration = 1 << 30;
  for (auto _ : state) {
    IterationSample sample = samples[iteration & 0xffff];
    sample.iteration = iteration++;
    engine.AddIteration(sample);
    benchmark::DoNotOptimize(engine.MakePlan({.sets = {0, 1, 2}}));
  }
}
BENCHMARK(BM_IterationAndPlan)->Arg(10)->Arg(1000);

// The plan alone, with a new selection each time, as its budget changes; times are the same.
void BM_PlanAnew(benchmark::State& state) {
  OnlineEngine engine = Filled(state.range(0));
  int budget = 64;
  engine.MakePlan({.budget = budget, .sets = {0, 1, 2}});  // what times it goes by, once
  for (auto _ : state) {
    budget = 124 - budget;
    benchmark::DoNotOptimize(engine.MakePlan({.budget = budget, .sets = {0, 1, 2}}));
  }
}
BENCHMARK(BM_PlanAnew)->Arg(10)->Arg(1000)->Arg(100000)->Unit(benchmark::kMicrosecond);

// ... after an iteration, so that the model is fitted again, too.
void BM_IterationAndPlanAnew(benchmark::State& state) {
  const std::vector<IterationSample> samples = Samples(state.range(0), 1 << 16);
  OnlineEngine engine = Filled(state.range(0));
  uint64_t iteration = 1 << 30;
  int budget = 64;
  for (auto _ : state) {
    IterationSample sample = samples[iteration & 0xffff];
    sample.iteration = iteration++;
    engine.AddIteration(sample);
    budget = 124 - budget;
    benchmark::DoNotOptimize(engine.MakePlan({.budget = budget, .sets = {0, 1, 2}}));
  }
}
BENCHMARK(BM_IterationAndPlanAnew)->Arg(10)->Arg(1000)->Arg(100000)->Unit(benchmark::kMicrosecond);

void BM_ProjectTime(benchmark::State& state) {
  OnlineEngine engine = Filled(state.range(0));
  uint64_t iteration = 1 << 30;
  for (auto _ : state) {
    engine.AddIteration({.iteration = iteration++, .key = {5}, .time_ns = 10'000'000});
    benchmark::DoNotOptimize(engine.ProjectTime(0.95));
  }
}
BENCHMARK(BM_ProjectTime)->Arg(10)->Arg(1000)->Arg(100000)->Unit(benchmark::kMillisecond);

// The cost of a question for those who feed the engine: the answer is computed from the copy.
void BM_Copy(benchmark::State& state) {
  const OnlineEngine engine = Filled(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(engine.Copy());
}
BENCHMARK(BM_Copy)->Arg(10)->Arg(1000)->Arg(100000)->Unit(benchmark::kMillisecond);

void BM_ProjectStatistic(benchmark::State& state) {
  OnlineEngine engine = Filled(1000);
  for (int m = 0; m < state.range(0); ++m) {
    const double value = 1e9 + 1e6 * (m * 15 % 1000);
    engine.AddMeasurement(0, 19'000 + m, {1 + m * 15 % 1000}, {&value, 1}).IgnoreError();
  }
  for (auto _ : state) benchmark::DoNotOptimize(engine.ProjectStatistic(0, 0, 0.999));
}
BENCHMARK(BM_ProjectStatistic)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);

void BM_SerializeAndParse(benchmark::State& state) {
  OnlineEngine engine = Filled(state.range(0));
  size_t bytes = 0;
  for (auto _ : state) {
    const std::string state_bytes = SerializeEngine(engine);
    bytes = state_bytes.size();
    benchmark::DoNotOptimize(ParseEngine(state_bytes));
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(BM_SerializeAndParse)->Arg(10)->Arg(1000)->Arg(100000)->Unit(benchmark::kMillisecond);

void BM_SelectOffline(benchmark::State& state) {
  std::vector<Key> keys;
  std::vector<double> times;
  for (const IterationSample& s : Samples(1000, 100'000)) {
    keys.push_back(s.key);
    times.push_back(static_cast<double>(s.time_ns));
  }
  const std::vector<KeyTimes> log = GroupByKey(keys, times);
  for (auto _ : state) {
    benchmark::DoNotOptimize(SelectStratified(log, static_cast<int>(state.range(0))));
  }
}
BENCHMARK(BM_SelectOffline)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);

void BM_AnalyzeLog(benchmark::State& state) {
  RunLog log;
  for (const IterationSample& s : Samples(1000, static_cast<int>(state.range(0)))) {
    log.keys.push_back(s.key);
    log.times.push_back(static_cast<double>(s.time_ns));
  }
  for (auto _ : state) benchmark::DoNotOptimize(AnalyzeLog(log, nullptr, {.points = 16}));
}
BENCHMARK(BM_AnalyzeLog)->Arg(10'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace seqpoint

BENCHMARK_MAIN();
