// The counters that the software GPU offers to the range profiler: names, pass schedule, values.
//
// A metric is base.rollup[.submetric] (sm__inst_executed.sum, dram__bytes.sum.per_second,
// sm__cycles_active.avg.pct_of_peak_sustained_elapsed) or a ratio (l1tex__t_sector_hit_rate.pct).
// Pure functions over immutable tables; thread-safe.
#ifndef SEQPOINT_TESTS_SOFTGPU_METRICS_H_
#define SEQPOINT_TESTS_SOFTGPU_METRICS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/softgpu/config.h"
#include "tests/softgpu/hooks.h"

namespace seqpoint::softgpu {

enum class MetricKind { kCounter, kRatio, kThroughput };

// Counters of one range in one pass.
struct PassData {
  Counters counters;
  double duration_ns;
  uint64_t noise_seed;
};

struct BaseMetric {
  const char* name;
  MetricKind kind;
  const char* unit;
  double weight;  // share of one pass that it takes; the sum over a set, rounded up, is its passes
  uint32_t alone_passes;
  bool device_level;  // links: not to be mixed with the context's counters
};

// Base of the metric `name` on `chip`, or null when there is no such metric.
const BaseMetric* FindMetric(std::string_view chip, std::string_view name);

// Is it counted for a context and for the whole device alike? What the real host library lets be
// beside NVLink's and PCIe's metrics.
bool CountedWithEither(const BaseMetric& base);

// All base metrics, and the suffixes that a base metric takes (".sum", ".sum.per_second", ...).
std::vector<const BaseMetric*> BaseMetrics(std::string_view chip);
std::vector<std::string> Submetrics(MetricKind kind);

bool KnownChip(std::string_view chip);
const std::vector<const char*>& Chips();

// Metrics that were added to a configuration by one call. Only these share passes.
using MetricGroup = std::vector<std::string>;

// Passes that collecting all groups takes, and the passes (as bits) that each metric needs, group
// after group.
struct Schedule {
  uint32_t passes = 0;
  std::vector<uint64_t> pass_bits;
};
Schedule PlanPasses(std::string_view chip, const std::vector<MetricGroup>& groups);

// PM sampling: chips that have it, passes of a metric alone (0: not offered), and of all groups (an
// estimate: the largest of them).
bool HasPmSampling(std::string_view chip);
uint32_t PmPasses(const BaseMetric& base);
uint32_t PlanPmPasses(std::string_view chip, const std::vector<MetricGroup>& groups);

// Value of `name` from what one pass measured, with the configured counter noise.
double Evaluate(const Config& config, std::string_view name, const PassData& data);

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_METRICS_H_
