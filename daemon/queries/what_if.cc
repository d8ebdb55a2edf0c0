#include "daemon/queries/what_if.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/queries/log_import.h"
#include "daemon/queries/replayed_run.h"
#include "daemon/queries/roofline.h"
#include "daemon/whatif/language/parser.h"

namespace seqpoint::queries {
namespace {

constexpr double kFollowsRoof = 0.3;

// The kernels whose position on the roofline was measured.
whatif::Bounds BoundsOf(const v1::GetRooflineReply& roofline) {
  whatif::Bounds bounds;
  for (const v1::RooflineKernel& kernel : roofline.kernels()) {
    if (!kernel.complete()) continue;
    std::map<std::string, double>& counters = bounds.counters[kernel.name()];
    counters["operations_per_s"] = kernel.operations_per_s();
    counters["bytes_per_s"] = kernel.bytes_per_s();
    const auto set = [&](const char* name, bool known, double value) {
      if (known) counters[name] = value;
    };
    set("operations_per_byte", kernel.has_operations_per_byte(), kernel.operations_per_byte());
    set("compute_share", kernel.has_compute_share(), kernel.compute_share());
    set("memory_share", kernel.has_memory_share(), kernel.memory_share());
    set("roof_share", kernel.has_roof_share(), kernel.roof_share());
    if (kernel.bound() == v1::BOUND_MEMORY) bounds[kernel.name()] = whatif::Bound::kMemory;
    if (kernel.bound() == v1::BOUND_COMPUTE) bounds[kernel.name()] = whatif::Bound::kCompute;
    if (kernel.bound() == v1::BOUND_LATENCY) {
      // Below 60 % of both roofs. One that reaches half of that still follows the nearer roof.
      const bool far = kernel.roof_share() < kFollowsRoof;
      bounds[kernel.name()] = far ? whatif::Bound::kLatency
                              : kernel.compute_share() > kernel.memory_share()
                                  ? whatif::Bound::kCompute
                                  : whatif::Bound::kMemory;
    }
  }
  return bounds;
}

absl::StatusOr<NamedChange> ParseNamedChange(const v1::WhatIfChange& requested) {
  NamedChange named;
  if (!requested.preset().empty()) {
    absl::StatusOr<whatif::Change> change = whatif::ParseChange(requested.preset());
    // NotFound is a job's.
    if (!change.ok()) {
      return absl::InvalidArgumentError(std::string(change.status().message()));
    }
    named.change = *std::move(change);
    named.preset = *whatif::FindPreset(named.change.name);
    named.name = requested.preset();
    return named;
  }
  const std::string name = requested.name().empty() ? "steps" : OneLine(requested.name());
  named.name =
      requested.parameters().empty() ? name : absl::StrCat(name, ",", requested.parameters());
  const bool preset = absl::StartsWith(requested.text(), "steps:") ||
                      requested.text().find("\nsteps:") != std::string::npos;
  if (!preset) {
    absl::StatusOr<whatif::Request> request = whatif::ParseRequest(requested.text());
    if (!request.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", std::string(request.status().message())));
    }
    if (!requested.parameters().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": parameters (\"", requested.parameters(),
          "\") are those of a preset, and this is a ",
          "list of steps; a preset has lines \"param NAME = VALUE: meaning\" and \"steps:\""));
    }
    named.change = {name, *std::move(request), {}, {}};
    return named;
  }
  SEQPOINT_ASSIGN_OR_RETURN(auto own, whatif::ParsePreset(name, requested.text()));
  SEQPOINT_ASSIGN_OR_RETURN(named.change, whatif::WithParameters(own, requested.parameters()));
  named.preset = std::move(own);
  return named;
}

}  // namespace

absl::StatusOr<std::vector<NamedChange>> ParseChanges(const v1::WhatIfRequest& request) {
  std::vector<NamedChange> changes;
  for (const v1::WhatIfChange& requested : request.changes()) {
    SEQPOINT_ASSIGN_OR_RETURN(changes.emplace_back(), ParseNamedChange(requested));
  }
  return changes;
}

absl::StatusOr<v1::WhatIfReply> WhatIf(const jobs::Snapshot& snapshot, const RecordedRun& run,
                                       const std::vector<NamedChange>& changes,
                                       const v1::WhatIfRequest& request, Cancelled cancelled) {
  const jobs::SnapshotData& job = snapshot.data();
  SEQPOINT_ASSIGN_OR_RETURN(const auto before, ReplayUnchanged(run, cancelled));
  // Most jobs have none.
  const absl::StatusOr<v1::GetRooflineReply> roofline = GetRoofline(job, {});
  const whatif::Bounds bounds = roofline.ok() ? BoundsOf(*roofline) : whatif::Bounds();
  v1::WhatIfReply reply;
  const ReplayErrors errors = ErrorsOf(run, before.outcomes);
  SEQPOINT_RETURN_IF_ERROR(CheckReplay(run, errors, job.name));
  reply.set_replay_error(errors.mean);
  reply.set_confidence(request.confidence());
  const WhatIfOptions options = {request.confidence(), errors.mean, !request.list()};
  for (const Stretch& stretch : run.stretches) {
    reply.set_traces(reply.traces() + static_cast<int32_t>(stretch.steps.size()));
  }
  const auto answer = [&](const std::vector<NamedChange>& together) -> absl::Status {
    absl::StatusOr<v1::WhatIfAnswer> one =
        RunWhatIf(together, run, before, bounds, snapshot, options, cancelled, &reply);
    if (one.ok()) *reply.add_answers() = *std::move(one);
    return one.status();
  };
  if (!request.list()) {
    SEQPOINT_RETURN_IF_ERROR(answer(changes));
  } else {
    for (const whatif::Preset& preset : whatif::Presets()) {
      const absl::StatusOr<whatif::Change> change = whatif::WithParameters(preset, "");
      if (!change.ok()) continue;  // it needs a parameter that only the user knows
      SEQPOINT_RETURN_IF_ERROR(answer({{*change, preset, preset.name}}));
    }
    std::stable_sort(reply.mutable_answers()->begin(), reply.mutable_answers()->end(),
                     [](const v1::WhatIfAnswer& a, const v1::WhatIfAnswer& b) {
                       return std::pair(a.applies(), a.saved().value()) >
                              std::pair(b.applies(), b.saved().value());
                     });
  }
  *reply.mutable_losses() = job.losses;
  reply.set_clock_kind(job.clock_kind);
  reply.set_ranks(static_cast<int32_t>(job.ranks.size()));
  return reply;
}

}  // namespace seqpoint::queries
