#include "daemon/seqpoint/measurements.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace seqpoint {

absl::Span<const Measurement> Measurements::Of(uint32_t set) const {
  const auto found = sets.find(set);
  if (found == sets.end()) return {};
  return found->second;
}

std::vector<double> Measurements::Sums(uint32_t set) const {
  std::vector<double> sums;
  for (const Measurement& m : Of(set)) {
    sums.resize(std::max(sums.size(), m.values.size()));
    for (size_t i = 0; i < m.values.size(); ++i) sums[i] += m.values[i];
  }
  return sums;
}

absl::Status Measurements::Check(uint32_t set, uint64_t iteration,
                                 absl::Span<const double> values) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::abs(values[i]) <= kMaxMagnitude)) {
      return absl::InvalidArgumentError(
          absl::StrCat("statistic ", i, " of set ", set, " in iteration ", iteration, " is ",
                       values[i], ", not a finite number; drop the iteration's measurement"));
    }
  }
  if (values.size() > kMaxValues) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "set ", set, " has ", values.size(), " statistics; at most ", kMaxValues, " are kept"));
  }
  if (!sets.contains(set) && sets.size() >= kMaxSets) {
    return absl::ResourceExhaustedError(
        absl::StrCat("set ", set, " is beyond the ", kMaxSets, " sets that are kept"));
  }
  if (Of(set).size() >= kMaxMeasurementsPerSet) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "set ", set, " already has ", kMaxMeasurementsPerSet, " measurements; no more are kept"));
  }
  return absl::OkStatus();
}

void Measurements::Add(uint32_t set, uint64_t iteration, const Key& key,
                       absl::Span<const double> values) {
  sets[set].push_back({iteration, key, {values.begin(), values.end()}});
  ++used;
  if (spent.size() < kMaxSpent) spent.insert(iteration);
}

void Measurements::Refuse(uint64_t iteration) {
  ++refused;
  if (spent.size() < kMaxSpent) spent.insert(iteration);
}

}  // namespace seqpoint
