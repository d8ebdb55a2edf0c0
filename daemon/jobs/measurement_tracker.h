// MeasurementTracker: joins the measurements of a process with its finished iterations; either may
// come first.
//
//   OnIteration(812, {key, sample})    returns the measurements without iteration
//   OnMeasurement(812, set, values)    returns the iteration without measurement
//
// Threading: one thread at a time. Ownership: values only. Memory: bounded.
#ifndef DAEMON_JOBS_MEASUREMENT_TRACKER_H_
#define DAEMON_JOBS_MEASUREMENT_TRACKER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint::jobs {

// A result may be late by so many iterations.
inline constexpr uint64_t kResultPatience = 1000;

class MeasurementTracker {
 public:
  struct Iteration {
    Key key;
    uint64_t sample = 0;  // its number in the engine
  };

  // A measured iteration is finished. Returns its measurements so far.
  std::vector<MeasurementState> OnIteration(uint64_t number, const Iteration& iteration);

  // Returns its iteration. Keeps the measurement and returns nothing when that is not finished.
  std::optional<Iteration> OnMeasurement(uint64_t number, uint32_t set,
                                         absl::Span<const double> values);

  // Iterations have other keys from now on.
  void Clear();

  void Save(MeasurementsState* to) const;
  void Load(const MeasurementsState& from);

 private:
  static constexpr size_t kMost = 4096;

  // By the iteration's number.
  absl::flat_hash_map<uint64_t, std::vector<MeasurementState>> without_iteration_;
  absl::flat_hash_map<uint64_t, Iteration> without_measurement_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_MEASUREMENT_TRACKER_H_
