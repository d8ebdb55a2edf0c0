// The limit of a kernel: compute, memory or latency.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_TRANSFORM_KERNEL_BOUND_H_
#define DAEMON_WHATIF_TRANSFORM_KERNEL_BOUND_H_

#include <cstdint>
#include <map>
#include <string>

namespace seqpoint::whatif {

enum class Bound : uint8_t { kCompute, kMemory, kLatency };

// An empty kernel takes about as long.
inline constexpr int64_t kLatencyNs = 3000;

// Kernels whose position on the roofline was measured, by name. A rule of thumb answers for the
// others.
struct Bounds : std::map<std::string, Bound> {
  using std::map<std::string, Bound>::map;
  // The metrics that were measured for a kernel.
  std::map<std::string, std::map<std::string, double>> counters;  // kernel, metric
};

// Matrix products and convolutions are bound by compute, the rest by memory (Daydream, Zhu et al.,
// ATC 2020, section 5.1), and a kernel that lasts no longer than an empty one by latency.
//
// Matrix products, convolutions, attention and persistent recurrent layers, as cuBLAS, cuDNN,
// CUTLASS, rocBLAS (Cijk_...), MIOpen, Composable Kernel and Triton name them.
bool IsProduct(const std::string& kernel);
// Any other kernel.
inline Bound BoundByTime(int64_t duration_ns) {
  return duration_ns <= kLatencyNs ? Bound::kLatency : Bound::kMemory;
}

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_TRANSFORM_KERNEL_BOUND_H_
