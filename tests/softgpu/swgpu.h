// Calls with which a CUDA test program controls the software GPU. Every function is weak: on a real
// GPU it is absent (its address is null) and the program runs unchanged. Used by tests/workloads
// only; the product never sees this header.
#ifndef SEQPOINT_TESTS_SOFTGPU_SWGPU_H_
#define SEQPOINT_TESTS_SOFTGPU_SWGPU_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Work of one kernel launch, summed over all its threads. The time model turns it into a duration
// (roofline over the configured GPU); the counter model turns it into counter values.
typedef struct SwgpuWork {
  double flops;         // fp32 operations outside the tensor pipes
  double tensor_flops;  // operations on the tensor pipes
  double dram_read_bytes;
  double dram_write_bytes;
  double instructions;  // warp instructions executed; 0: derived from flops and bytes
} SwgpuWork;

// Describes the next kernel launched by the calling thread, and that one only. Without it the model
// derives work from the grid and block size.
__attribute__((weak)) void swgpu_next_launch_work(const SwgpuWork* work);

// `ns` nanoseconds of CPU work on the calling thread: advances the virtual clock. Absent on a real
// GPU, where the caller spins instead.
__attribute__((weak)) void swgpu_host_work(uint64_t ns);

// Current time of the software GPU's clock in nanoseconds.
__attribute__((weak)) uint64_t swgpu_now_ns(void);

// Exact cumulative truth over all launches submitted so far by this process.
typedef struct SwgpuTotals {
  uint64_t launches;
  double kernel_time_ns;  // sum of kernel durations, noise included
  double dram_read_bytes;
  double dram_write_bytes;
  double instructions;      // sm__inst_executed.sum
  double tensor_cycles;     // sm__pipe_tensor_cycles_active.sum
  double sm_active_cycles;  // sm__cycles_active.sum
} SwgpuTotals;
__attribute__((weak)) void swgpu_totals(SwgpuTotals* totals);

// Digest over name, geometry and stream order of every launch, and the bytes of every copy and
// memset. Two runs that did the same GPU work have the same digest.
__attribute__((weak)) uint64_t swgpu_digest(void);

#ifdef __cplusplus
}
#endif

#endif  // SEQPOINT_TESTS_SOFTGPU_SWGPU_H_
