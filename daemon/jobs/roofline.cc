#include "daemon/jobs/roofline.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace seqpoint::jobs {
namespace {

// Failed attempts included, so many times what is wanted: an iteration that never works is not
// measured for ever.
constexpr int kAttemptsPerWanted = 2;
// Below this share of both roofs, waiting is what takes the time. Nsight Compute has 60 %; values
// of different iterations tell a share to a percent or two, and a kernel at 60 % is not to be one
// thing in one run and another in the next.
constexpr double kBusyShare = 0.58;
// More than the library ever sends of one iteration.
constexpr uint32_t kMaxKernels = 4096;
constexpr char kNoName[] = "(no name)";

Key LengthOf(const KernelMeasurementState& measurement) {
  return {measurement.first(), measurement.second()};
}

// Of one kernel: the sums over what is joined, and over all.
struct Joined {
  counters::MetricSums sums;
  int64_t joined_lengths = 0;
  double launches = 0, duration_ns = 0;  // of all lengths whose time was measured
  bool differs = false;                  // was launched another number of times
};

void SetPosition(const counters::RooflinePosition& position, v1::RooflineKernel* to) {
  to->set_operations(position.operations);
  to->set_bytes(position.bytes);
  const double seconds = position.duration_ns * 1e-9;
  if (seconds > 0) {
    to->set_operations_per_s(position.operations / seconds);
    to->set_bytes_per_s(position.bytes / seconds);
  }
  if (position.bytes > 0) to->set_operations_per_byte(position.operations / position.bytes);
  if (position.compute_share) to->set_compute_share(*position.compute_share);
  if (position.memory_share) to->set_memory_share(*position.memory_share);
  to->set_complete(true);
  if (!position.compute_share || !position.memory_share) {
    to->set_sentence(absl::StrCat("roof not known: ", position.memory_share ? "" : "memory",
                                  position.memory_share || position.compute_share ? "" : " and ",
                                  position.compute_share ? "" : "arithmetic"));
    return;
  }
  const double share = std::max(*position.compute_share, *position.memory_share);
  to->set_roof_share(share);
  to->set_bound(share < kBusyShare                                 ? v1::BOUND_LATENCY
                : *position.memory_share > *position.compute_share ? v1::BOUND_MEMORY
                                                                   : v1::BOUND_COMPUTE);
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

v1::GetRooflineReply RooflineMeasurements::Answer(const counters::Roofline& roofline) const {
  v1::GetRooflineReply reply;
  std::map<std::string, Joined> kernels;
  counters::MetricSums all;  // of the lengths that every configuration was measured at
  int64_t missing = 0;
  for (const Key& length : Lengths()) {
    v1::RooflineLength& to = *reply.add_lengths();
    to.add_lengths(length.first);
    to.add_lengths(length.second);
    std::vector<const KernelMeasurementState*> measured;
    for (const counters::OnePassConfig& config : roofline.configs) {
      const KernelMeasurementState* measurement = Find(length, config.config_id);
      if (measurement == nullptr) continue;
      measured.push_back(measurement);
      missing = std::max<int64_t>(missing, measurement->missing());
    }
    to.set_measured_iterations(static_cast<int32_t>(measured.size()));
    to.set_wanted_iterations(static_cast<int32_t>(roofline.configs.size()));
    if (measured.empty() || measured[0]->config_id() != roofline.configs[0].config_id) continue;
    const bool complete = measured.size() == roofline.configs.size();
    for (const KernelState& kernel : measured[0]->kernels()) {
      Joined& joined = kernels[kernel.name()];
      joined.launches += static_cast<double>(kernel.launches());
      if (kernel.values_size() > 0) joined.duration_ns += kernel.values(0);
      if (!complete) continue;
      counters::MetricSums sums;
      bool whole = true;
      for (size_t i = 0; i < measured.size() && whole; ++i) {
        const auto& others = measured[i]->kernels();
        const auto same = std::find_if(others.begin(), others.end(), [&](const KernelState& other) {
          return other.name() == kernel.name();
        });
        const std::vector<counters::Metric>& metrics = roofline.configs[i].metrics;
        whole = same != others.end() && same->launches() == kernel.launches() &&
                same->values_size() == static_cast<int>(metrics.size());
        for (size_t j = 0; whole && j < metrics.size(); ++j) {
          sums.emplace(metrics[j].name, same->values(static_cast<int>(j)));
        }
      }
      joined.differs |= !whole;
      if (!whole) continue;
      ++joined.joined_lengths;
      for (const auto& [metric, value] : sums) {
        joined.sums[metric] += value;
        all[metric] += value;
      }
    }
  }
  double total_ns = 0;
  for (const auto& [name, joined] : kernels) total_ns += joined.duration_ns;
  for (const auto& [name, joined] : kernels) {
    v1::RooflineKernel& to = *reply.add_kernels();
    to.set_name(name);
    to.set_launches(joined.launches);
    to.set_duration_ns(joined.duration_ns);
    if (total_ns > 0) to.set_share(joined.duration_ns / total_ns);
    if (joined.joined_lengths > 0) {
      SetPosition(counters::PlaceOnRoofline(roofline, joined.sums), &to);
    } else {
      to.set_sentence(joined.differs ? "iterations of one length launched it differently often"
                                     : "not measured with every configuration yet");
    }
  }
  std::stable_sort(reply.mutable_kernels()->begin(), reply.mutable_kernels()->end(),
                   [](const v1::RooflineKernel& a, const v1::RooflineKernel& b) {
                     return a.duration_ns() > b.duration_ns();
                   });
  reply.set_kernel_names(reply.kernels_size());
  for (const counters::Roof& roof : counters::RoofsOf(roofline, all)) {
    if (roof.per_second <= 0) continue;
    v1::Roof& to = *reply.add_roofs();
    to.set_name(roof.name);
    to.set_unit(roof.unit);
    to.set_per_s(roof.per_second);
  }
  reply.set_missing_launches(missing);
  return reply;
}

}  // namespace seqpoint::jobs
