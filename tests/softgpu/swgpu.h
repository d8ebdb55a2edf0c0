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

// From now on kernels with `part` in their names take `factor` times as long; every kernel with "".
// Kernels of the software NCCL keep their law. A later call with the same part replaces the factor.
__attribute__((weak)) void swgpu_slow_kernels(const char* part, double factor);

// From now on the host takes `factor` times as long: for each call (`cpu.*`) and in
// swgpu_host_work. With clock.mode=real it does nothing.
__attribute__((weak)) void swgpu_slow_host(double factor);

// The time of a recorded event (cudaEvent_t), by the software GPU's clock, and the time at which it
// would have been if no communication kernel of this process had ever waited for another rank. 0:
// it was not recorded.
__attribute__((weak)) int swgpu_event_times(const void* event, uint64_t* ns, uint64_t* alone_ns);

// Digest over name, geometry and stream order of every launch, and the bytes of every copy and
// memset. Two runs that did the same GPU work have the same digest.
__attribute__((weak)) uint64_t swgpu_digest(void);

// Exact cumulative truth over the communication kernels of this process, of the software NCCL. A
// process with several ranks gets their sum.
typedef struct SwgpuNcclTotals {
  uint64_t kernels;        // collectives of one group are one kernel, as are its sends and receives
  uint64_t collectives;    // AllReduce, Broadcast, Reduce, AllGather, ReduceScatter
  uint64_t transfers;      // sends and receives
  uint64_t bytes;          // as the plugin interface counts: count times size of an element
  uint64_t work_ns;        // from the end of all kernels so far to the arrival at the next
  uint64_t wait_ns;        // from the arrival of this rank to the last one's
  uint64_t transfer_ns;    // from the last arrival to the end
  uint64_t last_arrivals;  // kernels at which this rank arrived last
} SwgpuNcclTotals;
__attribute__((weak)) void swgpu_nccl_totals(SwgpuNcclTotals* totals);

// From the next operation on, the link between two ranks has this share of the bandwidth that the
// settings give it. Every rank of a communicator has to say so before the same operation.
__attribute__((weak)) void swgpu_nccl_link(int a, int b, double factor);

// The process is killed (SIGKILL) in its next communication kernel: launched, but never arrived.
__attribute__((weak)) void swgpu_nccl_die(void);

#ifdef __cplusplus
}
#endif

#endif  // SEQPOINT_TESTS_SOFTGPU_SWGPU_H_
