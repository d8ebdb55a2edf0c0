#include "daemon/jobs/snapshot.h"

#include <algorithm>

#include "daemon/jobs/figures.h"

namespace seqpoint::jobs {
double Snapshot::UsualTime(const Key& key) const {
  absl::MutexLock lock(&mutex_);
  return work().current().PredictTime(key);
}

double Snapshot::UsualStepTime(const Key& key) const {
  absl::MutexLock lock(&mutex_);
  return data_.engine.current().PredictTime(key);
}

Summary Snapshot::Summarise() const {
  absl::MutexLock lock(&mutex_);
  if (summary_) return *summary_;
  const RunEngine& engine = data_.engine;
  Summary summary;
  summary.time = ProjectionOf(data_, ProjectTime(data_, 0.95), "time", "ns");
  summary.time.mutable_basis()->append(StepsInWords(data_));
  summary.fit = engine.current().Explained();
  summary.generation = data_.generation;
  summary.iterations = engine.Totals().iterations;
  if (data_.imported) {
    summary_ = std::move(summary);
    return *summary_;  // nothing will ever be measured
  }
  const Plan plan = work().current().MakePlan(data_.plan);
  for (const SeqPointInfo& point : work().current().SeqPoints(data_.plan)) {
    summary.seqpoints.set_seqpoints(summary.seqpoints.seqpoints() + 1);
    if (point.measured > 0 && point.measured >= point.wanted) {
      summary.seqpoints.set_measured(summary.seqpoints.measured() + 1);
    }
  }
  summary.seqpoints.set_measurements(plan.measured);
  // Those that were taken for an earlier plan count, too, also where this one would have fewer.
  summary.seqpoints.set_measurements_wanted(data_.measurable ? std::max(plan.wanted, plan.measured)
                                                             : plan.measured);
  summary_ = std::move(summary);
  return *summary_;
}

}  // namespace seqpoint::jobs
