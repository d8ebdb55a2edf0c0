// Measurements: what was measured under configurations, by set, and what the budget was spent on.
//
// Threading: values. Ownership: at most kMaxSets sets of kMaxMeasurementsPerSet measurements with
// kMaxValues values each.
#ifndef DAEMON_SEQPOINT_MEASUREMENTS_H_
#define DAEMON_SEQPOINT_MEASUREMENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

inline constexpr size_t kMaxSets = 256;
inline constexpr size_t kMaxMeasurementsPerSet = 4096;
inline constexpr size_t kMaxSpent = 1 << 20;
// Most statistics of one set.
inline constexpr size_t kMaxValues = 4096;
// A statistic, or anything derived from it, whose square is still a number.
inline constexpr double kMaxMagnitude = 1e100;

struct Measurement {
  uint64_t iteration = 0;
  Key key;
  std::vector<double> values;
};

struct Measurements {
  std::map<uint32_t, std::vector<Measurement>> sets;
  // Iterations that were measured, in one set or more, whether they are of use or not.
  absl::flat_hash_set<uint64_t> spent;
  uint64_t used = 0, refused = 0;

  // A set's measurements; empty where there are none.
  absl::Span<const Measurement> Of(uint32_t set) const;
  // The sum of each statistic of the set over its measurements.
  std::vector<double> Sums(uint32_t set) const;

  // InvalidArgument for a value that is not finite, ResourceExhausted beyond the limits.
  absl::Status Check(uint32_t set, uint64_t iteration, absl::Span<const double> values) const;
  void Add(uint32_t set, uint64_t iteration, const Key& key, absl::Span<const double> values);
  void Refuse(uint64_t iteration);
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_MEASUREMENTS_H_
