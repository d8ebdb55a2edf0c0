// Snapshot: what a job knows at one moment. Questions that take long (half a second with 100,000
// lengths) are asked of it; the job goes on meanwhile.
//
//   const std::shared_ptr<const Snapshot> snapshot = *job.TakeSnapshot();       // with the lock
//   absl::StatusOr<v1::ProjectReply> reply = queries::Project(*snapshot, request);  // without
//
// Threading: thread-safe. Engines keep what they computed: who asks one holds mutex(), and those
// who ask at the same time wait for each other.
// Ownership: everything is its own.
#ifndef DAEMON_JOBS_SNAPSHOT_H_
#define DAEMON_JOBS_SNAPSHOT_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "daemon/jobs/length_units.h"
#include "daemon/jobs/metric_choice.h"
#include "daemon/jobs/roofline.h"
#include "daemon/jobs/run_engine.h"
#include "daemon/jobs/slow_ranks.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/seqpoint/engine.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

struct SnapshotData {
  int64_t job_id = 0;
  std::string name;
  std::string run_id;
  std::string command;
  int64_t start_ns = 0, end_ns = 0;  // end: 0 while it runs
  bool refused = false;              // its stored state cannot be read
  int64_t batch = 0;                 // examples in a forward pass, where it was said
  int64_t generation = 0;
  v1::Horizon::Kind horizon_kind = v1::Horizon::KIND_UNKNOWN;
  bool another = false;          // the question is about another run
  int64_t epoch_iterations = 0;  // of the run, where the horizon says it; 0: not known
  bool live = false;
  bool imported = false;  // from a log: nothing is measured; or from traces
  bool traced() const { return imported && !measurements.empty(); }
  bool measurable = true;
  bool host_times = false;  // no GPU did the work
  // Most iterations have no time, and those that have one are those that the host waited for.
  bool mostly_untimed = false;
  std::map<int32_t, CollectivesState> collectives;  // NCCL's names, by rank, of its last process
  std::string ended_without;                        // why the job that is over had no iteration
  std::string uncounted;    // which process had more iterations than are known; empty: none
  std::string overcounted;  // which may have had fewer; empty: none
  std::string unmatched;    // which ranks' iterations cannot be set beside those of others
  // With one of the first two: from which number on others may be missing, or be none.
  int64_t counted_to = std::numeric_limits<int64_t>::max();
  bool begun = false;  // it is over, and what began last has no end and is not counted
  v1::ClockKind clock_kind = v1::CLOCK_KIND_UNSPECIFIED;
  v1::Losses losses;
  std::optional<v1::Rule> rule;  // without its fit
  int dimensions = 0;
  std::vector<int32_t> ranks;                      // that had iterations
  std::vector<int32_t> started_ranks;              // the same, of those that started together last
  int64_t next_number = 0;                         // after the largest of all iterations' numbers
  std::map<int32_t, int64_t> iterations_per_rank;  // that have finished, over all incarnations
  int64_t late = 0;                                // of their iterations, for their steps
  LengthUnits units;
  MetricChoice metrics;
  std::map<uint32_t, std::string> refused_configs;  // and why
  SampledState sampled;                             // of all ranks
  PlanOptions plan;
  absl::flat_hash_map<uint32_t, int32_t> measurements;  // usable ones, by statistic set
  MeasuredOfRanks measured_of_ranks;
  std::vector<SlowSpan> slow;        // ranks, where several work
  std::vector<std::string> kernels;  // as Job keeps them
  RooflineMeasurements roofline;
  std::string no_roofline;                     // why no kernel was measured by itself
  std::vector<std::string> roofline_failures;  // of processes
  RunEngine engine;                            // of the job's steps
  std::optional<RunEngine> work;               // of the ranks' iterations, when there are several

  int32_t MeasurementsOf(uint32_t set) const {
    const auto it = measurements.find(set);
    return it == measurements.end() ? 0 : it->second;
  }
  // By rank.
  std::map<int32_t, std::vector<int64_t>> MeasuredIn(uint32_t set) const {
    const auto it = measured_of_ranks.find(set);
    return it == measured_of_ranks.end() ? std::map<int32_t, std::vector<int64_t>>() : it->second;
  }
};

// The expensive part of a job's description.
struct Summary {
  v1::Projection time;
  v1::SeqPointsSummary seqpoints;
  KeyFit fit;
  // Generation and iterations of the job at that moment.
  int64_t generation = 0;
  uint64_t iterations = 0;
};

class Snapshot {
 public:
  explicit Snapshot(SnapshotData data) : data_(std::move(data)) {}

  const SnapshotData& data() const { return data_; }
  // The engine that measurements belong to: of the ranks' iterations, where there are several.
  const RunEngine& work() const { return data_.work ? *data_.work : data_.engine; }
  absl::Mutex& mutex() const ABSL_LOCK_RETURNED(mutex_) { return mutex_; }

  // The time of an ordinary iteration of a rank, and of a step of all ranks, with this key, ns; 0:
  // not known.
  double UsualTime(const Key& key) const ABSL_LOCKS_EXCLUDED(mutex_);
  double UsualStepTime(const Key& key) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Computed once.
  Summary Summarise() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  const SnapshotData data_;
  mutable std::optional<Summary> summary_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_SNAPSHOT_H_
