#include "tests/softgpu/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace seqpoint::softgpu {
namespace {

constexpr MetricKind kCounter = MetricKind::kCounter;
constexpr MetricKind kRatio = MetricKind::kRatio;
constexpr MetricKind kThroughput = MetricKind::kThroughput;

// Weights reproduce the pass counts of the real host library for GH100: those of single metrics and
// those of the sets that docs/internals/software-gpu.md lists.
constexpr BaseMetric kMetrics[] = {
    {"gpu__time_duration", kCounter, "nsecond", 0, 1, false},
    {"gr__cycles_elapsed", kCounter, "cycle", 0.1, 1, false},
    {"gr__cycles_active", kCounter, "cycle", 0.1, 1, false},
    {"sm__cycles_elapsed", kCounter, "cycle", 0.1, 1, false},
    {"sm__cycles_active", kCounter, "cycle", 0.1, 1, false},
    {"smsp__cycles_active", kCounter, "cycle", 0.2, 1, false},
    {"sm__inst_executed", kCounter, "inst", 0.1, 1, false},
    {"smsp__inst_executed", kCounter, "inst", 0.1, 1, false},
    {"sm__inst_executed_pipe_tensor", kCounter, "inst", 0.1, 1, false},
    {"sm__inst_executed_pipe_tensor_op_hmma", kCounter, "inst", 0.15, 1, false},
    {"sm__inst_executed_pipe_tensor_op_gmma", kCounter, "inst", 0.15, 1, false},
    {"sm__pipe_tensor_cycles_active", kCounter, "cycle", 0.1, 1, false},
    {"sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32", kCounter, "op", 0.1, 1, false},
    {"sm__ops_path_tensor_src_bf16_dst_fp32", kCounter, "op", 0.95, 1, false},
    {"sm__ops_path_tensor_src_tf32_dst_fp32", kCounter, "op", 0.95, 1, false},
    {"sm__ops_path_tensor_src_fp8", kCounter, "op", 0.15, 1, false},
    {"sm__ops_path_tensor_src_fp64", kCounter, "op", 0.15, 1, false},
    {"sm__ops_path_tensor_op_hgmma_src_fp16", kCounter, "op", 0.15, 1, false},
    {"sm__ops_path_tensor_op_hmma_src_fp16_dst_fp16", kCounter, "op", 0.15, 1, false},
    {"sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32", kCounter, "op", 0.95, 1, false},
    {"sm__sass_thread_inst_executed_op_ffma_pred_on", kCounter, "inst", 0, 1, false},
    {"sm__sass_thread_inst_executed_op_fadd_pred_on", kCounter, "inst", 0, 1, false},
    {"sm__sass_thread_inst_executed_op_fmul_pred_on", kCounter, "inst", 0, 1, false},
    {"sm__sass_thread_inst_executed_op_hfma_pred_on", kCounter, "inst", 0, 1, false},
    {"sm__sass_thread_inst_executed_op_hadd_pred_on", kCounter, "inst", 0, 1, false},
    {"sm__sass_thread_inst_executed_op_hmul_pred_on", kCounter, "inst", 0, 1, false},
    {"sm__sass_thread_inst_executed_op_dfma_pred_on", kCounter, "inst", 0, 1, false},
    {"sm__sass_thread_inst_executed_op_dadd_pred_on", kCounter, "inst", 0, 1, false},
    {"sm__sass_thread_inst_executed_op_dmul_pred_on", kCounter, "inst", 0, 1, false},
    {"sm__pipe_fma_cycles_active", kCounter, "cycle", 0.1, 1, false},
    {"sm__warps_active", kCounter, "warp", 0.1, 1, false},
    {"dram__bytes", kCounter, "byte", 0.1, 1, false},
    {"dram__bytes_read", kCounter, "byte", 0.1, 1, false},
    {"dram__bytes_write", kCounter, "byte", 0.1, 1, false},
    {"lts__t_sectors", kCounter, "sector", 0.1, 1, false},
    {"dram__bytes_op_read", kCounter, "byte", 0.1, 1, false},
    {"dram__bytes_op_write", kCounter, "byte", 0.1, 1, false},
    {"lts__t_bytes", kCounter, "byte", 0.1, 1, false},
    {"lts__t_sectors_lookup_hit", kCounter, "sector", 0.55, 1, false},
    {"lts__t_sectors_lookup_miss", kCounter, "sector", 0.55, 1, false},
    {"l1tex__t_sectors", kCounter, "sector", 0.1, 1, false},
    {"l1tex__t_sectors_lookup_hit", kCounter, "sector", 0.1, 1, false},
    {"l1tex__t_sectors_lookup_miss", kCounter, "sector", 0.1, 1, false},
    {"nvlrx__bytes", kCounter, "byte", 0.1, 1, true},
    {"nvltx__bytes", kCounter, "byte", 0.1, 1, true},
    {"pcie__read_bytes", kCounter, "byte", 0.1, 1, true},
    {"pcie__write_bytes", kCounter, "byte", 0.1, 1, true},
    {"lts__t_sector_hit_rate", kRatio, "%", 1.5, 2, false},
    {"l1tex__t_sector_hit_rate", kRatio, "%", 0.3, 1, false},
    {"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active", kRatio, "inst", 0.5, 1,
     false},
    {"dram__throughput", kThroughput, "%", 0.2, 1, false},
    {"gpu__dram_throughput", kThroughput, "%", 0.2, 1, false},
    {"gpu__compute_memory_throughput", kThroughput, "%", 1.2, 5, false},
    {"sm__throughput", kThroughput, "%", 7.5, 8, false},
    {"sm__instruction_throughput", kThroughput, "%", 7.5, 8, false},
    {"TriageCompute.sm__throughput", kThroughput, "%", 1.5, 2, false},
};

// Passes of sm__throughput where they differ from GH100's eight, by the beginning of the chip's
// name.
constexpr struct {
  std::string_view chips;
  uint32_t passes;
} kThroughputPasses[] = {{"GV100", 7}, {"TU", 5}, {"GA100", 5},
                         {"GA10", 6},  {"AD", 6}, {"GB10B", 9}};

constexpr std::string_view kRollups[] = {"sum", "avg", "min", "max"};
constexpr std::string_view kCounterSuffixes[] = {"",
                                                 "per_second",
                                                 "per_cycle_elapsed",
                                                 "per_cycle_active",
                                                 "peak_sustained",
                                                 "peak_sustained_elapsed",
                                                 "pct_of_peak_sustained_elapsed",
                                                 "pct_of_peak_sustained_active"};
constexpr std::string_view kRatioRollups[] = {"pct", "ratio"};

// Integrated GPUs have no memory of their own; GB20x names its reads and writes otherwise.
bool HasMetric(const BaseMetric& metric, std::string_view chip) {
  const std::string_view name = metric.name;
  if (name.substr(0, 6) != "dram__") return true;
  if (chip.substr(chip.size() - 1) == "B") return false;
  const bool gb20x = chip.substr(0, 4) == "GB20";
  if (name.find("_op_") != std::string_view::npos) return gb20x;
  return !gb20x || name == "dram__bytes" || name == "dram__throughput";
}

// Counts of instructions by opcode take a pass of their own, in which nothing else is counted.
bool OwnPass(const BaseMetric& metric) {
  return std::string_view(metric.name).find("__sass_") != std::string_view::npos;
}

struct ParsedName {
  const BaseMetric* base = nullptr;
  std::string_view rollup;
  std::string_view suffix;
};

template <typename Range>
bool Contains(const Range& range, std::string_view value) {
  return std::find(std::begin(range), std::end(range), value) != std::end(range);
}

// Splits at the longest base that the name begins with: one base contains a dot itself.
ParsedName Parse(std::string_view name) {
  ParsedName parsed;
  for (const BaseMetric& base : kMetrics) {
    std::string_view b = base.name;
    if (name.size() > b.size() && name.substr(0, b.size()) == b && name[b.size()] == '.') {
      parsed.base = &base;
      break;
    }
  }
  if (parsed.base == nullptr) return parsed;
  std::string_view rest = name.substr(std::string_view(parsed.base->name).size() + 1);
  size_t dot = rest.find('.');
  parsed.rollup = rest.substr(0, dot);
  if (dot != std::string_view::npos) parsed.suffix = rest.substr(dot + 1);
  bool valid;
  switch (parsed.base->kind) {
    case MetricKind::kRatio:
      valid = Contains(kRatioRollups, parsed.rollup) && parsed.suffix.empty();
      break;
    case MetricKind::kThroughput:
      valid = Contains(kRollups, parsed.rollup) &&
              parsed.suffix.substr(0, 22) == "pct_of_peak_sustained_";
      break;
    default:
      valid = Contains(kRollups, parsed.rollup) && Contains(kCounterSuffixes, parsed.suffix) &&
              (dot == std::string_view::npos) == parsed.suffix.empty();
  }
  if (!valid) parsed.base = nullptr;
  return parsed;
}

uint32_t AlonePasses(const BaseMetric& base, std::string_view chip) {
  if (std::string_view(base.name) == "sm__throughput") {
    for (const auto& entry : kThroughputPasses) {
      if (chip.substr(0, entry.chips.size()) == entry.chips) return entry.passes;
    }
  }
  return base.alone_passes;
}

// Sum over all instances of a unit, the number of instances, and the peak per instance and cycle.
struct Amount {
  double sum;
  double instances;
  double peak_per_cycle;
};

Amount AmountOf(const Config& config, std::string_view base, const PassData& data) {
  const Counters& c = data.counters;
  const double sms = static_cast<double>(config.sms);
  const double cycles = data.duration_ns * config.clock_mhz * 1e-3;
  const double bytes = c.dram_read_bytes + c.dram_write_bytes;
  const double dram_peak = config.dram_gbps / (config.clock_mhz * 1e-3);
  const bool hopper = config.compute_major >= 9;
  const double tensor_inst = c.tensor_flops / 8192;
  if (base == "gpu__time_duration") return {data.duration_ns, 1, 1};
  if (base == "gr__cycles_elapsed") return {cycles, 1, 1};
  if (base == "gr__cycles_active") {
    return {std::min(cycles, c.time_ns * config.clock_mhz * 1e-3), 1, 1};
  }
  if (base == "sm__cycles_elapsed") return {cycles * sms, sms, 1};
  if (base == "sm__cycles_active") return {c.sm_active_cycles, sms, 1};
  if (base == "smsp__cycles_active") return {c.sm_active_cycles * 4, sms * 4, 1};
  if (base == "sm__inst_executed") return {c.instructions, sms, 4};
  if (base == "smsp__inst_executed") return {c.instructions, sms * 4, 1};
  if (base == "sm__inst_executed_pipe_tensor") return {tensor_inst, sms, 1};
  if (base == "sm__inst_executed_pipe_tensor_op_hmma") return {hopper ? 0 : tensor_inst, sms, 1};
  if (base == "sm__inst_executed_pipe_tensor_op_gmma") return {hopper ? tensor_inst : 0, sms, 1};
  if (base == "sm__pipe_tensor_cycles_active") return {c.tensor_cycles, sms, 1};
  if (base == "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32" ||
      base == "sm__ops_path_tensor_src_bf16_dst_fp32") {
    return {c.tensor_flops, sms, config.tensor_tflops * 1e6 / (sms * config.clock_mhz)};
  }
  if (base == "sm__warps_active") return {c.warp_cycles, sms, 64};
  if (base == "dram__bytes") return {bytes, 1, dram_peak};
  if (base == "dram__bytes_read") return {c.dram_read_bytes, 1, dram_peak};
  if (base == "dram__bytes_write") return {c.dram_write_bytes, 1, dram_peak};
  // Caches: each DRAM sector is asked for 2.5 times in L2 and 4 times in L1.
  if (base == "lts__t_sectors") return {bytes / 32 * 2.5, 96, 1};
  if (base == "dram__bytes_op_read") return {c.dram_read_bytes, 1, dram_peak};
  if (base == "dram__bytes_op_write") return {c.dram_write_bytes, 1, dram_peak};
  if (base == "sm__sass_thread_inst_executed_op_ffma_pred_on") return {c.flops / 2, sms, 128};
  if (base == "sm__pipe_fma_cycles_active") return {c.flops / 2 / 128, sms, 1};
  if (base == "lts__t_sectors_lookup_hit") return {bytes / 32 * 1.5, 96, 1};
  if (base == "lts__t_sectors_lookup_miss") return {bytes / 32, 96, 1};
  if (base == "l1tex__t_sectors_lookup_hit") return {bytes / 32 * 1.5, sms, 4};
  if (base == "l1tex__t_sectors_lookup_miss") return {bytes / 32 * 2.5, sms, 4};
  if (base == "lts__t_bytes") return {bytes * 2.5, 96, 32};
  if (base == "l1tex__t_sectors") return {bytes / 32 * 4, sms, 4};
  return {0, 1, 1};  // links and unused tensor paths carry nothing
}

double Percent(const Config& config, std::string_view base, const PassData& data) {
  Amount amount = AmountOf(config, base, data);
  double cycles = data.duration_ns * config.clock_mhz * 1e-3;
  return 100 * amount.sum / (amount.instances * amount.peak_per_cycle * cycles);
}

double RatioOf(const Config& config, std::string_view base, const PassData& data) {
  const double dram = Percent(config, "dram__bytes", data);
  const double instructions = Percent(config, "sm__inst_executed", data);
  const double tensor = Percent(config, "sm__pipe_tensor_cycles_active", data);
  if (base == "lts__t_sector_hit_rate") return 100 * (1 - 1 / 2.5);
  if (base == "l1tex__t_sector_hit_rate") return 100 * (1 - 2.5 / 4);
  if (base == "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active") {
    return dram / 10;
  }
  if (base == "dram__throughput" || base == "gpu__dram_throughput") return dram;
  if (base == "gpu__compute_memory_throughput") return dram;
  if (base == "sm__instruction_throughput") return instructions;
  return std::max(instructions, tensor);  // sm__throughput
}

// Log-normal factor of the counter's noise, the same whenever the same value is asked for.
double NoiseOf(const Config& config, std::string_view base, uint64_t seed) {
  if (base == "gpu__time_duration" || config.noise_counters == 0) return 1;
  uint64_t hash = seed ^ 0xcbf29ce484222325;
  for (char ch : base) hash = (hash ^ static_cast<unsigned char>(ch)) * 0x100000001b3;
  double z = 0;  // sum of 12 uniforms, close enough to normal
  for (int i = 0; i < 12; ++i) {
    hash = hash * 6364136223846793005 + 1442695040888963407;
    z += static_cast<double>(hash >> 40) * 0x1p-24;
  }
  return std::exp(config.noise_counters * (z - 6));
}

}  // namespace

const BaseMetric* FindMetric(std::string_view chip, std::string_view name) {
  const BaseMetric* base = Parse(name).base;
  if (base == nullptr) return nullptr;
  return HasMetric(*base, chip) ? base : nullptr;
}

bool CountedWithEither(const BaseMetric& base) {
  return std::string_view(base.name) == "gpu__time_duration";
}

std::vector<const BaseMetric*> BaseMetrics(std::string_view chip) {
  std::vector<const BaseMetric*> metrics;
  for (const BaseMetric& base : kMetrics) {
    if (HasMetric(base, chip)) metrics.push_back(&base);
  }
  return metrics;
}

std::vector<std::string> Submetrics(MetricKind kind) {
  const auto dotted = [](std::string_view rollup) { return std::string(1, '.').append(rollup); };
  std::vector<std::string> names;
  if (kind == MetricKind::kRatio) {
    for (std::string_view rollup : kRatioRollups) names.push_back(dotted(rollup));
    return names;
  }
  for (std::string_view rollup : kRollups) {
    for (std::string_view suffix : kCounterSuffixes) {
      if (kind == MetricKind::kThroughput && suffix.substr(0, 4) != "pct_") continue;
      names.push_back(dotted(rollup));
      if (!suffix.empty()) names.back().append(1, '.').append(suffix);
    }
  }
  return names;
}

const std::vector<const char*>& Chips() {
  static const std::vector<const char*> chips = {
      "GV100", "GV11B", "TU102", "TU104", "TU106", "TU116", "TU117", "GA100", "GA102", "GA103",
      "GA104", "GA106", "GA107", "GA10B", "GH100", "AD102", "AD103", "AD104", "AD106", "AD107",
      "GB100", "GB102", "GB110", "GB10B", "GB202", "GB203", "GB205", "GB206", "GB207", "GB20B"};
  return chips;
}

bool KnownChip(std::string_view chip) { return Contains(Chips(), chip); }

namespace {

Schedule PlanGroup(std::string_view chip, const std::vector<std::string>& names) {
  constexpr double kRounding = 1e-9;
  Schedule schedule;
  std::vector<const BaseMetric*> seen;
  std::vector<double> begins;  // where in the row of passes a base begins
  double weight = 0;
  uint32_t longest = 1;
  std::vector<size_t> base_of_name;
  for (const std::string& name : names) {
    const BaseMetric* base = FindMetric(chip, name);
    auto it = std::find(seen.begin(), seen.end(), base);
    base_of_name.push_back(static_cast<size_t>(it - seen.begin()));
    if (it != seen.end() || base == nullptr) continue;
    uint32_t alone = AlonePasses(*base, chip);
    seen.push_back(base);
    begins.push_back(weight);
    weight += std::string_view(base->name) == "sm__throughput" ? alone - 0.5 : base->weight;
    longest = std::max(longest, alone);
  }
  const auto own = std::count_if(seen.begin(), seen.end(),
                                 [](const BaseMetric* base) { return base && OwnPass(*base); });
  schedule.passes = std::max(longest, static_cast<uint32_t>(std::ceil(weight - kRounding)));
  // Rates of them need the time, which another pass has.
  const bool rate = own > 0 && std::any_of(names.begin(), names.end(), [](const auto& name) {
                      const size_t rollup = name.find('.');
                      const size_t suffix = name.find('.', rollup + 1);
                      return suffix != std::string::npos && name.substr(suffix, 5) != ".peak";
                    });
  if (own > 0 && (own < static_cast<ptrdiff_t>(seen.size()) || rate)) ++schedule.passes;
  for (size_t i = 0; i < names.size(); ++i) {
    const BaseMetric* base = seen[base_of_name[i]];
    uint32_t alone = AlonePasses(*base, chip);
    if (OwnPass(*base)) {
      schedule.pass_bits.push_back(1ull << (schedule.passes - 1));
    } else if (base->weight == 0) {
      schedule.pass_bits.push_back(1);  // any pass would do
    } else if (alone > 1) {
      schedule.pass_bits.push_back((1ull << alone) - 1);
    } else {
      auto pass = static_cast<uint32_t>(begins[base_of_name[i]] + kRounding);
      schedule.pass_bits.push_back(1ull << std::min(pass, schedule.passes - 1));
    }
  }
  return schedule;
}

}  // namespace

Schedule PlanPasses(std::string_view chip, const std::vector<MetricGroup>& groups) {
  Schedule all;
  for (const MetricGroup& group : groups) {
    Schedule part = PlanGroup(chip, group);
    for (uint64_t bits : part.pass_bits) all.pass_bits.push_back(bits << all.passes);
    all.passes += part.passes;
  }
  return all;
}

bool HasPmSampling(std::string_view chip) { return chip.substr(0, 2) != "GV"; }

uint32_t PmPasses(const BaseMetric& base) {
  const std::string_view name = base.name;
  const auto begins = [&](std::string_view with) { return name.substr(0, with.size()) == with; };
  if (OwnPass(base) || begins("sm__ops_path_") || begins("lts__t_sectors_lookup_") ||
      begins("sm__inst_executed_pipe_tensor_op_") || name == "sm__instruction_throughput" ||
      name == "gpu__compute_memory_throughput") {
    return 0;
  }
  if (name == "sm__inst_executed_pipe_tensor" || name == "lts__t_sector_hit_rate") return 2;
  if (begins("smsp__average_warps_issue_stalled")) return 3;
  return name == "sm__throughput" ? 19 : 1;
}

uint32_t PlanPmPasses(std::string_view chip, const std::vector<MetricGroup>& groups) {
  uint32_t passes = 0;
  for (const MetricGroup& group : groups) {
    uint32_t longest = 0;
    for (const std::string& name : group) {
      const BaseMetric* base = FindMetric(chip, name);
      if (base != nullptr) longest = std::max(longest, PmPasses(*base));
    }
    passes += longest;
  }
  return passes;
}

double Evaluate(const Config& config, std::string_view name, const PassData& data) {
  ParsedName parsed = Parse(name);
  if (parsed.base == nullptr) return std::numeric_limits<double>::quiet_NaN();
  const std::string_view base = parsed.base->name;
  const double noise = NoiseOf(config, base, data.noise_seed);
  if (parsed.base->kind != MetricKind::kCounter) {
    double value = RatioOf(config, base, data) * noise;
    return parsed.rollup == "ratio" && parsed.base->unit[0] == '%' ? value / 100 : value;
  }
  Amount amount = AmountOf(config, base, data);
  const double scale = parsed.rollup == "sum" ? 1 : 1 / amount.instances;
  const double value = amount.sum * noise * scale;
  const double elapsed = data.duration_ns * config.clock_mhz * 1e-3;
  const double active = data.counters.sm_active_cycles / static_cast<double>(config.sms);
  const double peak = amount.peak_per_cycle * amount.instances * scale;
  if (parsed.suffix.empty()) return value;
  if (parsed.suffix == "per_second") return value / (data.duration_ns * 1e-9);
  if (parsed.suffix == "per_cycle_elapsed") return value / elapsed;
  if (parsed.suffix == "per_cycle_active") return value / active;
  if (parsed.suffix == "peak_sustained") return peak;
  if (parsed.suffix == "peak_sustained_elapsed") return peak * elapsed;
  if (parsed.suffix == "pct_of_peak_sustained_elapsed") return 100 * value / (peak * elapsed);
  return 100 * value / (peak * active);  // pct_of_peak_sustained_active
}

}  // namespace seqpoint::softgpu
