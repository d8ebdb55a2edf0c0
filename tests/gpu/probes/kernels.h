// Kernels of known cost for the probes, callable from code that gcc compiles. On the software GPU,
// which runs no kernels, each tells the time model what it would do. Any thread.
#ifndef SEQPOINT_TESTS_GPU_PROBES_KERNELS_H_
#define SEQPOINT_TESTS_GPU_PROBES_KERNELS_H_

#include <cuda_runtime.h>

#include <cstddef>

namespace seqpoint::probe {

// One thread that does nothing: as short as a kernel can be.
void LaunchEmpty(cudaStream_t stream);

// `blocks` blocks that wait for `duration_ns` by the GPU's own clock.
void LaunchSpin(cudaStream_t stream, int blocks, double duration_ns);

// Copies `count` floats: reads and writes 4 * count bytes each; with far more than the L2 holds,
// from and to DRAM.
void LaunchCopy(cudaStream_t stream, float* to, const float* from, size_t count);

// `blocks` x 256 threads, each `rounds` fused multiply-adds: 2 * 256 * blocks * rounds operations.
void LaunchMultiplyAdd(cudaStream_t stream, float* result, int blocks, int rounds);

// Kernels that do nothing but one kind of arithmetic, so that their operations are known exactly.
struct Arithmetic {
  const char* kernel;  // its function's name
  const char* what;
  // For one instruction and thread (a warp, on the tensor pipes).
  double operations;
  bool tensor;
  void (*launch)(cudaStream_t stream, void* result, int blocks, int rounds);
};
constexpr int kArithmeticThreads = 256;  // of a block
constexpr int kArithmeticKinds = 8;
extern const Arithmetic kArithmetic[kArithmeticKinds];
// Instructions of a launch, and the floating point operations that they are.
double InstructionsOf(const Arithmetic& kind, int blocks, int rounds);
double OperationsOf(const Arithmetic& kind, int blocks, int rounds);

}  // namespace seqpoint::probe

#endif  // SEQPOINT_TESTS_GPU_PROBES_KERNELS_H_
