#include "daemon/queries/roofline.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/counters/roofline.h"
#include "daemon/jobs/roofline.h"

namespace seqpoint::queries {
namespace {

// Below this share of both roofs, waiting is what takes the time. Nsight Compute has 60 %; values
// of different iterations tell a share to a percent or two, and a kernel at 60 % is not to be one
// thing in one run and another in the next.
constexpr double kBusyShare = 0.58;

// One kernel: the sums over the joined lengths, and over all.
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
    to->set_message(absl::StrCat("roof not known: ", position.memory_share ? "" : "memory",
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

// Values of several configurations come from different iterations. They are joined by the kernel's
// name, between iterations of exactly the same length that launched it equally often.
v1::GetRooflineReply PlaceKernels(const jobs::SnapshotData& job) {
  const counters::Roofline& roofline = job.metrics.roofline();
  v1::GetRooflineReply reply;
  std::map<std::string, Joined> kernels;
  counters::MetricSums all;  // of the lengths that every configuration was measured at
  int64_t missing = 0;
  for (const Key& length : job.roofline.Lengths()) {
    v1::RooflineLength& to = *reply.add_lengths();
    const int64_t feature[2] = {length.first, length.second};
    for (const int64_t value : job.units.Of(feature, job.dimensions)) to.add_lengths(value);
    std::vector<const jobs::KernelMeasurementState*> measured;
    for (const counters::OnePassConfig& config : roofline.configs) {
      const jobs::KernelMeasurementState* measurement = job.roofline.Find(length, config.config_id);
      if (measurement == nullptr) continue;
      measured.push_back(measurement);
      missing = std::max<int64_t>(missing, measurement->missing());
    }
    to.set_measured_iterations(static_cast<int32_t>(measured.size()));
    to.set_wanted_iterations(static_cast<int32_t>(roofline.configs.size()));
    if (measured.empty() || measured[0]->config_id() != roofline.configs[0].config_id) continue;
    const bool complete = measured.size() == roofline.configs.size();
    for (const jobs::KernelState& kernel : measured[0]->kernels()) {
      Joined& joined = kernels[kernel.name()];
      joined.launches += static_cast<double>(kernel.launches());
      if (kernel.values_size() > 0) joined.duration_ns += kernel.values(0);
      if (!complete) continue;
      counters::MetricSums sums;
      bool whole = true;
      for (size_t i = 0; i < measured.size() && whole; ++i) {
        const auto& others = measured[i]->kernels();
        const auto same = std::find_if(
            others.begin(), others.end(),
            [&](const jobs::KernelState& other) { return other.name() == kernel.name(); });
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
      to.set_message(joined.differs ? "iterations of one length launched it differently often"
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

}  // namespace

absl::StatusOr<v1::GetRooflineReply> GetRoofline(const jobs::SnapshotData& job,
                                                 const v1::GetRooflineRequest& request) {
  const std::string name = absl::StrCat("job \"", job.name, "@", job.run_id, "\"");
  if (!job.metrics.wants_roofline()) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": single kernels were not measured; ask for them with `seqpoint run --roofline`"));
  }
  if (job.roofline.measurements() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": no kernel was measured by itself yet: ", job.no_roofline));
  }
  v1::GetRooflineReply reply = PlaceKernels(job);
  if (reply.kernels().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": of no length the kernels' time and bytes were measured yet"));
  }
  if (request.limit() > 0 && reply.kernels_size() > request.limit()) {
    reply.mutable_kernels()->DeleteSubrange(request.limit(),
                                            reply.kernels_size() - request.limit());
  }
  std::vector<std::string> messages;
  for (const counters::OnePassConfig& config : job.metrics.roofline().configs) {
    const auto refused = job.refused_configs.find(config.config_id);
    if (refused != job.refused_configs.end()) {
      messages.push_back(absl::StrCat(config.metrics[0].name, " and others cannot be collected: ",
                                      refused->second, "; no kernel has a position without"));
    }
  }
  messages.insert(messages.end(), job.roofline_failures.begin(), job.roofline_failures.end());
  reply.set_message(absl::StrJoin(messages, "; "));
  reply.set_chip(job.metrics.chip());
  *reply.mutable_losses() = job.losses;
  reply.set_job_id(absl::StrCat(job.job_id));
  return reply;
}

}  // namespace seqpoint::queries
