#include "daemon/jobs/measurement_tracker.h"

#include <utility>

namespace seqpoint::jobs {

std::vector<MeasurementState> MeasurementTracker::OnIteration(uint64_t number,
                                                              const Iteration& iteration) {
  absl::erase_if(without_measurement_,
                 [&](const auto& entry) { return entry.first + kResultPatience < number; });
  without_measurement_[number] = iteration;
  const auto it = without_iteration_.find(number);
  if (it == without_iteration_.end()) return {};
  std::vector<MeasurementState> measurements = std::move(it->second);
  without_iteration_.erase(it);
  return measurements;
}

std::optional<MeasurementTracker::Iteration> MeasurementTracker::OnMeasurement(
    uint64_t number, uint32_t set, absl::Span<const double> values) {
  if (const auto it = without_measurement_.find(number); it != without_measurement_.end()) {
    return it->second;
  }
  if (without_iteration_.size() >= kMost) without_iteration_.clear();
  MeasurementState& measurement = without_iteration_[number].emplace_back();
  measurement.set_number(number);
  measurement.set_set(set);
  measurement.mutable_values()->Add(values.begin(), values.end());
  return std::nullopt;
}

void MeasurementTracker::Clear() {
  without_iteration_.clear();
  without_measurement_.clear();
}

void MeasurementTracker::Save(MeasurementsState* to) const {
  for (const auto& [number, measurements] : without_iteration_) {
    to->mutable_without_iteration()->Add(measurements.begin(), measurements.end());
  }
  for (const auto& [number, iteration] : without_measurement_) {
    MeasuredIterationState& saved = *to->add_without_measurement();
    saved.set_number(number);
    saved.set_first(iteration.key.first);
    saved.set_second(iteration.key.second);
    saved.set_sample(iteration.sample);
  }
}

void MeasurementTracker::Load(const MeasurementsState& from) {
  for (const MeasurementState& saved : from.without_iteration()) {
    without_iteration_[saved.number()].push_back(saved);
  }
  for (const MeasuredIterationState& saved : from.without_measurement()) {
    without_measurement_[saved.number()] = {{saved.first(), saved.second()}, saved.sample()};
  }
}

}  // namespace seqpoint::jobs
