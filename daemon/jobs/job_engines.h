// JobEngines: the engines of a job. One has the job's steps. Once there are several ranks, another
// has what each rank does: its keys are a rank's own, not the slowest's, and it is the one that
// measurements belong to.
//
// Threading: one thread at a time. Ownership: the engines, and what is stored of them.
#ifndef DAEMON_JOBS_JOB_ENGINES_H_
#define DAEMON_JOBS_JOB_ENGINES_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "daemon/jobs/length_matching.h"
#include "daemon/jobs/measurement_tracker.h"
#include "daemon/jobs/rank_table.h"
#include "daemon/jobs/run_engine.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/jobs/step_builder.h"
#include "daemon/store/part_log.h"
#include "daemon/store/store.h"

namespace seqpoint::jobs {

class JobEngines {
 public:
  RunEngine& steps() { return steps_; }
  const RunEngine& steps() const { return steps_; }
  // Of what is measured: its iterations are those of single ranks.
  RunEngine& work() { return work_ ? *work_ : steps_; }
  const RunEngine& work() const { return work_ ? *work_ : steps_; }
  bool split() const { return work_.has_value(); }
  StepBuilder& builder() { return builder_; }  // of the steps, once they are split
  const StepBuilder& builder() const { return builder_; }

  // A second rank came: the job's steps and the ranks' iterations are two things from now on.
  void Split(const RankTable& ranks);
  // In work(), the number of an iteration of a rank that has `number` there.
  uint64_t NextSample(int64_t number) {
    return split() ? next_sample_++ : static_cast<uint64_t>(number);
  }
  void SetHorizon(EngineHorizons horizons);
  // Iterations have other keys from now on.
  void Close();

  // A refusal (the length's first occurrence) is counted by the engine.
  void AddMeasurement(uint32_t set, const MeasurementTracker::Iteration& iteration,
                      absl::Span<const double> values);
  // Usable ones, by statistic set.
  const absl::flat_hash_map<uint32_t, int32_t>& measurements() const { return measurements_; }
  void SetMeasurements(uint32_t set, int32_t count) { measurements_[set] = count; }

  // They did not grow: Store() gives them as a whole.
  void StoreWhole();
  // Appends the rows of what is new since the last call; `changed`: the current engines may be
  // others.
  void Store(int64_t job_id, int32_t version, bool changed, std::vector<StateRow>& rows);
  void Save(EnginesState* to) const;
  // An error names the part that cannot be read.
  absl::Status Load(const std::vector<StateRow>& rows, const EnginesState& state);

 private:
  RunEngine steps_;
  std::optional<RunEngine> work_;
  StepBuilder builder_;
  uint64_t next_sample_ = 0;
  absl::flat_hash_map<uint32_t, int32_t> measurements_;
  PartLog steps_log_{"engine"}, work_log_{"work"};
  int stored_closed_ = 0, stored_closed_work_ = 0;  // closed engines that are in the store
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_JOB_ENGINES_H_
