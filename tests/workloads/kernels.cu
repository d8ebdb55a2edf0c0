#include "tests/workloads/kernels.h"

#ifdef __CUDACC__
#include <mma.h>
#else
#include "tests/workloads/cpu_cuda.h"
#endif

#include <cmath>

#include "tests/workloads/gemm_variant.h"

namespace seqpoint::workload {
namespace kernels {

constexpr int kThreads = 256;

int Blocks(size_t count, int per_block) {
  return static_cast<int>((count + static_cast<size_t>(per_block) - 1) /
                          static_cast<size_t>(per_block));
}

// Work that touches `read` and `written` floats and does `flops` fp32 operations.
SwgpuWork Work(double flops, double read, double written) {
  return {flops, 0, read * 4, written * 4, 0};
}

template <typename... Parameters, typename... Arguments>
void Launch(const Queue& queue, const SwgpuWork& work, const char* name,
            void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
  BeforeLaunch(queue, work);
#ifdef __CUDACC__
  kernel<<<grid, block, 0, static_cast<cudaStream_t>(queue.stream)>>>(
      static_cast<Parameters>(arguments)...);
#else
  RunOnCpu(grid, block, [&] { kernel(static_cast<Parameters>(arguments)...); });
#endif
  AfterLaunch(name);
}

// A kernel and its name in the source: how Launch wants it.
#define NAMED(kernel) #kernel, kernel
// Kernels named as cuBLAS and cuDNN name theirs; the others have C++ names, as PyTorch's have.
#define KERNEL_C extern "C" __global__ void

// Sum or maximum over a block whose size is a power of two.
template <bool kMax>
__device__ float BlockReduce(float value) {
  __shared__ float buffer[1024];
  const int i = threadIdx.x;
  buffer[i] = value;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (i < half) {
      buffer[i] = kMax ? fmaxf(buffer[i], buffer[i + half]) : buffer[i] + buffer[i + half];
    }
    __syncthreads();
  }
  const float result = buffer[0];
  __syncthreads();
  return result;
}

// ---------------------------------------------------------------------------------------- GEMM

struct GemmArgs {
  const float* a;
  const float* b;
  float* c;
  int m, n, k, lda, ldb, ldc;
  long long stride_a, stride_b, stride_c;
  float alpha, beta;
  int k_per_split;
};

template <bool kTransposeA>
__device__ float LoadA(const GemmArgs& g, const float* a, int row, int inner, int inner_end) {
  if (row >= g.m || inner >= inner_end) return 0;
  return kTransposeA ? a[static_cast<size_t>(inner) * g.lda + row]
                     : a[static_cast<size_t>(row) * g.lda + inner];
}

template <bool kTransposeB>
__device__ float LoadB(const GemmArgs& g, const float* b, int inner, int column, int inner_end) {
  if (column >= g.n || inner >= inner_end) return 0;
  return kTransposeB ? b[static_cast<size_t>(column) * g.ldb + inner]
                     : b[static_cast<size_t>(inner) * g.ldb + column];
}

// One kRows x kColumns tile of C on the tensor cores (TF32), a 32-wide warp tile each of
// kWarpsM x kWarpsN warps. blockIdx.z is the batch entry, or the split when kSplitK.
template <int kRows, int kColumns, int kWarpsM, int kWarpsN, bool kTransposeA, bool kTransposeB,
          bool kSplitK>
__device__ void TensorTile(const GemmArgs& g) {
  using namespace nvcuda;
  constexpr int kInner = 16;
  constexpr int kBlock = kWarpsM * kWarpsN * 32;
  constexpr int kFragmentsM = kRows / kWarpsM / 16;
  constexpr int kFragmentsN = kColumns / kWarpsN / 16;
  __shared__ __align__(32) float a_tile[kRows][kInner + 8];
  __shared__ __align__(32) float b_tile[kInner][kColumns + 8];
  __shared__ __align__(32) float c_tile[kWarpsM * kWarpsN][16][16];
  const int warp = threadIdx.x / 32;
  const int warp_row = warp / kWarpsN * (kRows / kWarpsM);
  const int warp_column = warp % kWarpsN * (kColumns / kWarpsN);
  const int row0 = blockIdx.y * kRows;
  const int column0 = blockIdx.x * kColumns;
  const int z = blockIdx.z;
  const float* a = kSplitK ? g.a : g.a + z * g.stride_a;
  const float* b = kSplitK ? g.b : g.b + z * g.stride_b;
  float* c = g.c + z * g.stride_c;
  const int inner_begin = kSplitK ? z * g.k_per_split : 0;
  const int inner_end = kSplitK ? min(g.k, inner_begin + g.k_per_split) : g.k;

  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum[kFragmentsM][kFragmentsN];
  for (auto& row : sum) {
    for (auto& fragment : row) wmma::fill_fragment(fragment, 0.0f);
  }
  for (int inner0 = inner_begin; inner0 < inner_end; inner0 += kInner) {
    for (int i = threadIdx.x; i < kRows * kInner; i += kBlock) {
      const int row = kTransposeA ? i % kRows : i / kInner;
      const int inner = kTransposeA ? i / kRows : i % kInner;
      a_tile[row][inner] =
          wmma::__float_to_tf32(LoadA<kTransposeA>(g, a, row0 + row, inner0 + inner, inner_end));
    }
    for (int i = threadIdx.x; i < kColumns * kInner; i += kBlock) {
      const int column = kTransposeB ? i / kInner : i % kColumns;
      const int inner = kTransposeB ? i % kInner : i / kColumns;
      b_tile[inner][column] = wmma::__float_to_tf32(
          LoadB<kTransposeB>(g, b, inner0 + inner, column0 + column, inner_end));
    }
    __syncthreads();
    for (int inner = 0; inner < kInner; inner += 8) {
      wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major>
          left[kFragmentsM];
      wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
      for (int i = 0; i < kFragmentsM; ++i) {
        wmma::load_matrix_sync(left[i], &a_tile[warp_row + i * 16][inner], kInner + 8);
      }
      for (int j = 0; j < kFragmentsN; ++j) {
        wmma::load_matrix_sync(right, &b_tile[inner][warp_column + j * 16], kColumns + 8);
        for (int i = 0; i < kFragmentsM; ++i) {
          wmma::mma_sync(sum[i][j], left[i], right, sum[i][j]);
        }
      }
    }
    __syncthreads();
  }
  // Tiles at the border are cut, so the result goes through shared memory.
  for (int i = 0; i < kFragmentsM; ++i) {
    for (int j = 0; j < kFragmentsN; ++j) {
      wmma::store_matrix_sync(&c_tile[warp][0][0], sum[i][j], 16, wmma::mem_row_major);
      __syncthreads();
      for (int e = threadIdx.x % 32; e < 256; e += 32) {
        const int row = row0 + warp_row + i * 16 + e / 16;
        const int column = column0 + warp_column + j * 16 + e % 16;
        if (row >= g.m || column >= g.n) continue;
        float* out = c + static_cast<size_t>(row) * g.ldc + column;
        const float value = g.alpha * c_tile[warp][e / 16][e % 16];
        *out = g.beta == 0 ? value : value + g.beta * *out;
      }
      __syncthreads();
    }
  }
}

// Small problems: a 32 x 32 tile on the fp32 pipes, 256 threads.
template <bool kTransposeA, bool kTransposeB>
__device__ void SmallTile(const GemmArgs& g) {
  constexpr int kInner = 32;
  __shared__ float a_tile[32][kInner + 1];
  __shared__ float b_tile[kInner][32 + 1];
  const int column = threadIdx.x % 32;
  const int row = threadIdx.x / 32;
  const int row0 = blockIdx.y * 32;
  const int column0 = blockIdx.x * 32;
  const float* a = g.a + blockIdx.z * g.stride_a;
  const float* b = g.b + blockIdx.z * g.stride_b;
  float* c = g.c + blockIdx.z * g.stride_c;
  float sum[4] = {0, 0, 0, 0};
  for (int inner0 = 0; inner0 < g.k; inner0 += kInner) {
    for (int i = threadIdx.x; i < 32 * kInner; i += kThreads) {
      const int slow = i / 32;
      const int fast = i % 32;
      if (kTransposeA) {
        a_tile[fast][slow] = LoadA<true>(g, a, row0 + fast, inner0 + slow, g.k);
      } else {
        a_tile[slow][fast] = LoadA<false>(g, a, row0 + slow, inner0 + fast, g.k);
      }
      if (kTransposeB) {
        b_tile[fast][slow] = LoadB<true>(g, b, inner0 + fast, column0 + slow, g.k);
      } else {
        b_tile[slow][fast] = LoadB<false>(g, b, inner0 + slow, column0 + fast, g.k);
      }
    }
    __syncthreads();
    for (int inner = 0; inner < kInner; ++inner) {
      for (int i = 0; i < 4; ++i) sum[i] += a_tile[row + i * 8][inner] * b_tile[inner][column];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    const int r = row0 + row + i * 8;
    if (r >= g.m || column0 + column >= g.n) continue;
    float* out = c + static_cast<size_t>(r) * g.ldc + column0 + column;
    *out = g.beta == 0 ? g.alpha * sum[i] : g.alpha * sum[i] + g.beta * *out;
  }
}

// A kernel for each layout of the operands: nn, nt (B transposed), tn (A transposed).
#define TENSOR_GEMM(name, rows, columns, warps_m, warps_n, split)           \
  KERNEL_C __launch_bounds__(warps_m* warps_n * 32) name##_nn(GemmArgs g) { \
    TensorTile<rows, columns, warps_m, warps_n, false, false, split>(g);    \
  }                                                                         \
  KERNEL_C __launch_bounds__(warps_m* warps_n * 32) name##_nt(GemmArgs g) { \
    TensorTile<rows, columns, warps_m, warps_n, false, true, split>(g);     \
  }                                                                         \
  KERNEL_C __launch_bounds__(warps_m* warps_n * 32) name##_tn(GemmArgs g) { \
    TensorTile<rows, columns, warps_m, warps_n, true, false, split>(g);     \
  }
TENSOR_GEMM(gemm_tf32_64x64, 64, 64, 2, 2, false)
TENSOR_GEMM(gemm_tf32_128x64, 128, 64, 4, 2, false)
TENSOR_GEMM(gemm_tf32_128x128, 128, 128, 4, 4, false)
TENSOR_GEMM(gemm_tf32_splitk_64x64, 64, 64, 2, 2, true)
#undef TENSOR_GEMM
KERNEL_C __launch_bounds__(kThreads) sgemm_32x32_nn(GemmArgs g) { SmallTile<false, false>(g); }
KERNEL_C __launch_bounds__(kThreads) sgemm_32x32_nt(GemmArgs g) { SmallTile<false, true>(g); }
KERNEL_C __launch_bounds__(kThreads) sgemm_32x32_tn(GemmArgs g) { SmallTile<true, false>(g); }

KERNEL_C splitk_reduce(const float* partial, int splits, size_t count, float* c, int n, int ldc,
                       float beta) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float sum = 0;
  for (int split = 0; split < splits; ++split) sum += partial[split * count + i];
  float* out = c + i / n * ldc + i % n;
  *out = beta == 0 ? sum : sum + beta * *out;
}

struct GemmKernel {
  const char* name;
  void (*kernel)(GemmArgs);
};
struct GemmFamily {
  GemmKernel nn, nt, tn;
  int rows, columns, threads;
};

#define GEMM_FAMILY(name, rows, columns, threads) \
  GemmFamily { {NAMED(name##_nn)}, {NAMED(name##_nt)}, {NAMED(name##_tn)}, rows, columns, threads }
GemmFamily Family(GemmTile tile) {
  switch (tile) {
    case GemmTile::k32x32:
      return GEMM_FAMILY(sgemm_32x32, 32, 32, kThreads);
    case GemmTile::k64x64:
      return GEMM_FAMILY(gemm_tf32_64x64, 64, 64, 128);
    case GemmTile::k128x64:
      return GEMM_FAMILY(gemm_tf32_128x64, 128, 64, 256);
    case GemmTile::k128x128:
      return GEMM_FAMILY(gemm_tf32_128x128, 128, 128, 512);
    case GemmTile::kSplitK:
      break;
  }
  return GEMM_FAMILY(gemm_tf32_splitk_64x64, 64, 64, 128);
}
#undef GEMM_FAMILY

}  // namespace kernels

using namespace kernels;

void Gemm(const Queue& queue, const GemmCall& call) {
  const double m = call.m, n = call.n, k = call.k, batch = call.batch;
  const size_t outputs = static_cast<size_t>(call.m) * static_cast<size_t>(call.n);
  const GemmVariant variant = PickGemm(call.m, call.n, call.k, call.batch,
                                       static_cast<int>(queue.workspace_floats / outputs));
  const GemmFamily family = Family(variant.tile);
  const bool split = variant.splits > 1;
  GemmArgs args{call.a.data,   call.b.data,
                call.c.data,   call.m,
                call.n,        call.k,
                call.a.ld,     call.b.ld,
                call.c.ld,     call.a.stride,
                call.b.stride, call.c.stride,
                call.alpha,    call.accumulate ? 1.0f : 0.0f,
                call.k};
  SwgpuWork work{};
  (variant.tile == GemmTile::k32x32 ? work.flops : work.tensor_flops) = 2 * m * n * k * batch;
  work.dram_read_bytes = 4 * batch * (m * k + k * n + (call.accumulate && !split ? m * n : 0));
  work.dram_write_bytes = 4 * batch * m * n * variant.splits;
  if (split) {
    args.c = queue.workspace;
    args.ldc = call.n;
    args.stride_c = static_cast<long long>(outputs);
    args.beta = 0;
    // Whole inner tiles, so that no split begins in the middle of one.
    args.k_per_split = (call.k / variant.splits + 15) / 16 * 16;
  }
  const dim3 grid(static_cast<unsigned>((call.n + family.columns - 1) / family.columns),
                  static_cast<unsigned>((call.m + family.rows - 1) / family.rows),
                  static_cast<unsigned>(split ? variant.splits : call.batch));
  const GemmKernel& variant_kernel =
      call.a.transposed ? family.tn : (call.b.transposed ? family.nt : family.nn);
  Launch(queue, work, variant_kernel.name, variant_kernel.kernel, grid,
         dim3(static_cast<unsigned>(family.threads)), args);
  if (!split) return;
  Launch(queue, Work(m * n * variant.splits, m * n * (variant.splits + call.accumulate), m * n),
         NAMED(splitk_reduce), dim3(static_cast<unsigned>(Blocks(outputs, kThreads))),
         dim3(kThreads), queue.workspace, variant.splits, outputs, call.c.data, call.n, call.c.ld,
         call.accumulate ? 1.0f : 0.0f);
}

// ----------------------------------------------------------------------- embedding, elementwise

namespace kernels {

__global__ void embedding_gather(const int* tokens, const float* table, const float* positions,
                                 int batch, float* out, int columns) {
  const int row = blockIdx.x;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    float value = table[static_cast<size_t>(tokens[row]) * columns + c];
    if (positions != nullptr) value += positions[static_cast<size_t>(row / batch) * columns + c];
    out[static_cast<size_t>(row) * columns + c] = value;
  }
}

__global__ void embedding_scatter_add(const int* tokens, const float* d_out, float* d_table,
                                      float* d_positions, int batch, int columns) {
  const int row = blockIdx.x;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    const float value = d_out[static_cast<size_t>(row) * columns + c];
    atomicAdd(&d_table[static_cast<size_t>(tokens[row]) * columns + c], value);
    if (d_positions != nullptr) {
      atomicAdd(&d_positions[static_cast<size_t>(row / batch) * columns + c], value);
    }
  }
}

__device__ float Activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kGelu:
      return 0.5f * x * (1 + erff(x * 0.70710678f));
    case Activation::kClippedRelu:
      return fminf(fmaxf(x, 0.0f), 20.0f);
    case Activation::kNone:
      break;
  }
  return x;
}

__device__ float Slope(Activation activation, float x) {
  switch (activation) {
    case Activation::kGelu:
      return 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
    case Activation::kClippedRelu:
      return x > 0 && x < 20 ? 1.0f : 0.0f;
    case Activation::kNone:
      break;
  }
  return 1;
}

__global__ void bias_activation(Activation activation, const float* x, const float* bias,
                                float* out, size_t count, int columns) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = Activate(activation, x[i] + bias[i % columns]);
}

__global__ void activation_backward(Activation activation, const float* x, const float* bias,
                                    const float* d_out, float* d_x, size_t count, int columns) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  d_x[i] = d_out[i] * Slope(activation, x[i] + bias[i % columns]);
}

constexpr int kRowsPerSum = 256;

// Blocks of 32 columns x 8 rows; each block sums kRowsPerSum rows.
__global__ void column_sum(const float* x, float* out, int rows, int columns) {
  __shared__ float sums[8][32];
  const int column = blockIdx.x * 32 + threadIdx.x;
  const int begin = blockIdx.y * kRowsPerSum;
  const int end = min(rows, begin + kRowsPerSum);
  float sum = 0;
  if (column < columns) {
    for (int r = begin + threadIdx.y; r < end; r += 8) {
      sum += x[static_cast<size_t>(r) * columns + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int i = 1; i < 8; ++i) sum += sums[i][threadIdx.x];
  atomicAdd(&out[column], sum);
}

__global__ void add_tensors(const float* a, const float* b, float* out, size_t count) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = b == nullptr ? out[i] + a[i] : a[i] + b[i];
}

__global__ void copy_matrix(const float* from, int from_ld, float* to, int to_ld, size_t count,
                            int columns, bool accumulate) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float value = from[i / columns * from_ld + i % columns];
  float* out = &to[i / columns * to_ld + i % columns];
  *out = accumulate ? *out + value : value;
}

__global__ void transpose(const float* x, float* out, int rows, int columns) {
  __shared__ float tile[32][33];
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.y * 32 + i;
    const int column = blockIdx.x * 32 + threadIdx.x;
    if (row < rows && column < columns) {
      tile[i][threadIdx.x] = x[static_cast<size_t>(row) * columns + column];
    }
  }
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += 8) {
    const int row = blockIdx.x * 32 + i;
    const int column = blockIdx.y * 32 + threadIdx.x;
    if (row < columns && column < rows) {
      out[static_cast<size_t>(row) * rows + column] = tile[threadIdx.x][i];
    }
  }
}

__global__ void fill_zero(float* data, size_t count) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) data[i] = 0;
}

dim3 Grid(size_t count) { return dim3(static_cast<unsigned>(Blocks(count, kThreads))); }

dim3 TileGrid(int rows, int columns, int rows_per_block) {
  return dim3(static_cast<unsigned>((columns + 31) / 32),
              static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block));
}

size_t Count(int rows, int columns) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns);
}

}  // namespace kernels

void EmbeddingGather(const Queue& queue, const int* tokens, const float* table,
                     const float* positions, int batch, float* out, int rows, int columns) {
  const double count = static_cast<double>(Count(rows, columns));
  Launch(queue, Work(count, count + rows, count), NAMED(embedding_gather),
         dim3(static_cast<unsigned>(rows)), dim3(128), tokens, table, positions, batch, out,
         columns);
}

void EmbeddingScatterAdd(const Queue& queue, const int* tokens, const float* d_out, float* d_table,
                         float* d_positions, int batch, int rows, int columns) {
  const double count = static_cast<double>(Count(rows, columns));
  Launch(queue, Work(count, 2 * count + rows, count), NAMED(embedding_scatter_add),
         dim3(static_cast<unsigned>(rows)), dim3(128), tokens, d_out, d_table, d_positions, batch,
         columns);
}

void BiasActivation(const Queue& queue, Activation activation, const float* x, const float* bias,
                    float* out, int rows, int columns) {
  const size_t count = Count(rows, columns);
  const double n = static_cast<double>(count);
  Launch(queue, Work(n * (activation == Activation::kGelu ? 20 : 3), n + columns, n),
         NAMED(bias_activation), Grid(count), dim3(kThreads), activation, x, bias, out, count,
         columns);
}

void ActivationBackward(const Queue& queue, Activation activation, const float* x,
                        const float* bias, const float* d_out, float* d_x, int rows, int columns) {
  const size_t count = Count(rows, columns);
  const double n = static_cast<double>(count);
  Launch(queue, Work(n * (activation == Activation::kGelu ? 30 : 4), 2 * n + columns, n),
         NAMED(activation_backward), Grid(count), dim3(kThreads), activation, x, bias, d_out, d_x,
         count, columns);
}

void ColumnSum(const Queue& queue, const float* x, float* out, int rows, int columns) {
  const double n = static_cast<double>(Count(rows, columns));
  Launch(queue, Work(n, n + columns, columns), NAMED(column_sum),
         TileGrid(rows, columns, kRowsPerSum), dim3(32, 8), x, out, rows, columns);
}

void Add(const Queue& queue, const float* a, const float* b, float* out, size_t count) {
  const double n = static_cast<double>(count);
  Launch(queue, Work(n, 2 * n, n), NAMED(add_tensors), Grid(count), dim3(kThreads), a, b, out,
         count);
}

void CopyMatrix(const Queue& queue, const float* from, int from_ld, float* to, int to_ld, int rows,
                int columns, bool accumulate) {
  const size_t count = Count(rows, columns);
  const double n = static_cast<double>(count);
  Launch(queue, Work(accumulate ? n : 0, n * (1 + accumulate), n), NAMED(copy_matrix), Grid(count),
         dim3(kThreads), from, from_ld, to, to_ld, count, columns, accumulate);
}

void Transpose(const Queue& queue, const float* x, float* out, int rows, int columns) {
  const double n = static_cast<double>(Count(rows, columns));
  Launch(queue, Work(0, n, n), NAMED(transpose), TileGrid(rows, columns, 32), dim3(32, 8), x, out,
         rows, columns);
}

void FillZero(const Queue& queue, float* data, size_t count) {
  Launch(queue, Work(0, 0, static_cast<double>(count)), NAMED(fill_zero), Grid(count),
         dim3(kThreads), data, count);
}

// ------------------------------------------------------------------------------------ recurrence

namespace kernels {

__device__ float Sigmoid(float x) { return 1 / (1 + expf(-x)); }

KERNEL_C lstm_cell_forward(float* gates, const float* bias, const float* c_prev, float* c, float* h,
                           int h_ld, int batch, int hidden) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batch * hidden) return;
  const int row = i / hidden;
  const int j = i % hidden;
  float* gate = gates + static_cast<size_t>(row) * 4 * hidden + j;
  const float in = Sigmoid(gate[0] + bias[j]);
  const float forget = Sigmoid(gate[hidden] + bias[hidden + j]);
  const float cell = tanhf(gate[2 * hidden] + bias[2 * hidden + j]);
  const float out = Sigmoid(gate[3 * hidden] + bias[3 * hidden + j]);
  const float state = in * cell + (c_prev == nullptr ? 0 : forget * c_prev[i]);
  gate[0] = in;
  gate[hidden] = forget;
  gate[2 * hidden] = cell;
  gate[3 * hidden] = out;
  c[i] = state;
  h[static_cast<size_t>(row) * h_ld + j] = out * tanhf(state);
}

KERNEL_C lstm_cell_backward(float* gates, const float* c_prev, const float* c, const float* d_h,
                            int d_h_ld, const float* d_h_next, float* d_c, bool last, int batch,
                            int hidden) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batch * hidden) return;
  const int row = i / hidden;
  const int j = i % hidden;
  float* gate = gates + static_cast<size_t>(row) * 4 * hidden + j;
  const float in = gate[0], forget = gate[hidden], cell = gate[2 * hidden], out = gate[3 * hidden];
  const float state = tanhf(c[i]);
  const float grad_h =
      d_h[static_cast<size_t>(row) * d_h_ld + j] + (d_h_next == nullptr ? 0 : d_h_next[i]);
  const float grad_c = grad_h * out * (1 - state * state) + (last ? 0 : d_c[i]);
  gate[0] = grad_c * cell * in * (1 - in);
  gate[hidden] = c_prev == nullptr ? 0 : grad_c * c_prev[i] * forget * (1 - forget);
  gate[2 * hidden] = grad_c * in * (1 - cell * cell);
  gate[3 * hidden] = grad_h * state * out * (1 - out);
  d_c[i] = grad_c * forget;
}

constexpr int kMaxRnnHidden = 1024;

// A block is one example in one direction; the recurrence never leaves it.
KERNEL_C __launch_bounds__(kThreads)
    rnn_tanh_forward(const float* gx, const float* bias, const float* u, float* h, int steps,
                     int from, int to, int batch, int hidden) {
  __shared__ float previous[kMaxRnnHidden];
  const int example = blockIdx.x;
  const int direction = blockIdx.y;
  const float* weights = u + static_cast<size_t>(direction) * hidden * hidden;
  auto row = [&](int step) {
    const int t = direction == 0 ? step : steps - 1 - step;
    return (static_cast<size_t>(t) * batch + example) * 2 * hidden + direction * hidden;
  };
  for (int j = threadIdx.x; j < hidden; j += kThreads) {
    previous[j] = from == 0 ? 0 : h[row(from - 1) + j];
  }
  __syncthreads();
  for (int step = from; step < to; ++step) {
    float values[kMaxRnnHidden / kThreads];
    for (int i = 0, j = threadIdx.x; j < hidden; ++i, j += kThreads) {
      float sum = gx[row(step) + j] + bias[direction * hidden + j];
      for (int k = 0; k < hidden; ++k) sum += previous[k] * weights[k * hidden + j];
      values[i] = tanhf(sum);
    }
    __syncthreads();
    for (int i = 0, j = threadIdx.x; j < hidden; ++i, j += kThreads) {
      previous[j] = values[i];
      h[row(step) + j] = values[i];
    }
    __syncthreads();
  }
}

KERNEL_C __launch_bounds__(kThreads)
    rnn_tanh_backward(const float* u_t, const float* h, const float* d_h, float* d_a, int steps,
                      int from, int to, int batch, int hidden) {
  __shared__ float next[kMaxRnnHidden];
  const int example = blockIdx.x;
  const int direction = blockIdx.y;
  const float* weights = u_t + static_cast<size_t>(direction) * hidden * hidden;
  auto row = [&](int step) {
    const int t = direction == 0 ? step : steps - 1 - step;
    return (static_cast<size_t>(t) * batch + example) * 2 * hidden + direction * hidden;
  };
  for (int j = threadIdx.x; j < hidden; j += kThreads) {
    next[j] = from == steps ? 0 : d_a[row(from) + j];
  }
  __syncthreads();
  for (int step = from - 1; step >= to; --step) {
    float values[kMaxRnnHidden / kThreads];
    for (int i = 0, j = threadIdx.x; j < hidden; ++i, j += kThreads) {
      float sum = d_h[row(step) + j];
      for (int k = 0; k < hidden; ++k) sum += next[k] * weights[k * hidden + j];
      const float value = h[row(step) + j];
      values[i] = sum * (1 - value * value);
    }
    __syncthreads();
    for (int i = 0, j = threadIdx.x; j < hidden; ++i, j += kThreads) {
      next[j] = values[i];
      d_a[row(step) + j] = values[i];
    }
    __syncthreads();
  }
}

}  // namespace kernels

void LstmCellForward(const Queue& queue, float* gates, const float* bias, const float* c_prev,
                     float* c, float* h, int h_ld, int batch, int hidden) {
  const size_t count = Count(batch, hidden);
  const double n = static_cast<double>(count);
  Launch(queue, Work(50 * n, 5 * n + 4 * hidden, 6 * n), NAMED(lstm_cell_forward), Grid(count),
         dim3(kThreads), gates, bias, c_prev, c, h, h_ld, batch, hidden);
}

void LstmCellBackward(const Queue& queue, float* gates, const float* c_prev, const float* c,
                      const float* d_h, int d_h_ld, const float* d_h_next, float* d_c, bool last,
                      int batch, int hidden) {
  const size_t count = Count(batch, hidden);
  const double n = static_cast<double>(count);
  Launch(queue, Work(40 * n, 9 * n, 5 * n), NAMED(lstm_cell_backward), Grid(count), dim3(kThreads),
         gates, c_prev, c, d_h, d_h_ld, d_h_next, d_c, last, batch, hidden);
}

namespace kernels {

SwgpuWork RnnWork(int steps, int batch, int hidden, int arrays) {
  const double outputs = 2.0 * steps * batch * hidden;
  return Work(outputs * (2.0 * hidden + 12), outputs * arrays + 2.0 * hidden * hidden, outputs);
}

}  // namespace kernels

void RnnForward(const Queue& queue, const float* gx, const float* bias, const float* u, float* h,
                int steps, int from, int to, int batch, int hidden) {
  Launch(queue, RnnWork(to - from, batch, hidden, 1), NAMED(rnn_tanh_forward),
         dim3(static_cast<unsigned>(batch), 2), dim3(kThreads), gx, bias, u, h, steps, from, to,
         batch, hidden);
}

void RnnBackward(const Queue& queue, const float* u_t, const float* h, const float* d_h, float* d_a,
                 int steps, int from, int to, int batch, int hidden) {
  Launch(queue, RnnWork(from - to, batch, hidden, 2), NAMED(rnn_tanh_backward),
         dim3(static_cast<unsigned>(batch), 2), dim3(kThreads), u_t, h, d_h, d_a, steps, from, to,
         batch, hidden);
}

// ---------------------------------------------------------------------------- softmax, attention

namespace kernels {

// Eight rows a block, 32 threads a row.
template <bool kMax>
__device__ float RowReduce(float value) {
  __shared__ float buffer[8][32];
  buffer[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  for (int half = 16; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      const float other = buffer[threadIdx.y][threadIdx.x + half];
      float& own = buffer[threadIdx.y][threadIdx.x];
      own = kMax ? fmaxf(own, other) : own + other;
    }
    __syncthreads();
  }
  const float result = buffer[threadIdx.y][0];
  __syncthreads();
  return result;
}

__global__ void softmax_short(float* x, int rows, int columns) {
  const int row = blockIdx.x * 8 + threadIdx.y;
  // Every thread takes part in the reductions, so rows beyond the end work on row 0 and write
  // nothing.
  float* data = x + static_cast<size_t>(row < rows ? row : 0) * columns;
  float largest = -INFINITY;
  for (int c = threadIdx.x; c < columns; c += 32) largest = fmaxf(largest, data[c]);
  largest = RowReduce<true>(largest);
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += 32) sum += expf(data[c] - largest);
  sum = RowReduce<false>(sum);
  if (row >= rows) return;
  for (int c = threadIdx.x; c < columns; c += 32) data[c] = expf(data[c] - largest) / sum;
}

__global__ void softmax_long(float* x, int columns) {
  float* data = x + static_cast<size_t>(blockIdx.x) * columns;
  float largest = -INFINITY;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) largest = fmaxf(largest, data[c]);
  largest = BlockReduce<true>(largest);
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += expf(data[c] - largest);
  sum = BlockReduce<false>(sum);
  for (int c = threadIdx.x; c < columns; c += blockDim.x) data[c] = expf(data[c] - largest) / sum;
}

__global__ void softmax_backward_short(const float* p, float* d_p, int rows, int columns) {
  const int row = blockIdx.x * 8 + threadIdx.y;
  const size_t begin = static_cast<size_t>(row < rows ? row : 0) * columns;
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += 32) sum += p[begin + c] * d_p[begin + c];
  sum = RowReduce<false>(sum);
  if (row >= rows) return;
  for (int c = threadIdx.x; c < columns; c += 32) {
    d_p[begin + c] = p[begin + c] * (d_p[begin + c] - sum);
  }
}

__global__ void softmax_backward_long(const float* p, float* d_p, int columns) {
  const size_t begin = static_cast<size_t>(blockIdx.x) * columns;
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += p[begin + c] * d_p[begin + c];
  sum = BlockReduce<false>(sum);
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    d_p[begin + c] = p[begin + c] * (d_p[begin + c] - sum);
  }
}

// One block per query: thread i of the first `keys` owns score i.
KERNEL_C attention_short(AttentionShape s, const float* q, const float* k, const float* v, float* p,
                         float* out) {
  __shared__ float scores[128];
  const int query = blockIdx.x;
  const int head = blockIdx.y;
  const int i = threadIdx.x;
  const float* q_row = q + static_cast<size_t>(query) * s.q_ld + head * s.q_stride;
  float score = -INFINITY;
  if (i < s.keys) {
    const float* k_row = k + static_cast<size_t>(i) * s.k_ld + head * s.k_stride;
    score = 0;
    for (int w = 0; w < s.width; ++w) score += q_row[w] * k_row[w];
    score *= s.scale;
  }
  const float largest = BlockReduce<true>(score);
  const float weight = i < s.keys ? expf(score - largest) : 0;
  const float sum = BlockReduce<false>(weight);
  scores[i] = weight / sum;
  if (i < s.keys) {
    p[(static_cast<size_t>(head) * s.queries + query) * s.keys + i] = scores[i];
  }
  __syncthreads();
  for (int w = i; w < s.width; w += blockDim.x) {
    float value = 0;
    for (int key = 0; key < s.keys; ++key) {
      value += scores[key] * v[static_cast<size_t>(key) * s.k_ld + head * s.k_stride + w];
    }
    out[static_cast<size_t>(query) * s.out_ld + head * s.out_stride + w] = value;
  }
}

// Up to here a row belongs to one warp's worth of threads.
constexpr int kShortRow = 128;

}  // namespace kernels

void Softmax(const Queue& queue, float* x, int rows, int columns) {
  const double n = static_cast<double>(Count(rows, columns));
  if (columns <= kShortRow) {
    Launch(queue, Work(12 * n, n, n), NAMED(softmax_short),
           dim3(static_cast<unsigned>((rows + 7) / 8)), dim3(32, 8), x, rows, columns);
  } else {
    Launch(queue, Work(12 * n, n, n), NAMED(softmax_long), dim3(static_cast<unsigned>(rows)),
           dim3(kThreads), x, columns);
  }
}

void SoftmaxBackward(const Queue& queue, const float* p, float* d_p, int rows, int columns) {
  const double n = static_cast<double>(Count(rows, columns));
  if (columns <= kShortRow) {
    Launch(queue, Work(4 * n, 2 * n, n), NAMED(softmax_backward_short),
           dim3(static_cast<unsigned>((rows + 7) / 8)), dim3(32, 8), p, d_p, rows, columns);
  } else {
    Launch(queue, Work(4 * n, 2 * n, n), NAMED(softmax_backward_long),
           dim3(static_cast<unsigned>(rows)), dim3(kThreads), p, d_p, columns);
  }
}

void AttentionShort(const Queue& queue, const AttentionShape& s, const float* q, const float* k,
                    const float* v, float* p, float* out) {
  const double scores = static_cast<double>(s.batch) * s.queries * s.keys;
  const double heads = static_cast<double>(s.batch) * s.width;
  Launch(queue,
         Work(scores * (4.0 * s.width + 12), heads * (s.queries + 2.0 * s.keys),
              scores + heads * s.queries),
         NAMED(attention_short),
         dim3(static_cast<unsigned>(s.queries), static_cast<unsigned>(s.batch)), dim3(128), s, q, k,
         v, p, out);
}

// -------------------------------------------------------------------------------- normalisation

namespace kernels {

__global__ void layernorm_forward(const float* a, const float* b, const float* gamma,
                                  const float* beta, float* sum, float* stats, float* out,
                                  int columns) {
  const size_t begin = static_cast<size_t>(blockIdx.x) * columns;
  float total = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    const float value = a[begin + c] + (b == nullptr ? 0 : b[begin + c]);
    sum[begin + c] = value;
    total += value;
  }
  const float mean = BlockReduce<false>(total) / columns;
  float squares = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    squares += (sum[begin + c] - mean) * (sum[begin + c] - mean);
  }
  const float inverse = rsqrtf(BlockReduce<false>(squares) / columns + 1e-5f);
  if (threadIdx.x == 0) {
    stats[2 * blockIdx.x] = mean;
    stats[2 * blockIdx.x + 1] = inverse;
  }
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    out[begin + c] = (sum[begin + c] - mean) * inverse * gamma[c] + beta[c];
  }
}

__global__ void layernorm_backward(const float* sum, const float* stats, const float* gamma,
                                   const float* d_out, float* d_x, int columns) {
  const size_t begin = static_cast<size_t>(blockIdx.x) * columns;
  const float mean = stats[2 * blockIdx.x];
  const float inverse = stats[2 * blockIdx.x + 1];
  float total = 0;
  float projected = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    const float grad = d_out[begin + c] * gamma[c];
    total += grad;
    projected += grad * (sum[begin + c] - mean) * inverse;
  }
  total = BlockReduce<false>(total) / columns;
  projected = BlockReduce<false>(projected) / columns;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    const float normal = (sum[begin + c] - mean) * inverse;
    d_x[begin + c] = inverse * (d_out[begin + c] * gamma[c] - total - normal * projected);
  }
}

__global__ void layernorm_parameters(const float* sum, const float* stats, const float* d_out,
                                     float* d_gamma, float* d_beta, int rows, int columns) {
  __shared__ float gammas[8][32];
  __shared__ float betas[8][32];
  const int column = blockIdx.x * 32 + threadIdx.x;
  const int begin = blockIdx.y * kRowsPerSum;
  const int end = min(rows, begin + kRowsPerSum);
  float gamma = 0;
  float beta = 0;
  if (column < columns) {
    for (int r = begin + threadIdx.y; r < end; r += 8) {
      const size_t i = static_cast<size_t>(r) * columns + column;
      gamma += d_out[i] * (sum[i] - stats[2 * r]) * stats[2 * r + 1];
      beta += d_out[i];
    }
  }
  gammas[threadIdx.y][threadIdx.x] = gamma;
  betas[threadIdx.y][threadIdx.x] = beta;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int i = 1; i < 8; ++i) {
    gamma += gammas[i][threadIdx.x];
    beta += betas[i][threadIdx.x];
  }
  atomicAdd(&d_gamma[column], gamma);
  atomicAdd(&d_beta[column], beta);
}

}  // namespace kernels

void LayerNorm(const Queue& queue, const float* a, const float* b, const float* gamma,
               const float* beta, float* sum, float* stats, float* out, int rows, int columns) {
  const double n = static_cast<double>(Count(rows, columns));
  Launch(queue, Work(8 * n, (b == nullptr ? 1 : 2) * n + 2 * columns, 2 * n + 2 * rows),
         NAMED(layernorm_forward), dim3(static_cast<unsigned>(rows)), dim3(kThreads), a, b, gamma,
         beta, sum, stats, out, columns);
}

void LayerNormBackward(const Queue& queue, const float* sum, const float* stats, const float* gamma,
                       const float* d_out, float* d_x, int rows, int columns) {
  const double n = static_cast<double>(Count(rows, columns));
  Launch(queue, Work(12 * n, 2 * n + 2 * rows + columns, n), NAMED(layernorm_backward),
         dim3(static_cast<unsigned>(rows)), dim3(kThreads), sum, stats, gamma, d_out, d_x, columns);
}

void LayerNormParameters(const Queue& queue, const float* sum, const float* stats,
                         const float* d_out, float* d_gamma, float* d_beta, int rows, int columns) {
  const double n = static_cast<double>(Count(rows, columns));
  Launch(queue, Work(5 * n, 2 * n + 2 * rows, 2 * columns), NAMED(layernorm_parameters),
         TileGrid(rows, columns, kRowsPerSum), dim3(32, 8), sum, stats, d_out, d_gamma, d_beta,
         rows, columns);
}

// ------------------------------------------------------------------------------------------ loss

namespace kernels {

__global__ void cross_entropy_forward(const float* logits, const int* labels, float* row_loss,
                                      float* lse, int columns) {
  const int row = blockIdx.x;
  const float* data = logits + static_cast<size_t>(row) * columns;
  float largest = -INFINITY;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) largest = fmaxf(largest, data[c]);
  largest = BlockReduce<true>(largest);
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += expf(data[c] - largest);
  sum = BlockReduce<false>(sum);
  if (threadIdx.x != 0) return;
  lse[row] = largest + logf(sum);
  row_loss[row] = labels[row] < 0 ? 0 : lse[row] - data[labels[row]];
}

__global__ void cross_entropy_backward(float* logits, const int* labels, const float* lse,
                                       float scale, size_t count, int columns) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const size_t row = i / columns;
  const int label = labels[row];
  const float probability = expf(logits[i] - lse[row]);
  const bool hit = static_cast<int>(i % columns) == label;
  logits[i] = label < 0 ? 0 : scale * (probability - (hit ? 1 : 0));
}

__global__ void reduce_loss(const float* row_loss, int rows, float scale, float* loss,
                            bool accumulate) {
  float sum = 0;
  for (int r = threadIdx.x; r < rows; r += blockDim.x) sum += row_loss[r];
  sum = BlockReduce<false>(sum);
  if (threadIdx.x == 0) loss[0] = scale * sum + (accumulate ? loss[0] : 0);
}

constexpr int kMaxCtcStates = 1024;
constexpr int kMaxCtcSymbols = 32;

__device__ float LogAdd(float a, float b) {
  const float largest = fmaxf(a, b);
  if (largest == -INFINITY) return largest;
  return largest + log1pf(expf(fminf(a, b) - largest));
}

// One block per example. alpha holds the forward log-probabilities; the backward ones never leave
// shared memory.
KERNEL_C __launch_bounds__(kThreads)
    ctc_loss(const float* logits, const int* labels, float* alpha, float* row_loss, float* d_logits,
             float scale, int steps, int batch, int symbols, int max_labels) {
  __shared__ int symbol[kMaxCtcStates];
  __shared__ float beta[2][kMaxCtcStates];
  __shared__ float log_p[kMaxCtcSymbols];
  __shared__ float occupied[kMaxCtcSymbols];
  const int example = blockIdx.x;
  const int thread = threadIdx.x;
  const int* own_labels = labels + static_cast<size_t>(example) * max_labels;
  int count = 0;
  while (count < max_labels && own_labels[count] >= 0) ++count;
  const int states = 2 * count + 1;
  for (int s = thread; s < states; s += kThreads) symbol[s] = s % 2 == 0 ? 0 : own_labels[s / 2];
  const size_t alpha_row = 2 * static_cast<size_t>(max_labels) + 1;

  auto load_log_p = [&](int t) {
    const float* row = logits + (static_cast<size_t>(t) * batch + example) * symbols;
    __syncthreads();
    if (thread < symbols) {
      float largest = row[0];
      for (int i = 1; i < symbols; ++i) largest = fmaxf(largest, row[i]);
      float sum = 0;
      for (int i = 0; i < symbols; ++i) sum += expf(row[i] - largest);
      log_p[thread] = row[thread] - largest - logf(sum);
      occupied[thread] = 0;
    }
    __syncthreads();
  };
  auto skips = [&](int s) {  // state s may follow state s - 2
    return s >= 2 && symbol[s] != 0 && symbol[s] != symbol[s - 2];
  };

  for (int t = 0; t < steps; ++t) {
    load_log_p(t);
    float* now = alpha + (static_cast<size_t>(t) * batch + example) * alpha_row;
    const float* before = now - static_cast<size_t>(batch) * alpha_row;
    for (int s = thread; s < states; s += kThreads) {
      float value = s < 2 ? 0 : -INFINITY;
      if (t > 0) {
        value = before[s];
        if (s >= 1) value = LogAdd(value, before[s - 1]);
        if (skips(s)) value = LogAdd(value, before[s - 2]);
      }
      now[s] = value + log_p[symbol[s]];
    }
  }
  __syncthreads();
  const float* end = alpha + (static_cast<size_t>(steps - 1) * batch + example) * alpha_row;
  const float total = LogAdd(end[states - 1], states > 1 ? end[states - 2] : -INFINITY);
  if (thread == 0) row_loss[example] = -total;

  for (int t = steps - 1; t >= 0; --t) {
    float* now = beta[t % 2];
    const float* after = beta[(t + 1) % 2];
    // log_p still belongs to step t + 1 here, as the recursion wants.
    for (int s = thread; s < states; s += kThreads) {
      float value = s >= states - 2 ? 0 : -INFINITY;
      if (t < steps - 1) {
        value = after[s] + log_p[symbol[s]];
        if (s + 1 < states) value = LogAdd(value, after[s + 1] + log_p[symbol[s + 1]]);
        if (s + 2 < states && skips(s + 2)) {
          value = LogAdd(value, after[s + 2] + log_p[symbol[s + 2]]);
        }
      }
      now[s] = value;
    }
    load_log_p(t);
    const float* forward = alpha + (static_cast<size_t>(t) * batch + example) * alpha_row;
    for (int s = thread; s < states; s += kThreads) {
      atomicAdd(&occupied[symbol[s]], expf(forward[s] + now[s] - total));
    }
    __syncthreads();
    if (thread < symbols) {
      d_logits[(static_cast<size_t>(t) * batch + example) * symbols + thread] =
          scale * (expf(log_p[thread]) - occupied[thread]);
    }
  }
}

}  // namespace kernels

void CrossEntropy(const Queue& queue, const float* logits, const int* labels, float* row_loss,
                  float* lse, int rows, int columns) {
  const double n = static_cast<double>(Count(rows, columns));
  Launch(queue, Work(10 * n, n + rows, 2.0 * rows), NAMED(cross_entropy_forward),
         dim3(static_cast<unsigned>(rows)), dim3(kThreads), logits, labels, row_loss, lse, columns);
}

void CrossEntropyBackward(const Queue& queue, float* logits, const int* labels, const float* lse,
                          float scale, int rows, int columns) {
  const size_t count = Count(rows, columns);
  const double n = static_cast<double>(count);
  Launch(queue, Work(10 * n, n + 2.0 * rows, n), NAMED(cross_entropy_backward), Grid(count),
         dim3(kThreads), logits, labels, lse, scale, count, columns);
}

void ReduceLoss(const Queue& queue, const float* row_loss, int rows, float scale, float* loss,
                bool accumulate) {
  Launch(queue, Work(rows, rows, 1), NAMED(reduce_loss), dim3(1), dim3(kThreads), row_loss, rows,
         scale, loss, accumulate);
}

void Ctc(const Queue& queue, const float* logits, const int* labels, float* alpha, float* row_loss,
         float* d_logits, float scale, int steps, int batch, int symbols, int max_labels) {
  const double outputs = static_cast<double>(steps) * batch;
  const double states = outputs * (2.0 * max_labels + 1);
  Launch(queue,
         Work(60 * states + outputs * symbols * symbols * 8, states + 2 * outputs * symbols,
              states + outputs * symbols),
         NAMED(ctc_loss), dim3(static_cast<unsigned>(batch)), dim3(kThreads), logits, labels, alpha,
         row_loss, d_logits, scale, steps, batch, symbols, max_labels);
}

// ----------------------------------------------------------------------------------- convolution

namespace kernels {

__device__ size_t At(int t, int batch, int b, int channels, int c, int width, int f) {
  return ((static_cast<size_t>(t) * batch + b) * channels + c) * width + f;
}

// A thread per output. kThreadsPerBlock distinguishes the variants for narrow and wide outputs.
template <int kThreadsPerBlock>
__device__ void ConvForwardBody(const ConvShape& s, const float* x, const float* filter, float* out,
                                int out_time, int out_frequency) {
  const int per_channel = out_time * out_frequency;
  const int i = blockIdx.x * kThreadsPerBlock + threadIdx.x;
  const int channel = blockIdx.y;
  const int b = blockIdx.z;
  if (i >= per_channel) return;
  const int t = i / out_frequency;
  const int f = i % out_frequency;
  const int t0 = t * s.stride - s.kernel_time / 2;
  const int f0 = f * s.stride - s.kernel_frequency / 2;
  float sum = 0;
  for (int in = 0; in < s.in_channels; ++in) {
    const float* weights =
        filter + (channel * s.in_channels + in) * s.kernel_time * s.kernel_frequency;
    for (int kt = max(0, -t0); kt < s.kernel_time && t0 + kt < s.in_time; ++kt) {
      for (int kf = max(0, -f0); kf < s.kernel_frequency && f0 + kf < s.in_frequency; ++kf) {
        sum += weights[kt * s.kernel_frequency + kf] *
               x[At(t0 + kt, s.batch, b, s.in_channels, in, s.in_frequency, f0 + kf)];
      }
    }
  }
  out[At(t, s.batch, b, s.out_channels, channel, out_frequency, f)] = sum;
}

KERNEL_C conv2d_forward_narrow(ConvShape s, const float* x, const float* filter, float* out,
                               int out_time, int out_frequency) {
  ConvForwardBody<64>(s, x, filter, out, out_time, out_frequency);
}

KERNEL_C conv2d_forward_wide(ConvShape s, const float* x, const float* filter, float* out,
                             int out_time, int out_frequency) {
  ConvForwardBody<256>(s, x, filter, out, out_time, out_frequency);
}

KERNEL_C conv2d_data_gradient(ConvShape s, const float* d_out, const float* filter, float* d_x,
                              int out_time, int out_frequency) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int channel = blockIdx.y;
  const int b = blockIdx.z;
  if (i >= s.in_time * s.in_frequency) return;
  const int t = i / s.in_frequency;
  const int f = i % s.in_frequency;
  float sum = 0;
  for (int kt = 0; kt < s.kernel_time; ++kt) {
    const int scaled_t = t + s.kernel_time / 2 - kt;
    if (scaled_t < 0 || scaled_t % s.stride != 0 || scaled_t / s.stride >= out_time) continue;
    for (int kf = 0; kf < s.kernel_frequency; ++kf) {
      const int scaled_f = f + s.kernel_frequency / 2 - kf;
      if (scaled_f < 0 || scaled_f % s.stride != 0 || scaled_f / s.stride >= out_frequency) {
        continue;
      }
      for (int out = 0; out < s.out_channels; ++out) {
        sum += filter[((out * s.in_channels + channel) * s.kernel_time + kt) * s.kernel_frequency +
                      kf] *
               d_out[At(scaled_t / s.stride, s.batch, b, s.out_channels, out, out_frequency,
                        scaled_f / s.stride)];
      }
    }
  }
  d_x[At(t, s.batch, b, s.in_channels, channel, s.in_frequency, f)] = sum;
}

// A block per filter weight.
KERNEL_C conv2d_filter_gradient(ConvShape s, const float* x, const float* d_out, float* d_filter,
                                int out_time, int out_frequency) {
  const int weight = blockIdx.x;
  const int kf = weight % s.kernel_frequency;
  const int kt = weight / s.kernel_frequency % s.kernel_time;
  const int in = weight / (s.kernel_frequency * s.kernel_time) % s.in_channels;
  const int out = weight / (s.kernel_frequency * s.kernel_time * s.in_channels);
  float sum = 0;
  for (int i = threadIdx.x; i < out_time * s.batch * out_frequency; i += blockDim.x) {
    const int f = i % out_frequency;
    const int b = i / out_frequency % s.batch;
    const int t = i / (out_frequency * s.batch);
    const int in_t = t * s.stride - s.kernel_time / 2 + kt;
    const int in_f = f * s.stride - s.kernel_frequency / 2 + kf;
    if (in_t < 0 || in_t >= s.in_time || in_f < 0 || in_f >= s.in_frequency) continue;
    sum += x[At(in_t, s.batch, b, s.in_channels, in, s.in_frequency, in_f)] *
           d_out[At(t, s.batch, b, s.out_channels, out, out_frequency, f)];
  }
  sum = BlockReduce<false>(sum);
  if (threadIdx.x == 0) d_filter[weight] += sum;
}

// Elements of the three tensors, and the multiply-adds, the same for all three kernels.
struct ConvSizes {
  double x, filter, out, flops;
};
ConvSizes Sizes(const ConvShape& s) {
  const double filter = 1.0 * s.out_channels * s.in_channels * s.kernel_time * s.kernel_frequency;
  const double positions = 1.0 * s.OutTime() * s.OutFrequency() * s.batch;
  return {1.0 * s.in_time * s.batch * s.in_channels * s.in_frequency, filter,
          positions * s.out_channels, 2 * positions * filter};
}

// Outputs per channel from which the wide variant is worth its larger blocks.
constexpr int kWideConv = 8192;

}  // namespace kernels

void Conv(const Queue& queue, const ConvShape& s, const float* x, const float* filter, float* out) {
  const ConvSizes sizes = Sizes(s);
  const int per_channel = s.OutTime() * s.OutFrequency();
  const bool wide = per_channel >= kWideConv;
  const int threads = wide ? 256 : 64;
  Launch(queue, Work(sizes.flops, sizes.x + sizes.filter, sizes.out),
         wide ? "conv2d_forward_wide" : "conv2d_forward_narrow",
         wide ? conv2d_forward_wide : conv2d_forward_narrow,
         dim3(static_cast<unsigned>((per_channel + threads - 1) / threads),
              static_cast<unsigned>(s.out_channels), static_cast<unsigned>(s.batch)),
         dim3(static_cast<unsigned>(threads)), s, x, filter, out, s.OutTime(), s.OutFrequency());
}

void ConvDataGradient(const Queue& queue, const ConvShape& s, const float* d_out,
                      const float* filter, float* d_x) {
  const ConvSizes sizes = Sizes(s);
  Launch(queue, Work(sizes.flops, sizes.out + sizes.filter, sizes.x), NAMED(conv2d_data_gradient),
         dim3(static_cast<unsigned>((s.in_time * s.in_frequency + kThreads - 1) / kThreads),
              static_cast<unsigned>(s.in_channels), static_cast<unsigned>(s.batch)),
         dim3(kThreads), s, d_out, filter, d_x, s.OutTime(), s.OutFrequency());
}

void ConvFilterGradient(const Queue& queue, const ConvShape& s, const float* x, const float* d_out,
                        float* d_filter) {
  const ConvSizes sizes = Sizes(s);
  const int weights = s.out_channels * s.in_channels * s.kernel_time * s.kernel_frequency;
  Launch(queue, Work(sizes.flops, sizes.x + sizes.out + sizes.filter, sizes.filter),
         NAMED(conv2d_filter_gradient), dim3(static_cast<unsigned>(weights)), dim3(kThreads), s, x,
         d_out, d_filter, s.OutTime(), s.OutFrequency());
}

// -------------------------------------------------------------------------- padding, optimisation

namespace kernels {

__global__ void pad_tokens(const int* packed, const int* offsets, int* tokens, int* labels,
                           int length, int batch) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= length * batch) return;
  const int b = i % batch;
  const int position = offsets[b] + i / batch;
  const bool real = position < offsets[b + 1];
  tokens[i] = real ? packed[position] : 0;
  labels[i] = real ? packed[position] : -1;
}

__global__ void gradient_norm(const float* gradient, size_t count, float* partial) {
  float sum = 0;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    sum += gradient[i] * gradient[i];
  }
  sum = BlockReduce<false>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void clip_factor(const float* partial, float max_norm, float* factor, int* step) {
  const float norm = sqrtf(BlockReduce<false>(partial[threadIdx.x]));
  if (threadIdx.x != 0) return;
  factor[0] = norm > max_norm ? max_norm / norm : 1;
  ++*step;
}

__device__ void AdamElement(float* parameter, float gradient, float* m, float* v,
                            float learning_rate, int step) {
  constexpr float kBeta1 = 0.9f, kBeta2 = 0.999f;
  *m = kBeta1 * *m + (1 - kBeta1) * gradient;
  *v = kBeta2 * *v + (1 - kBeta2) * gradient * gradient;
  const float unbiased_m = *m / (1 - powf(kBeta1, static_cast<float>(step)));
  const float unbiased_v = *v / (1 - powf(kBeta2, static_cast<float>(step)));
  *parameter -= learning_rate * unbiased_m / (sqrtf(unbiased_v) + 1e-8f);
}

__global__ void adam_multi_tensor(float* parameter, const float* gradient, float* m, float* v,
                                  size_t count, float learning_rate, const float* factor,
                                  const int* step) {
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    AdamElement(&parameter[i], gradient[i] * *factor, &m[i], &v[i], learning_rate, *step);
  }
}

__global__ void adam_tensor(float* parameter, const float* gradient, float* m, float* v,
                            size_t count, float learning_rate, const float* factor,
                            const int* step) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  AdamElement(&parameter[i], gradient[i] * *factor, &m[i], &v[i], learning_rate, *step);
}

// Blocks that fill a large GPU a few times over; a thread of a multi-tensor kernel loops.
constexpr size_t kMultiTensorBlocks = 1056;

}  // namespace kernels

void PadTokens(const Queue& queue, const int* packed, const int* offsets, int* tokens, int* labels,
               int length, int batch) {
  const size_t count = Count(length, batch);
  const double n = static_cast<double>(count);
  Launch(queue, Work(0, n + batch, 2 * n), NAMED(pad_tokens), Grid(count), dim3(kThreads), packed,
         offsets, tokens, labels, length, batch);
}

void GradientNorm(const Queue& queue, const float* gradient, size_t count, float* partial) {
  const double n = static_cast<double>(count);
  Launch(queue, Work(2 * n, n, kNormBlocks), NAMED(gradient_norm), dim3(kNormBlocks),
         dim3(kThreads), gradient, count, partial);
}

void ClipFactor(const Queue& queue, const float* partial, float max_norm, float* factor,
                int* step) {
  static_assert(kNormBlocks == kThreads);
  Launch(queue, Work(kNormBlocks, kNormBlocks, 2), NAMED(clip_factor), dim3(1), dim3(kThreads),
         partial, max_norm, factor, step);
}

void Adam(const Queue& queue, bool foreach, float* parameter, const float* gradient, float* m,
          float* v, size_t count, float learning_rate, const float* factor, const int* step) {
  const double n = static_cast<double>(count);
  dim3 grid = Grid(count);
  if (!foreach && grid.x > kMultiTensorBlocks) grid.x = kMultiTensorBlocks;
  Launch(queue, Work(40 * n, 4 * n, 3 * n), foreach ? "adam_tensor" : "adam_multi_tensor",
         foreach ? adam_tensor : adam_multi_tensor, grid, dim3(kThreads), parameter, gradient, m, v,
         count, learning_rate, factor, step);
}

}  // namespace seqpoint::workload
