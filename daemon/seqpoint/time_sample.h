// TimeSample: a uniform random sample of the times of a run, of bounded size.
//
// Threading: values. The generator is part of the value, so the same calls give the same sample.
#ifndef DAEMON_SEQPOINT_TIME_SAMPLE_H_
#define DAEMON_SEQPOINT_TIME_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/seqpoint/key.h"

namespace seqpoint {

struct SampledTime {
  Key key;
  double time_ns = 0;
  bool cold = false;
};

struct TimeSample {
  static constexpr size_t kSize = 1024;

  std::vector<SampledTime> times;
  uint64_t seen = 0;
  uint64_t random_state = 1;

  // Reservoir sampling with splitmix64.
  void Add(const SampledTime& time) {
    ++seen;
    if (times.size() < kSize) {
      times.push_back(time);
      return;
    }
    uint64_t x = random_state += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
    const uint64_t place = x % seen;
    if (place < kSize) times[place] = time;
  }
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_TIME_SAMPLE_H_
