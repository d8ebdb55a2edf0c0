// Settings of the software GPU: built-in values (an H200-like device), a file (SWGPU_CONFIG) and
// overrides (SWGPU_SET="key=value,..."), in this order. docs/internals/software-gpu.md describes
// every key. Read once per process, immutable afterwards.
#ifndef SEQPOINT_TESTS_SOFTGPU_CONFIG_H_
#define SEQPOINT_TESTS_SOFTGPU_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

namespace seqpoint::softgpu {

struct Config {
  // Two ranks, and the share of its bandwidth that the link between them has.
  struct Link {
    int a;
    int b;
    double factor;
  };
  // Something happens to a rank at its Nth communication kernel. -1: to none.
  struct Incident {
    int rank = -1;
    uint64_t kernel = 0;
  };

  std::string clock_mode = "virtual";
  double speed_cap = 20;  // virtual seconds per real second; 0: no limit
  uint64_t seed = 1;

  std::string gpu_name = "Software GPU (H200-like)";
  std::string chip = "GH100";
  uint64_t gpu_count = 1;
  uint64_t compute_major = 9;
  uint64_t compute_minor = 0;
  uint64_t sms = 132;
  double clock_mhz = 1755;
  double memory_gb = 141;
  double fp32_tflops = 60;
  double tensor_tflops = 900;
  double dram_gbps = 4800;
  double efficiency = 0.6;  // share of a peak that a kernel filling the GPU reaches
  double h2d_gbps = 50;
  double d2h_gbps = 50;
  uint64_t copy_latency_ns = 1500;
  uint64_t launch_latency_ns = 2500;
  uint64_t kernel_gap_ns = 700;
  uint64_t kernel_min_ns = 1800;
  uint64_t queue_depth = 1024;
  std::string slow_kernel;        // kernels with this in their names take ...
  double slow_kernel_factor = 1;  // ... so many times as long
  double default_flops_per_thread = 64;
  double default_bytes_per_thread = 16;

  uint64_t cpu_launch_ns = 2200;
  uint64_t cpu_graph_launch_ns = 6000;
  uint64_t cpu_copy_ns = 3500;
  uint64_t cpu_memset_ns = 2500;
  uint64_t cpu_sync_ns = 1500;
  uint64_t cpu_event_ns = 900;
  uint64_t cpu_alloc_ns = 4000;
  uint64_t cpu_query_ns = 600;
  uint64_t cpu_runtime_ns = 250;

  double noise_kernel = 0.02;
  double noise_slow_share = 0.01;
  double noise_slow_factor = 1.3;
  double noise_cpu = 0.1;
  double noise_drift = 0.005;
  double noise_drift_period_s = 300;
  double noise_counters = 0.003;
  uint64_t search_ns = 300000;

  uint64_t cupti_callback_ns = 150;
  uint64_t cupti_api_record_ns = 80;
  uint64_t cupti_operation_record_ns = 250;
  uint64_t cupti_flush_ns = 20000;
  uint64_t cupti_range_ns = 40000;
  uint64_t cupti_pass_ns = 100000;

  uint64_t cupti_version = 130001;
  std::string cupti_held_by;
  uint64_t cupti_subscribe_result = 0;
  uint64_t cupti_first_correlation_id = 1;
  double cupti_zero_kernel_share = 0;
  double cupti_drop_share = 0;
  bool cupti_timestamp_callback_bug = true;
  bool cupti_no_privileges = false;
  bool cupti_hardware_busy = false;
  uint64_t cupti_fatal_after = 0;
  uint64_t cupti_range_limit = 2000;
  bool cupti_fork_hang = false;
  bool cupti_drop_ranges = false;
  uint64_t cupti_pm_buffer_samples = 0;
  double cupti_pm_lost_share = 0;
  double cupti_pm_first_sample_factor = 1;
  uint64_t cupti_pm_samples_per_decode = 0;
  double cupti_pm_slowdown = 1;
  uint64_t cupti_decode_us = 0;
  uint64_t cupti_range_extra_ns = 0;
  std::string cupti_monitor_owner_file;
  std::string cupti_fail;
  uint64_t cupti_fail_result = 999;
  uint64_t cupti_fail_after = 0;
  std::string cupti_hang;
  uint64_t cupti_hang_ms = 0;
  bool cupti_raw_clock = false;
  uint64_t cupti_kernel_record_limit = 0;
  uint64_t cupti_flush_growth_us = 0;
  uint64_t cupti_residual_launch_ns = 0;

  double noise_collective = 0.02;
  uint64_t nccl_profiler_version = 6;
  std::string nccl_algorithm = "auto";
  uint64_t nccl_channels = 16;
  uint64_t nccl_base_ns = 4000;
  uint64_t nccl_hop_ns = 1000;
  double nccl_bus_gbps = 360;
  double nccl_network_gbps = 48;
  double nccl_tree_efficiency = 0.92;
  uint64_t nccl_ranks_per_node = 0;  // 0: one node has all
  std::vector<Link> nccl_link;
  double nccl_compute_slowdown = 1;
  bool nccl_proxy = false;
  uint64_t nccl_gpu_timer_offset_ns = 0;
  Incident nccl_never;
  Incident nccl_kill;
  uint64_t nccl_async_error = 0;
  uint64_t nccl_async_error_ms = 1000;
  std::string nccl_truth_file;

  std::string truth_file;  // SWGPU_TRUTH

  bool virtual_clock() const { return clock_mode == "virtual"; }
};

// Reads file and overrides into `config`. Returns an empty string, or what is wrong and where.
std::string LoadConfig(const char* path, const char* overrides, Config* config);

// The settings of this process. A mistake in them ends the process with a message: a test that
// runs with other settings than it asked for proves nothing.
const Config& ProcessConfig();

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_CONFIG_H_
