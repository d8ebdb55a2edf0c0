#include "daemon/jobs/measurement_tracker.h"

#include <iterator>

namespace seqpoint::jobs {

std::vector<MeasurementState> OnMeasuredIteration(uint64_t number,
                                                  const MeasuredIterationState& iteration,
                                                  MeasurementsState& state) {
  auto& waiting = *state.mutable_without_measurement();
  for (auto it = waiting.begin(); it != waiting.end();) {
    it = it->first + kResultPatience < number ? waiting.erase(it) : std::next(it);
  }
  waiting[number] = iteration;
  const auto it = state.without_iteration().find(number);
  if (it == state.without_iteration().end()) return {};
  const auto& measurements = it->second.measurements();
  std::vector<MeasurementState> taken(measurements.begin(), measurements.end());
  state.mutable_without_iteration()->erase(number);
  return taken;
}

std::optional<MeasuredIterationState> OnMeasurement(uint64_t number, uint32_t set,
                                                    absl::Span<const double> values,
                                                    MeasurementsState& state) {
  constexpr int kMost = 4096;  // iterations that never finish
  const auto it = state.without_measurement().find(number);
  if (it != state.without_measurement().end()) return it->second;
  if (state.without_iteration_size() >= kMost) state.clear_without_iteration();
  MeasurementState& measurement = *(*state.mutable_without_iteration())[number].add_measurements();
  measurement.set_set(set);
  measurement.mutable_values()->Add(values.begin(), values.end());
  return std::nullopt;
}

}  // namespace seqpoint::jobs
