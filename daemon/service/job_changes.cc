// DeleteJob and UpdateJob: what a person does to a job as a whole.
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/daemon.h"
#include "spdlog/spdlog.h"

namespace seqpoint {
namespace {

// The store writes within milliseconds, unless its disk is full or stuck.
constexpr absl::Duration kStoreTimeout = absl::Seconds(5);
constexpr size_t kMostTags = 32;

std::string Title(const JobRow& row) {
  return absl::StrCat("job ", row.job_id, " (", row.name, "@", row.run_id, ")");
}

absl::Status NotYet(const jobs::Job& job, const char* what, const char* why) {
  return absl::FailedPreconditionError(absl::StrCat(
      Title(job.row()),
      job.live() ? " runs" : " waits for its program (`seqpoint control JOB end` ends it)", why,
      "; it can be ", what, " when it has ended"));
}

}  // namespace

absl::Status Daemon::StoreCannotWrite() const {
  return absl::UnavailableError(
      absl::StrCat("nothing was changed, as the store cannot be written now",
                   trouble_.empty() ? "" : absl::StrCat(" (", trouble_, ")")));
}

absl::StatusOr<v1::DeleteJobReply> Daemon::DeleteJob(const v1::DeleteJobRequest& request) {
  absl::MutexLock lock(&mutex_);
  AwaitPruned();
  const auto found = FindJob(request.job());
  if (!found.ok()) return found.status();
  if ((*found)->live() || (*found)->row().end_ns == 0) return NotYet(**found, "deleted", "");
  const int64_t id = (*found)->row().job_id;
  // A batch on its way to the store might bring parts of the job back.
  const auto removable = [this, id] {
    mutex_.AssertHeld();
    const auto it = jobs_.find(id);
    return !pruning_ && commits_done_ == commits_begun_ && (it == jobs_.end() || Over(*it->second));
  };
  if (!changed_.Await(mutex_, kStoreTimeout, removable)) return StoreCannotWrite();
  const auto job = FindJob(absl::StrCat(id));  // retention may have been faster
  if (!job.ok()) return job.status();
  const JobRow row = (*job)->row();
  if (row.job_id != id) {  // another one, whose name is a number
    return absl::NotFoundError(absl::StrCat("job ", id, " was removed meanwhile"));
  }
  if (const absl::Status status = store_->RemoveJob(id); !status.ok()) return status;
  jobs_.erase(id);
  stored_jobs_.erase(id);
  asked_.erase(id);
  spdlog::info("removed {}: asked for", Title(row));
  v1::DeleteJobReply reply;
  reply.set_job_id(absl::StrCat(id));
  reply.set_name(row.name);
  reply.set_run_id(row.run_id);
  return reply;
}

// The next batch writes over the one that is on its way to the store.
absl::Status Daemon::UndoUpdate(int64_t id, const std::string& former_name,
                                const std::set<std::string>& added,
                                const std::set<std::string>& removed) {
  const auto job = FindJob(absl::StrCat(id));
  if (!job.ok()) return job.status();
  std::set<std::string> tags = (*job)->tags();
  for (const std::string& tag : added) tags.erase(tag);
  tags.insert(removed.begin(), removed.end());
  if (tags != (*job)->tags()) (*job)->SetTags(std::move(tags));
  if (former_name.empty()) return StoreCannotWrite();
  const JobRow row = (*job)->row();
  const auto other = FindRun(former_name, row.run_id);
  if (!other.ok() || *other != nullptr) {
    return absl::UnavailableError(absl::StrCat(
        Title(row), " keeps its new name, which is not in the store yet: it cannot be written now ",
        "and another job took the former name meanwhile"));
  }
  (*job)->Rename(former_name);
  return StoreCannotWrite();
}

absl::StatusOr<v1::UpdateJobReply> Daemon::UpdateJob(const v1::UpdateJobRequest& request) {
  absl::MutexLock lock(&mutex_);
  AwaitPruned();
  const auto found = FindJob(request.job());
  if (!found.ok()) return found.status();
  jobs::Job& job = **found;
  const int64_t id = job.row().job_id;
  if (!job.refused().empty()) return absl::FailedPreconditionError(job.refused());
  std::set<std::string> tags = job.tags();
  std::set<std::string> added, removed;
  for (const std::string& tag : request.remove_tags()) {
    if (tags.erase(tag) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("remove_tags: ", Title(job.row()), " has no tag \"", tag, "\""));
    }
    removed.insert(tag);
  }
  for (const std::string& tag : request.add_tags()) {
    if (tags.insert(tag).second && removed.erase(tag) == 0) added.insert(tag);
  }
  if (tags.size() > kMostTags) {
    return absl::InvalidArgumentError(absl::StrCat("add_tags: ", Title(job.row()), " would have ",
                                                   tags.size(), " tags, more than ", kMostTags));
  }
  std::string former_name;
  if (!request.name().empty() && request.name() != job.row().name) {
    // Its ranks that are still to come would be another job.
    if (job.live() || job.row().end_ns == 0) {
      return NotYet(job, "renamed", ", and its processes know it by its name");
    }
    const auto other = FindRun(request.name(), job.row().run_id);
    if (!other.ok()) return other.status();
    if (*other != nullptr) {
      return absl::AlreadyExistsError(
          absl::StrCat("name: there is ", Title((*other)->row()), " already; choose another name"));
    }
    former_name = job.row().name;
    job.Rename(request.name());
  }
  if (tags != job.tags()) job.SetTags(std::move(tags));
  const int64_t wanted = commits_begun_ + 1;
  const auto done = [this, wanted] {
    mutex_.AssertReaderHeld();
    return commits_done_ >= wanted;
  };
  if (!changed_.Await(mutex_, kStoreTimeout, done)) {
    return UndoUpdate(id, former_name, added, removed);
  }
  auto described = DescribeAnew(id, /*with_details=*/true);
  if (!described.ok()) return described.status();
  v1::UpdateJobReply reply;
  *reply.mutable_job() = *std::move(described);
  return reply;
}

}  // namespace seqpoint
