#include "daemon/queries/errors.h"

#include "absl/strings/str_cat.h"

namespace seqpoint::queries {

absl::Status CheckMeasurable(const jobs::SnapshotData& job) {
  if (!job.measurements.empty()) return absl::OkStatus();
  if (!job.imported && !job.measurable) {
    return NoAnswer(job, "its processes have no CUPTI, so nothing is measured but time; `seqpoint ",
                    "jobs ", job.name, "` says why");
  }
  if (!job.imported) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", job.name,
                   "\" was made of another tool's log, which has times alone; `seqpoint run` "
                   "measures counters and kernels"));
}

absl::Status NoIteration(const jobs::SnapshotData& job) {
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", job.name, "\"",
                   job.ended_without.empty()
                       ? ": no iteration was found yet; ask again when `seqpoint jobs` shows some"
                       : absl::StrCat(" ended without iterations: ", job.ended_without)));
}

}  // namespace seqpoint::queries
