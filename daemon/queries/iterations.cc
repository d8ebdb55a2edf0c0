#include "daemon/queries/iterations.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/imported_run.h"

namespace seqpoint::queries {
absl::StatusOr<std::map<int32_t, int64_t>> CountIterations(const jobs::SnapshotData& job,
                                                           Store& store) {
  if (job.refused) return store.CountIterations(job.job_id);
  return job.iterations_per_rank;
}

absl::StatusOr<v1::ListIterationsReply> ListIterations(const jobs::SnapshotData& job,
                                                       const v1::ListIterationsRequest& request,
                                                       Store& store) {
  int64_t first = 0;
  if (!request.page_token().empty() && !absl::SimpleAtoi(request.page_token(), &first)) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token: \"", request.page_token(), "\" is not one of ours"));
  }
  IterationRange range;
  if (request.has_part()) {
    SEQPOINT_ASSIGN_OR_RETURN(range, RangeOf(request.part(), job));
    first = std::max(first, range.first);
  }
  SEQPOINT_ASSIGN_OR_RETURN(const auto per_rank, CountIterations(job, store));
  int32_t rank = request.rank();
  if (!request.has_rank() && !per_rank.empty()) rank = per_rank.begin()->first;
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto rows,
      store.ReadIterations(job.job_id, rank, first, request.page_size(), request.measured_only()));
  v1::ListIterationsReply reply;
  if (const auto total = per_rank.find(rank); total != per_rank.end()) {
    reply.set_total(total->second);
  }
  for (const IterationRow& row : rows) {
    if (row.number > range.last) break;
    v1::Iteration& to = *reply.add_iterations();
    to.set_number(row.number);
    to.set_rank(row.rank);
    to.set_incarnation(row.incarnation);
    for (const int64_t length : job.units.Of(row.length, row.length_count)) to.add_lengths(length);
    to.set_start_ns(row.start_ns);
    if (row.duration_ns > 0) to.set_duration_ns(row.duration_ns);
    to.set_rest_ns(row.rest_ns);
    to.set_boundary_ns(row.boundary_ns);
    to.set_level(static_cast<v1::Level>(row.level));
    to.set_distorted((row.flags & kIterationDistorted) != 0);
    to.set_redone((row.flags & kIterationRedone) != 0);
    to.set_concurrent((row.flags & kIterationConcurrent) != 0);
    to.set_first_occurrence((row.flags & kIterationFirst) != 0);
    to.set_config(job.metrics.NameOf(row.config_id));
    to.set_phase(jobs::PhaseName(row.phase));
  }
  const bool full = !rows.empty() && static_cast<int>(rows.size()) >= request.page_size();
  if (full && rows.back().number < range.last) {
    reply.set_next_page_token(absl::StrCat(rows.back().number + 1));
  }
  *reply.mutable_losses() = job.losses;
  return reply;
}

}  // namespace seqpoint::queries
