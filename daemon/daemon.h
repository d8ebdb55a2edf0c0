// Daemon: rings in, jobs, store, answers out. Ties ingest/, jobs/, store/ and rpc/ together.
//
// One ingest thread drives inject.sock, every ring and every job: poll, advance, publish plans, and
// at most 100 ms apart one transaction with the results, the jobs' states and the rings' cursors;
// only then is ring space freed. gRPC threads ask under the same lock; what takes long to compute
// they compute from a copy, without it. While the store cannot write (disk full), rings are not
// read: they fill, drop and count, and nothing that was there is lost.
//
// Threading: Start, Stop and the Backend functions from any thread. Ownership: owns its store, its
// sockets and its thread.
#ifndef DAEMON_DAEMON_H_
#define DAEMON_DAEMON_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "daemon/base/change_signal.h"
#include "daemon/base/clock.h"
#include "daemon/ingest/control_writer.h"
#include "daemon/ingest/inject_server.h"
#include "daemon/ingest/ring_reader.h"
#include "daemon/jobs/import.h"
#include "daemon/jobs/job.h"
#include "daemon/rpc/backend.h"
#include "daemon/store/store.h"
#include "daemon/trace_questions.h"

namespace seqpoint {

struct DaemonOptions {
  std::string directory;  // of inject.sock
  std::string store_path;
  StoreOptions store;
  jobs::JobOptions job;
  int64_t max_store_bytes = 4ll << 30;
  int64_t max_job_age_s = 30ll * 24 * 3600;
  absl::Duration prune_interval = absl::Minutes(1);
  // A private daemon ends this long after its last process. Zero: never.
  absl::Duration end_when_idle = absl::ZeroDuration();
  size_t max_processes = 1024;
  // For locks that a killed daemon still holds.
  absl::Duration lock_patience = absl::ZeroDuration();
  const Clock* clock = &Clock::System();  // outlives the daemon
};

class Daemon : public rpc::Backend, private ingest::InjectServer::Handler {
 public:
  // Opens the store and inject.sock, and recovers every job. Errors as Store::Open and
  // InjectServer::Listen say.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(DaemonOptions options);
  ~Daemon() override;

  // Commits what is there and ends the ingest thread. Idempotent.
  void Stop();
  // True while a private daemon has had no process for long enough. It knows of no questions.
  bool idle() const { return idle_.load(std::memory_order_relaxed); }
  // Jobs in memory: those that live, and a few that ended.
  size_t loaded_jobs() const;
  static constexpr size_t kEndedJobsKept = 8;

  absl::StatusOr<v1::GetDaemonReply> GetDaemon(const v1::GetDaemonRequest& request) override;
  absl::StatusOr<v1::PrepareJobReply> PrepareJob(const v1::PrepareJobRequest& request) override;
  absl::StatusOr<v1::ListJobsReply> ListJobs(const v1::ListJobsRequest& request) override;
  absl::StatusOr<v1::GetJobReply> GetJob(const v1::GetJobRequest& request) override;
  absl::StatusOr<v1::DeleteJobReply> DeleteJob(const v1::DeleteJobRequest& request) override;
  absl::StatusOr<v1::UpdateJobReply> UpdateJob(const v1::UpdateJobRequest& request) override;
  absl::StatusOr<v1::Job> WaitForJob(const std::string& job, int64_t after_generation,
                                     absl::Duration timeout) override;
  absl::StatusOr<v1::GetSeqPointsReply> GetSeqPoints(
      const v1::GetSeqPointsRequest& request) override;
  absl::StatusOr<v1::ListIterationsReply> ListIterations(
      const v1::ListIterationsRequest& request) override;
  absl::StatusOr<v1::ProjectReply> Project(const v1::ProjectRequest& request) override;
  absl::StatusOr<v1::GetCountersReply> GetCounters(const v1::GetCountersRequest& request) override;
  absl::StatusOr<v1::GetKernelsReply> GetKernels(const v1::GetKernelsRequest& request) override;
  absl::StatusOr<v1::CompareReply> Compare(const v1::CompareRequest& request) override;
  absl::StatusOr<v1::GetRooflineReply> GetRoofline(const v1::GetRooflineRequest& request) override;
  absl::Status Export(const v1::ExportRequest& request,
                      absl::FunctionRef<bool(std::string_view)> write) override;
  absl::StatusOr<v1::SetHorizonReply> SetHorizon(const v1::SetHorizonRequest& request) override;
  absl::StatusOr<v1::ControlReply> Control(const v1::ControlRequest& request) override;
  absl::StatusOr<v1::AnalyzeReply> Analyze(const v1::AnalyzeRequest& request) override;
  absl::StatusOr<v1::ImportJobReply> ImportJob(const v1::ImportJobRequest& request) override;
  absl::StatusOr<v1::GetPlaylistReply> GetPlaylist(const v1::GetPlaylistRequest& request) override;
  absl::StatusOr<v1::ProjectPlaylistReply> ProjectPlaylist(
      const v1::ProjectPlaylistRequest& request) override;
  absl::StatusOr<v1::ImportTraceReply> ImportTrace(
      absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next) override;
  absl::StatusOr<v1::ReplayReply> Replay(const v1::ReplayRequest& request,
                                         absl::FunctionRef<bool()> cancelled) override;
  absl::StatusOr<v1::WhatIfReply> WhatIf(const v1::WhatIfRequest& request,
                                         absl::FunctionRef<bool()> cancelled) override;

 private:
  struct Connection;

  absl::StatusOr<v1::ImportTraceReply> AddTraces(
      absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next);

  Daemon(DaemonOptions options, std::unique_ptr<Store> store);
  absl::Status Recover() ABSL_LOCKS_EXCLUDED(mutex_);
  void Run();
  absl::Status OnProcess(ingest::AcceptedProcess process) override;  // on the ingest thread
  void OnGone(uint64_t id) override;
  absl::StatusOr<jobs::Job*> JobOf(const ingest::AcceptedProcess& process)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  struct Read {
    bool busy = false;  // something came
    bool more = false;  // and more is there
  };
  // Reads every ring once, at most so many records of each.
  Read PollRings(uint64_t most_records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes what the processes are to be told; true when that must be in the store first.
  bool StageControls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PublishControls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Commit();
  void GiveLogs(jobs::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // OK once everything that is known of the job now is in the store too. Unavailable when it was
  // not after a second: an answer from the store then lacks what came last, and says so.
  absl::Status AwaitCommit(const jobs::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitCommit(int64_t job_id) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when no pruning is under way.
  void AwaitPruned() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Prune() ABSL_LOCKS_EXCLUDED(mutex_);
  void FindVanished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Unavailable: nothing was changed.
  absl::Status StoreCannotWrite() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job is again what it was. `former_name`: empty where it was not renamed.
  absl::Status UndoUpdate(int64_t id, const std::string& former_name,
                          const std::set<std::string>& added, const std::set<std::string>& removed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The status of an export; an error when the job was removed meanwhile.
  absl::Status StillThere(const JobRow& row, const absl::Status& written)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void SetTrouble(std::string sentence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Job Describe(jobs::Job& job, bool with_details, bool with_histogram = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<v1::Job> DescribeForList(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // With a summary that is not too old, which is made without the lock.
  absl::StatusOr<v1::Job> DescribeAnew(int64_t id, bool with_details, bool with_histogram = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What takes long is asked of a copy of the job, without the lock.
  absl::StatusOr<std::shared_ptr<const jobs::Answers>> Ask(std::string_view name,
                                                           const v1::Horizon* horizon)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers about a part of its iterations, as they are in the store; `words` says which part.
  absl::StatusOr<std::shared_ptr<const jobs::Answers>> AskPart(std::string_view name,
                                                               const v1::Part& part,
                                                               std::string* words)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<jobs::Job*> FindJob(std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job of this name and run id, null when there is none. Both may hold an "@". AlreadyExists
  // while it is being imported.
  absl::StatusOr<jobs::Job*> FindRun(std::string_view name, std::string_view run_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null, and in `row` a new run id where there is none, when there is no such job yet.
  absl::StatusOr<jobs::Job*> FindOrName(JobRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has ended, is in the store, and no ring is read for it: memory can do without it.
  bool Over(const jobs::Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::unique_ptr<jobs::Job>> ReadJob(const JobRow& row);
  absl::StatusOr<jobs::Job*> LoadJob(const JobRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ended jobs that nobody asked for lately leave memory.
  void LetGo() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Jobs whose state cannot be read end with the last of their processes.
  void EndRefused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::map<int32_t, int64_t>> IterationsPerRank(const jobs::Job& job);
  jobs::Job* AddJob(JobRow row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Stores a run that is over as a job of this name and describes it. AlreadyExists when there is
  // one with this run id.
  absl::StatusOr<v1::Job> AddImported(JobRow row, const jobs::ImportedRun& run,
                                      const std::vector<traces::RecordedTrace>& traces)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const DaemonOptions options_;
  const Clock& clock_;
  const int64_t start_ns_;            // of the wall clock
  const int64_t monotonic_start_ns_;  // all else is measured from here
  const std::unique_ptr<Store> store_;
  std::unique_ptr<ingest::InjectServer> server_;  // of the ingest thread

  mutable absl::Mutex mutex_;
  std::map<int64_t, std::unique_ptr<jobs::Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  // Ended and not in memory; their generation, so that it goes on from there.
  struct StoredJob {
    JobRow row;
    int64_t generation = 1;
  };
  std::map<int64_t, StoredJob> stored_jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, int64_t> asked_ ABSL_GUARDED_BY(mutex_);  // jobs_, by their id: when last
  int64_t questions_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  TraceQuestions trace_questions_;
  // Logs and traces that are being made jobs, which nobody sees yet: name and run id, and their id.
  std::map<std::pair<std::string, std::string>, int64_t> importing_ ABSL_GUARDED_BY(mutex_);
  std::string trouble_ ABSL_GUARDED_BY(mutex_);
  bool pruning_ ABSL_GUARDED_BY(mutex_) = false;  // no ended job may be opened again meanwhile
  int64_t commits_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t commits_done_ ABSL_GUARDED_BY(mutex_) = 0;
  // The last that succeeded, of the monotonic clock.
  int64_t last_commit_ns_ ABSL_GUARDED_BY(mutex_) = monotonic_start_ns_;
  ChangeSignal changed_;  // after each commit, which comes at least once a second

  // Of the ingest thread.
  WriteBatch batch_;
  bool batch_failed_ = false;  // the store could not take batch_ yet
  std::vector<std::pair<std::string, ingest::Cursor>> batch_cursors_;

  std::atomic<bool> stop_ = false;
  std::atomic<bool> idle_ = false;
  std::thread thread_;
};

}  // namespace seqpoint

#endif  // DAEMON_DAEMON_H_
