// JobEngines: the engines of a job. One has the job's steps. Once there are several ranks, another
// has the iterations of each rank: their keys are the rank's own, not the slowest rank's, and
// measurements belong to them.
//
// Threading: one thread at a time. Ownership: the engines, and the log of what is stored of them.
#ifndef DAEMON_JOBS_JOB_ENGINES_H_
#define DAEMON_JOBS_JOB_ENGINES_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "daemon/jobs/length_matching.h"
#include "daemon/jobs/measurement_tracker.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/rank_table.h"
#include "daemon/jobs/run_engine.h"
#include "daemon/jobs/slow_ranks.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/jobs/step_builder.h"
#include "daemon/store/part_log.h"
#include "daemon/store/store.h"

namespace seqpoint::jobs {

class JobEngines {
 public:
  RunEngine& steps() { return steps_.engine; }
  const RunEngine& steps() const { return steps_.engine; }
  // Measurements belong to it: its iterations are those of single ranks.
  RunEngine& work() { return work_ ? work_->engine : steps_.engine; }
  const RunEngine& work() const { return work_ ? work_->engine : steps_.engine; }
  bool split() const { return work_.has_value(); }
  StepBuilder& builder() { return builder_; }  // of the steps, once they are split
  const StepBuilder& builder() const { return builder_; }

  // A second rank came: from now on steps are made of the iterations of several ranks.
  void Split(const RankTable& ranks);
  void SetHorizon(EngineHorizons horizons);
  // Iterations have other keys from now on.
  void Close();

  // An iteration of a process, and those from `first_lost` on whose records were lost: they
  // happened all the same. Returns its number in work().
  uint64_t AddIteration(Process& process, const FinishedIteration& iteration,
                        const NumberedIteration& numbered, int64_t first_lost);
  // The steps that are finished, each added, as rows without their job; arguments of StepBuilder.
  // `rule`: null when there is none.
  std::vector<IterationRow> AddSteps(const std::set<int32_t>& live_ranks, bool all_heard,
                                     const LearnedRule* rule);

  // The engine counts a refusal (the iteration is cold).
  void AddMeasurement(uint32_t set, const MeasuredIterationState& iteration,
                      absl::Span<const double> values);
  // Usable ones, by statistic set.
  const absl::flat_hash_map<uint32_t, int32_t>& measurements() const { return measurements_; }
  const MeasuredOfRanks& measured_of_ranks() const { return measured_of_ranks_; }
  void SetMeasurements(uint32_t set, int32_t count) { measurements_[set] = count; }

  // Store() writes them as a whole, not what was added.
  void StoreWhole();
  // Appends the rows of what is new since the last call; `changed`: the current engines may have
  // something new.
  void Store(int64_t job_id, int32_t version, bool changed, std::vector<StateRow>& rows);
  void Save(EnginesState* to) const;
  // The error names the part that cannot be read.
  absl::Status Load(const std::vector<StateRow>& rows, const EnginesState& state);

 private:
  uint64_t NextSample(int64_t number) {
    return split() ? next_sample_++ : static_cast<uint64_t>(number);
  }

  // An engine, and what the store has of it: its closed engines, a part each, and the log of the
  // current one.
  struct StoredEngine {
    explicit StoredEngine(std::string name) : part(std::move(name)), log(part) {}
    void Store(int64_t job_id, int32_t version, bool changed, std::vector<StateRow>& rows);
    absl::Status Load(const std::vector<StateRow>& rows);

    std::string part;  // of the current one; of a closed one with its index
    RunEngine engine;
    PartLog log;
    int closed = 0;  // so many are in the store
  };

  StoredEngine steps_{"engine"};
  std::optional<StoredEngine> work_;
  StepBuilder builder_;
  uint64_t next_sample_ = 0;
  absl::flat_hash_map<uint32_t, int32_t> measurements_;
  MeasuredOfRanks measured_of_ranks_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_JOB_ENGINES_H_
