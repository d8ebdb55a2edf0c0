#include "tests/gpu/probes/kernels.h"
#include "tests/softgpu/swgpu.h"

namespace {

__global__ void probe_empty() {}

__global__ void probe_spin(unsigned long long duration_ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < duration_ns);
}

__global__ void probe_copy(float* to, const float* from, size_t count) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += step) {
    to[i] = from[i];
  }
}

__global__ void probe_multiply_add(float* result, int rounds) {
  float a = threadIdx.x * 1e-6f, b = blockIdx.x * 1e-6f;
  for (int i = 0; i < rounds; ++i) a = fmaf(a, 0.999f, b);
  result[blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x] = a;
}

void Describe(const SwgpuWork& work) {
  if (swgpu_next_launch_work != nullptr) swgpu_next_launch_work(&work);
}

}  // namespace

namespace seqpoint::probe {

void LaunchEmpty(cudaStream_t stream) { probe_empty<<<1, 32, 0, stream>>>(); }

void LaunchSpin(cudaStream_t stream, int blocks, double duration_ns) {
  // The H200-like model reaches 2,880 bytes per ns with all of its 132 multiprocessors busy.
  const double share = blocks * 2 < 132 ? blocks * 2 / 132.0 : 1;
  Describe({.dram_read_bytes = duration_ns * 2880 * share, .instructions = duration_ns * blocks});
  probe_spin<<<blocks, 32, 0, stream>>>(static_cast<unsigned long long>(duration_ns));
}

void LaunchCopy(cudaStream_t stream, float* to, const float* from, size_t count) {
  const auto bytes = static_cast<double>(count * sizeof(float));
  Describe({.dram_read_bytes = bytes, .dram_write_bytes = bytes});
  probe_copy<<<132 * 8, 256, 0, stream>>>(to, from, count);
}

void LaunchMultiplyAdd(cudaStream_t stream, float* result, int blocks, int rounds) {
  Describe({.flops = 2.0 * 256 * blocks * rounds,
            .dram_write_bytes = 4.0 * 256 * blocks,
            .instructions = 8.0 * blocks * rounds});
  probe_multiply_add<<<blocks, 256, 0, stream>>>(result, rounds);
}

}  // namespace seqpoint::probe
