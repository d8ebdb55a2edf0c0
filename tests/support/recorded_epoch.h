// A run for tests of playlists.
#ifndef TESTS_SUPPORT_RECORDED_EPOCH_H_
#define TESTS_SUPPORT_RECORDED_EPOCH_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "daemon/jobs/run_engine.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint::queries {

// A run, here and on another machine, whose cost has another shape.
struct Epoch {
  std::vector<Key> keys;
  std::vector<int64_t> here_ns;
  std::vector<double> there_ns;

  double Here() const { return std::accumulate(here_ns.begin(), here_ns.end(), 0.0); }
  double There() const { return std::accumulate(there_ns.begin(), there_ns.end(), 0.0); }
};

inline Epoch MakeEpoch(int seed, int iterations, bool two_dimensional = false) {
  std::mt19937 random(seed);
  std::gamma_distribution<double> gamma(4, 6);
  std::normal_distribution<double> normal;
  const auto length = [&] { return static_cast<int64_t>(std::min(8 + gamma(random), 120.0)); };
  Epoch run;
  for (int i = 0; i < iterations; ++i) {
    const Key key = {length(), two_dimensional ? length() : 0};
    const auto l = static_cast<double>(key.first + key.second);
    run.keys.push_back(key);
    run.here_ns.push_back(std::llround((5e6 + 2e5 * l) * std::exp(0.005 * normal(random))));
    run.there_ns.push_back((4e6 + 7e4 * l + 9e2 * l * l) * std::exp(0.01 * normal(random)));
  }
  return run;
}

inline jobs::RunEngine EngineOf(const Epoch& run) {
  jobs::RunEngine engine;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    engine.current().AddIteration({.iteration = i, .key = run.keys[i], .time_ns = run.here_ns[i]});
  }
  return engine;
}

}  // namespace seqpoint::queries

#endif  // TESTS_SUPPORT_RECORDED_EPOCH_H_
