#include "daemon/jobs/roofline.h"

#include <algorithm>

namespace seqpoint::jobs {
namespace {

// Failed attempts included, so many times what is wanted: an iteration that never works is not
// measured for ever.
constexpr int kAttemptsPerWanted = 2;
// More than the library ever sends of one iteration.
constexpr uint32_t kMaxKernels = 4096;
constexpr char kNoName[] = "(no name)";

Key LengthOf(const KernelMeasurementState& measurement) {
  return {measurement.first(), measurement.second()};
}

}  // namespace

void ArrivingKernels::Add(const abi::KernelCountersEvent& event, const std::string& name,
                          absl::Span<const double> values) {
  if (arrived_ == 0 || event.iteration != iteration_ ||
      event.config_id != measurement_.config_id()) {
    measurement_.Clear();
    arrived_ = 0;
    iteration_ = event.iteration;
    measurement_.set_config_id(event.config_id);
    measurement_.set_first(event.length[0]);
    measurement_.set_second(event.length[1]);
    measurement_.set_missing(event.missing);
    announced_ = std::min(event.kernels, kMaxKernels);
  }
  if (arrived_ >= announced_) return;
  ++arrived_;
  KernelState& kernel = *measurement_.add_kernels();
  kernel.set_name(name.empty() ? kNoName : name);
  kernel.set_launches(event.launches);
  kernel.mutable_values()->Add(values.begin(), values.end());
}

std::optional<KernelMeasurementState> ArrivingKernels::Take(const abi::CountersEvent& event) {
  const bool whole = event.status == abi::kCountersOk && arrived_ > 0 && arrived_ == announced_ &&
                     event.iteration == iteration_ && event.config_id == measurement_.config_id();
  arrived_ = 0;
  if (!whole) return std::nullopt;
  return std::move(measurement_);
}

void RooflineMeasurements::Add(KernelMeasurementState measurement) {
  if (Find(LengthOf(measurement), measurement.config_id()) != nullptr) return;
  *state_.add_measurements() = std::move(measurement);
}

const KernelMeasurementState* RooflineMeasurements::Find(const Key& length,
                                                         uint32_t config_id) const {
  for (const KernelMeasurementState& measurement : state_.measurements()) {
    if (measurement.config_id() == config_id && LengthOf(measurement) == length) {
      return &measurement;
    }
  }
  return nullptr;
}

std::vector<Key> RooflineMeasurements::Lengths() const {
  std::vector<Key> lengths;
  for (const KernelMeasurementState& measurement : state_.measurements()) {
    const Key length = LengthOf(measurement);
    if (std::find(lengths.begin(), lengths.end(), length) == lengths.end()) {
      lengths.push_back(length);
    }
  }
  return lengths;
}

std::vector<PlanEntry> RooflineMeasurements::Plan(const std::vector<uint32_t>& configs,
                                                  std::vector<SeqPointInfo> points) const {
  std::vector<PlanEntry> plan;
  if (state_.attempts() >= kAttemptsPerWanted * static_cast<int>(kMaxLengths * configs.size())) {
    return plan;
  }
  std::vector<Key> lengths = Lengths();
  std::stable_sort(points.begin(), points.end(), [](const SeqPointInfo& a, const SeqPointInfo& b) {
    return a.weight > b.weight;
  });
  for (const SeqPointInfo& point : points) {
    if (std::find(lengths.begin(), lengths.end(), point.key) == lengths.end()) {
      lengths.push_back(point.key);
    }
  }
  if (lengths.size() > kMaxLengths) lengths.resize(kMaxLengths);
  for (const Key& length : lengths) {
    for (const uint32_t config : configs) {
      if (Find(length, config) != nullptr) continue;
      plan.push_back({.low = length, .high = length, .set = config, .quota = 1});
    }
  }
  return plan;
}

}  // namespace seqpoint::jobs
