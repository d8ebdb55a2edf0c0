// Runs a CUDA kernel on the CPU, so that the arithmetic of kernels.cu is tested where there is no
// GPU. Blocks run one after another; the threads of a block are fibers that switch at
// __syncthreads. Only what kernels.cu uses exists: no warp primitives, no dynamic shared memory.
// Warp matrix operations are done by lane 0 alone.
//
// Threading: one thread only. Shared memory is static storage.
#ifndef SEQPOINT_TESTS_WORKLOADS_CPU_CUDA_H_
#define SEQPOINT_TESTS_WORKLOADS_CPU_CUDA_H_

#include <algorithm>
#include <cmath>
#include <functional>

#define __global__
#define __device__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

namespace seqpoint::workload {

using std::max;
using std::min;

struct dim3 {
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
  unsigned x, y, z;
};

struct Index3 {
  int x, y, z;
};
inline Index3 threadIdx;
inline Index3 blockIdx;
inline Index3 blockDim;
inline Index3 gridDim;

// Returns when all threads of all blocks have ended.
void RunOnCpu(dim3 grid, dim3 block, const std::function<void()>& thread);
void __syncthreads();

inline float atomicAdd(float* to, float value) {
  const float before = *to;
  *to += value;
  return before;
}

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major };

template <typename Use, int kM, int kN, int kK, typename T, typename Layout = void>
struct fragment {
  static constexpr int kRows = std::is_same_v<Use, matrix_b> ? kK : kM;
  static constexpr int kColumns = std::is_same_v<Use, matrix_a> ? kK : kN;
  float x[kRows][kColumns];
};

inline bool FirstLane() { return threadIdx.x % 32 == 0; }
inline float __float_to_tf32(float x) { return x; }

template <typename Fragment>
void fill_fragment(Fragment& f, float value) {
  for (auto& row : f.x) std::fill(std::begin(row), std::end(row), value);
}

template <typename Fragment>
void load_matrix_sync(Fragment& f, const float* from, unsigned ld) {
  if (!FirstLane()) return;
  for (int i = 0; i < Fragment::kRows; ++i) {
    for (int j = 0; j < Fragment::kColumns; ++j) f.x[i][j] = from[i * static_cast<int>(ld) + j];
  }
}

template <typename Sum, typename A, typename B>
void mma_sync(Sum& out, const A& a, const B& b, const Sum& in) {
  if (!FirstLane()) return;
  for (int i = 0; i < Sum::kRows; ++i) {
    for (int j = 0; j < Sum::kColumns; ++j) {
      float sum = in.x[i][j];
      for (int k = 0; k < A::kColumns; ++k) sum += a.x[i][k] * b.x[k][j];
      out.x[i][j] = sum;
    }
  }
}

template <typename Fragment>
void store_matrix_sync(float* to, const Fragment& f, unsigned ld, layout_t) {
  if (!FirstLane()) return;
  for (int i = 0; i < Fragment::kRows; ++i) {
    for (int j = 0; j < Fragment::kColumns; ++j) to[i * static_cast<int>(ld) + j] = f.x[i][j];
  }
}

}  // namespace nvcuda::wmma
}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_CPU_CUDA_H_
