// Job: the state machine of one training run. Records of its processes come in; iterations,
// measurements, plans and answers go out.
//
//   learning   the learner listens to the launch stream of one process
//   verifying  a rule was published; the library's boundaries and our own, from the same stream,
//              must agree on a whole iteration before learning stops
//   marking    only boundaries, lengths and times; a few iterations are measured
//
// The daemon feeds it batch by batch and then calls Advance() once:
//
//   job.OnEvent(process, type, payload); job.OnData(process, records); job.Advance();
//   job.TakeRows(batch);                      // for the store, with the rings' cursors
//   if (const abi::Control* control = job.TakeControl(process)) ...   // for the ring's control
//   block
//
// Threading: one thread at a time; the daemon's lock excludes. Ownership: everything is its own.
// No I/O: what must last is in the rows it hands out, and Restore() takes them back.
#ifndef DAEMON_JOBS_JOB_H_
#define DAEMON_JOBS_JOB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/counters/metric_sets.h"
#include "daemon/jobs/change_tracker.h"
#include "daemon/jobs/event_dispatcher.h"
#include "daemon/jobs/iteration_builder.h"
#include "daemon/jobs/job_engines.h"
#include "daemon/jobs/kernel_statistics.h"
#include "daemon/jobs/learning.h"
#include "daemon/jobs/length_matching.h"
#include "daemon/jobs/measurement_plan.h"
#include "daemon/jobs/metric_choice.h"
#include "daemon/jobs/metric_collection.h"
#include "daemon/jobs/micro_batches.h"
#include "daemon/jobs/observed_lengths.h"
#include "daemon/jobs/orders.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/process_table.h"
#include "daemon/jobs/program_ends.h"
#include "daemon/jobs/rank_table.h"
#include "daemon/jobs/resume_aligner.h"
#include "daemon/jobs/roofline.h"
#include "daemon/jobs/run_engine.h"
#include "daemon/jobs/run_schedule.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/jobs/snapshot_cache.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/jobs/step_builder.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/store/part_log.h"
#include "daemon/store/store.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

struct ImportedRun;

inline constexpr int32_t kJobStateVersion = 9;
inline constexpr char kSummaryPart[] = "summary";

struct JobOptions {
  int measurement_budget = 64;  // measured iterations over the whole run
  double overhead_budget_share = 0.01;
};

// What the ring's reader counted for a process so far.
struct RingLosses {
  uint64_t dropped = 0;
  uint64_t events_dropped = 0;  // of these, boundaries, steps and other events
  uint64_t lost = 0;
  uint64_t rejected = 0;
  uint64_t cupti_dropped = 0;
  uint64_t invalid_timestamps = 0;
  uint32_t clock_kind = 0;
};

class Job : private JobEvents {
 public:
  Job(JobRow row, JobOptions options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // A process as the store knows it; only a live one needs its names.
  struct StoredProcess {
    ProcessRow row;
    std::vector<NameRow> names;
  };

  // Puts back what TakeRows() handed out. A state of another version, or a damaged one, is an
  // error that names the job; the rows are then all there is.
  absl::Status Restore(const std::vector<StateRow>& states,
                       const std::vector<StoredProcess>& processes);
  // Then why, in a sentence; such a job takes no process and no order, and hands out no rows.
  const std::string& refused() const { return refused_; }
  // None of its processes runs any more, as the daemon found out: retention takes it in its turn.
  void EndRefused(int64_t now_ns);

  // A new job becomes one of a run that is over and was logged elsewhere (import.h). The rows of
  // its iterations are not handed out.
  void Import(const ImportedRun& run, absl::FunctionRef<int64_t()> new_process_id);
  // Whether a process may join: FailedPrecondition and DataLoss, with the way out, when none may.
  absl::Status MayGoOn() const;

  // A process of this job connected for the first time. Its id is `row.process_id`. `gone`: those
  // that run no more, though their last records are not read yet.
  void AddProcess(const ProcessRow& row, const std::set<int64_t>& gone = {});
  bool HasProcesses() const { return !processes_.empty(); }
  bool HasProcess(int64_t process_id) const { return processes_.contains(process_id); }
  int32_t NextIncarnation(int32_t rank) const { return processes_.NextIncarnation(rank); }
  std::vector<std::pair<int64_t, int32_t>> LiveProcesses() const;  // id, pid
  const std::string& Identity(int64_t process_id) const;           // ingest::ProcessIdentity

  void OnEvent(int64_t process_id, abi::EventType type, absl::Span<const uint8_t> payload);
  void OnData(int64_t process_id, absl::Span<const abi::DataRecord> records);
  void OnLosses(int64_t process_id, const RingLosses& losses);
  // `count` calls will not come (RingSink).
  void OnCallsMissing(int64_t process_id, uint64_t count);
  // What a new incarnation repeats is found in the log of the earlier ones. Asked after each
  // commit: who waits for the lengths of its rank, which are those of the iterations [begin, end).
  struct WantedLog {
    int64_t process_id;
    int32_t rank;
    int64_t begin, end;
  };
  std::vector<WantedLog> WantedLogs() const;
  void SetLog(int64_t process_id, int64_t begin, std::vector<KnownLengths> log);

  // After Restore, of a live process: the number under which its trace segments hold the calls it
  // is being learned from, nothing when it is not; and those calls.
  std::optional<int64_t> LearnLog(int64_t process_id) const;
  void RestoreLearnLog(int64_t process_id, std::string_view records);
  // ... the iterations that were being traced, and the records that are stored of one.
  std::vector<int64_t> OpenTraces(int64_t process_id) const;
  void RestoreTrace(int64_t process_id, std::string_view records);

  // The ring is drained and the process is gone; `failed`: with another exit status than 0.
  void OnProcessEnd(int64_t process_id, bool orderly, int64_t now_ns, bool failed = false);

  // A program that `seqpoint run` started ended. With status 0, that one of its processes said no
  // goodbye (os._exit, a child of multiprocessing) is then its way to end.
  void EndProgram(const ProgramEnd& end);

  // Its name and its tags, by which people find it.
  void Rename(const std::string& name);
  const std::set<std::string>& tags() const { return tags_; }
  void SetTags(std::set<std::string> tags);

  // The store lost some of what the job had, as the sentence says.
  void SetStoreDamage(const std::string& sentence);

  // A run is about to go on: until its process comes, the job waits. By a clock that nobody sets.
  void Reopen(int64_t monotonic_ns);
  // When a job without a live process began to wait for one; 0: before this daemon was started.
  int64_t waiting_since_ns() const { return waiting_since_ns_; }
  // A prepared job whose command never used a GPU: it waits no longer. One that had processes is
  // again what it was before it was reopened.
  void EndUnused(int64_t now_ns);

  // The process' ring was read once more; `complete`: no record was left behind for a hole before
  // it. True when Advance has something to do.
  bool OnRead(int64_t process_id, bool complete);
  void Advance();
  // Now and then, by a clock that nobody sets: a rule that found nothing for long is noticed.
  void CheckRules(int64_t monotonic_ns);

  // The control block a process should see, if it changed since the last call for this process.
  const abi::Control* TakeControl(int64_t process_id);
  // Makes TakeControl answer again: a new daemon rewrites the whole block.
  void RepublishControl(int64_t process_id);

  // Appends everything that changed since the last call. Of a job that has ended, also what a list
  // of jobs says of it: Describe(false) as the state part kSummaryPart.
  void TakeRows(WriteBatch& batch);
  // Nothing would be appended: what the store has is all.
  bool stored() const;

  absl::Status SetHorizon(const v1::Horizon& horizon);
  // Has the process of rank 0 record the operators of SeqPoints' iterations, into this folder.
  void RecordOperators(const std::string& folder);
  // What is collected, before the first process. FailedPrecondition when it is another choice
  // after.
  absl::Status SetMetrics(MetricChoice choice);
  const MetricChoice& metrics() const { return metrics_.choice(); }
  absl::Status Control(const v1::ControlRequest& request);

  // Answers. `generation` grows with every change a watcher would see.
  int64_t generation() const { return changes_.generation(); }
  // It was there before: watchers wait for what is later.
  void SetGeneration(int64_t generation) { changes_.SetGeneration(generation); }
  const JobRow& row() const { return row_; }
  bool live() const { return processes_.live(); }
  v1::Job Describe(bool with_details, bool with_histogram = false);
  // What is known now, for questions; of another run, with that horizon. Errors: InvalidArgument,
  // FailedPrecondition for lengths that cannot be mapped onto the learned feature.
  absl::StatusOr<std::shared_ptr<const Snapshot>> TakeSnapshot(
      const v1::Horizon* horizon = nullptr);
  // Of some of the iterations that ran, by their feature values; `work`: those of all ranks, where
  // there are several.
  absl::StatusOr<std::shared_ptr<const Snapshot>> TakePartSnapshot(
      std::vector<KeyCount> steps, std::vector<KeyCount> work) const;
  // What is expensive in Describe is made again when the job has grown by a 256th. Who is given a
  // snapshot here summarises it, without the registry's lock, and hands the summary back; meanwhile
  // Describe has the one before, unless the job has ended.
  std::shared_ptr<const Snapshot> TakeDueSummary();
  void SetSummary(const Summary& summary) { snapshots_.Set(summary); }
  v1::Losses SumLosses() const;
  // A configuration as messages name it.
  std::string DescribeConfig(uint32_t config_id) const { return metrics_.Describe(config_id); }

 private:
  void AddKernels(const ImportedRun& run);
  SnapshotData CollectData() const;
  std::string WhyNoRoofline() const;
  int64_t EpochIterations() const;
  bool HasOpenEnd() const;  // behind the iterations of a process that is over another one began
  // How it ended, once none of its processes runs; those that had iterations count, where any had.
  JobEnd End() const;
  void OnFinished(Process& process, const FinishedIteration& iteration);
  void SetSpent(v1::Overhead& overhead) const;
  // Where it is known: from the pace of the lowest rank that runs.
  void SetExpectedEnd(v1::Job& job) const;
  // Holds the iteration back while it is not known whether it is a repetition.
  void Align(Process& process, const FinishedIteration& iteration);
  void EndAlignmentIfDecided(Process& process);
  void EndAlignment(Process& process);
  // A second rank came: the job's steps and the ranks' iterations are two things from now on.
  void SplitRanks();
  void AddSteps(const std::set<int32_t>& live_ranks);
  void OnMeasurement(Process& process, uint64_t number, uint32_t set,
                     absl::Span<const double> values);
  uint32_t NextRuleGeneration();
  void OnRuleLearned(LearnedRule rule);
  // The rule does not fit any more, for the reason in `why`: all processes go back to learning.
  void Relearn(std::string_view why);
  void UseMeasurement(const MeasurementTracker::Iteration& iteration, uint32_t set,
                      absl::Span<const double> values);
  void CountTracedWork(Process& process);
  void AddTraceSegment(const Process& process, uint64_t number, std::string records);
  void MatchLengths();
  int64_t RunIterations() const;  // of the user's horizon; 0: unknown
  RunShape Shape() const;
  void UpdatePlan();
  bool HasCupti() const;  // any process, as far as is known
  std::string Error() const;
  std::string NoRuleError() const;
  v1::Rule DescribeRule() const;
  bool MostlyUntimed() const;
  std::string WhyUntimed() const;          // empty: some iterations have a time
  std::string UncountedInWords() const;    // which process had more iterations; empty: none
  std::string OvercountedInWords() const;  // which may have had fewer; empty: none
  std::string WhyTimeOnly() const;         // empty: a process has CUPTI
  LengthUnits Units() const;
  v1::ClockKind clock_kind() const;
  JobState SaveState() const;

  // JobEvents:
  uint32_t RuleGeneration() const override;
  void OnName(Process& process, const abi::NameEvent& event, std::string text) override;
  void OnCounters(Process& process, const abi::CountersEvent& event, uint64_t number, bool complete,
                  std::vector<double> values) override;
  void OnFeature(Process& process, abi::Feature feature) override;
  void OnRank(Process& process, const abi::RankEvent& event) override;
  void OnChip(Process& process) override;
  void OnStoodDown(const abi::StandDownEvent& event, const std::string& holder, uint64_t from,
                   uint64_t number) override;
  bool OnConfig(uint32_t config_id, bool collected, const std::string& why) override;

  JobRow row_;
  int64_t waiting_since_ns_ = 0;
  JobOptions options_;
  JobEngines engines_;
  ProcessTable processes_;
  RankTable ranks_;
  std::optional<LearnedRule> rule_;
  std::optional<LearnedRule> former_rule_;  // while it is learned anew
  MicroBatches micro_batches_;
  ProgramEnds program_ends_;
  std::set<std::string> tags_;
  std::string refused_;
  Orders orders_;
  MetricCollection metrics_;
  RooflineMeasurements roofline_;
  MeasurementPlan plan_;
  KernelStatistics kernels_;
  LengthMatching matching_;
  ObservedLengths observed_;
  JobFactsState facts_;
  ChangeTracker changes_;
  SnapshotCache snapshots_{changes_};
  WriteBatch rows_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_JOB_H_
