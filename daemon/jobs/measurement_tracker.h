// Joins the measurements of a process with its finished iterations; either may come first. What
// waits for the other one is in the stored state of the process.
//
//   OnStarted(812, {set, key}, state)                until then the plan has it
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

// A measurement has begun: until its result comes, the plan asks nobody else for it.
void OnStarted(uint64_t number, const StartedMeasurementState& started, MeasurementsState& state);
// Is it a window of all ranks, which is beside the plan?
bool IsShared(uint64_t number, const MeasurementsState& state);
// It came to nothing.
void OnFailed(uint64_t number, MeasurementsState& state);
// The results of measurements that started before iteration `number` were lost.
void ForgetStartedBefore(uint64_t number, MeasurementsState& state);
// A measured iteration is finished. Returns its measurements so far.
std::vector<MeasurementState> OnMeasuredIteration(uint64_t number,
                                                  const MeasuredIterationState& iteration,
                                                  MeasurementsState& state);
// The result of a measurement. Returns its iteration. Keeps the measurement and returns nothing
// when that is not finished.
std::optional<MeasuredIterationState> OnMeasurement(uint64_t number, uint32_t set,
                                                    absl::Span<const double> values,
                                                    MeasurementsState& state);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_MEASUREMENT_TRACKER_H_
