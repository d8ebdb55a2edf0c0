// ns per launch while learning (analyses included), and per matcher event.
#include <benchmark/benchmark.h>

#include "daemon/iterations/learner.h"
#include "tests/iterations/synthetic_stream.h"

namespace seqpoint::iterations {
namespace {

void BM_Learn(benchmark::State& state) {
  const SyntheticStream stream = MakeSyntheticStream(
      {.iterations = 40, .layers = static_cast<int>(state.range(0)), .readback_every = 0});
  size_t calls = 0;
  for (auto _ : state) {
    IterationLearner learner;
    for (uint32_t id = 1; id < stream.names.size(); ++id) learner.AddName(id, stream.names[id]);
    for (const abi::CallRecord& call : stream.calls) {
      ++calls;
      if (learner.AddCall(call) && learner.rule() != nullptr) break;
    }
    if (learner.rule() == nullptr) state.SkipWithError("no rule was learned");
  }
  state.counters["per_call"] = benchmark::Counter(
      static_cast<double>(calls), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Learn)->Arg(1)->Arg(4)->Arg(16)->Unit(benchmark::kMillisecond);

void BM_MatcherEvent(benchmark::State& state) {
  const SyntheticStream stream = MakeSyntheticStream({.iterations = 40});
  IterationLearner learner;
  for (uint32_t id = 1; id < stream.names.size(); ++id) learner.AddName(id, stream.names[id]);
  for (const abi::CallRecord& call : stream.calls) learner.AddCall(call);
  if (learner.rule() == nullptr) {
    state.SkipWithError("no rule was learned");
    return;
  }
  std::vector<abi::MatchEvent> events;
  for (const abi::CallRecord& call : stream.calls) {
    events.push_back(ToMatchEvent(call, learner.stream().names()));
  }
  abi::Matcher matcher(learner.rule()->rule);
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(matcher.OnEvent(events[i]));
    if (++i == events.size()) i = 0;
  }
}
BENCHMARK(BM_MatcherEvent);

}  // namespace
}  // namespace seqpoint::iterations

BENCHMARK_MAIN();
