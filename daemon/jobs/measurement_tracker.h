// Joins the measurements of a process with its finished iterations; either may come first. What
// waits for the other one is in the stored state of the process.
//
//   OnMeasuredIteration(812, {key, sample}, state)   returns the measurements without iteration
//   OnMeasurement(812, set, values, state)           returns the iteration without measurement
//
// Threading: free functions. Ownership: the state is the caller's. Its size is bounded.
#ifndef DAEMON_JOBS_MEASUREMENT_TRACKER_H_
#define DAEMON_JOBS_MEASUREMENT_TRACKER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "daemon/jobs/state.pb.h"

namespace seqpoint::jobs {

// A result may be late by so many iterations.
inline constexpr uint64_t kResultPatience = 1000;

// A measured iteration is finished. Returns its measurements so far.
std::vector<MeasurementState> OnMeasuredIteration(uint64_t number,
                                                  const MeasuredIterationState& iteration,
                                                  MeasurementsState& state);
// Returns its iteration. Keeps the measurement and returns nothing when that is not finished.
std::optional<MeasuredIterationState> OnMeasurement(uint64_t number, uint32_t set,
                                                    absl::Span<const double> values,
                                                    MeasurementsState& state);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_MEASUREMENT_TRACKER_H_
