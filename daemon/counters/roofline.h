// The roofline of a chip: the one-pass configurations that measure a kernel's time, its bytes of
// device memory and its floating point operations with their peaks, and the place of a kernel from
// their sums. docs/using/counters.md explains the peaks.
//
// Threading: pure functions. Ownership: values.
#ifndef DAEMON_COUNTERS_ROOFLINE_H_
#define DAEMON_COUNTERS_ROOFLINE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/counters/metric_sets.h"

namespace seqpoint::counters {

inline constexpr std::string_view kRooflineSet = "roofline";  // OnePassConfig::set
inline constexpr uint16_t kFirstRooflineConfigId = 128;

// Operations of one number format.
struct RooflineFormat {
  std::string name;
  std::vector<Term> operations;
  std::string peak;      // metric; empty: `per_cycle` for each of the multiprocessors' cycles
  double per_cycle = 0;  // 0: not known
};

struct Roofline {
  std::vector<OnePassConfig> configs;  // the first has time, cycles and bytes; none: no roofline
  std::vector<Term> bytes;
  std::string bytes_peak;  // metric; empty: not known
  std::vector<RooflineFormat> formats;
};

// Without configurations on a chip that is not known.
Roofline MakeRoofline(std::string_view chip);

// Sums of metrics over the same launches, by name; of a metric that several configurations have,
// that of the first one.
using MetricSums = std::map<std::string, double>;

struct RooflinePosition {
  double duration_ns = 0;
  double bytes = 0;
  double operations = 0;
  std::optional<double> memory_share;   // of the peak bandwidth; not set: not known
  std::optional<double> compute_share;  // of the peak rates of the formats that it uses
};
RooflinePosition PlaceOnRoofline(const Roofline& roofline, const MetricSums& sums);

// Roofs as they were met, at the clocks of the measured kernels.
struct Roof {
  std::string name;
  std::string unit;       // "B/s" or "FLOP/s"
  double per_second = 0;  // 0: not known
};
std::vector<Roof> RoofsOf(const Roofline& roofline, const MetricSums& sums);

}  // namespace seqpoint::counters

#endif  // DAEMON_COUNTERS_ROOFLINE_H_
