// Metric sets: what a person asks for by name, and the one-pass configurations that collect it.
//
// A configuration is a list of metrics the hardware collects in a single pass, so that every value
// of it comes from one and the same iteration. Ratios are never collected: they are built from
// their numerator and denominator after projection. Metric names are those of the CUPTI Profiler
// Host API; metric_sets_test asks the real host library for the pass count of each configuration,
// per chip.
//
// Threading: immutable data. Ownership: static.
#ifndef DAEMON_COUNTERS_METRIC_SETS_H_
#define DAEMON_COUNTERS_METRIC_SETS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace seqpoint::counters {

struct Metric {
  std::string name;         // as CUPTI spells it
  std::string unit;         // bytes, instructions, cycles, ns
  std::string description;  // one sentence
  // It lasts as long as the iteration: a stall or a slower clock raises it. Others are amounts of
  // work.
  bool follows_time = false;
};

struct OnePassConfig {
  uint16_t config_id;  // abi::MetricConfig::config_id; stable, stored with measurements
  std::vector<Metric> metrics;
};

// numerator / denominator of projected sums, times `scale`.
struct Ratio {
  std::string name;
  std::string unit;
  std::string numerator;
  std::string denominator;
  double scale;
};

struct MetricSet {
  std::string name;
  std::string sentence;
  std::vector<OnePassConfig> configs;
  std::vector<Ratio> ratios;
};

const std::vector<MetricSet>& MetricSets();

// Error: NotFound, naming the sets there are.
absl::StatusOr<const MetricSet*> FindMetricSet(std::string_view name);

inline constexpr std::string_view kDefaultMetricSet = "utilisation";

// What a job that wants all of these collects: their configurations one after the other, each
// ratio once. Error: NotFound, as above.
absl::StatusOr<MetricSet> CombineMetricSets(const std::vector<std::string>& names);

}  // namespace seqpoint::counters

#endif  // DAEMON_COUNTERS_METRIC_SETS_H_
