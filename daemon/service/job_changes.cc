#include "daemon/service/job_changes.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/base/limits.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/metric_choice.h"
#include "daemon/service/node_reports.h"
#include "proto/host_name.h"
#include "spdlog/spdlog.h"

namespace seqpoint::service {
namespace {

// The store writes within milliseconds, unless its disk is full or stuck.
constexpr absl::Duration kStoreTimeout = absl::Seconds(5);
// A program waits to be started, or to end, meanwhile.
constexpr absl::Duration kBriefTimeout = absl::Seconds(1);
constexpr size_t kMostTags = 32;

absl::Status NotYet(const jobs::Job& job, const char* what, const char* why) {
  return absl::FailedPreconditionError(absl::StrCat(
      Title(job.row()),
      job.live() ? " runs" : " waits for its program (`seqpoint control JOB end` ends it)", why,
      "; it can be ", what, " when it has ended"));
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
    SEQPOINT_RETURN_IF_ERROR(job.SetMetrics(*std::move(metrics)));
  }
  job.Reopen(monotonic_ns);
  if (!request.operators_folder().empty()) job.RecordOperators(request.operators_folder());
  if (request.has_horizon()) {
    SEQPOINT_RETURN_IF_ERROR(job.SetHorizon(request.horizon()));
  }
  if (request.overhead_budget_share() == 0) return absl::OkStatus();
  v1::ControlRequest budget;
  budget.set_action(v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET);
  budget.set_overhead_budget_share(request.overhead_budget_share());
  return job.Control(budget);
}

struct Tags {
  std::set<std::string> wanted, added, removed;
};

absl::Status StoreCannotWrite(const DaemonParts& parts)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts.registry.mutex()) {
  return absl::UnavailableError(absl::StrCat(
      "nothing was changed, as the store cannot be written now",
      parts.committer.error().empty() ? "" : absl::StrCat(" (", parts.committer.error(), ")")));
}

// A daemon that is killed from now on knows of the change when it is back. Where the store cannot
// be written the job goes on with it all the same, and GetDaemon tells.
int64_t IdOnceStored(const DaemonParts& parts, const jobs::Job& job)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts.registry.mutex()) {
  const int64_t id = job.row().job_id;
  if (parts.committer.error().empty()) parts.committer.AwaitNext(kBriefTimeout);
  return id;
}

// The job is again what it was. `former_name`: empty where it was not renamed. The next batch
// writes over the one that is on its way to the store.
absl::Status UndoUpdate(const DaemonParts& parts, int64_t id, const std::string& former_name,
                        const Tags& tags) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts.registry.mutex()) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts.registry.Find(id));
  std::set<std::string> former = job->tags();
  for (const std::string& tag : tags.added) former.erase(tag);
  former.insert(tags.removed.begin(), tags.removed.end());
  if (former != job->tags()) job->SetTags(std::move(former));
  if (former_name.empty()) return StoreCannotWrite(parts);
  const JobRow row = job->row();
  const auto other = parts.registry.FindRun(former_name, row.run_id);
  if (!other.ok() || *other != nullptr) {
    return absl::UnavailableError(absl::StrCat(
        Title(row), " keeps its new name, which is not in the store yet: it cannot be written now ",
        "and another job took the former name meanwhile"));
  }
  job->Rename(former_name);
  return StoreCannotWrite(parts);
}

}  // namespace

absl::StatusOr<int64_t> Prepare(const DaemonParts& parts, const v1::PrepareJobRequest& request) {
  JobRow row{.name = request.name(),
             .run_id = request.run_id(),
             .host = HostName(),
             .command = ClipText(request.command(), kMaxCommandBytes),
             .state = v1::JOB_STATE_WAITING,
             .start_ns = parts.clock.WallNs()};
  const int64_t now_ns = parts.clock.MonotonicNs();
  // It is tried with a job that nobody sees.
  jobs::Job trial(row, parts.registry.job_options());
  SEQPOINT_RETURN_IF_ERROR(SetUp(request, now_ns, trial));

  absl::MutexLock lock(&parts.registry.mutex());
  parts.retention.AwaitPruned();
  SEQPOINT_ASSIGN_OR_RETURN(const auto found, parts.registry.FindOrName(row));
  const SharedJob job = found != nullptr ? found : parts.registry.Add(row);
  SEQPOINT_RETURN_IF_ERROR(job->MayGoOn());
  SEQPOINT_RETURN_IF_ERROR(SetUp(request, now_ns, *job));
  return IdOnceStored(parts, *job);
}

absl::StatusOr<int64_t> ChangeHorizon(const DaemonParts& parts,
                                      const v1::SetHorizonRequest& request) {
  absl::MutexLock lock(&parts.registry.mutex());
  SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts.registry.Find(request.job()));
  SEQPOINT_RETURN_IF_ERROR(job->SetHorizon(request.horizon()));
  return IdOnceStored(parts, *job);
}

absl::StatusOr<int64_t> ControlJob(const DaemonParts& parts, const v1::ControlRequest& request) {
  absl::MutexLock lock(&parts.registry.mutex());
  SEQPOINT_ASSIGN_OR_RETURN(const auto found, parts.registry.Find(request.job()));
  jobs::Job& job = *found;
  if (request.action() == v1::ControlRequest::ACTION_END_WAITING) {
    if (parts.nodes != nullptr) parts.nodes->EndAbsent(job.row().job_id);
    if (job.live()) {
      return absl::FailedPreconditionError(
          absl::StrCat("job \"", request.job(), "\" has live processes; it ends when they do"));
    }
    job.EndUnused(parts.clock.WallNs());
  } else if (request.action() == v1::ControlRequest::ACTION_PROGRAM_ENDED) {
    jobs::ProgramEndState end;
    end.set_launch(request.launch());
    end.set_exit_status(request.exit_status());
    end.set_signal(request.signal());
    job.EndProgram(end);
  } else if (const absl::Status status = job.Control(request); !status.ok()) {
    return status;
  }
  return IdOnceStored(parts, job);
}

absl::StatusOr<v1::DeleteJobReply> Delete(const DaemonParts& parts,
                                          const v1::DeleteJobRequest& request) {
  absl::MutexLock lock(&parts.registry.mutex());
  parts.retention.AwaitPruned();
  int64_t id;
  {
    SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts.registry.Find(request.job()));
    if (job->live() || job->row().end_ns == 0) return NotYet(*job, "deleted", "");
    id = job->row().job_id;
  }
  // A batch on its way to the store might bring parts of the job back.
  const auto removable = [&] {
    parts.registry.mutex().AssertHeld();
    const auto it = parts.registry.loaded().find(id);
    return !parts.retention.pruning() && parts.committer.settled() &&
           (it == parts.registry.loaded().end() || parts.registry.Over(*it->second));
  };
  if (!parts.committer.Await(kStoreTimeout, removable)) return StoreCannotWrite(parts);
  // Retention may have been faster.
  SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts.registry.Find(id));
  const JobRow row = job->row();
  SEQPOINT_RETURN_IF_ERROR(parts.store.RemoveJob(id));
  parts.registry.Remove(id);
  spdlog::info("removed {}: asked for", Title(row));
  v1::DeleteJobReply reply;
  reply.set_job_id(absl::StrCat(id));
  reply.set_name(row.name);
  reply.set_run_id(row.run_id);
  return reply;
}

absl::StatusOr<int64_t> Update(const DaemonParts& parts, const v1::UpdateJobRequest& request) {
  absl::MutexLock lock(&parts.registry.mutex());
  parts.retention.AwaitPruned();
  SEQPOINT_ASSIGN_OR_RETURN(const auto found, parts.registry.Find(request.job()));
  jobs::Job& job = *found;
  const int64_t id = job.row().job_id;
  if (!job.refused().empty()) return absl::FailedPreconditionError(job.refused());
  Tags tags{.wanted = job.tags()};
  for (const std::string& tag : request.remove_tags()) {
    if (tags.wanted.erase(tag) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("remove_tags: ", Title(job.row()), " has no tag \"", tag, "\""));
    }
    tags.removed.insert(tag);
  }
  for (const std::string& tag : request.add_tags()) {
    if (tags.wanted.insert(tag).second && tags.removed.erase(tag) == 0) tags.added.insert(tag);
  }
  if (tags.wanted.size() > kMostTags) {
    return absl::InvalidArgumentError(absl::StrCat("add_tags: ", Title(job.row()), " would have ",
                                                   tags.wanted.size(), " tags, more than ",
                                                   kMostTags));
  }
  std::string former_name;
  if (!request.name().empty() && request.name() != job.row().name) {
    // Its ranks that are still to come would be another job.
    if (job.live() || job.row().end_ns == 0) {
      return NotYet(job, "renamed", ", and its processes know it by its name");
    }
    SEQPOINT_ASSIGN_OR_RETURN(const auto other,
                              parts.registry.FindRun(request.name(), job.row().run_id));
    if (other != nullptr) {
      return absl::AlreadyExistsError(
          absl::StrCat("name: there is ", Title(other->row()), " already; choose another name"));
    }
    former_name = job.row().name;
    job.Rename(request.name());
  }
  if (tags.wanted != job.tags()) job.SetTags(tags.wanted);
  if (!parts.committer.AwaitNext(kStoreTimeout)) return UndoUpdate(parts, id, former_name, tags);
  return id;
}

}  // namespace seqpoint::service
