// Hashes and noise that libcuda and libnccl draw alike. Pure functions; thread-safe.
#ifndef SEQPOINT_TESTS_SOFTGPU_NOISE_H_
#define SEQPOINT_TESTS_SOFTGPU_NOISE_H_

#include <cstdint>
#include <vector>

namespace seqpoint::softgpu {

inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

inline uint64_t SplitMix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline uint64_t Mix(uint64_t a, uint64_t b) { return SplitMix((a + kGolden) ^ (b * kGolden)); }

uint64_t HashBytes(const void* data, uint64_t bytes);
// Factors exp(sigma z) with mean 1 at 1024 quantiles of a normal distribution.
std::vector<float> LogNormalFactors(double sigma);

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NOISE_H_
