#include "tests/softgpu/noise.h"

#include <cmath>
#include <cstring>

namespace seqpoint::softgpu {
namespace {

double NormalQuantile(double p) {
  double low = -8, high = 8;
  for (int i = 0; i < 40; ++i) {
    double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

}  // namespace

uint64_t HashBytes(const void* data, uint64_t bytes) {
  auto* p = static_cast<const unsigned char*>(data);
  uint64_t lanes[4] = {bytes, kGolden, ~bytes, kGolden * 3};
  uint64_t word[4];
  for (; bytes >= sizeof(word); bytes -= sizeof(word), p += sizeof(word)) {
    memcpy(word, p, sizeof(word));
    for (int i = 0; i < 4; ++i) {
      lanes[i] = (lanes[i] ^ word[i]) * 0xbf58476d1ce4e5b9;
      lanes[i] ^= lanes[i] >> 29;
    }
  }
  memset(word, 0, sizeof(word));
  memcpy(word, p, bytes);
  uint64_t hash = 0;
  for (int i = 0; i < 4; ++i) hash = Mix(hash, lanes[i] ^ word[i]);
  return hash;
}

std::vector<float> LogNormalFactors(double sigma) {
  constexpr int kFactors = 1024;
  static const std::vector<double> quantiles = [] {
    std::vector<double> q(kFactors);
    for (int i = 0; i < kFactors; ++i) q[i] = NormalQuantile((i + 0.5) / kFactors);
    return q;
  }();
  std::vector<float> factors;
  double sum = 0;
  for (double quantile : quantiles) {
    factors.push_back(static_cast<float>(std::exp(sigma * quantile)));
    sum += factors.back();
  }
  for (float& factor : factors) factor = static_cast<float>(factor * kFactors / sum);
  return factors;
}

}  // namespace seqpoint::softgpu
