#include "daemon/daemon.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/base/limits.h"
#include "daemon/base/retry.h"
#include "daemon/base/saturate.h"
#include "daemon/export.h"
#include "daemon/ingest/process_identity.h"
#include "daemon/jobs/import.h"
#include "daemon/jobs/log_analysis.h"
#include "daemon/jobs/trace_import.h"
#include "daemon/playlist.h"
#include "daemon/queries/compare.h"
#include "daemon/queries/run_part.h"
#include "daemon/rpc/requests.h"
#include "daemon/traces/trace_reader.h"
#include "spdlog/spdlog.h"

namespace seqpoint {
namespace {

// Of an imported one, in the database and in its log.
constexpr uint64_t kStoredBytesPerIteration = 250;
// Of a call, an annotation or a piece of GPU work of an imported trace; seen were 5 to 14.
constexpr uint64_t kStoredBytesPerElement = 30;
constexpr size_t kListBytes = 2 << 20;  // of a page: gRPC clients take 4 MiB where nobody says more
constexpr uint64_t kMostTraceBytes = uint64_t{8} << 30;  // of a file, unpacked

constexpr absl::Duration kCommitInterval = absl::Milliseconds(50);
constexpr absl::Duration kHeartbeatInterval = absl::Milliseconds(200);
constexpr absl::Duration kRetryInterval = absl::Seconds(1);
// For which an answer from the store waits for a commit.
constexpr absl::Duration kCommitPatience = absl::Seconds(1);
constexpr int kBusyPollMs = 1;
constexpr int kIdlePollMs = 10;
// Of a process, before a commit. A full ring holds 15 times as many.
constexpr uint64_t kRecordsPerPoll = 16'384;
// A process that does not come back this long after our own start, and is not running, is lost.
constexpr int64_t kReconnectNs = 5'000'000'000;
// A prepared job that no process came for is ended after so long; one that comes later opens it.
constexpr int64_t kWaitNs = 24ll * 3600 * 1'000'000'000;

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string Field(const std::map<std::string, std::string>& fields, const std::string& key) {
  const auto it = fields.find(key);
  return it == fields.end() ? "" : it->second;
}

int32_t NumberField(const std::map<std::string, std::string>& fields, const std::string& key) {
  int32_t value = 0;
  return absl::SimpleAtoi(Field(fields, key), &value) && value >= 0 ? value : 0;
}

// Both, where there are two.
std::string Sentences(const std::string& first, absl::string_view second) {
  return absl::StrCat(first, first.empty() || second.empty() ? "" : "; ", second);
}

// A store that is full cannot even be emptied: what does not fit is not begun.
absl::Status CheckRoom(const std::string& store_path, uint64_t needed, const char* what) {
  std::error_code error;
  const auto space = std::filesystem::space(std::filesystem::path(store_path).parent_path(), error);
  if (error || needed <= space.available) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the ", what, " need", std::string_view(what) == "traces" ? "" : "s", " about ",
                   needed >> 20, " MiB beside ", store_path, ", where ", space.available >> 20,
                   " MiB are free; make room, or import a part of it"));
}

// Traces may need more memory than there is: that ends the question, not the daemon.
template <typename Ask>
auto WithMemory(const char* what, const Ask& ask) -> decltype(ask()) {
  try {
    return ask();
  } catch (const std::bad_alloc&) {
    const absl::Status status = absl::ResourceExhaustedError(
        absl::StrCat(what, ": the traces need more memory than there is"));
    spdlog::error("{}", std::string(status.message()));
    return status;
  }
}

}  // namespace

// One process' ring, and the job it belongs to.
struct Daemon::Connection final : public ingest::RingSink {
  jobs::Job* job = nullptr;
  int64_t process_id = 0;
  uint64_t server_id = 0;  // as InjectServer counts it
  std::unique_ptr<ingest::RingReader> reader;
  std::unique_ptr<ingest::ControlWriter> control;
  bool gone = false;
  bool ended = false;  // drained; leaves after the commit
  // What the process is to be told next; the rule and level that it was told last.
  std::optional<abi::Control> staged;
  uint32_t rule_generation = 0;
  uint8_t level = 0;

  void OnEvent(uint64_t, abi::EventType type, absl::Span<const uint8_t> payload) override {
    job->OnEvent(process_id, type, payload);
  }
  void OnData(absl::Span<const abi::DataRecord> records) override {
    job->OnData(process_id, records);
  }
  void OnCallsMissing(uint64_t, uint64_t count) override { job->OnCallsMissing(process_id, count); }
};

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(DaemonOptions options) {
  auto store = RetryWhileTaken(options.lock_patience,
                               [&] { return Store::Open(options.store_path, options.store); });
  if (!store.ok()) return store.status();
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(options), *std::move(store)));
  if (const absl::Status status = daemon->Recover(); !status.ok()) return status;
  auto server = RetryWhileTaken(daemon->options_.lock_patience, [&] {
    return ingest::InjectServer::Listen(daemon->options_.directory,
                                        {.max_processes = daemon->options_.max_processes},
                                        daemon.get());
  });
  if (!server.ok()) return server.status();
  daemon->server_ = *std::move(server);
  daemon->thread_ = std::thread([raw = daemon.get()] { raw->Run(); });
  return daemon;
}

Daemon::Daemon(DaemonOptions options, std::unique_ptr<Store> store)
    : options_(std::move(options)),
      clock_(*options_.clock),
      start_ns_(clock_.WallNs()),
      monotonic_start_ns_(clock_.MonotonicNs()),
      store_(std::move(store)),
      trace_questions_(store_.get()) {}

Daemon::~Daemon() { Stop(); }

void Daemon::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

absl::Status Daemon::Recover() {
  const auto rows = store_->ListJobs();
  if (!rows.ok()) return rows.status();
  const std::string& damage = store_->damage();
  if (!damage.empty()) spdlog::error("{}", damage);
  absl::MutexLock lock(&mutex_);
  for (JobRow row : *rows) {
    row.command = ClipText(std::move(row.command), kMaxCommandBytes);
    row.host = ClipText(std::move(row.host), kMaxHostBytes);
    if (row.end_ns != 0) {
      stored_jobs_[row.job_id].row = row;
    } else if (const auto job = LoadJob(row); !job.ok()) {
      return job.status();
    } else if (!damage.empty()) {
      (*job)->SetStoreDamage(damage);  // those that ran; of others the end was stored
    }
  }
  EndRefused();
  return absl::OkStatus();
}

absl::StatusOr<jobs::Job*> Daemon::LoadJob(const JobRow& row) {
  const int64_t id = row.job_id;
  auto job = ReadJob(row);
  if (!job.ok()) return job.status();
  if (const auto it = stored_jobs_.find(id); it != stored_jobs_.end()) {
    (*job)->SetGeneration(it->second.generation);
    stored_jobs_.erase(it);
  }
  asked_[id] = ++questions_;
  return (jobs_[id] = *std::move(job)).get();
}

absl::StatusOr<std::unique_ptr<jobs::Job>> Daemon::ReadJob(const JobRow& row) {
  const auto states = store_->LoadStates(row.job_id);
  if (!states.ok()) return states.status();
  const auto processes = store_->ListProcesses(row.job_id);
  if (!processes.ok()) return processes.status();
  std::vector<jobs::Job::StoredProcess> stored;
  for (const ProcessRow& process : *processes) {
    jobs::Job::StoredProcess& to = stored.emplace_back();
    to.row = process;
    if (process.end_ns != 0) continue;
    auto names = store_->ReadNames(process.process_id);
    if (!names.ok()) return names.status();
    to.names = *std::move(names);
  }
  auto job = std::make_unique<jobs::Job>(row, options_.job);
  if (const absl::Status status = job->Restore(*states, stored); !status.ok()) {
    spdlog::error("{}", std::string(status.message()));
  }
  for (const ProcessRow& process : *processes) {
    if (process.end_ns != 0 || !job->HasProcess(process.process_id)) continue;
    const auto read = [&](int64_t number) -> absl::StatusOr<std::string> {
      const auto trace = store_->ReadTrace(row.job_id, process.rank, number);
      if (!trace.ok()) return trace.status();
      std::string records;
      for (const TraceSegmentRow& segment : *trace) {
        if (segment.process_id == process.process_id) records += segment.records;
      }
      return records;
    };
    if (const std::optional<int64_t> number = job->LearnLog(process.process_id)) {
      const auto records = read(*number);
      if (!records.ok()) return records.status();
      job->RestoreLearnLog(process.process_id, *records);
    }
    for (const int64_t number : job->OpenTraces(process.process_id)) {
      const auto records = read(number);
      if (!records.ok()) return records.status();
      job->RestoreTrace(process.process_id, *records);
    }
  }
  return job;
}

size_t Daemon::loaded_jobs() const {
  absl::MutexLock lock(&mutex_);
  return jobs_.size();
}

bool Daemon::Over(const jobs::Job& job) const {
  const bool used = std::any_of(connections_.begin(), connections_.end(),
                                [&](const auto& connection) { return connection->job == &job; });
  return job.row().end_ns != 0 && !job.live() && job.stored() && !used;
}

void Daemon::LetGo() {
  std::vector<std::pair<int64_t, int64_t>> ended;  // when asked for last, id
  for (const auto& [id, job] : jobs_) {
    if (Over(*job)) ended.emplace_back(asked_[id], id);
  }
  if (ended.size() <= kEndedJobsKept) return;
  std::sort(ended.begin(), ended.end());
  ended.resize(ended.size() - kEndedJobsKept);
  for (const auto& [asked, id] : ended) {
    const jobs::Job& job = *jobs_.at(id);
    stored_jobs_[id] = {job.row(), job.generation()};
    jobs_.erase(id);
    asked_.erase(id);
  }
}

void Daemon::EndRefused() {
  for (const auto& [id, job] : jobs_) {
    if (job->refused().empty() || job->row().end_ns != 0) continue;
    const auto processes = store_->ListProcesses(id);
    if (!processes.ok()) continue;
    const bool runs =
        std::any_of(processes->begin(), processes->end(), [&](const ProcessRow& process) {
          if (process.end_ns != 0) return false;
          if (process.pid <= 0) return clock_.MonotonicNs() - monotonic_start_ns_ < kWaitNs;
          return ingest::StillRuns(process.pid, process.identity);
        });
    if (!runs) job->EndRefused(clock_.WallNs());
  }
}

absl::StatusOr<std::map<int32_t, int64_t>> Daemon::IterationsPerRank(const jobs::Job& job) {
  if (job.refused().empty()) return job.IterationsPerRank();
  return store_->CountIterations(job.row().job_id);
}

jobs::Job* Daemon::AddJob(JobRow row) {
  row.job_id = store_->NewJobId();
  auto job = std::make_unique<jobs::Job>(row, options_.job);
  return (jobs_[row.job_id] = std::move(job)).get();
}

// ------------------------------------------------------------------------------ ingest thread

void Daemon::Run() {
  const auto monotonic = [this] { return absl::Nanoseconds(clock_.MonotonicNs()); };
  absl::Duration last_commit = monotonic(), last_prune = last_commit, last_busy = last_commit;
  absl::Duration last_heartbeat = -absl::InfiniteDuration();
  int wait_ms = kIdlePollMs;
  while (true) {
    const bool stopping = stop_;
    server_->RunOnce(stopping ? 0 : wait_ms);
    const absl::Duration now = monotonic();
    Read read;
    bool commit_first = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!batch_failed_) read = PollRings(stopping ? UINT64_MAX : kRecordsPerPoll);
      if (now - last_heartbeat >= kHeartbeatInterval) {
        const int64_t now_ns = clock_.MonotonicNs();
        for (const auto& connection : connections_) {
          connection->control->Heartbeat(static_cast<uint64_t>(now_ns));
        }
        FindVanished();
        for (const auto& [id, job] : jobs_) job->CheckRules(now_ns);
        last_heartbeat = now;
      }
      commit_first = StageControls();
      if (!connections_.empty() || !importing_.empty()) last_busy = now;
    }
    wait_ms = read.more ? 0 : read.busy ? kBusyPollMs : kIdlePollMs;
    if (stopping && options_.end_when_idle > absl::ZeroDuration()) {
      absl::MutexLock lock(&mutex_);
      for (const auto& [id, job] : jobs_) job->EndUnused(clock_.WallNs());
    }
    const absl::Duration interval = batch_failed_ ? kRetryInterval : kCommitInterval;
    // A backlog is committed piece by piece: the ring, which may be full, is free again early, and
    // a daemon that is killed soon has read something.
    if (now - last_commit >= interval || stopping || read.more ||
        (commit_first && !batch_failed_)) {
      const bool again = stopping && batch_failed_;
      Commit();
      if (again && !batch_failed_) Commit();  // what came since is in no batch yet
      last_commit = monotonic();
      commit_first = false;
    }
    // A process that follows a rule which a killed daemon forgot would number its iterations in a
    // way that nobody knows: rules and levels are published once they are in the store.
    if (!commit_first && !batch_failed_) {
      absl::MutexLock lock(&mutex_);
      PublishControls();
    }
    if (now - last_prune >= options_.prune_interval) {
      {
        absl::MutexLock lock(&mutex_);
        for (const auto& [id, job] : jobs_) {
          // Since when a job waits is not stored: after a restart it waits from our start on.
          const int64_t since_ns = std::max(job->waiting_since_ns(), monotonic_start_ns_);
          if (clock_.MonotonicNs() - since_ns > kWaitNs) job->EndUnused(clock_.WallNs());
        }
        EndRefused();
      }
      Prune();
      last_prune = now;
    }
    idle_ =
        options_.end_when_idle > absl::ZeroDuration() && now - last_busy > options_.end_when_idle;
    if (stopping) return;
  }
}

// The job a new process belongs to: by name and run id, ended or not, else a new one.
absl::StatusOr<jobs::Job*> Daemon::JobOf(const ingest::AcceptedProcess& process) {
  const std::string name = Field(process.fields, "job");
  const std::string run_id = Field(process.fields, "run_id");
  if (const absl::Status status = CheckNewJob(name, run_id); !status.ok()) return status;
  const auto found = FindRun(name, run_id);
  if (!found.ok() || *found != nullptr) return found;
  return AddJob({.name = name,
                 .run_id = run_id,
                 .host = ClipText(Field(process.fields, "host"), kMaxHostBytes),
                 .command = ClipText(Field(process.fields, "command"), kMaxCommandBytes),
                 .state = v1::JOB_STATE_LEARNING,
                 .start_ns = clock_.WallNs()});
}

absl::Status Daemon::OnProcess(ingest::AcceptedProcess process) {
  absl::MutexLock lock(&mutex_);
  const std::string ring_id = process.reader->ring_id();
  auto connection = std::make_unique<Connection>();
  const auto known = store_->FindProcess(ring_id);
  if (!known.ok()) return known.status();
  if (*known) {
    // We were restarted: go on at the stored cursor.
    const auto job = FindJob(absl::StrCat((*known)->job_id));
    if (!job.ok()) return job.status();
    if (!(*job)->HasProcess((*known)->process_id)) {
      return absl::DataLossError(
          absl::StrCat("process ", process.pid, " belongs to job ", (*job)->row().name, "@",
                       (*job)->row().run_id,
                       ", whose stored state cannot be read; start it under another run id"));
    }
    connection->job = *job;
    connection->process_id = (*known)->process_id;
    const auto stored = store_->LoadCursor(ring_id);
    if (!stored.ok()) return stored.status();
    if (*stored) {
      const auto cursor = ingest::Cursor::Parse(**stored);
      if (!cursor.ok()) return cursor.status();
      if (const absl::Status status = process.reader->Resume(*cursor); !status.ok()) return status;
    }
    connection->job->RepublishControl(connection->process_id);
  } else {
    const auto job = JobOf(process);
    if (!job.ok()) return job.status();
    if (const absl::Status status = (*job)->MayGoOn(); !status.ok()) return status;
    connection->job = *job;
    ProcessRow row{.process_id = store_->NewProcessId(),
                   .job_id = connection->job->row().job_id,
                   .rank = NumberField(process.fields, "rank"),
                   .pid = static_cast<int32_t>(process.pid),
                   .host = ClipText(Field(process.fields, "host"), kMaxHostBytes),
                   .ring_id = ring_id,
                   .text = process.text,
                   .start_ns = static_cast<int64_t>(process.reader->created_real_ns()),
                   .identity = ingest::ProcessIdentity(process.pid)};
    row.incarnation = connection->job->NextIncarnation(row.rank);
    connection->process_id = row.process_id;
    std::set<int64_t> gone;  // its end may not have been read yet
    for (const auto& [id, pid] : connection->job->LiveProcesses()) {
      if (!ingest::StillRuns(pid, connection->job->Identity(id))) gone.insert(id);
    }
    connection->job->AddProcess(row, gone);
  }
  connection->server_id = process.id;
  connection->reader = std::move(process.reader);
  connection->control =
      std::make_unique<ingest::ControlWriter>(connection->reader->control_block());
  connection->control->Heartbeat(static_cast<uint64_t>(clock_.MonotonicNs()));
  spdlog::info("process {} of job {}@{} connected", process.pid, connection->job->row().name,
               connection->job->row().run_id);
  connections_.push_back(std::move(connection));
  return absl::OkStatus();
}

void Daemon::OnGone(uint64_t id) {
  absl::MutexLock lock(&mutex_);
  for (const auto& connection : connections_) {
    if (connection->server_id != id) continue;
    connection->gone = true;
    connection->reader->SetProcessGone();
  }
}

Daemon::Read Daemon::PollRings(uint64_t most_records) {
  Read read;
  std::set<jobs::Job*> touched;
  for (const auto& connection : connections_) {
    if (connection->ended) continue;
    ingest::RingReader& reader = *connection->reader;
    const ingest::PollResult result =
        reader.Poll(*connection, static_cast<uint64_t>(clock_.MonotonicNs()), most_records);
    read.more |= result.more;
    if (connection->job->OnRead(connection->process_id, !result.waiting && !result.more)) {
      touched.insert(connection->job);
    }
    if (result.events + result.records > 0 || connection->gone) {
      read.busy = true;
      touched.insert(connection->job);
      const ingest::RingStats stats = reader.stats();
      connection->job->OnLosses(connection->process_id,
                                {.dropped = stats.events_dropped + stats.records_dropped,
                                 .events_dropped = stats.events_dropped,
                                 .lost = stats.lost,
                                 .rejected = stats.rejected + stats.unknown_records,
                                 .cupti_dropped = stats.cupti_dropped,
                                 .invalid_timestamps = stats.invalid_timestamps,
                                 .clock_kind = static_cast<uint32_t>(stats.clock_kind)});
      if (connection->gone && result.events + result.records == 0 && !result.more) {
        connection->ended = true;
        connection->job->OnProcessEnd(connection->process_id, stats.closed, clock_.WallNs(),
                                      stats.failed);
        spdlog::info("process of job {}@{} {}: {} events and {} records read",
                     connection->job->row().name, connection->job->row().run_id,
                     stats.closed ? "ended" : "vanished", stats.events_received,
                     stats.records_received);
      }
    }
  }
  for (jobs::Job* job : touched) job->Advance();
  return read;
}

bool Daemon::StageControls() {
  bool commit_first = false;
  for (const auto& connection : connections_) {
    if (connection->ended) continue;
    if (const abi::Control* control = connection->job->TakeControl(connection->process_id)) {
      connection->staged = *control;
    }
    if (!connection->staged) continue;
    commit_first |= connection->staged->rule.generation != connection->rule_generation ||
                    connection->staged->level != connection->level;
  }
  return commit_first;
}

void Daemon::PublishControls() {
  for (const auto& connection : connections_) {
    if (!connection->staged || connection->ended) continue;
    connection->control->Write(*connection->staged);
    connection->rule_generation = connection->staged->rule.generation;
    connection->level = connection->staged->level;
    connection->staged.reset();
  }
}

// A live process of a job that did not come back after our restart and no longer runs.
void Daemon::FindVanished() {
  if (clock_.MonotonicNs() - monotonic_start_ns_ < kReconnectNs) return;
  for (const auto& [id, job] : jobs_) {
    for (const auto& [live_id, pid] : job->LiveProcesses()) {
      const int64_t process_id = live_id;
      const bool connected =
          std::any_of(connections_.begin(), connections_.end(),
                      [&](const auto& c) { return c->process_id == process_id; });
      if (!connected && !ingest::StillRuns(pid, job->Identity(process_id))) {
        job->OnProcessEnd(process_id, /*orderly=*/false, clock_.WallNs());
      }
    }
  }
}

void Daemon::Commit() {
  if (!batch_failed_) {
    absl::MutexLock lock(&mutex_);
    ++commits_begun_;
    for (const auto& [id, job] : jobs_) job->TakeRows(batch_);
    batch_cursors_.clear();
    for (const auto& connection : connections_) {
      ingest::Cursor cursor = connection->reader->cursor();
      const std::string ring_id = connection->reader->ring_id();
      batch_.cursors.push_back(
          {.ring_id = ring_id, .bytes = connection->ended ? "" : cursor.Serialize()});
      batch_cursors_.emplace_back(ring_id, std::move(cursor));
    }
  }
  const absl::Status status = batch_.Empty() ? absl::OkStatus() : store_->Write(batch_);
  absl::MutexLock lock(&mutex_);
  if (!status.ok()) {
    // Keep the batch as it is and read no ring until it is written: cursors and results belong
    // together.
    const std::string trouble = absl::StrCat(std::string(status.message()), "; it is tried again");
    if (!batch_failed_) spdlog::error("{}", trouble);
    batch_failed_ = true;
    SetTrouble(trouble);
    return;
  }
  if (batch_failed_) spdlog::info("the store can be written again");
  batch_failed_ = false;
  commits_done_ = commits_begun_;
  last_commit_ns_ = clock_.MonotonicNs();
  changed_.NotifyAll();
  SetTrouble("");
  batch_.Clear();
  for (const auto& connection : connections_) {
    for (const auto& [ring_id, cursor] : batch_cursors_) {
      if (connection->reader->ring_id() == ring_id) connection->reader->Release(cursor);
    }
  }
  connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                    [&](const auto& connection) {
                                      return connection->ended &&
                                             std::any_of(batch_cursors_.begin(),
                                                         batch_cursors_.end(), [&](const auto& c) {
                                                           return c.first ==
                                                                  connection->reader->ring_id();
                                                         });
                                    }),
                     connections_.end());
  batch_cursors_.clear();
  for (const auto& [id, job] : jobs_) GiveLogs(*job);
  LetGo();
}

// A resumed run is laid beside what its earlier incarnations left in the store.
void Daemon::GiveLogs(jobs::Job& job) {
  constexpr int kPage = 10'000;
  for (const jobs::Job::WantedLog& wanted : job.WantedLogs()) {
    std::vector<jobs::KnownLengths> log(static_cast<size_t>(wanted.end - wanted.begin));
    int64_t next = wanted.begin;
    while (next < wanted.end) {
      const auto rows = store_->ReadIterations(job.row().job_id, wanted.rank, next, kPage);
      if (!rows.ok()) {
        spdlog::warn("{}", std::string(rows.status().message()));
        break;
      }
      if (rows->empty()) break;
      for (const IterationRow& row : *rows) {
        if (row.length_count == 0 || row.number >= wanted.end) continue;
        log[static_cast<size_t>(row.number - wanted.begin)].emplace(row.length[0], row.length[1]);
      }
      next = rows->back().number + 1;
    }
    job.SetLog(wanted.process_id, wanted.begin, std::move(log));
  }
}

absl::Status Daemon::AwaitCommit(const jobs::Job& job) {
  if (Over(job)) return absl::OkStatus();
  const int64_t wanted = commits_begun_ + 1;
  const auto done = [this, wanted] {
    mutex_.AssertReaderHeld();
    return commits_done_ >= wanted;
  };
  if (changed_.Await(mutex_, kCommitPatience, done)) return absl::OkStatus();
  const int64_t since_s = (clock_.MonotonicNs() - last_commit_ns_) / 1'000'000'000;
  return absl::UnavailableError(absl::StrCat(
      "this answer may lack what came last: nothing was written into the store for ", since_s, " s",
      trouble_.empty() ? "" : absl::StrCat(" (", trouble_, ")"), "; ask again later"));
}

absl::Status Daemon::AwaitCommit(int64_t job_id) {
  absl::MutexLock lock(&mutex_);
  const auto job = FindJob(absl::StrCat(job_id));
  return job.ok() ? AwaitCommit(**job) : job.status();
}

void Daemon::AwaitPruned() {
  const auto pruned = [this] {
    mutex_.AssertReaderHeld();
    return !pruning_;
  };
  mutex_.Await(absl::Condition(&pruned));
}

void Daemon::Prune() {
  Commit();
  PruneOptions options{.max_bytes = options_.max_store_bytes};
  if (options_.max_job_age_s > 0) {
    const int64_t most_s = clock_.WallNs() / 1'000'000'000;
    options.ended_before_ns =
        clock_.WallNs() - std::min(options_.max_job_age_s, most_s) * 1'000'000'000;
  }
  {
    absl::MutexLock lock(&mutex_);
    pruning_ = true;
    // The store may still have the end of a job that goes on; a batch that could not be written
    // would bring back parts of a job that was removed.
    for (const auto& [id, job] : jobs_) {
      if (batch_failed_ || !Over(*job)) options.keep.push_back(id);
    }
    for (const auto& [run, id] : importing_) options.keep.push_back(id);
  }
  const auto result = store_->Prune(options);
  absl::MutexLock lock(&mutex_);
  pruning_ = false;
  if (!result.ok()) {
    spdlog::warn("{}", std::string(result.status().message()));
    return;
  }
  for (const int64_t id : result->removed_jobs) {
    const auto it = jobs_.find(id);
    const JobRow& row = it != jobs_.end() ? it->second->row() : stored_jobs_[id].row;
    spdlog::info("removed job {} ({}@{}): retention", id, row.name, row.run_id);
    if (it != jobs_.end()) jobs_.erase(it);
    stored_jobs_.erase(id);
    asked_.erase(id);
  }
}

// ------------------------------------------------------------------------------------ answers

absl::StatusOr<jobs::Job*> Daemon::FindJob(std::string_view name) {
  const std::string wanted(name);
  int64_t id = 0;
  const bool by_id = absl::SimpleAtoi(wanted, &id);
  const auto matches = [&](const JobRow& row) {
    return (by_id && row.job_id == id) || row.name == wanted ||
           absl::StrCat(row.name, "@", row.run_id) == wanted;
  };
  // The latest that matches; an id beats a name that looks like one.
  const JobRow* best = nullptr;
  const auto consider = [&](const JobRow& row) {
    if (!matches(row)) return;
    const bool better = best == nullptr || (by_id && row.job_id == id) ||
                        (!(by_id && best->job_id == id) && row.job_id > best->job_id);
    if (better) best = &row;
  };
  for (const auto& [job_id, job] : jobs_) consider(job->row());
  for (const auto& [job_id, stored] : stored_jobs_) consider(stored.row);
  if (best == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no job \"", wanted, "\"; `seqpoint jobs` lists what there is"));
  }
  if (const auto it = jobs_.find(best->job_id); it != jobs_.end()) {
    asked_[best->job_id] = ++questions_;
    return it->second.get();
  }
  return LoadJob(JobRow(*best));
}

absl::StatusOr<jobs::Job*> Daemon::FindRun(std::string_view name, std::string_view run_id) {
  for (const auto& [id, job] : jobs_) {
    if (job->row().name == name && job->row().run_id == run_id) {
      asked_[id] = ++questions_;
      return job.get();
    }
  }
  for (const auto& [id, stored] : stored_jobs_) {
    if (stored.row.name == name && stored.row.run_id == run_id) return LoadJob(JobRow(stored.row));
  }
  if (importing_.contains({std::string(name), std::string(run_id)})) {
    return absl::AlreadyExistsError(absl::StrCat("job \"", std::string(name), "@",
                                                 std::string(run_id),
                                                 "\" is being imported; use another run id"));
  }
  return nullptr;
}

absl::StatusOr<jobs::Job*> Daemon::FindOrName(JobRow& row) {
  if (!row.run_id.empty()) return FindRun(row.name, row.run_id);
  while (true) {
    row.run_id = absl::FormatTime("%Y%m%d-%H%M%E3S", absl::FromUnixNanos(clock_.WallNs()),
                                  absl::LocalTimeZone());
    const auto found = FindRun(row.name, row.run_id);
    if (found.ok() ? *found == nullptr : !absl::IsAlreadyExists(found.status())) return found;
  }
}

absl::StatusOr<v1::GetDaemonReply> Daemon::GetDaemon(const v1::GetDaemonRequest&) {
  v1::GetDaemonReply reply;
  reply.set_version(SEQPOINT_VERSION);
  reply.set_start_ns(start_ns_);
  reply.set_pid(getpid());
  reply.set_host(HostName());
  reply.set_inject_socket(options_.directory + "/inject.sock");
  reply.set_store_path(options_.store_path);
  if (const auto bytes = store_->Bytes(); bytes.ok()) reply.set_store_bytes(*bytes);
  reply.set_private_daemon(options_.end_when_idle > absl::ZeroDuration());
  reply.set_abi_version(abi::kAbiVersion);
  reply.mutable_limits()->set_max_store_bytes(options_.max_store_bytes);
  reply.mutable_limits()->set_max_job_age_s(options_.max_job_age_s);
  reply.mutable_limits()->set_max_ring_bytes(static_cast<int32_t>(abi::kMaxRingBytes));
  absl::MutexLock lock(&mutex_);
  reply.set_jobs(static_cast<int32_t>(jobs_.size() + stored_jobs_.size()));
  reply.set_live_processes(static_cast<int32_t>(connections_.size()));
  reply.set_trouble(Sentences(trouble_, store_->damage()));
  return reply;
}

namespace {

// A reply whose only content is the job.
template <typename Reply>
absl::StatusOr<Reply> ReplyWith(absl::StatusOr<v1::Job> job) {
  if (!job.ok()) return job.status();
  Reply reply;
  *reply.mutable_job() = *std::move(job);
  return reply;
}

// Sets what the request asks for and makes the job wait. Only the metric sets may be refused for
// what the job has done before; all else depends on the request alone.
absl::Status SetUp(const v1::PrepareJobRequest& request, int64_t monotonic_ns, jobs::Job& job) {
  if (request.metric_sets_size() > 0 || request.own_metric_sets_size() > 0 ||
      request.counter_backend() != v1::COUNTER_BACKEND_UNSPECIFIED || request.roofline()) {
    absl::StatusOr<jobs::MetricChoice> metrics = jobs::MetricChoice::From(request, job.metrics());
    if (!metrics.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("metric_sets: ", metrics.status().message()));
    }
    const absl::Status status = job.SetMetrics(*std::move(metrics));
    if (!status.ok()) return status;
  }
  job.Reopen(monotonic_ns);
  if (!request.operators_folder().empty()) job.RecordOperators(request.operators_folder());
  if (request.has_horizon()) {
    if (const absl::Status status = job.SetHorizon(request.horizon()); !status.ok()) return status;
  }
  if (request.overhead_budget_share() == 0) return absl::OkStatus();
  v1::ControlRequest budget;
  budget.set_action(v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET);
  budget.set_overhead_budget_share(request.overhead_budget_share());
  return job.Control(budget);
}

}  // namespace

absl::StatusOr<v1::PrepareJobReply> Daemon::PrepareJob(const v1::PrepareJobRequest& request) {
  if (const absl::Status status = CheckNewJob(request.name(), request.run_id()); !status.ok())
    return status;
  JobRow row{.name = request.name(),
             .run_id = request.run_id(),
             .host = HostName(),
             .command = ClipText(request.command(), kMaxCommandBytes),
             .state = v1::JOB_STATE_WAITING,
             .start_ns = clock_.WallNs()};
  const int64_t now_ns = clock_.MonotonicNs();
  // What is refused leaves nothing behind: it is tried with a job that nobody sees.
  jobs::Job trial(row, options_.job);
  if (const absl::Status status = SetUp(request, now_ns, trial); !status.ok()) return status;

  absl::MutexLock lock(&mutex_);
  AwaitPruned();
  const auto found = FindOrName(row);
  if (!found.ok()) return found.status();
  jobs::Job* const job = *found != nullptr ? *found : AddJob(row);
  if (const absl::Status status = job->MayGoOn(); !status.ok()) return status;
  if (const absl::Status status = SetUp(request, now_ns, *job); !status.ok()) return status;
  return ReplyWith<v1::PrepareJobReply>(DescribeAnew(job->row().job_id, /*with_details=*/true));
}

absl::StatusOr<v1::ListJobsReply> Daemon::ListJobs(const v1::ListJobsRequest& request) {
  int64_t below = INT64_MAX;
  if (!request.page_token().empty() && !absl::SimpleAtoi(request.page_token(), &below)) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token: \"", request.page_token(), "\" is not one of ours"));
  }
  absl::MutexLock lock(&mutex_);
  std::set<int64_t, std::greater<>> ids;  // the latest first
  const auto consider = [&](int64_t id, const JobRow& row) {
    if (id < below && (request.name().empty() || row.name == request.name())) ids.insert(id);
  };
  for (const auto& [id, job] : jobs_) {
    if (!request.live_only() || job->live()) consider(id, job->row());
  }
  if (!request.live_only()) {
    for (const auto& [id, stored] : stored_jobs_) consider(id, stored.row);
  }
  v1::ListJobsReply reply;
  size_t bytes = 0;
  for (const int64_t id : ids) {
    absl::StatusOr<v1::Job> job = DescribeForList(id);
    if (absl::IsNotFound(job.status())) continue;  // pruned a moment ago
    if (!job.ok()) return job.status();
    if (!rpc::IsWanted(*job, request)) continue;
    rpc::MakeFit(&*job);
    bytes += job->ByteSizeLong();
    const bool full = reply.jobs_size() == request.page_size() || bytes > kListBytes;
    if (full && reply.jobs_size() > 0) {
      reply.set_next_page_token(reply.jobs().rbegin()->id());
      break;
    }
    *reply.add_jobs() = *std::move(job);
  }
  return reply;
}

absl::StatusOr<v1::Job> Daemon::DescribeForList(int64_t id) {
  const auto stored = stored_jobs_.find(id);
  if (stored == stored_jobs_.end()) return DescribeAnew(id, /*with_details=*/false);
  const auto summary = store_->LoadPart(id, jobs::kSummaryPart);
  if (!summary.ok()) return summary.status();
  v1::Job job;
  const bool ours = *summary && (*summary)->version == jobs::kJobStateVersion;
  if (ours && job.ParseFromString((*summary)->bytes)) return job;
  const auto read = ReadJob(stored->second.row);  // of another version
  if (!read.ok()) return read.status();
  return Describe(**read, /*with_details=*/false);
}

absl::StatusOr<v1::GetJobReply> Daemon::GetJob(const v1::GetJobRequest& request) {
  absl::MutexLock lock(&mutex_);
  const auto job = FindJob(request.job());
  if (!job.ok()) return job.status();
  return ReplyWith<v1::GetJobReply>(
      DescribeAnew((*job)->row().job_id, /*with_details=*/true, /*with_histogram=*/true));
}

// Whoever watches a job is to hear of it.
void Daemon::SetTrouble(std::string sentence) {
  if (sentence == trouble_) return;
  trouble_ = std::move(sentence);
  for (const auto& [id, job] : jobs_) job->SetGeneration(job->generation() + 1);
}

// What is wrong with the store is wrong with every live job.
v1::Job Daemon::Describe(jobs::Job& job, bool with_details, bool with_histogram) {
  v1::Job description = job.Describe(with_details, with_histogram);
  if (job.live() && !trouble_.empty()) description.set_trouble(trouble_);
  // It is past, and iterations are missing: something holds the run up, and until when is not
  // known.
  if (description.expected_end().high_ns() < clock_.WallNs()) {
    description.clear_expected_end();
  }
  return description;
}

absl::StatusOr<v1::Job> Daemon::DescribeAnew(int64_t id, bool with_details, bool with_histogram) {
  const auto find = [&]() -> absl::StatusOr<jobs::Job*> {
    mutex_.AssertHeld();
    return FindJob(absl::StrCat(id));
  };
  absl::StatusOr<jobs::Job*> job = find();
  if (!job.ok()) return job.status();
  if (const std::shared_ptr<const jobs::Answers> answers = (*job)->TakeDueSummary()) {
    mutex_.Unlock();
    const jobs::Answers::Summary summary = answers->Summarise();
    mutex_.Lock();
    job = find();  // it may have left memory, or the store
    if (!job.ok()) return job.status();
    (*job)->SetSummary(summary);
  }
  return Describe(**job, with_details, with_histogram);
}

absl::StatusOr<std::shared_ptr<const jobs::Answers>> Daemon::Ask(std::string_view name,
                                                                 const v1::Horizon* horizon) {
  absl::MutexLock lock(&mutex_);
  const auto job = FindJob(name);
  if (!job.ok()) return job.status();
  return (*job)->Ask(horizon);
}

absl::StatusOr<std::shared_ptr<const jobs::Answers>> Daemon::AskPart(std::string_view name,
                                                                     const v1::Part& part,
                                                                     std::string* words) {
  const auto whole = Ask(name, nullptr);
  if (!whole.ok()) return whole.status();
  const jobs::Answers::Facts& facts = (*whole)->facts();
  const absl::StatusOr<IterationRange> range = CountedRangeOf(part, facts);
  if (!range.ok()) return range.status();
  if (absl::Status stored = AwaitCommit(facts.job_id); !stored.ok()) return stored;
  absl::StatusOr<PartLengths> lengths = ReadLengths(facts, *range, *store_);
  if (!lengths.ok()) return lengths.status();
  *words = range->words;
  absl::MutexLock lock(&mutex_);
  const auto job = FindJob(absl::StrCat(facts.job_id));
  if (!job.ok()) return job.status();
  return (*job)->AskPart(std::move(lengths->steps), std::move(lengths->work));
}

absl::StatusOr<v1::Job> Daemon::WaitForJob(const std::string& name, int64_t after_generation,
                                           absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto job = FindJob(name);
  if (!job.ok()) return job.status();
  const int64_t id = (*job)->row().job_id;
  const auto changed = [this, id, after_generation] {
    mutex_.AssertReaderHeld();
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) return !stored_jobs_.contains(id);  // pruned meanwhile
    return it->second->generation() > after_generation;
  };
  if (!changed_.Await(mutex_, timeout, changed)) {
    return absl::DeadlineExceededError("the job did not change");
  }
  if (!jobs_.contains(id)) {
    return absl::NotFoundError(absl::StrCat("job ", id, " was removed"));
  }
  return DescribeAnew(id, /*with_details=*/true);
}

absl::StatusOr<v1::GetSeqPointsReply> Daemon::GetSeqPoints(const v1::GetSeqPointsRequest& request) {
  const auto answers = Ask(request.job(), nullptr);
  if (!answers.ok()) return answers.status();
  if (const auto& facts = (*answers)->facts(); facts.imported && !facts.traced()) {
    return SeqPointsOfImport(facts, *store_);
  }
  return (*answers)->GetSeqPoints();
}

absl::StatusOr<v1::ListIterationsReply> Daemon::ListIterations(
    const v1::ListIterationsRequest& request) {
  int64_t first = 0;
  if (!request.page_token().empty() && !absl::SimpleAtoi(request.page_token(), &first)) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token: \"", request.page_token(), "\" is not one of ours"));
  }
  int64_t job_id;
  IterationRange range;
  std::map<int32_t, int64_t> per_rank;
  absl::Status stored;
  {
    absl::MutexLock lock(&mutex_);
    const auto job = FindJob(request.job());
    if (!job.ok()) return job.status();
    job_id = (*job)->row().job_id;
    if (request.has_part()) {
      const auto answers = (*job)->Ask();
      if (!answers.ok()) return answers.status();
      absl::StatusOr<IterationRange> part = RangeOf(request.part(), (*answers)->facts());
      if (!part.ok()) return part.status();
      range = *std::move(part);
      first = std::max(first, range.first);
    }
    auto ranks = IterationsPerRank(**job);
    if (!ranks.ok()) return ranks.status();
    per_rank = *std::move(ranks);
    stored = AwaitCommit(**job);
  }
  int32_t rank = request.rank();
  if (!request.has_rank() && !per_rank.empty()) rank = per_rank.begin()->first;
  const auto rows =
      store_->ReadIterations(job_id, rank, first, request.page_size(), request.measured_only());
  if (!rows.ok()) return rows.status();
  v1::ListIterationsReply reply;
  reply.set_total(per_rank[rank]);
  reply.set_sentence(std::string(stored.message()));
  absl::MutexLock lock(&mutex_);
  const auto job = FindJob(absl::StrCat(job_id));
  if (!job.ok()) return job.status();
  for (const IterationRow& row : *rows) {
    if (row.number > range.last) break;
    v1::Iteration& to = *reply.add_iterations();
    to.set_number(row.number);
    to.set_rank(row.rank);
    to.set_incarnation(row.incarnation);
    for (const int64_t length : (*job)->UserLengths(row.length, row.length_count)) {
      to.add_lengths(length);
    }
    to.set_start_ns(row.start_ns);
    if (row.duration_ns > 0) to.set_duration_ns(row.duration_ns);
    to.set_rest_ns(row.rest_ns);
    to.set_boundary_ns(row.boundary_ns);
    to.set_level(static_cast<v1::Level>(row.level));
    to.set_distorted((row.flags & kIterationDistorted) != 0);
    to.set_redone((row.flags & kIterationRedone) != 0);
    to.set_beside((row.flags & kIterationBeside) != 0);
    to.set_first_occurrence((row.flags & kIterationFirst) != 0);
    to.set_config((*job)->ConfigName(row.config_id));
    to.set_phase(jobs::PhaseName(row.phase));
  }
  if (static_cast<int>(rows->size()) >= request.page_size() && rows->back().number < range.last) {
    reply.set_next_page_token(absl::StrCat(rows->back().number + 1));
  }
  *reply.mutable_losses() = (*job)->SumLosses();
  return reply;
}

absl::StatusOr<v1::ProjectReply> Daemon::Project(const v1::ProjectRequest& request) {
  const bool time = request.metric().empty() || request.metric() == "time";
  if (request.has_part() && time) {
    const auto answers = Ask(request.job(), nullptr);
    if (!answers.ok()) return answers.status();
    const auto range = CountedRangeOf(request.part(), (*answers)->facts());
    if (!range.ok()) return range.status();
    const absl::Status stored = AwaitCommit((*answers)->facts().job_id);
    if (!stored.ok()) return stored;
    return ProjectPart(**answers, *range, request.confidence(), *store_);
  }
  std::string part;
  const auto answers =
      request.has_part() ? AskPart(request.job(), request.part(), &part)
                         : Ask(request.job(), request.has_horizon() ? &request.horizon() : nullptr);
  if (!answers.ok()) return answers.status();
  absl::StatusOr<v1::ProjectReply> reply = (*answers)->Project(request);
  if (reply.ok()) reply->set_part(part);
  return reply;
}

absl::StatusOr<v1::GetCountersReply> Daemon::GetCounters(const v1::GetCountersRequest& request) {
  std::string part;
  const auto answers =
      request.has_part() ? AskPart(request.job(), request.part(), &part)
                         : Ask(request.job(), request.has_horizon() ? &request.horizon() : nullptr);
  if (!answers.ok()) return answers.status();
  absl::StatusOr<v1::GetCountersReply> reply = (*answers)->GetCounters(request);
  if (!reply.ok()) return reply;
  reply->set_part(part);
  // Which iterations, and what measuring did to them.
  constexpr size_t kMostListed = 1000;
  constexpr int kMostRead = 1 << 20;
  const jobs::Answers::Facts& facts = (*answers)->facts();
  const absl::StatusOr<IterationRange> range = RangeOf(request.part(), facts);
  if (!range.ok()) return range.status();
  std::vector<IterationRow> measured;
  for (const int32_t rank : facts.ranks) {
    auto rows = store_->ReadIterations(facts.job_id, rank, range->first, kMostRead,
                                       /*measured_only=*/true);
    if (!rows.ok()) return rows.status();
    std::erase_if(*rows, [&](const IterationRow& row) {
      const bool traced = row.config_id == jobs::kKernelTimeSet;
      return traced || row.number > range->last;
    });
    const size_t last = std::min(rows->size(), kMostListed);
    measured.insert(measured.end(), rows->end() - static_cast<ptrdiff_t>(last), rows->end());
  }
  const auto rows = store_->ReadMeasurements(facts.job_id);
  if (!rows.ok()) return rows.status();
  std::set<std::pair<int32_t, int64_t>> complete;
  for (const MeasurementRow& row : *rows) {
    if (row.complete) complete.emplace(row.rank, row.number);
  }
  std::stable_sort(
      measured.begin(), measured.end(),
      [](const IterationRow& a, const IterationRow& b) { return a.number < b.number; });
  if (measured.size() > kMostListed) {
    measured.erase(measured.begin(), measured.end() - static_cast<ptrdiff_t>(kMostListed));
  }
  (*answers)->AddMeasured(measured, complete, &*reply);
  return reply;
}

absl::StatusOr<v1::GetKernelsReply> Daemon::GetKernels(const v1::GetKernelsRequest& request) {
  std::string part;
  const auto answers =
      request.has_part() ? AskPart(request.job(), request.part(), &part)
                         : Ask(request.job(), request.has_horizon() ? &request.horizon() : nullptr);
  if (!answers.ok()) return answers.status();
  absl::StatusOr<v1::GetKernelsReply> reply = (*answers)->GetKernels(request);
  if (reply.ok()) reply->set_part(part);
  return reply;
}

absl::StatusOr<v1::GetRooflineReply> Daemon::GetRoofline(const v1::GetRooflineRequest& request) {
  absl::MutexLock lock(&mutex_);
  const auto job = FindJob(request.job());
  if (!job.ok()) return job.status();
  return (*job)->GetRoofline(request);
}

absl::StatusOr<v1::CompareReply> Daemon::Compare(const v1::CompareRequest& request) {
  const auto base = Ask(request.base(), nullptr);
  if (!base.ok()) return base.status();
  const auto other = Ask(request.other(), nullptr);
  if (!other.ok()) return other.status();
  if ((*base)->facts().job_id == (*other)->facts().job_id) {
    return absl::InvalidArgumentError(absl::StrCat("base = \"", request.base(), "\" and other = \"",
                                                   request.other(),
                                                   "\" are the same job; give two"));
  }
  for (const auto* answers : {&*base, &*other}) {
    const absl::Status stored = AwaitCommit((*answers)->facts().job_id);
    if (!stored.ok()) return stored;
  }
  return seqpoint::Compare(**base, **other, request, *store_);
}

absl::Status Daemon::Export(const v1::ExportRequest& request,
                            absl::FunctionRef<bool(std::string_view)> write) {
  if (request.format() == v1::ExportRequest::FORMAT_REPLAY) {
    const auto answers = Ask(request.job(), nullptr);
    if (!answers.ok()) return answers.status();
    const absl::Status stored = AwaitCommit((*answers)->facts().job_id);
    if (!stored.ok()) return stored;
    return WithMemory("replay", [&] { return trace_questions_.WriteReplay(**answers, write); });
  }
  JobRow row;
  ExportContext context;
  {
    absl::MutexLock lock(&mutex_);
    const auto job = FindJob(request.job());
    if (!job.ok()) return job.status();
    row = (*job)->row();
    const auto per_rank = IterationsPerRank(**job);
    if (!per_rank.ok()) return per_rank.status();
    for (const auto& [rank, iterations] : *per_rank) context.ranks.push_back(rank);
    if (const absl::Status stored = AwaitCommit(**job); !stored.ok()) return stored;
  }
  const auto with_job = [&](const auto& ask) {
    absl::MutexLock lock(&mutex_);
    const auto job = FindJob(absl::StrCat(row.job_id));
    return job.ok() ? ask(**job) : decltype(ask(**job)){};
  };
  context.lengths = [&](const IterationRow& iteration) {
    return with_job([&](const jobs::Job& job) {
      return job.UserLengths(iteration.length, iteration.length_count);
    });
  };
  context.config_name = [&](uint32_t config_id) {
    return with_job([&](const jobs::Job& job) { return job.ConfigName(config_id); });
  };
  switch (request.format()) {
    case v1::ExportRequest::FORMAT_CHROME:
      return StillThere(row, ExportChrome(*store_, row, context, write));
    case v1::ExportRequest::FORMAT_CSV:
      return StillThere(row, ExportCsv(*store_, row, context, write));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("format: ", static_cast<int>(request.format()), " is unknown"));
  }
}

absl::Status Daemon::StillThere(const JobRow& row, const absl::Status& written) {
  absl::MutexLock lock(&mutex_);
  if (!written.ok() || jobs_.contains(row.job_id) || stored_jobs_.contains(row.job_id)) {
    return written;
  }
  return absl::NotFoundError(
      absl::StrCat("job ", row.job_id, " was removed while it was written; the file is not whole"));
}

absl::StatusOr<v1::SetHorizonReply> Daemon::SetHorizon(const v1::SetHorizonRequest& request) {
  absl::MutexLock lock(&mutex_);
  const auto job = FindJob(request.job());
  if (!job.ok()) return job.status();
  if (const absl::Status status = (*job)->SetHorizon(request.horizon()); !status.ok()) {
    return status;
  }
  return ReplyWith<v1::SetHorizonReply>(DescribeAnew((*job)->row().job_id, /*with_details=*/true));
}

absl::StatusOr<v1::ControlReply> Daemon::Control(const v1::ControlRequest& request) {
  absl::MutexLock lock(&mutex_);
  const auto job = FindJob(request.job());
  if (!job.ok()) return job.status();
  if (request.action() == v1::ControlRequest::ACTION_END_WAITING) {
    if ((*job)->live()) {
      return absl::FailedPreconditionError(
          absl::StrCat("job \"", request.job(), "\" has live processes; it ends when they do"));
    }
    (*job)->EndUnused(clock_.WallNs());
  } else if (request.action() == v1::ControlRequest::ACTION_PROGRAM_ENDED) {
    (*job)->EndProgram({request.launch(), request.exit_status(), request.signal()});
  } else if (const absl::Status status = (*job)->Control(request); !status.ok()) {
    return status;
  }
  return ReplyWith<v1::ControlReply>(DescribeAnew((*job)->row().job_id, /*with_details=*/true));
}

absl::StatusOr<v1::AnalyzeReply> Daemon::Analyze(const v1::AnalyzeRequest& request) {
  return jobs::AnalyzeLogs(request);
}

absl::StatusOr<v1::Job> Daemon::AddImported(JobRow row, const jobs::ImportedRun& run,
                                            const std::vector<traces::RecordedTrace>& traces) {
  {
    absl::MutexLock lock(&mutex_);
    AwaitPruned();  // it must know what to keep
    const auto found = FindOrName(row);
    if (!found.ok()) return found.status();
    if (*found != nullptr) {
      return absl::AlreadyExistsError(absl::StrCat(
          "there is a job \"", row.name, "@", row.run_id,
          "\" already; import under another run id (--run-id), or another name (--name)"));
    }
    row.job_id = store_->NewJobId();
    importing_[{row.name, row.run_id}] = row.job_id;
  }
  auto job = jobs::StoreImport(*store_, row, run, options_.job, traces);
  absl::MutexLock lock(&mutex_);
  importing_.erase({row.name, row.run_id});
  if (!job.ok()) return job.status();
  spdlog::info("job {}@{} imported: {} iterations", row.name, row.run_id, run.iterations.size());
  jobs_[row.job_id] = *std::move(job);
  asked_[row.job_id] = ++questions_;
  return DescribeAnew(row.job_id, /*with_details=*/true);
}

absl::StatusOr<v1::ImportJobReply> Daemon::ImportJob(const v1::ImportJobRequest& request) {
  if (const absl::Status status = CheckNewJob(request.name(), request.run_id()); !status.ok())
    return status;
  const auto run = jobs::ReadImport(request, clock_.WallNs());
  if (!run.ok()) return run.status();
  absl::Status room =
      CheckRoom(options_.store_path, run->iterations.size() * kStoredBytesPerIteration, "log");
  if (!room.ok()) return room;
  return ReplyWith<v1::ImportJobReply>(
      AddImported({.name = request.name(), .run_id = request.run_id()}, *run, {}));
}

absl::StatusOr<v1::ImportTraceReply> Daemon::ImportTrace(
    absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next) {
  return WithMemory("import", [&] { return AddTraces(next); });
}

absl::StatusOr<v1::ImportTraceReply> Daemon::AddTraces(
    absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next) {
  v1::ImportTraceRequest message;
  JobRow row;
  std::string marker;
  std::vector<jobs::TraceFile> files;
  std::unique_ptr<traces::TraceReader> reader;
  const auto end_file = [&]() -> absl::Status {
    if (reader == nullptr) return absl::OkStatus();
    absl::StatusOr<trace::Trace> trace = reader->Finish();
    if (!trace.ok()) return trace.status();
    files.back().trace = *std::move(trace);
    return absl::OkStatus();
  };
  for (bool first = true;; first = false) {
    const absl::StatusOr<bool> more = next(&message);
    if (!more.ok()) return more.status();
    if (!*more) break;
    if (first) {
      if (absl::Status status = CheckNewJob(message.name(), message.run_id()); !status.ok())
        return status;
      row = {.name = message.name(), .run_id = message.run_id()};
      marker = message.marker();
    }
    if (!message.file().empty()) {
      if (absl::Status status = end_file(); !status.ok()) return status;
      files.push_back({.name = message.file()});
      reader = std::make_unique<traces::TraceReader>(
          traces::TraceReaderOptions{.name = message.file(), .max_bytes = kMostTraceBytes});
    }
    if (message.data().empty()) continue;
    if (reader == nullptr) {
      return absl::InvalidArgumentError("file: data came before the name of a file");
    }
    if (absl::Status status = reader->Add(message.data()); !status.ok()) return status;
  }
  if (absl::Status status = end_file(); !status.ok()) return status;
  reader = nullptr;
  if (files.empty()) return absl::InvalidArgumentError("file: no trace came");
  absl::StatusOr<jobs::TraceImport> import =
      jobs::ReadTraces(std::move(files), marker, clock_.WallNs());
  if (!import.ok()) return import.status();
  size_t elements = 0;
  for (const traces::RecordedTrace& trace : import->traces) {
    elements += trace.trace.calls.size() + trace.trace.works.size() + trace.trace.spans.size();
  }
  absl::Status room = CheckRoom(options_.store_path, elements * kStoredBytesPerElement, "traces");
  if (!room.ok()) return room;
  absl::StatusOr<v1::Job> job = AddImported(std::move(row), import->run, import->traces);
  if (!job.ok()) return job.status();
  v1::ImportTraceReply reply;
  *reply.mutable_job() = *std::move(job);
  for (v1::ImportedTrace& trace : import->described) *reply.add_traces() = std::move(trace);
  return reply;
}

absl::StatusOr<v1::ReplayReply> Daemon::Replay(const v1::ReplayRequest& request,
                                               absl::FunctionRef<bool()> cancelled) {
  const auto answers = Ask(request.job(), nullptr);
  if (!answers.ok()) return answers.status();
  const absl::Status stored = AwaitCommit((*answers)->facts().job_id);
  auto reply = WithMemory("replay", [&] { return trace_questions_.Replay(**answers, cancelled); });
  if (reply.ok() && !stored.ok()) reply->add_sentences(std::string(stored.message()));
  return reply;
}

absl::StatusOr<v1::WhatIfReply> Daemon::WhatIf(const v1::WhatIfRequest& request,
                                               absl::FunctionRef<bool()> cancelled) {
  const auto answers = Ask(request.job(), request.has_horizon() ? &request.horizon() : nullptr);
  if (!answers.ok()) return answers.status();
  v1::GetRooflineReply roofline;
  absl::Status stored;
  {
    absl::MutexLock lock(&mutex_);
    const auto job = FindJob(absl::StrCat((*answers)->facts().job_id));
    if (!job.ok()) return job.status();
    // Most jobs have none.
    if (auto measured = (*job)->GetRoofline({}); measured.ok()) roofline = *std::move(measured);
    stored = AwaitCommit(**job);
  }
  auto reply = WithMemory(
      "what-if", [&] { return trace_questions_.WhatIf(**answers, roofline, request, cancelled); });
  if (reply.ok()) reply->set_basis(Sentences(reply->basis(), stored.message()));
  return reply;
}

absl::StatusOr<v1::GetPlaylistReply> Daemon::GetPlaylist(const v1::GetPlaylistRequest& request) {
  const auto answers = Ask(request.job(), nullptr);
  if (!answers.ok()) return answers.status();
  const jobs::PlaylistOptions options{.points = request.points(),
                                      .target_error = request.target_error(),
                                      .confidence = request.confidence()};
  if (const auto& facts = (*answers)->facts(); facts.imported) {
    return PlaylistOfImport(facts, options, *store_);
  }
  const auto playlist = (*answers)->MakePlaylist(options);
  if (!playlist.ok()) return playlist.status();
  const absl::Status stored = AwaitCommit((*answers)->facts().job_id);
  auto reply = WithIterations(*playlist, *store_);
  if (reply.ok()) reply->set_sentence(Sentences(reply->sentence(), stored.message()));
  return reply;
}

absl::StatusOr<v1::ProjectPlaylistReply> Daemon::ProjectPlaylist(
    const v1::ProjectPlaylistRequest& request) {
  return seqpoint::ProjectPlaylist(request);
}

}  // namespace seqpoint
