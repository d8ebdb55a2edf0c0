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
#include "absl/time/clock.h"
#include "daemon/export.h"
#include "daemon/jobs/import.h"
#include "daemon/jobs/log_analysis.h"
#include "daemon/jobs/trace_import.h"
#include "daemon/playlist.h"
#include "daemon/queries/compare.h"
#include "daemon/queries/run_part.h"
#include "daemon/traces/trace_reader.h"
#include "spdlog/spdlog.h"

namespace seqpoint {
namespace {

// Of an imported one, in the database and in its log.
constexpr uint64_t kStoredBytesPerIteration = 250;
// Of a call, an annotation or a piece of GPU work of an imported trace; seen were 5 to 14.
constexpr uint64_t kStoredBytesPerElement = 30;
constexpr uint64_t kMostTraceBytes = uint64_t{8} << 30;  // of a file, unpacked

constexpr absl::Duration kCommitInterval = absl::Milliseconds(50);
constexpr absl::Duration kHeartbeatInterval = absl::Milliseconds(200);
constexpr absl::Duration kRetryInterval = absl::Seconds(1);
constexpr int kBusyPollMs = 1;
constexpr int kIdlePollMs = 10;
// Of a process, before a commit. A full ring holds 15 times as many.
constexpr uint64_t kRecordsPerPoll = 16'384;
// A process that does not come back this long after our own start, and is not running, is lost.
constexpr int64_t kReconnectNs = 5'000'000'000;
// A prepared job that no process came for is ended after so long; one that comes later opens it.
constexpr int64_t kWaitNs = 24ll * 3600 * 1'000'000'000;

int64_t NowNs() { return absl::GetCurrentTimeNanos(); }

uint64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Whether the process `pid` that ran at `since_ns` still does: a number may be given anew, also
// after the machine was started again.
bool Runs(int32_t pid, int64_t since_ns) {
  if (pid <= 0) return true;  // of another namespace: nobody knows
  struct stat status;
  const std::string path = absl::StrCat("/proc/", pid);
  if (stat(path.c_str(), &status) != 0) return false;
  std::ifstream file(path + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  // Field 22 is the start in ticks since boot; the name in field 2 may hold anything but ends with
  // the last bracket.
  const std::vector<std::string> fields =
      absl::StrSplit(text.substr(std::min(text.size(), text.rfind(')') + 2)), ' ');
  int64_t ticks = 0;
  if (fields.size() < 20 || !absl::SimpleAtoi(fields[19], &ticks)) return true;
  timespec boot;
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const int64_t boot_ns = NowNs() - (int64_t{boot.tv_sec} * 1'000'000'000 + boot.tv_nsec);
  const int64_t start_ns = boot_ns + ticks * (1'000'000'000 / sysconf(_SC_CLK_TCK));
  constexpr int64_t kClockSlackNs = 60'000'000'000;  // the wall clock may have been set
  return start_ns < since_ns + kClockSlackNs;
}

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
  void OnCallsMissing(uint64_t, uint64_t) override {}  // the reader counts them
};

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(DaemonOptions options) {
  auto store = Store::Open(options.store_path, options.store);
  if (!store.ok()) return store.status();
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(options), *std::move(store)));
  if (const absl::Status status = daemon->Recover(); !status.ok()) return status;
  auto server = ingest::InjectServer::Listen(daemon->options_.directory, {}, daemon.get());
  if (!server.ok()) return server.status();
  daemon->server_ = *std::move(server);
  daemon->thread_ = std::thread([raw = daemon.get()] { raw->Run(); });
  return daemon;
}

Daemon::Daemon(DaemonOptions options, std::unique_ptr<Store> store)
    : options_(std::move(options)),
      start_ns_(NowNs()),
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
  absl::MutexLock lock(&mutex_);
  for (const JobRow& row : *rows) {
    if (row.end_ns != 0) {
      stored_jobs_[row.job_id].row = row;
    } else if (const auto job = LoadJob(row); !job.ok()) {
      return job.status();
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
  const int64_t now_ns = NowNs();
  for (const auto& [id, job] : jobs_) {
    if (job->refused().empty() || job->row().end_ns != 0) continue;
    const auto processes = store_->ListProcesses(id);
    if (!processes.ok()) continue;
    const bool runs =
        std::any_of(processes->begin(), processes->end(), [&](const ProcessRow& process) {
          if (process.end_ns != 0) return false;
          if (process.pid <= 0) return now_ns - process.start_ns < kWaitNs;
          return Runs(process.pid, process.start_ns);
        });
    if (!runs) job->EndRefused(now_ns);
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
  absl::Time last_commit = absl::Now(), last_heartbeat, last_prune = absl::Now();
  absl::Time last_busy = absl::Now();
  int wait_ms = kIdlePollMs;
  while (true) {
    const bool stopping = stop_;
    server_->RunOnce(stopping ? 0 : wait_ms);
    const absl::Time now = absl::Now();
    Read read;
    bool commit_first = false;
    {
      absl::MutexLock lock(&mutex_);
      if (!batch_failed_) read = PollRings(stopping ? UINT64_MAX : kRecordsPerPoll);
      if (now - last_heartbeat >= kHeartbeatInterval) {
        for (const auto& connection : connections_) connection->control->Heartbeat(MonotonicNs());
        FindVanished(NowNs());
        for (const auto& [id, job] : jobs_) job->CheckRules(NowNs());
        last_heartbeat = now;
      }
      commit_first = StageControls();
      if (!connections_.empty() || !importing_.empty()) last_busy = now;
    }
    wait_ms = read.more ? 0 : read.busy ? kBusyPollMs : kIdlePollMs;
    if (stopping && options_.end_when_idle > absl::ZeroDuration()) {
      absl::MutexLock lock(&mutex_);
      for (const auto& [id, job] : jobs_) job->EndUnused(NowNs());
    }
    const absl::Duration interval = batch_failed_ ? kRetryInterval : kCommitInterval;
    // A backlog is committed piece by piece: the ring, which may be full, is free again early, and
    // a daemon that is killed soon has read something.
    if (now - last_commit >= interval || stopping || read.more ||
        (commit_first && !batch_failed_)) {
      Commit();
      last_commit = absl::Now();
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
          // When a job was reopened is not stored: then it waits from our start on.
          const int64_t since_ns =
              std::max(job->waiting_since_ns(), job->HasProcesses() ? start_ns_ : 0);
          if (NowNs() - since_ns > kWaitNs) job->EndUnused(NowNs());
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
  const auto found = FindRun(name, run_id);
  if (!found.ok() || *found != nullptr) return found;
  return AddJob({.name = name,
                 .run_id = run_id,
                 .host = Field(process.fields, "host"),
                 .command = Field(process.fields, "command"),
                 .state = v1::JOB_STATE_LEARNING,
                 .start_ns = NowNs()});
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
                   .host = Field(process.fields, "host"),
                   .ring_id = ring_id,
                   .text = process.text,
                   .start_ns = static_cast<int64_t>(process.reader->created_real_ns())};
    row.incarnation = connection->job->NextIncarnation(row.rank);
    connection->process_id = row.process_id;
    std::set<int64_t> gone;  // its end may not have been read yet
    for (const auto& [id, pid] : connection->job->LiveProcesses()) {
      if (!Runs(pid, connection->job->StartNs(id))) gone.insert(id);
    }
    connection->job->AddProcess(row, gone);
  }
  connection->server_id = process.id;
  connection->reader = std::move(process.reader);
  connection->control =
      std::make_unique<ingest::ControlWriter>(connection->reader->control_block());
  connection->control->Heartbeat(MonotonicNs());
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
    const ingest::PollResult result = reader.Poll(*connection, MonotonicNs(), most_records);
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
                                 .lost = stats.lost,
                                 .rejected = stats.rejected + stats.unknown_records,
                                 .cupti_dropped = stats.cupti_dropped,
                                 .invalid_timestamps = stats.invalid_timestamps,
                                 .clock_kind = static_cast<uint32_t>(stats.clock_kind)});
      if (connection->gone && result.events + result.records == 0 && !result.more) {
        connection->ended = true;
        connection->job->OnProcessEnd(connection->process_id, stats.closed, NowNs(), stats.failed);
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
void Daemon::FindVanished(int64_t now_ns) {
  if (now_ns - start_ns_ < kReconnectNs) return;
  for (const auto& [id, job] : jobs_) {
    for (const auto& [live_id, pid] : job->LiveProcesses()) {
      const int64_t process_id = live_id;
      const bool connected =
          std::any_of(connections_.begin(), connections_.end(),
                      [&](const auto& c) { return c->process_id == process_id; });
      if (!connected && !Runs(pid, job->StartNs(process_id))) {
        job->OnProcessEnd(process_id, /*orderly=*/false, now_ns);
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

void Daemon::AwaitCommit() {
  const int64_t wanted = commits_begun_ + 1;
  const auto done = [this, wanted] {
    mutex_.AssertReaderHeld();
    return commits_done_ >= wanted;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&done), absl::Seconds(1));
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
    const int64_t most_s = NowNs() / 1'000'000'000;
    options.ended_before_ns = NowNs() - std::min(options_.max_job_age_s, most_s) * 1'000'000'000;
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
    row.run_id = absl::FormatTime("%Y%m%d-%H%M%E3S", absl::Now(), absl::LocalTimeZone());
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
  reply.set_trouble(trouble_);
  return reply;
}

namespace {

// As the injected library takes it from the environment: longer or other text would be another job.
absl::Status CheckJobText(std::string_view field, const std::string& text) {
  constexpr size_t kMostBytes = 255;
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(field), ": ", text.size(), " bytes, more than ", kMostBytes));
  }
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(field), ": holds a control character"));
    }
  }
  return absl::OkStatus();
}

template <typename Request>
absl::Status CheckNewJob(const Request& request) {
  if (request.name().empty()) return absl::InvalidArgumentError("name: must not be empty");
  const absl::Status status = CheckJobText("name", request.name());
  return status.ok() ? CheckJobText("run_id", request.run_id()) : status;
}

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
absl::Status SetUp(const v1::PrepareJobRequest& request, jobs::Job& job) {
  if (request.metric_sets_size() > 0 || request.own_metric_sets_size() > 0 ||
      request.counter_backend() != v1::COUNTER_BACKEND_UNSPECIFIED || request.roofline()) {
    absl::StatusOr<jobs::MetricChoice> metrics = jobs::MetricChoice::From(request, job.metrics());
    if (!metrics.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("metric_sets: ", metrics.status().message()));
    }
    const absl::Status status = job.SetMetrics(*std::move(metrics));
    if (!status.ok()) return status;
  }
  job.Reopen(NowNs());
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
  if (const absl::Status status = CheckNewJob(request); !status.ok()) return status;
  JobRow row{.name = request.name(),
             .run_id = request.run_id(),
             .host = HostName(),
             .command = request.command(),
             .state = v1::JOB_STATE_WAITING,
             .start_ns = NowNs()};
  // What is refused leaves nothing behind: it is tried with a job that nobody sees.
  jobs::Job trial(row, options_.job);
  if (const absl::Status status = SetUp(request, trial); !status.ok()) return status;

  absl::MutexLock lock(&mutex_);
  AwaitPruned();
  const auto found = FindOrName(row);
  if (!found.ok()) return found.status();
  jobs::Job* const job = *found != nullptr ? *found : AddJob(row);
  if (const absl::Status status = job->MayGoOn(); !status.ok()) return status;
  if (const absl::Status status = SetUp(request, *job); !status.ok()) return status;
  return ReplyWith<v1::PrepareJobReply>(DescribeAnew(job->row().job_id, /*with_details=*/true));
}

absl::StatusOr<v1::ListJobsReply> Daemon::ListJobs(const v1::ListJobsRequest& request) {
  absl::MutexLock lock(&mutex_);
  v1::ListJobsReply reply;
  std::map<int64_t, v1::Job, std::greater<>> jobs;
  const auto wanted = [&](const JobRow& row) {
    return request.name().empty() || row.name == request.name();
  };
  // A stored job may be loaded while the lock is dropped: until none is left, and then no more.
  std::set<int64_t> seen;
  const auto next = [&] {
    mutex_.AssertHeld();
    return std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
      const jobs::Job& job = *entry.second;
      return !seen.contains(entry.first) && wanted(job.row()) &&
             (!request.live_only() || job.live());
    });
  };
  for (auto it = next(); it != jobs_.end(); it = next()) {
    const int64_t id = it->first;
    seen.insert(id);
    auto job = DescribeAnew(id, /*with_details=*/false);
    if (job.ok()) jobs[id] = *std::move(job);  // else it was pruned a moment ago
  }
  if (!request.live_only()) {
    const auto summaries = store_->LoadPart(jobs::kSummaryPart);
    if (!summaries.ok()) return summaries.status();
    for (const StateRow& row : *summaries) {
      const auto stored = stored_jobs_.find(row.job_id);
      if (stored == stored_jobs_.end() || !wanted(stored->second.row)) continue;
      if (jobs.contains(row.job_id)) continue;  // it left memory meanwhile
      v1::Job summary;
      const bool ours = row.version == jobs::kJobStateVersion;
      if (ours && summary.ParseFromString(row.bytes)) jobs[row.job_id] = std::move(summary);
    }
    for (const auto& [id, stored] : stored_jobs_) {
      if (!wanted(stored.row) || jobs.contains(id)) continue;
      const auto job = ReadJob(stored.row);  // of another version
      if (!job.ok()) return job.status();
      jobs[id] = Describe(**job, false);
    }
  }
  for (auto& [id, job] : jobs) *reply.add_jobs() = std::move(job);
  return reply;
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
v1::Job Daemon::Describe(const jobs::Job& job, bool with_details, bool with_histogram) {
  v1::Job description = job.Describe(with_details, with_histogram);
  if (job.live() && !trouble_.empty()) description.set_trouble(trouble_);
  // It is past, and iterations are missing: something holds the run up, and until when is not
  // known.
  if (description.expected_end().high_ns() < absl::ToUnixNanos(absl::Now())) {
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
  const absl::StatusOr<IterationRange> range = RangeOf(part, facts);
  if (!range.ok()) return range.status();
  {
    absl::MutexLock lock(&mutex_);
    AwaitCommit();
  }
  absl::StatusOr<PartLengths> lengths = ReadLengths(facts, *range, *store_);
  if (!lengths.ok()) return lengths.status();
  *words = range->words;
  absl::MutexLock lock(&mutex_);
  const auto job = FindJob(absl::StrCat(facts.job_id));
  if (!job.ok()) return job.status();
  return (*job)->AskPart(std::move(lengths->steps), std::move(lengths->work));
}

absl::StatusOr<v1::Job> Daemon::WaitForJob(const std::string& name, int64_t after_generation,
                                           absl::Time deadline) {
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
  if (!mutex_.AwaitWithDeadline(absl::Condition(&changed), deadline)) {
    return absl::DeadlineExceededError("the job did not change");
  }
  if (!jobs_.contains(id)) {
    return absl::NotFoundError(absl::StrCat("job ", id, " was removed: retention"));
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
    AwaitCommit();
  }
  int32_t rank = request.rank();
  if (!request.has_rank() && !per_rank.empty()) rank = per_rank.begin()->first;
  const auto rows =
      store_->ReadIterations(job_id, rank, first, request.page_size(), request.measured_only());
  if (!rows.ok()) return rows.status();
  v1::ListIterationsReply reply;
  reply.set_total(per_rank[rank]);
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
    to.set_duration_ns(row.duration_ns);
    to.set_boundary_ns(row.boundary_ns);
    to.set_level(static_cast<v1::Level>(row.level));
    to.set_distorted((row.flags & kIterationDistorted) != 0);
    to.set_redone((row.flags & kIterationRedone) != 0);
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
    const auto range = RangeOf(request.part(), (*answers)->facts());
    if (!range.ok()) return range.status();
    {
      absl::MutexLock lock(&mutex_);
      AwaitCommit();
    }
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
  std::vector<IterationRow> measured;
  for (const int32_t rank : facts.ranks) {
    auto rows = store_->ReadIterations(facts.job_id, rank, 0, kMostRead,
                                       /*measured_only=*/true);
    if (!rows.ok()) return rows.status();
    std::erase_if(*rows, [](const IterationRow& row) {
      return row.config_id == jobs::kKernelTimeSet;  // traced
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
  {
    absl::MutexLock lock(&mutex_);
    AwaitCommit();
  }
  return seqpoint::Compare(**base, **other, request, *store_);
}

absl::Status Daemon::Export(const v1::ExportRequest& request,
                            absl::FunctionRef<bool(std::string_view)> write) {
  if (request.format() == v1::ExportRequest::FORMAT_REPLAY) {
    const auto answers = Ask(request.job(), nullptr);
    if (!answers.ok()) return answers.status();
    {
      absl::MutexLock lock(&mutex_);
      AwaitCommit();
    }
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
    AwaitCommit();
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
      return ExportChrome(*store_, row, context, write);
    case v1::ExportRequest::FORMAT_CSV:
      return ExportCsv(*store_, row, context, write);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("format: ", static_cast<int>(request.format()), " is unknown"));
  }
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
    (*job)->EndUnused(NowNs());
  } else if (request.action() == v1::ControlRequest::ACTION_PROGRAM_ENDED) {
    (*job)->EndProgram(request.launch());
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
  if (const absl::Status status = CheckNewJob(request); !status.ok()) return status;
  const auto run = jobs::ReadImport(request, NowNs());
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
    absl::StatusOr<whatif::Trace> trace = reader->Finish();
    if (!trace.ok()) return trace.status();
    files.back().trace = *std::move(trace);
    return absl::OkStatus();
  };
  for (bool first = true;; first = false) {
    const absl::StatusOr<bool> more = next(&message);
    if (!more.ok()) return more.status();
    if (!*more) break;
    if (first) {
      if (absl::Status status = CheckNewJob(message); !status.ok()) return status;
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
  absl::StatusOr<jobs::TraceImport> import = jobs::ReadTraces(std::move(files), marker, NowNs());
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
  {
    absl::MutexLock lock(&mutex_);
    AwaitCommit();
  }
  return WithMemory("replay", [&] { return trace_questions_.Replay(**answers, cancelled); });
}

absl::StatusOr<v1::WhatIfReply> Daemon::WhatIf(const v1::WhatIfRequest& request,
                                               absl::FunctionRef<bool()> cancelled) {
  const auto answers = Ask(request.job(), request.has_horizon() ? &request.horizon() : nullptr);
  if (!answers.ok()) return answers.status();
  v1::GetRooflineReply roofline;
  {
    absl::MutexLock lock(&mutex_);
    const auto job = FindJob(absl::StrCat((*answers)->facts().job_id));
    if (!job.ok()) return job.status();
    // Most jobs have none.
    if (auto measured = (*job)->GetRoofline({}); measured.ok()) roofline = *std::move(measured);
    AwaitCommit();
  }
  return WithMemory(
      "what-if", [&] { return trace_questions_.WhatIf(**answers, roofline, request, cancelled); });
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
  {
    absl::MutexLock lock(&mutex_);
    AwaitCommit();
  }
  return WithIterations(*playlist, *store_);
}

absl::StatusOr<v1::ProjectPlaylistReply> Daemon::ProjectPlaylist(
    const v1::ProjectPlaylistRequest& request) {
  return seqpoint::ProjectPlaylist(request);
}

}  // namespace seqpoint
