// Metric sets: sets of metrics with a name, and the one-pass configurations that collect them on
// one GPU.
//
// A configuration is a list of metrics that the hardware collects in a single pass, so that all its
// values come from the same iteration. A metric that needs several passes by itself is in no set.
// Ratios are never collected: they are built from their counters after projection. Metric names are
// those of the CUPTI Profiler Host API; host_library_test asks the real host library for the pass
// count of each configuration, on every chip and for both backends.
//
// Threading: pure functions. Ownership: values.
#ifndef DAEMON_COUNTERS_METRIC_SETS_H_
#define DAEMON_COUNTERS_METRIC_SETS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace seqpoint::counters {

// Which part of CUPTI collects: docs/using/counters.md.
enum class Backend : uint8_t { kRange = 0, kPm = 1 };
std::string_view BackendName(Backend backend);  // "range", "pm"

struct Metric {
  std::string name;  // as CUPTI spells it
  std::string unit;  // bytes, instructions, cycles, ns
  // It lasts as long as the iteration: a stall or a slower clock raises it. Others are amounts of
  // work.
  bool follows_time = false;

  friend bool operator==(const Metric&, const Metric&) = default;
};

struct OnePassConfig {
  uint16_t config_id;  // abi::MetricConfig::config_id; stable, stored with measurements
  std::vector<Metric> metrics;
  std::string set;  // whose it is

  friend bool operator==(const OnePassConfig&, const OnePassConfig&) = default;
};

struct Term {
  std::string metric;
  double weight = 1;

  friend bool operator==(const Term&, const Term&) = default;
};

// Weighted sum of the numerator's projected sums over that of the denominator's. Without a
// denominator it is a sum itself (all floating point operations).
struct Ratio {
  std::string name;
  std::string unit;
  std::vector<Term> numerator;
  std::vector<Term> denominator;

  friend bool operator==(const Ratio&, const Ratio&) = default;
};

struct MetricSet {
  std::string name;
  std::string description;
  std::vector<OnePassConfig> configs;
  std::vector<Ratio> ratios;
  std::string missing;  // what this chip does not offer of the set, in a sentence; else empty

  friend bool operator==(const MetricSet&, const MetricSet&) = default;
};

// A set from a user's file (docs/using/counters.md).
struct OwnSet {
  std::string name;
  std::string description;
  std::vector<std::vector<std::string>> configs;  // names of metrics
  std::vector<Ratio> ratios;
};

inline constexpr std::string_view kDefaultMetricSet = "utilisation";
inline constexpr size_t kMaxConfigsOfJob = 12;      // abi::kMaxConfigs
inline constexpr size_t kMaxMetricsOfConfig = 64;   // what the library reads
inline constexpr size_t kMaxNameBytes = 1016;       // of a configuration, with a line end each
inline constexpr uint16_t kFirstOwnConfigId = 256;  // shipped ones are below

// The chips that the shipped sets are made for, one of each family: "GH100", "GA100", ...
const std::vector<std::string>& KnownChips();
// The family of these metrics.
bool IsKnownChip(std::string_view name);

// All shipped sets, as `chip` offers them to `backend`. For an unknown chip, the sets that all
// chips have.
std::vector<MetricSet> MetricSets(std::string_view chip, Backend backend);

// Error: NotFound, naming the sets there are.
absl::StatusOr<MetricSet> FindMetricSet(std::string_view name, std::string_view chip,
                                        Backend backend);

// The set that a job collects which wants all of these: their configurations one after the other,
// each ratio once. `own` sets come before shipped ones of the same name. Errors: NotFound, as
// above; InvalidArgument, when the sets together have more configurations than a job can have.
absl::StatusOr<MetricSet> CombineMetricSets(const std::vector<std::string>& names,
                                            const std::vector<OwnSet>& own, std::string_view chip,
                                            Backend backend);

// Floating point operations of the CUDA cores in a number format: 'f' FP32, 'h' FP16, 'd' FP64. The
// metrics are instructions of threads, weighted as in Nsight Compute's roofline sections
// (derived__sm__sass_thread_inst_executed_op_{ffma,dfma}_pred_on_x2, _hfma_pred_on_x4,
// derived__smsp__sass_thread_inst_executed_op_{hadd,hmul}_pred_on_x2): a fused multiply-add is two
// operations, and an FP16 instruction works on a packed pair. One that uses half of the pair counts
// as two, too.
std::vector<Term> CudaCoreOperations(char format);

// A metric that a person names: its unit and nature, guessed from its name. Error: InvalidArgument,
// when its values cannot be added up over iterations (percentages, rates, extremes).
absl::StatusOr<Metric> OwnMetric(std::string_view name);

inline constexpr char kRangeTime[] = "gpu__time_duration.sum";
// Whether the metric grows with the time of the range alone, whatever runs in it: the time, elapsed
// cycles, the peak of a unit.
bool CountsElapsedTime(std::string_view metric);

// Error: InvalidArgument, with the set and the mistake.
absl::Status CheckOwnSet(const OwnSet& set);

}  // namespace seqpoint::counters

#endif  // DAEMON_COUNTERS_METRIC_SETS_H_
