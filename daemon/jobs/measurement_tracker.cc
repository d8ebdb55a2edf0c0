#include "daemon/jobs/measurement_tracker.h"

#include <iterator>

namespace seqpoint::jobs {
namespace {

constexpr int kMostUnfinished = 4096;  // iterations that never finish

}  // namespace

void OnStarted(uint64_t number, const StartedMeasurementState& started, MeasurementsState& state) {
  if (state.started_size() >= kMostUnfinished) state.clear_started();
  (*state.mutable_started())[number] = started;
}

bool IsShared(uint64_t number, const MeasurementsState& state) {
  const auto it = state.started().find(number);
  return it != state.started().end() && it->second.shared();
}

void OnFailed(uint64_t number, MeasurementsState& state) { state.mutable_started()->erase(number); }

void ForgetStartedBefore(uint64_t number, MeasurementsState& state) {
  auto& started = *state.mutable_started();
  for (auto it = started.begin(); it != started.end();) {
    it = it->first < number ? started.erase(it) : std::next(it);
  }
}

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
  state.mutable_started()->erase(number);
  return taken;
}

std::optional<MeasuredIterationState> OnMeasurement(uint64_t number, uint32_t set,
                                                    absl::Span<const double> values,
                                                    MeasurementsState& state) {
  const auto it = state.without_measurement().find(number);
  if (it != state.without_measurement().end()) {
    state.mutable_started()->erase(number);
    return it->second;
  }
  if (state.without_iteration_size() >= kMostUnfinished) state.clear_without_iteration();
  MeasurementState& measurement = *(*state.mutable_without_iteration())[number].add_measurements();
  measurement.set_set(set);
  measurement.mutable_values()->Add(values.begin(), values.end());
  return std::nullopt;
}

}  // namespace seqpoint::jobs
