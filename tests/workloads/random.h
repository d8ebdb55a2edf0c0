// Random numbers that are the same on every platform and library. Pure; any thread.
#ifndef SEQPOINT_TESTS_WORKLOADS_RANDOM_H_
#define SEQPOINT_TESTS_WORKLOADS_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace seqpoint::workload {

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed)) {}
  uint64_t Next() { return Mix(state_++); }
  // Uniform in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // Uniform in [0, bound).
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>(Uniform() * static_cast<double>(bound));
  }

  template <typename T>
  void Shuffle(std::vector<T>* items) {
    for (size_t i = items->size(); i > 1; --i) std::swap((*items)[i - 1], (*items)[Below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_RANDOM_H_
