#include "tests/softgpu/config.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <variant>

namespace seqpoint::softgpu {
namespace {

using Field =
    std::variant<uint64_t Config::*, double Config::*, bool Config::*, std::string Config::*,
                 std::vector<Config::Link> Config::*, Config::Incident Config::*>;

struct Key {
  std::string_view name;
  Field field;
};

constexpr Key kKeys[] = {
    {"clock.mode", &Config::clock_mode},
    {"clock.speed_cap", &Config::speed_cap},
    {"noise.seed", &Config::seed},
    {"gpu.name", &Config::gpu_name},
    {"gpu.chip", &Config::chip},
    {"gpu.count", &Config::gpu_count},
    {"gpu.compute_major", &Config::compute_major},
    {"gpu.compute_minor", &Config::compute_minor},
    {"gpu.sms", &Config::sms},
    {"gpu.clock_mhz", &Config::clock_mhz},
    {"gpu.memory_gb", &Config::memory_gb},
    {"gpu.fp32_tflops", &Config::fp32_tflops},
    {"gpu.tensor_tflops", &Config::tensor_tflops},
    {"gpu.dram_gbps", &Config::dram_gbps},
    {"gpu.efficiency", &Config::efficiency},
    {"gpu.h2d_gbps", &Config::h2d_gbps},
    {"gpu.d2h_gbps", &Config::d2h_gbps},
    {"gpu.copy_latency_ns", &Config::copy_latency_ns},
    {"gpu.launch_latency_ns", &Config::launch_latency_ns},
    {"gpu.kernel_gap_ns", &Config::kernel_gap_ns},
    {"gpu.kernel_min_ns", &Config::kernel_min_ns},
    {"gpu.queue_depth", &Config::queue_depth},
    {"gpu.slow_kernel", &Config::slow_kernel},
    {"gpu.slow_kernel_factor", &Config::slow_kernel_factor},
    {"gpu.default_flops_per_thread", &Config::default_flops_per_thread},
    {"gpu.default_bytes_per_thread", &Config::default_bytes_per_thread},
    {"cpu.launch_ns", &Config::cpu_launch_ns},
    {"cpu.graph_launch_ns", &Config::cpu_graph_launch_ns},
    {"cpu.copy_ns", &Config::cpu_copy_ns},
    {"cpu.memset_ns", &Config::cpu_memset_ns},
    {"cpu.sync_ns", &Config::cpu_sync_ns},
    {"cpu.event_ns", &Config::cpu_event_ns},
    {"cpu.alloc_ns", &Config::cpu_alloc_ns},
    {"cpu.query_ns", &Config::cpu_query_ns},
    {"cpu.runtime_ns", &Config::cpu_runtime_ns},
    {"noise.kernel", &Config::noise_kernel},
    {"noise.slow_share", &Config::noise_slow_share},
    {"noise.slow_factor", &Config::noise_slow_factor},
    {"noise.cpu", &Config::noise_cpu},
    {"noise.drift", &Config::noise_drift},
    {"noise.drift_period_s", &Config::noise_drift_period_s},
    {"noise.counters", &Config::noise_counters},
    {"noise.search_ns", &Config::search_ns},
    {"cupti.callback_ns", &Config::cupti_callback_ns},
    {"cupti.api_record_ns", &Config::cupti_api_record_ns},
    {"cupti.operation_record_ns", &Config::cupti_operation_record_ns},
    {"cupti.flush_ns", &Config::cupti_flush_ns},
    {"cupti.range_ns", &Config::cupti_range_ns},
    {"cupti.pass_ns", &Config::cupti_pass_ns},
    {"cupti.version", &Config::cupti_version},
    {"cupti.held_by", &Config::cupti_held_by},
    {"cupti.subscribe_result", &Config::cupti_subscribe_result},
    {"cupti.first_correlation_id", &Config::cupti_first_correlation_id},
    {"cupti.zero_kernel_share", &Config::cupti_zero_kernel_share},
    {"cupti.drop_share", &Config::cupti_drop_share},
    {"cupti.timestamp_callback_bug", &Config::cupti_timestamp_callback_bug},
    {"cupti.no_privileges", &Config::cupti_no_privileges},
    {"cupti.hardware_busy", &Config::cupti_hardware_busy},
    {"cupti.fatal_after", &Config::cupti_fatal_after},
    {"cupti.range_limit", &Config::cupti_range_limit},
    {"cupti.fork_hang", &Config::cupti_fork_hang},
    {"cupti.drop_ranges", &Config::cupti_drop_ranges},
    {"cupti.pm_buffer_samples", &Config::cupti_pm_buffer_samples},
    {"cupti.pm_lost_share", &Config::cupti_pm_lost_share},
    {"cupti.pm_first_sample_factor", &Config::cupti_pm_first_sample_factor},
    {"cupti.pm_samples_per_decode", &Config::cupti_pm_samples_per_decode},
    {"cupti.pm_slowdown", &Config::cupti_pm_slowdown},
    {"cupti.decode_us", &Config::cupti_decode_us},
    {"cupti.range_extra_ns", &Config::cupti_range_extra_ns},
    {"cupti.monitor_owner_file", &Config::cupti_monitor_owner_file},
    {"cupti.fail", &Config::cupti_fail},
    {"cupti.fail_result", &Config::cupti_fail_result},
    {"cupti.fail_after", &Config::cupti_fail_after},
    {"cupti.hang", &Config::cupti_hang},
    {"cupti.hang_ms", &Config::cupti_hang_ms},
    {"cupti.raw_clock", &Config::cupti_raw_clock},
    {"cupti.kernel_record_limit", &Config::cupti_kernel_record_limit},
    {"cupti.flush_growth_us", &Config::cupti_flush_growth_us},
    {"cupti.residual_launch_ns", &Config::cupti_residual_launch_ns},
    {"noise.collective", &Config::noise_collective},
    {"nccl.profiler_version", &Config::nccl_profiler_version},
    {"nccl.algorithm", &Config::nccl_algorithm},
    {"nccl.channels", &Config::nccl_channels},
    {"nccl.base_ns", &Config::nccl_base_ns},
    {"nccl.hop_ns", &Config::nccl_hop_ns},
    {"nccl.bus_gbps", &Config::nccl_bus_gbps},
    {"nccl.network_gbps", &Config::nccl_network_gbps},
    {"nccl.tree_efficiency", &Config::nccl_tree_efficiency},
    {"nccl.ranks_per_node", &Config::nccl_ranks_per_node},
    {"nccl.link", &Config::nccl_link},
    {"nccl.compute_slowdown", &Config::nccl_compute_slowdown},
    {"nccl.proxy", &Config::nccl_proxy},
    {"nccl.gpu_timer_offset_ns", &Config::nccl_gpu_timer_offset_ns},
    {"nccl.never", &Config::nccl_never},
    {"nccl.kill", &Config::nccl_kill},
    {"nccl.async_error", &Config::nccl_async_error},
    {"nccl.async_error_ms", &Config::nccl_async_error_ms},
    {"nccl.truth_file", &Config::nccl_truth_file},
};

std::string Trim(const std::string& s) {
  size_t begin = s.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return s.substr(begin, s.find_last_not_of(" \t\r") - begin + 1);
}

std::string Expected(const std::string& value, const char* what) {
  return "\"" + value + "\" is not " + what;
}

struct Assign {
  Config* config;
  const std::string& value;

  std::string operator()(std::string Config::*field) const {
    config->*field = value;
    return "";
  }
  std::string operator()(bool Config::*field) const {
    if (value != "0" && value != "1") return Expected(value, "0 or 1");
    config->*field = value == "1";
    return "";
  }
  std::string operator()(uint64_t Config::*field) const {
    char* end = nullptr;
    errno = 0;
    uint64_t parsed = strtoull(value.c_str(), &end, 10);
    if (value.empty() || value[0] == '-' || *end != '\0' || errno != 0) {
      return Expected(value, "a whole number from 0");
    }
    config->*field = parsed;
    return "";
  }
  std::string operator()(std::vector<Config::Link> Config::*field) const {
    (config->*field).clear();
    for (size_t begin = 0; begin < value.size();) {
      const size_t end = std::min(value.find('+', begin), value.size());
      Config::Link link{};
      int used = 0;
      const std::string item = value.substr(begin, end - begin);
      if (sscanf(item.c_str(), "%d-%d:%lf%n", &link.a, &link.b, &link.factor, &used) != 3 ||
          item.size() != static_cast<size_t>(used) || !(link.factor > 0)) {
        return Expected(item, "RANK-RANK:FACTOR, as in 0-1:0.5+2-3:0.25");
      }
      (config->*field).push_back(link);
      begin = end + 1;
    }
    return "";
  }
  std::string operator()(Config::Incident Config::*field) const {
    Config::Incident incident;
    unsigned long long kernel = 0;
    int used = 0;
    if (sscanf(value.c_str(), "%d:%llu%n", &incident.rank, &kernel, &used) != 2 ||
        value.size() != static_cast<size_t>(used)) {
      return Expected(value, "RANK:KERNEL, as in 1:100");
    }
    incident.kernel = kernel;
    config->*field = incident;
    return "";
  }
  std::string operator()(double Config::*field) const {
    char* end = nullptr;
    double parsed = strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0' || !(parsed >= 0)) {
      return Expected(value, "a number from 0");
    }
    config->*field = parsed;
    return "";
  }
};

std::string Set(const std::string& name, const std::string& value, Config* config) {
  for (const Key& key : kKeys) {
    if (key.name == name) return std::visit(Assign{config, value}, key.field);
  }
  return "unknown key \"" + name + "\" (docs/internals/software-gpu.md lists them)";
}

std::string Check(const Config& c) {
  if (c.clock_mode != "virtual" && c.clock_mode != "real") {
    return "clock.mode: " + Expected(c.clock_mode, "virtual or real");
  }
  if (c.sms == 0 || c.clock_mhz == 0 || c.fp32_tflops == 0 || c.tensor_tflops == 0 ||
      c.dram_gbps == 0 || c.h2d_gbps == 0 || c.d2h_gbps == 0 || c.efficiency == 0 ||
      c.gpu_count == 0 || c.queue_depth == 0 || c.slow_kernel_factor == 0 ||
      c.noise_drift_period_s == 0 || c.cupti_pm_slowdown == 0) {
    return "gpu.count, sms, clock_mhz, *_tflops, *_gbps, efficiency, queue_depth, "
           "slow_kernel_factor, noise.drift_period_s and cupti.pm_slowdown must be above 0";
  }
  if (c.nccl_profiler_version < 1 || c.nccl_profiler_version > 6) {
    return "nccl.profiler_version: " +
           Expected(std::to_string(c.nccl_profiler_version), "a number from 1 to 6");
  }
  if (c.nccl_algorithm != "auto" && c.nccl_algorithm != "ring" && c.nccl_algorithm != "tree") {
    return "nccl.algorithm: " + Expected(c.nccl_algorithm, "auto, ring or tree");
  }
  if (c.nccl_bus_gbps == 0 || c.nccl_network_gbps == 0 || c.nccl_tree_efficiency == 0 ||
      c.nccl_channels == 0 || c.nccl_channels > 64 || c.nccl_compute_slowdown < 1) {
    return "nccl.bus_gbps, network_gbps and tree_efficiency must be above 0, channels from 1 to "
           "64, compute_slowdown at least 1";
  }
  return "";
}

// Ranks draw noise of their own: the seeds of two ranks are so far apart.
constexpr uint64_t kSeedsOfRank = 1'000'003;

// The first of these variables that is there, as torchrun and Open MPI set them; else 0.
unsigned FromLauncher(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = getenv(name)) return static_cast<unsigned>(atoi(value));
  }
  return 0;
}

}  // namespace

std::string LoadConfig(const char* path, const char* overrides, Config* config) {
  if (path != nullptr) {
    std::ifstream file(path);
    if (!file) return std::string("cannot read ") + path;
    std::string line, section;
    for (int number = 1; std::getline(file, line); ++number) {
      line = Trim(line.substr(0, line.find('#')));
      if (line.empty()) continue;
      std::string where = std::string(path) + ":" + std::to_string(number) + ": ";
      if (line.front() == '[' && line.back() == ']') {
        section = line.substr(1, line.size() - 2) + ".";
        continue;
      }
      size_t equals = line.find('=');
      if (equals == std::string::npos) return where + Expected(line, "[section] or key = value");
      std::string error =
          Set(section + Trim(line.substr(0, equals)), Trim(line.substr(equals + 1)), config);
      if (!error.empty()) return where + error;
    }
  }
  std::string rest = overrides == nullptr ? "" : overrides;
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string item = Trim(rest.substr(0, comma));
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    if (item.empty()) continue;
    size_t equals = item.find('=');
    if (equals == std::string::npos) return "SWGPU_SET: " + Expected(item, "key=value");
    std::string error = Set(Trim(item.substr(0, equals)), Trim(item.substr(equals + 1)), config);
    if (!error.empty()) return "SWGPU_SET: " + error;
  }
  return Check(*config);
}

const Config& ProcessConfig() {
  static const Config* config = [] {
    auto* loaded = new Config;
    loaded->gpu_count =
        std::max(1u, FromLauncher({"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}));
    // Before the rest, so that a test that needs a release of its own has it.
    const char* version = getenv("SWGPU_CUPTI_VERSION");
    std::string error;
    if (version != nullptr) error = Set("cupti.version", version, loaded);
    if (error.empty()) error = LoadConfig(getenv("SWGPU_CONFIG"), getenv("SWGPU_SET"), loaded);
    const char* seed = getenv("SWGPU_SEED");
    if (error.empty() && seed != nullptr) error = Set("noise.seed", seed, loaded);
    if (!error.empty()) {
      fprintf(stderr, "softgpu: %s\n", error.c_str());
      _exit(2);
    }
    loaded->seed += kSeedsOfRank * FromLauncher({"RANK", "OMPI_COMM_WORLD_RANK"});
    if (const char* truth = getenv("SWGPU_TRUTH")) loaded->truth_file = truth;
    return loaded;
  }();
  return *config;
}

}  // namespace seqpoint::softgpu
