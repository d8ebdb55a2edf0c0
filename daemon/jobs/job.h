// Job: the state machine of one training run. It takes the records of the run's processes, and
// makes iterations, measurements, plans and answers of them.
//
//   learning   the learner reads the launch stream of one process
//   verifying  a rule was published; learning ends when the library's boundaries and our own, from
//              the same stream, agree on a whole iteration
//   marking    only boundaries, lengths and times are sent; a few iterations are measured
//
// The daemon feeds it batch by batch and then calls Advance() once:
//
//   job.OnEvent(process, type, payload); job.OnData(process, records); job.Advance();
//   job.TakeRows(batch);                                  // for the store, with the rings' cursors
//   if (const abi::Control* control = job.TakeControl(process)) ...   // for the ring's control
//   block
//
// The parts of a job do the work; Job has the order of calls. Each part is a class with a file of
// its own, and change_tracker.h says what follows from a change.
//
// Threading: one thread at a time; the daemon's lock excludes. Ownership: everything is its own. No
// I/O: TakeRows() hands out what must be stored, and Restore() takes it back.
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
#include "daemon/jobs/common_rule.h"
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
#include "daemon/jobs/rank_diagnosis.h"
#include "daemon/jobs/rank_observation.h"
#include "daemon/jobs/rank_table.h"
#include "daemon/jobs/report.h"
#include "daemon/jobs/resume_aligner.h"
#include "daemon/jobs/roofline.h"
#include "daemon/jobs/run_engine.h"
#include "daemon/jobs/run_schedule.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/jobs/snapshot_cache.h"
#include "daemon/jobs/standstill.h"
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

inline constexpr int32_t kJobStateVersion = 1;
inline constexpr char kSummaryPart[] = "summary";

struct JobOptions {
  int measurement_budget = 64;  // measured iterations over the whole run
  double overhead_budget_share = 0.01;
  bool reports = false;  // make them (report.h)
};

class Job final : private JobEvents {
 public:
  Job(JobRow row, JobOptions options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // ---- Start and end. A process is named by its id.
  // A process as it is stored; only a live one needs its names.
  struct StoredProcess {
    ProcessRow row;
    std::vector<NameRow> names;
  };
  // Takes back what TakeRows() handed out. A state of another version and a damaged one are errors
  // that name the job; such a job is refused.
  absl::Status Restore(const std::vector<StateRow>& states,
                       const std::vector<StoredProcess>& processes);
  // Why the job is refused; empty: it is not. It then takes no process and no order, and hands out
  // no rows.
  const std::string& refused() const { return refused_; }
  // No process of a refused job runs any more.
  void EndRefused(int64_t now_ns);
  // A new job becomes one of a run that is over and was logged elsewhere. The rows of its
  // iterations are not handed out.
  void Import(const ImportedRun& run, absl::FunctionRef<int64_t()> new_process_id);
  // Whether a process may join. Errors: FailedPrecondition and DataLoss, with the way out.
  absl::Status MayGoOn() const;
  // A process of this job connected for the first time. `gone`: processes that do not run any more,
  // though their last records are not read yet.
  void AddProcess(const ProcessRow& row, const std::set<int64_t>& gone = {});
  // The ring is drained and the process is gone; `failed`: with another exit status than 0; `seen`:
  // when it went.
  void OnProcessEnd(int64_t process_id, bool orderly, int64_t now_ns, bool failed = false,
                    const EndSeen& seen = {});
  // A program that `seqpoint run` started has ended. With status 0, a process without goodbye
  // (os._exit, a child of multiprocessing) ended well, too.
  void EndProgram(const ProgramEndState& end);
  // A run is about to go on: the job waits for its process. Times are of the monotonic clock.
  void Reopen(int64_t monotonic_ns);
  // Since when a job without a live process waits for one; 0: since before this daemon was started.
  int64_t waiting_since_ns() const { return waiting_since_ns_; }
  // The command of a prepared job never used a GPU: the job does not wait any more. A job that had
  // processes has its state of before Reopen() again.
  void EndUnused(int64_t now_ns);

  // ---- Records, as the rings are read; then Advance().
  void OnEvent(int64_t process_id, abi::EventType type, absl::Span<const uint8_t> payload);
  void OnData(int64_t process_id, absl::Span<const abi::DataRecord> records);
  // A record of NCCL's operations.
  void OnCollectives(int64_t process_id, const abi::DataRecord& record);
  void OnLosses(int64_t process_id, const RingLosses& losses);
  // Records of its traces that the store did not take.
  void OnUnstored(int64_t process_id, int64_t records);
  // `count` batches of reports from its node never came.
  void OnLostBatches(int64_t process_id, int64_t count);
  // `count` calls will not come.
  void OnCallsMissing(int64_t process_id, uint64_t count);
  // The ring of the process was read once more; `complete`: no record was left behind a hole. True
  // when Advance() has something to do.
  bool OnRead(int64_t process_id, bool complete);
  void Advance();
  // Now and then, by the monotonic clock: notices a rule that found nothing for long, and ranks
  // that stand still.
  void CheckRules(int64_t monotonic_ns);

  // ---- Reports (report.h): a hub's job is made of those of all nodes, instead of records.
  // Those since the last call; none without JobOptions::reports.
  std::vector<Report> TakeReports() { return reports_.Take(); }
  // A node's: what the hub plans for the process goes before the job's own plan, as soon as the
  // process marks with the hub's rule. `rule`: of the hub's job; nothing: it has none.
  void FollowHub(int64_t process_id, std::optional<LearnedRule> rule, const abi::Control& plan);
  // The orders of the hub's clients replace those that were given here.
  void FollowOrders(const v1::HubOrders& orders);
  // The hub was not heard of for long: the job's own plan holds again.
  void LeaveHub();
  // A process that a node reports. Its numbers of iterations are those of `row`'s rank here.
  void AddReportedProcess(const ProcessRow& row);
  // The first node's choice of metrics, and its share of the time for measurements.
  // InvalidArgument: they cannot be.
  absl::Status SetReportedOptions(const v1::ReportedProcess& report);
  // The orders of this daemon's clients; nothing: there were none.
  std::optional<v1::HubOrders> OrdersForNodes() const { return orders_.ForNodes(); }
  // Nothing where no rule is known.
  std::optional<v1::LearnedRule> EncodedRule() const;
  // All reports of a process but its start, and none of a program's end, in order; then OnRead(),
  // and Advance(). InvalidArgument: a report that no daemon writes; the job is unchanged.
  absl::Status OnReport(int64_t process_id, const Report::What& report);

  // ---- The processes' control blocks.
  // The control block of a process; null when it did not change since the last call.
  const abi::Control* TakeControl(int64_t process_id);
  // TakeControl() returns the block again: a new daemon rewrites it as a whole.
  void RepublishControl(int64_t process_id);

  // ---- The store: what must be stored, and what is wanted back from it.
  // Appends everything that changed since the last call. Of a job that has ended, also what a list
  // of jobs says of it: Describe(false) as the state part kSummaryPart.
  void TakeRows(WriteBatch& batch);
  // TakeRows() would append nothing.
  bool stored() const;
  // After Restore, for a live process: the numbers of the trace segments that it needs again (the
  // calls that it is learned from, the iterations that are being traced), and their records.
  std::vector<int64_t> WantedSegments(int64_t process_id) const;
  void RestoreSegment(int64_t process_id, int64_t number, std::string_view records);
  // The log of the earlier incarnations shows which iterations a new one repeats. After each
  // commit: the processes that wait for the lengths of their rank's iterations [begin, end).
  struct WantedLog {
    int64_t process_id;
    int32_t rank;
    int64_t begin, end;
  };
  std::vector<WantedLog> WantedLogs() const;
  void SetLog(int64_t process_id, int64_t begin, std::vector<KnownLengths> log);
  // The store lost a part of the job; `message` says which.
  void SetStoreDamage(const std::string& message);

  // ---- Orders of clients.
  // The name and the tags by which people find the job.
  void Rename(const std::string& name);
  const std::set<std::string>& tags() const { return tags_; }
  void SetTags(std::set<std::string> tags);
  absl::Status SetHorizon(const v1::Horizon& horizon);
  // The metrics that are collected. FailedPrecondition for another choice after the first process.
  absl::Status SetMetrics(MetricChoice choice);
  // Has the process of rank 0 record the operators of SeqPoints' iterations, into this folder.
  void RecordOperators(const std::string& folder);
  absl::Status Control(const v1::ControlRequest& request);

  // ---- Answers.
  const JobRow& row() const { return row_; }
  bool live() const { return processes_.live(); }
  // Whether steps wait for ranks of other nodes; until CheckRules() finds that they do not.
  bool awaits_ranks() const { return awaits_ranks_; }
  const ProcessTable& processes() const { return processes_; }
  const MetricChoice& metrics() const { return metrics_.choice(); }
  // Grows with every change that a watcher would see.
  int64_t generation() const { return changes_.generation(); }
  // The job was there before: watchers wait for later generations.
  void SetGeneration(int64_t generation) { changes_.SetGeneration(generation); }
  v1::Job Describe(bool with_details, bool with_histogram = false);
  // Who waits for whom.
  v1::GetRanksReply DescribeRanks() const;
  // For questions; with a horizon, about another run. Errors: InvalidArgument,
  // FailedPrecondition for lengths that cannot be mapped onto the learned feature.
  absl::StatusOr<std::shared_ptr<const Snapshot>> TakeSnapshot(
      const v1::Horizon* horizon = nullptr);
  // About some of the iterations that ran, by their feature values; `work`: those of all ranks,
  // where there are several.
  absl::StatusOr<std::shared_ptr<const Snapshot>> TakePartSnapshot(
      std::vector<KeyCount> steps, std::vector<KeyCount> work) const;
  // The summary in Describe is made again when the job has grown by a 256th. A caller that is given
  // a snapshot here summarises it, without the registry's lock, and hands the summary back;
  // meanwhile Describe has the one before, unless the job has ended.
  std::shared_ptr<const Snapshot> TakeDueSummary();
  void SetSummary(const Summary& summary) { snapshots_.Set(summary); }

 private:
  // A node looks for its hub each minute at least; connecting and the first batches take their
  // time.
  static constexpr int64_t kPatienceForRanksNs = 90'000'000'000;

  // An iteration of a rank is over.
  void AddToCollectives(Process& process, const FinishedIteration& iteration,
                        const NumberedIteration& numbered);
  void AddJoinedIterations();
  std::set<int32_t> AwaitedRanks() const;  // whose collectives may still come, as CheckDelayedStep
  void ReportStart(const Process& process);
  void ReportRule(const Process& process, bool marks);
  void ReportIteration(const Process& process, const FinishedIteration& iteration);
  void ReportName(Process& process, uint32_t name_id);
  void ReportEvent(Process& process, abi::EventType type, absl::Span<const uint8_t> payload);
  void ReportWork(Process& process, const TraceWindows::Work& work,
                  const KernelStatistics::Sums& sums);
  void ReportLosses(const Process& process);
  void ReportEnd(const Process& process, bool failed);
  void ReportProgramEnd(const ProgramEndState& end);
  absl::Status OnReported(Process& process, const v1::ReportedRule& report);
  absl::Status OnReported(Process& process, const FinishedIteration& report);
  absl::Status OnReported(Process& process, const v1::ReportedEvent& report);
  absl::Status OnReported(Process& process, const abi::DataRecord& report);
  absl::Status OnReported(Process& process, const v1::ReportedWork& report);
  absl::Status OnReported(Process& process, const v1::ReportedLosses& report);
  absl::Status OnReported(Process& process, const v1::ReportedEnd& report);
  absl::Status OnReported(Process& process, const v1::Horizon& report);
  LearnedRule PreferHubs(LearnedRule own);
  // The job follows another rule from now on, and so does `process`.
  void FollowRule(const Process& process, LearnedRule rule);
  void CheckRanks(int64_t monotonic_ns);
  int64_t NewestIteration() const;  // the latest one that a rank's host has begun; -1: none
  void AskForWindow();              // of all ranks, where one is wanted
  bool CheckStandstill(int64_t monotonic_ns);
  std::string NoRanksKnown() const;
  v1::Losses SumLosses() const;
  void AddKernels(const ImportedRun& run);
  SnapshotData CollectData() const;
  absl::StatusOr<std::shared_ptr<const Snapshot>> TakeOther(EngineHorizons horizons,
                                                            v1::Horizon::Kind kind) const;
  int64_t EpochIterations() const;
  bool HasOpenEnd() const;  // after its last iteration a process that is over started another one
  JobEnd End() const { return program_ends_.EndOf(processes_); }
  void OnFinished(Process& process, const FinishedIteration& iteration);
  IterationRow RowOf(const Process& process, const FinishedIteration& iteration,
                     const NumberedIteration& numbered) const;
  const LearnedRule* rule() const { return rule_ ? &*rule_ : nullptr; }
  // Where it is known: from the pace of the lowest rank that runs.
  void SetExpectedEnd(v1::Job& job) const;
  // Holds the iteration back while it is not known whether it is a repetition.
  void Align(Process& process, const FinishedIteration& iteration);
  void EndAlignmentIfDecided(Process& process);
  // ProcessState::repeated of the process, where collectives show which iterations of `others`, of
  // other ranks, are the same. Nothing: it is not known (yet). `may_lead`: it does not know by
  // itself what it repeats.
  static std::optional<int64_t> NumbersOfOthers(const Process& process,
                                                const std::vector<const Process*>& others,
                                                bool may_lead);
  // `numbered`: as others are.
  void EndAlignment(Process& process, bool numbered = false);
  // A second rank came: from now on steps are made of the iterations of several ranks.
  void SplitRanks();
  void AddSteps();
  void AddStepsOf(const std::set<int32_t>& ranks);  // those that steps wait for
  // Nodes that lost their hub send what they kept one after the other. A rank of a hub's job is
  // left behind when the steps have waited for it for 90 s.
  void CheckDelayedStep(int64_t monotonic_ns);
  // A hub hears of ranks on other nodes up to a minute later, when others may have trained for
  // long, or be over. A step is as long as its slowest rank: steps wait for them.
  void AwaitRanks();
  void CheckAwaitedRanks(int64_t monotonic_ns);
  bool AnyUnheard() const;  // fewer ranks have processes than the others say there are
  std::set<int32_t> UnheardRanks() const;
  void OnMeasurement(Process& process, uint64_t number, uint32_t set,
                     absl::Span<const double> values);
  uint32_t NextRuleGeneration();
  void OnRuleLearned(LearnedRule rule);
  // The rule does not fit any more, for the reason `why`: all processes learn again.
  void Relearn(std::string_view why);
  void UseMeasurement(const MeasuredIterationState& iteration, uint32_t set,
                      absl::Span<const double> values);
  void CountTracedWork(Process& process);
  void AddWork(Process& process, uint64_t number, const KernelStatistics::Sums& sums);
  void AddTraceSegment(const Process& process, int64_t number, std::string records);
  void MatchLengths();
  int64_t RunIterations() const;  // of the user's horizon; 0: unknown
  RunShape Shape() const;
  // Iterations that may be measured, for each rule. A job whose other ranks are told to a hub by
  // other nodes takes its ranks' share, until the hub says more.
  int MeasurementBudget() const {
    const int64_t all = options_.measurement_budget;
    return static_cast<int>(options_.reports ? ranks_.ShareOf(all) : all);
  }
  void UpdatePlan();
  const MeasurementShares& Shares();
  std::string Error() const;
  std::string NoRuleError() const;
  v1::Rule DescribeRule() const;
  bool MostlyUntimed() const;
  std::string WhyUntimed() const;  // empty: some iterations have a time
  void SaveState(JobState& state) const;

  // JobEvents:
  uint32_t RuleGeneration() const override;
  bool IsShared(const Process& process, uint64_t number) const override;
  void OnName(Process& process, const abi::NameEvent& event, std::string text) override;
  void OnCounters(Process& process, const abi::CountersEvent& event, uint64_t number, bool complete,
                  std::vector<double> values) override;
  void OnCommunicator(Process& process, const abi::CommunicatorEvent& event) override;
  uint32_t KindId(const std::string& text, uint64_t elements) override;
  void OnRank(Process& process, const abi::RankEvent& event) override;
  void OnChip(Process& process) override;
  void OnStoodDown(const abi::StandDownEvent& event, const std::string& holder, uint64_t from,
                   uint64_t number) override;
  bool OnConfig(uint32_t config_id, bool collected, const std::string& why) override;

  JobRow row_;
  int64_t waiting_since_ns_ = 0;
  bool awaits_ranks_ = false;
  int64_t awaits_ranks_since_ns_ = 0;  // of the monotonic clock; 0: not looked at yet
  int64_t delayed_step_ = -1;          // that waits for a rank far behind; -1: none
  int64_t delayed_ns_ = 0;             // for so long
  int64_t delay_checked_ns_ = 0;       // on the monotonic clock
  JobOptions options_;
  JobEngines engines_;
  ProcessTable processes_;
  RankTable ranks_;
  RankObservation observation_;
  RankDiagnosis diagnosis_;
  Standstill standstill_;
  CommonRule common_rule_;
  std::optional<LearnedRule> rule_;
  std::optional<LearnedRule> former_rule_;  // while another one is learned
  std::optional<LearnedRule> hub_rule_;     // not stored: the hub says it again
  bool hub_rule_refused_ = false;           // it does not fit the processes of this node
  MicroBatches micro_batches_;
  ProgramEnds program_ends_;
  std::set<std::string> tags_;
  std::string refused_;
  Orders orders_;
  MetricCollection metrics_;
  RooflineMeasurements roofline_;
  MeasurementPlan plan_;
  std::optional<MeasurementShares> shares_;  // as they were at a mark of changes_
  int64_t shares_at_ = 0;
  KernelStatistics kernels_;
  LengthMatching matching_;
  ObservedLengths observed_;
  JobFactsState facts_;
  ChangeTracker changes_;
  SnapshotCache snapshots_{changes_};
  Reports reports_;
  WriteBatch rows_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_JOB_H_
