#include "tests/gpu/probes/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

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

// Operands are made of bits, as arithmetic would be counted. Each result is used, so nothing is
// left out.
__global__ void probe_ffma(float* result, int rounds) {
  float a = __uint_as_float(0x3f000000 + threadIdx.x);
  const float b = __uint_as_float(0x3e000000 + blockIdx.x);
#pragma unroll 16
  for (int i = 0; i < rounds; ++i) a = fmaf(a, b, b);
  result[blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x] = a;
}

__global__ void probe_dfma(double* result, int rounds) {
  double a = __longlong_as_double(0x3fe0000000000000 + threadIdx.x);
  const double b = __longlong_as_double(0x3fc0000000000000 + blockIdx.x);
#pragma unroll 16
  for (int i = 0; i < rounds; ++i) a = fma(a, b, b);
  result[blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x] = a;
}

__device__ __half2 HalvesOfBits(unsigned bits) { return *reinterpret_cast<__half2*>(&bits); }

__global__ void probe_hfma2(__half2* result, int rounds) {
  __half2 a = HalvesOfBits(0x38003800 + threadIdx.x);
  const __half2 b = HalvesOfBits(0x30003000 + (blockIdx.x & 255));
#pragma unroll 16
  for (int i = 0; i < rounds; ++i) a = __hfma2(a, b, b);
  result[blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x] = a;
}

// One product of tiles a round and warp.
template <typename Type, typename Sum, int kM, int kN, int kK, typename Element = Type>
__device__ void Multiply(Sum* result, int rounds) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, kM, kN, kK, Type, row_major> a;
  fragment<matrix_b, kM, kN, kK, Type, col_major> b;
  fragment<accumulator, kM, kN, kK, Sum> sum;
  fill_fragment(a, Element(0.5f));
  fill_fragment(b, Element(0.25f));
  fill_fragment(sum, Sum(0));
  for (int i = 0; i < rounds; ++i) mma_sync(sum, a, b, sum);
  const size_t warp = (blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x) / 32;
  store_matrix_sync(result + warp * kM * kN, sum, kN, mem_row_major);
}
using nvcuda::wmma::precision::tf32;
__global__ void probe_mma_fp16_fp16(__half* result, int rounds) {
  Multiply<__half, __half, 16, 16, 16>(result, rounds);
}
__global__ void probe_mma_fp16_fp32(float* result, int rounds) {
  Multiply<__half, float, 16, 16, 16>(result, rounds);
}
__global__ void probe_mma_bf16(float* result, int rounds) {
  Multiply<__nv_bfloat16, float, 16, 16, 16>(result, rounds);
}
__global__ void probe_mma_tf32(float* result, int rounds) {
  Multiply<tf32, float, 16, 16, 8, float>(result, rounds);
}
__global__ void probe_mma_fp64(double* result, int rounds) {
  Multiply<double, double, 8, 8, 4>(result, rounds);
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

namespace {

template <typename Result, void (*kKernel)(Result*, int), int kKind>
void LaunchArithmetic(cudaStream_t stream, void* result, int blocks, int rounds) {
  const double operations = OperationsOf(kArithmetic[kKind], blocks, rounds);
  const bool tensor = kArithmetic[kKind].tensor;
  Describe({.flops = tensor ? 0 : operations,
            .tensor_flops = tensor ? operations : 0,
            .dram_write_bytes = 4.0 * kArithmeticThreads * blocks,
            .instructions = 8.0 * blocks * rounds});
  kKernel<<<blocks, kArithmeticThreads, 0, stream>>>(static_cast<Result*>(result), rounds);
}

}  // namespace

constexpr double kTile = 2.0 * 16 * 16 * 16;  // operations of a product of tiles
const Arithmetic kArithmetic[kArithmeticKinds] = {
    {"probe_ffma", "FP32, FFMA", 2, false, LaunchArithmetic<float, probe_ffma, 0>},
    {"probe_dfma", "FP64, DFMA", 2, false, LaunchArithmetic<double, probe_dfma, 1>},
    {"probe_hfma2", "FP16, HFMA2", 4, false, LaunchArithmetic<__half2, probe_hfma2, 2>},
    {"probe_mma_fp16_fp16", "tensor FP16 to FP16", kTile, true,
     LaunchArithmetic<__half, probe_mma_fp16_fp16, 3>},
    {"probe_mma_fp16_fp32", "tensor FP16 to FP32", kTile, true,
     LaunchArithmetic<float, probe_mma_fp16_fp32, 4>},
    {"probe_mma_bf16", "tensor BF16", kTile, true, LaunchArithmetic<float, probe_mma_bf16, 5>},
    {"probe_mma_tf32", "tensor TF32", kTile / 2, true, LaunchArithmetic<float, probe_mma_tf32, 6>},
    {"probe_mma_fp64", "tensor FP64", 2.0 * 8 * 8 * 4, true,
     LaunchArithmetic<double, probe_mma_fp64, 7>},
};

double InstructionsOf(const Arithmetic& kind, int blocks, int rounds) {
  return static_cast<double>(rounds) * blocks * kArithmeticThreads / (kind.tensor ? 32 : 1);
}
double OperationsOf(const Arithmetic& kind, int blocks, int rounds) {
  return kind.operations * InstructionsOf(kind, blocks, rounds);
}

}  // namespace seqpoint::probe
