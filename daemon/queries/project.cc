#include "daemon/queries/project.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/figures.h"
#include "daemon/queries/errors.h"
#include "daemon/queries/metric_terms.h"

namespace seqpoint::queries {
absl::StatusOr<v1::ProjectReply> Project(const jobs::Snapshot& snapshot,
                                         const v1::ProjectRequest& request) {
  const jobs::SnapshotData& job = snapshot.data();
  absl::MutexLock lock(&snapshot.mutex());
  const jobs::RunEngine& engine = job.engine;
  if (engine.Totals().iterations == 0) {
    return NoIteration(job);
  }
  v1::ProjectReply reply;
  *reply.mutable_losses() = job.losses;
  const std::string metric = request.metric().empty() ? "time" : request.metric();
  if (metric == "time") {
    *reply.mutable_projection() =
        jobs::ProjectionOf(job, jobs::ProjectTime(job, request.confidence()), "time", "ns");
    reply.mutable_projection()->mutable_basis()->append(jobs::StepsInWords(job));
    return reply;
  }
  SEQPOINT_RETURN_IF_ERROR(CheckMeasurable(job));
  // A metric may be in several configurations: any that was measured answers.
  absl::Status missing;
  std::vector<std::string> known = {"time"};
  for (const counters::OnePassConfig& config : job.metrics.set().configs) {
    for (size_t i = 0; i < config.metrics.size(); ++i) {
      if (std::find(known.begin(), known.end(), config.metrics[i].name) == known.end()) {
        known.push_back(config.metrics[i].name);
      }
      if (config.metrics[i].name != metric) continue;
      absl::StatusOr<Projection> projection = snapshot.work().ProjectStatistic(
          config.config_id, static_cast<int>(i), request.confidence(), KindOf(config.metrics[i]));
      if (!projection.ok()) {
        missing = projection.status();
        continue;
      }
      *projection = jobs::WithSlowRanks(job, config.config_id, *std::move(projection),
                                        KindOf(config.metrics[i]));
      *reply.mutable_projection() =
          jobs::ProjectionOf(job, *projection, metric, config.metrics[i].unit);
      *reply.mutable_projection()->mutable_basis() += jobs::RanksInWords(job, "; the sum over ");
      return reply;
    }
  }
  for (const counters::Ratio& ratio : job.metrics.set().ratios) {
    if (!ratio.denominator.empty()) continue;  // no sum over the run
    known.push_back(ratio.name);
    if (ratio.name != metric) continue;
    std::map<std::string, Projection> parts;
    for (const counters::OnePassConfig& config : job.metrics.set().configs) {
      for (size_t i = 0; i < config.metrics.size(); ++i) {
        absl::StatusOr<Projection> projection = snapshot.work().ProjectStatistic(
            config.config_id, static_cast<int>(i), request.confidence(), KindOf(config.metrics[i]));
        if (!projection.ok()) continue;
        parts.emplace(config.metrics[i].name,
                      jobs::WithSlowRanks(job, config.config_id, *std::move(projection),
                                          KindOf(config.metrics[i])));
      }
    }
    const std::optional<Projection> sum = SumOf(ratio.numerator, parts);
    if (!sum) {
      return NoAnswer(job, "not everything that \"", metric,
                      "\" is made of was measured yet; `seqpoint counters` says what");
    }
    *reply.mutable_projection() = jobs::ProjectionOf(job, *sum, metric, ratio.unit);
    *reply.mutable_projection()->mutable_basis() += jobs::RanksInWords(job, "; the sum over ");
    return reply;
  }
  if (!missing.ok()) return missing;
  return absl::InvalidArgumentError(
      absl::StrCat("metric: \"", metric,
                   "\" is not collected for this job; there are: ", absl::StrJoin(known, ", ")));
}

}  // namespace seqpoint::queries
