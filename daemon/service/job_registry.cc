#include "daemon/service/job_registry.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/base/limits.h"
#include "daemon/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace seqpoint::service {
namespace {

// The calls and traces that a live process is still in.
absl::Status RestoreOpenTraces(Store& store, const ProcessRow& process, jobs::Job& job) {
  for (const int64_t number : job.WantedSegments(process.process_id)) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto trace,
                              store.ReadTrace(process.job_id, process.rank, number));
    std::string records;
    for (const TraceSegmentRow& segment : trace) {
      if (segment.process_id == process.process_id) records += segment.records;
    }
    job.RestoreSegment(process.process_id, number, records);
  }
  return absl::OkStatus();
}

}  // namespace

std::string Title(const JobRow& row) {
  return absl::StrCat("job ", row.job_id, " (", row.name, "@", row.run_id, ")");
}

absl::StatusOr<SharedJob> ReadStoredJob(Store& store, const JobRow& row,
                                        const jobs::JobOptions& options) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto states, store.LoadStates(row.job_id));
  SEQPOINT_ASSIGN_OR_RETURN(const auto processes, store.ListProcesses(row.job_id));
  std::vector<jobs::Job::StoredProcess> stored;
  for (const ProcessRow& process : processes) {
    jobs::Job::StoredProcess& to = stored.emplace_back();
    to.row = process;
    if (process.end_ns != 0) continue;
    SEQPOINT_ASSIGN_OR_RETURN(to.names, store.ReadNames(process.process_id));
  }
  auto job = std::make_shared<jobs::Job>(row, options);
  if (const absl::Status status = job->Restore(states, stored); !status.ok()) {
    spdlog::error("{}", std::string(status.message()));
  }
  // A daemon that was killed after it had set something aside did not get to say it.
  SEQPOINT_ASSIGN_OR_RETURN(const std::string damage, store.DescribeDamage(row.job_id));
  if (!damage.empty()) job->SetStoreDamage(damage);
  for (const ProcessRow& process : processes) {
    if (process.end_ns != 0 || !job->processes().contains(process.process_id)) continue;
    SEQPOINT_RETURN_IF_ERROR(RestoreOpenTraces(store, process, *job));
  }
  return job;
}

absl::Status JobRegistry::Recover() {
  SEQPOINT_ASSIGN_OR_RETURN(const auto rows, store_.ListJobs());
  const std::string& damage = store_.damage();
  if (!damage.empty()) spdlog::error("{}", damage);
  absl::MutexLock lock(&mutex_);
  for (JobRow row : rows) {
    row.command = ClipText(std::move(row.command), kMaxCommandBytes);
    row.host = ClipText(std::move(row.host), kMaxHostBytes);
    if (row.end_ns != 0) {
      stored_[row.job_id].row = row;
    } else if (const auto job = Load(row); !job.ok()) {
      return job.status();
    } else if (!damage.empty()) {
      (*job)->SetStoreDamage(damage);  // the end of other jobs was stored
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SharedJob> JobRegistry::Load(const JobRow& row) {
  const int64_t id = row.job_id;
  SEQPOINT_ASSIGN_OR_RETURN(auto job, ReadStoredJob(store_, row, options_));
  if (const auto it = stored_.find(id); it != stored_.end()) {
    job->SetGeneration(it->second.generation);
    stored_.erase(it);
  }
  loaded_[id] = std::move(job);
  return Use(id);
}

SharedJob JobRegistry::Use(int64_t id) {
  last_use_[id] = ++uses_;
  return loaded_.at(id);
}

absl::StatusOr<SharedJob> JobRegistry::Find(std::string_view name) {
  const std::string wanted(name);
  int64_t id = 0;
  const bool by_id = absl::SimpleAtoi(wanted, &id);
  if (by_id && RowOf(id) != nullptr) return Find(id);
  const JobRow* latest = nullptr;
  const auto consider = [&](const JobRow& row) {
    const bool matches = row.name == wanted || absl::StrCat(row.name, "@", row.run_id) == wanted;
    if (matches && (latest == nullptr || row.job_id > latest->job_id)) latest = &row;
  };
  for (const auto& [job_id, job] : loaded_) consider(job->row());
  for (const auto& [job_id, stored] : stored_) consider(stored.row);
  if (latest != nullptr) return Find(latest->job_id);
  return absl::NotFoundError(
      absl::StrCat("no job \"", wanted, "\"; `seqpoint jobs` lists what there is"));
}

absl::StatusOr<SharedJob> JobRegistry::Find(int64_t id) {
  if (loaded_.contains(id)) return Use(id);
  const auto stored = stored_.find(id);
  if (stored != stored_.end()) return Load(JobRow(stored->second.row));
  return absl::NotFoundError(absl::StrCat("job ", id, " was removed meanwhile"));
}

absl::StatusOr<SharedJob> JobRegistry::FindRun(std::string_view name, std::string_view run_id) {
  for (const auto& [id, job] : loaded_) {
    if (job->row().name == name && job->row().run_id == run_id) return Use(id);
  }
  for (const auto& [id, stored] : stored_) {
    if (stored.row.name == name && stored.row.run_id == run_id) return Load(JobRow(stored.row));
  }
  if (importing_.contains({std::string(name), std::string(run_id)})) {
    return absl::AlreadyExistsError(absl::StrCat("job \"", std::string(name), "@",
                                                 std::string(run_id),
                                                 "\" is being imported; use another run id"));
  }
  return nullptr;
}

absl::StatusOr<SharedJob> JobRegistry::FindOrName(JobRow& row) {
  SEQPOINT_RETURN_IF_ERROR(CheckNewJob(row.name, row.run_id));
  if (!row.run_id.empty()) return FindRun(row.name, row.run_id);
  while (true) {
    row.run_id = absl::FormatTime("%Y%m%d-%H%M%E3S", absl::FromUnixNanos(clock_.WallNs()),
                                  absl::LocalTimeZone());
    const auto found = FindRun(row.name, row.run_id);
    if (found.ok() ? *found == nullptr : !absl::IsAlreadyExists(found.status())) return found;
  }
}

SharedJob JobRegistry::Add(JobRow row) {
  row.job_id = store_.NewJobId();
  loaded_[row.job_id] = std::make_shared<jobs::Job>(row, options_);
  return Use(row.job_id);
}

void JobRegistry::Remove(int64_t id) {
  loaded_.erase(id);
  stored_.erase(id);
  last_use_.erase(id);
}

absl::Status JobRegistry::BeginImport(JobRow& row) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto found, FindOrName(row));
  if (found != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(
        "there is a job \"", row.name, "@", row.run_id,
        "\" already; import under another run id (--run-id), or another name (--name)"));
  }
  row.job_id = store_.NewJobId();
  importing_[{row.name, row.run_id}] = row.job_id;
  return absl::OkStatus();
}

void JobRegistry::EndImport(const JobRow& row, SharedJob job) {
  importing_.erase({row.name, row.run_id});
  if (job == nullptr) return;
  loaded_[row.job_id] = std::move(job);
  Use(row.job_id);
}

bool JobRegistry::Over(const jobs::Job& job) const {
  const JobRow& row = job.row();
  return row.end_ns != 0 && !job.live() && !job.awaits_ranks() && job.stored() &&
         !connected_.contains(row.job_id);
}

void JobRegistry::EvictIdle() {
  std::vector<std::pair<int64_t, int64_t>> over;  // last use, id
  for (const auto& [id, job] : loaded_) {
    if (Over(*job)) over.emplace_back(last_use_[id], id);
  }
  if (over.size() <= kEndedJobsKept) return;
  std::sort(over.begin(), over.end());
  over.resize(over.size() - kEndedJobsKept);
  for (const auto& [last_use, id] : over) {
    const jobs::Job& job = *loaded_.at(id);
    stored_[id] = {job.row(), job.generation()};
    loaded_.erase(id);
    last_use_.erase(id);
  }
}

const JobRow* JobRegistry::RowOf(int64_t id) const {
  if (const auto it = loaded_.find(id); it != loaded_.end()) return &it->second->row();
  const auto it = stored_.find(id);
  return it == stored_.end() ? nullptr : &it->second.row;
}

}  // namespace seqpoint::service
