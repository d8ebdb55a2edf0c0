// MeasurementTracker: brings the measurements of a process and its finished iterations together,
// whichever comes first.
//
//   OnIteration(812, {key, sample})         measurements that came before it
//   OnMeasurement(812, set, values)         the iteration, when it is finished
//
// Threading: one thread. Ownership: values only. Memory: bounded, whatever comes.
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

// Iterations that a result may be late.
inline constexpr uint64_t kResultPatience = 1000;

class MeasurementTracker {
 public:
  struct Iteration {
    Key key;
    uint64_t sample = 0;  // its number in the engine
  };

  // A measured iteration is finished. Returns what was measured of it so far.
  std::vector<MeasurementState> OnIteration(uint64_t number, const Iteration& iteration);

  // Returns its iteration; nothing when that is not finished: it keeps the measurement.
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
