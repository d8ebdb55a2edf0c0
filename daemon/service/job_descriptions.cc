#include "daemon/service/job_descriptions.h"

#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/queries/job_filter.h"
#include "daemon/queries/reply_text.h"
#include "daemon/service/node_reports.h"

namespace seqpoint::service {
namespace {

constexpr size_t kListBytes = 2 << 20;  // of a page: gRPC clients take 4 MiB where nobody says more

v1::Job DescribeNow(const DaemonParts& parts, jobs::Job& job, Detail detail)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts.registry.mutex()) {
  v1::Job description = job.Describe(detail != Detail::kList, detail == Detail::kHistogram);
  // An error of the store is one of every live job.
  if (job.live() && !parts.committer.error().empty())
    description.set_error(parts.committer.error());
  if (job.live() && parts.nodes != nullptr && description.error().empty())
    description.set_error(parts.nodes->AbsentInWords(job.row().job_id));
  // It is past, and iterations are missing: something holds the run up, and until when is not
  // known.
  if (description.expected_end().high_ns() < parts.clock.WallNs()) description.clear_expected_end();
  return description;
}

// A job that is not in memory is described from the store.
absl::StatusOr<v1::Job> DescribeForList(const DaemonParts& parts, int64_t id)
    ABSL_LOCKS_EXCLUDED(parts.registry.mutex()) {
  std::optional<JobRow> stored;
  {
    absl::MutexLock lock(&parts.registry.mutex());
    const auto it = parts.registry.stored().find(id);
    if (it != parts.registry.stored().end()) stored = it->second.row;
  }
  if (!stored) return Describe(parts, id, Detail::kList);
  SEQPOINT_ASSIGN_OR_RETURN(const auto summary, parts.store.LoadPart(id, jobs::kSummaryPart));
  v1::Job job;
  const bool current = summary && summary->version == jobs::kJobStateVersion;
  if (current && job.ParseFromString(summary->bytes)) return job;
  // Its summary is of another version.
  SEQPOINT_ASSIGN_OR_RETURN(const auto read,
                            ReadStoredJob(parts.store, *stored, parts.registry.job_options()));
  absl::MutexLock lock(&parts.registry.mutex());
  if (parts.registry.RowOf(id) == nullptr) return absl::NotFoundError("it was removed meanwhile");
  return DescribeNow(parts, *read, Detail::kList);
}

}  // namespace

absl::StatusOr<v1::Job> Describe(const DaemonParts& parts, int64_t id, Detail detail,
                                 const std::function<void(jobs::Job&)>& also) {
  std::shared_ptr<const jobs::Snapshot> due;
  {
    absl::MutexLock lock(&parts.registry.mutex());
    SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts.registry.Find(id));
    due = job->TakeDueSummary();
    if (due == nullptr) {
      if (also) also(*job);
      return DescribeNow(parts, *job, detail);
    }
  }
  const jobs::Summary summary = due->Summarise();
  absl::MutexLock lock(&parts.registry.mutex());
  // It may have left memory, or the store.
  SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts.registry.Find(id));
  job->SetSummary(summary);
  if (also) also(*job);
  return DescribeNow(parts, *job, detail);
}

absl::StatusOr<v1::ListJobsReply> List(const DaemonParts& parts,
                                       const v1::ListJobsRequest& request) {
  int64_t below = INT64_MAX;
  if (!request.page_token().empty() && !absl::SimpleAtoi(request.page_token(), &below)) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token: \"", request.page_token(), "\" is not one of ours"));
  }
  std::set<int64_t, std::greater<>> ids;  // the latest first
  {
    absl::MutexLock lock(&parts.registry.mutex());
    const auto consider = [&](int64_t id, const JobRow& row) {
      if (id < below && (request.name().empty() || row.name == request.name())) ids.insert(id);
    };
    for (const auto& [id, job] : parts.registry.loaded()) {
      if (!request.live_only() || job->live()) consider(id, job->row());
    }
    if (!request.live_only()) {
      for (const auto& [id, stored] : parts.registry.stored()) consider(id, stored.row);
    }
  }
  v1::ListJobsReply reply;
  size_t bytes = 0;
  for (const int64_t id : ids) {
    absl::StatusOr<v1::Job> job = DescribeForList(parts, id);
    if (absl::IsNotFound(job.status())) continue;  // pruned a moment ago
    if (!job.ok()) return job.status();
    if (!queries::IsWanted(*job, request)) continue;
    queries::MakeFit(&*job);
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

}  // namespace seqpoint::service
