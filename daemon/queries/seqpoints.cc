#include "daemon/queries/seqpoints.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/figures.h"
#include "daemon/queries/errors.h"

namespace seqpoint::queries {
namespace {

// How often each metric set was measured for it; a metric set may have several configurations.
void SetMeasuredSets(const jobs::SnapshotData& job, const SeqPointInfo& point,
                     v1::SeqPoint* seqpoint) {
  if (!job.measurable || job.imported) return;
  std::map<std::string, v1::ConfigCount*> by_name;
  for (size_t i = 0; i < point.measured_by_set.size(); ++i) {
    const std::string name = job.metrics.NameOf(job.plan.sets[i]);
    v1::ConfigCount*& count = by_name[name];
    if (count == nullptr) count = seqpoint->add_configs();
    count->set_config(name);
    count->set_measured(count->measured() + point.measured_by_set[i]);
    count->set_wanted(count->wanted() + point.wanted / static_cast<int>(job.plan.sets.size()));
  }
}

}  // namespace

absl::StatusOr<v1::GetSeqPointsReply> GetSeqPoints(const jobs::Snapshot& snapshot) {
  const jobs::SnapshotData& job = snapshot.data();
  v1::GetSeqPointsReply reply;
  absl::MutexLock lock(&snapshot.mutex());
  const jobs::RunEngine& engine = snapshot.work();
  const EngineTotals totals = engine.Totals();
  if (totals.iterations == 0) {
    return NoIteration(job);
  }
  const std::vector<SeqPointInfo> points = engine.current().SeqPoints(job.plan);
  double total_weight = 0;
  for (const SeqPointInfo& point : points) total_weight += point.weight;
  for (const SeqPointInfo& point : points) {
    v1::SeqPoint& to = *reply.add_seqpoints();
    const int64_t length[2] = {point.key.first, point.key.second};
    for (const int64_t value : job.units.Of(length, job.dimensions)) to.add_lengths(value);
    for (int i = 0; i < job.dimensions; ++i) to.add_read_lengths(length[i]);
    to.set_weight(point.weight);
    to.set_share(total_weight > 0 ? point.weight / total_weight : 0);
    const double mean_ns = engine.current().PredictTime(point.key);
    if (mean_ns > 0) to.set_mean_duration_ns(mean_ns);
    to.set_measured(point.measured);
    to.set_wanted(job.measurable ? point.wanted : point.measured);
    SetMeasuredSets(job, point, &to);
  }
  if (job.rule) {
    *reply.mutable_rule() = *job.rule;
    jobs::SetFit(engine.current().Explained(), reply.mutable_rule());
  }
  if (job.work) {
    reply.set_message(
        absl::StrCat("iterations are those of all ", job.ranks.size(),
                     " ranks, each with its own length; a step of the job is one of each"));
  }
  reply.set_unique_lengths(static_cast<int64_t>(totals.unique_keys));
  reply.set_iterations(static_cast<int64_t>(totals.iterations));
  *reply.mutable_losses() = job.losses;
  reply.set_job_id(absl::StrCat(job.job_id));
  return reply;
}

}  // namespace seqpoint::queries
