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

namespace seqpoint::service {
namespace {

constexpr size_t kListBytes = 2 << 20;  // of a page: gRPC clients take 4 MiB where nobody says more

}  // namespace

v1::Job JobDescriptions::DescribeNow(jobs::Job& job, Detail detail) {
  v1::Job description = job.Describe(detail != Detail::kList, detail == Detail::kHistogram);
  // An error of the store is one of every live job.
  if (job.live() && !committer_.error().empty()) description.set_error(committer_.error());
  // It is past, and iterations are missing: something holds the run up, and until when is not
  // known.
  if (description.expected_end().high_ns() < clock_.WallNs()) description.clear_expected_end();
  return description;
}

absl::StatusOr<v1::Job> JobDescriptions::Describe(int64_t id, Detail detail,
                                                  const std::function<void(jobs::Job&)>& also) {
  std::shared_ptr<const jobs::Snapshot> due;
  {
    absl::MutexLock lock(&registry_.mutex());
    SEQPOINT_ASSIGN_OR_RETURN(const auto job, registry_.Find(id));
    due = job->TakeDueSummary();
    if (due == nullptr) {
      if (also) also(*job);
      return DescribeNow(*job, detail);
    }
  }
  const jobs::Summary summary = due->Summarise();
  absl::MutexLock lock(&registry_.mutex());
  const auto job = registry_.Find(id);  // it may have left memory, or the store
  if (!job.ok()) return job.status();
  (*job)->SetSummary(summary);
  if (also) also(**job);
  return DescribeNow(**job, detail);
}

absl::StatusOr<v1::Job> JobDescriptions::DescribeForList(int64_t id) {
  std::optional<JobRow> stored;
  {
    absl::MutexLock lock(&registry_.mutex());
    const auto it = registry_.stored().find(id);
    if (it != registry_.stored().end()) stored = it->second.row;
  }
  if (!stored) return Describe(id, Detail::kList);
  SEQPOINT_ASSIGN_OR_RETURN(const auto summary, store_.LoadPart(id, jobs::kSummaryPart));
  v1::Job job;
  const bool current = summary && summary->version == jobs::kJobStateVersion;
  if (current && job.ParseFromString(summary->bytes)) return job;
  const auto read = ReadStoredJob(store_, *stored, registry_.job_options());  // of another version
  if (!read.ok()) return read.status();
  absl::MutexLock lock(&registry_.mutex());
  if (registry_.RowOf(id) == nullptr) return absl::NotFoundError("it was removed meanwhile");
  return DescribeNow(**read, Detail::kList);
}

absl::StatusOr<v1::ListJobsReply> JobDescriptions::List(const v1::ListJobsRequest& request) {
  int64_t below = INT64_MAX;
  if (!request.page_token().empty() && !absl::SimpleAtoi(request.page_token(), &below)) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token: \"", request.page_token(), "\" is not one of ours"));
  }
  std::set<int64_t, std::greater<>> ids;  // the latest first
  {
    absl::MutexLock lock(&registry_.mutex());
    const auto consider = [&](int64_t id, const JobRow& row) {
      if (id < below && (request.name().empty() || row.name == request.name())) ids.insert(id);
    };
    for (const auto& [id, job] : registry_.loaded()) {
      if (!request.live_only() || job->live()) consider(id, job->row());
    }
    if (!request.live_only()) {
      for (const auto& [id, stored] : registry_.stored()) consider(id, stored.row);
    }
  }
  v1::ListJobsReply reply;
  size_t bytes = 0;
  for (const int64_t id : ids) {
    absl::StatusOr<v1::Job> job = DescribeForList(id);
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
