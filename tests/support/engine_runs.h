// Runs with a known truth, for tests of the engine and its parts.
#ifndef TESTS_SUPPORT_ENGINE_RUNS_H_
#define TESTS_SUPPORT_ENGINE_RUNS_H_

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "daemon/seqpoint/engine.h"
#include "gtest/gtest.h"

namespace seqpoint {

// A run with known truth: two lengths (or one), time linear in them.
struct Epoch {
  std::vector<Key> keys;
  std::vector<int64_t> times_ns;

  double Total(size_t begin = 0) const {
    double sum = 0;
    for (size_t i = begin; i < times_ns.size(); ++i) sum += static_cast<double>(times_ns[i]);
    return sum;
  }
  std::vector<KeyCount> Histogram() const {
    std::map<Key, int64_t> counts;
    for (const Key& key : keys) ++counts[key];
    std::vector<KeyCount> histogram;
    for (const auto& [key, count] : counts) histogram.push_back({key, count});
    return histogram;
  }
};

inline int64_t NormalTime(const Key& key) {
  return 5'000'000 + 200'000 * key.first + 300'000 * key.second;
}

inline Epoch MakeEpoch(int seed, int iterations, bool two_dimensional = false,
                       double noise = 0.005) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int64_t> length(10, 49);
  std::normal_distribution<double> normal;
  Epoch run;
  for (int i = 0; i < iterations; ++i) {
    const Key key = {length(random), two_dimensional ? length(random) : 0};
    run.keys.push_back(key);
    run.times_ns.push_back(
        std::llround(static_cast<double>(NormalTime(key)) * std::exp(noise * normal(random))));
  }
  return run;
}

inline void Feed(OnlineEngine& engine, const Epoch& run, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    engine.AddIteration({.iteration = i, .key = run.keys[i], .time_ns = run.times_ns[i]});
  }
}

inline bool Equal(const Estimate& a, const Estimate& b) {
  return a.value == b.value && a.low == b.low && a.high == b.high;
}

// A run with four micro-batches in each iteration. The first one of a length takes longer, and
// where micro-batches are graphs, so does the first that is an iteration's first, and its last.
struct SumsRun {
  explicit SumsRun(int seed, bool graphs = false) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::set<int64_t> ran[3];
    for (uint64_t i = 0; i < 1'000; ++i) {
      IterationSample& sample = iterations.emplace_back();
      sample.iteration = i;
      sample.combined = true;
      double time = 1e6;
      for (int j = 0; j < 4; ++j) {
        MicroBatch part{{static_cast<int64_t>(64 * std::exp(0.25 * normal(random)))}};
        if (graphs && j == 0) part.kind = MicroBatch::Kind::kFirst;
        if (graphs && j == 3) part.kind = MicroBatch::Kind::kLast;
        const int64_t length = part.key.first;
        ++batches[length];
        sample.key.first += length;
        time += 1e5 * static_cast<double>(length);
        if (ran[static_cast<int>(part.kind)].insert(length).second) time += 4e6;
        sample.micro_batches.push_back(part);
      }
      sample.time_ns = std::llround(time * std::exp(0.003 * normal(random)));
      total += static_cast<double>(sample.time_ns);
    }
  }

  // `told`: the engine is told the micro-batches' lengths.
  double ErrorAt(size_t count, bool told, OnlineEngine& engine) const {
    std::map<Key, int64_t> sums;
    for (const IterationSample& sample : iterations) ++sums[sample.key];
    std::vector<KeyCount> histogram;
    for (const auto& [key, times] : sums) histogram.push_back({key, times});
    Horizon horizon = Horizon::Distribution(std::move(histogram));
    for (const auto& [length, times] : batches) horizon.parts.push_back({{length}, times});
    horizon.parts_certain = true;
    EXPECT_TRUE(engine.SetHorizon(horizon).ok());
    for (size_t i = 0; i < count; ++i) {
      IterationSample sample = iterations[i];
      if (!told) sample.micro_batches.clear();
      engine.AddIteration(sample);
    }
    return engine.ProjectTime(0.95).total->value / total - 1;
  }

  double total = 0;
  std::vector<IterationSample> iterations;
  std::map<int64_t, int64_t> batches;
};

inline double OrdinaryTime(const OnlineEngine& engine, const Key& key) {
  for (const KeyTimes& times : engine.OrdinaryTimes()) {
    if (times.key == key) return times.mean;
  }
  return 0;
}

struct Counters {
  static double Bytes(const Key& k) {
    return 1e9 + 1e7 * static_cast<double>(k.first) + 2e7 * static_cast<double>(k.second);
  }
  static double Instructions(const Key& k) {
    return 1e8 + 1e5 * static_cast<double>(k.first * k.second + k.first * k.first);
  }
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_ENGINE_RUNS_H_
