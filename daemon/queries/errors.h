// Why a question about a job has no answer. All are FailedPrecondition and name the job.
//
// Threading: pure functions.
#ifndef DAEMON_QUERIES_ERRORS_H_
#define DAEMON_QUERIES_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/jobs/snapshot.h"

namespace seqpoint::queries {

// `job "NAME": `, and the parts.
template <typename... Parts>
absl::Status NoAnswer(const jobs::SnapshotData& job, const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat("job \"", job.name, "\": ", parts...));
}

absl::Status NoIteration(const jobs::SnapshotData& job);
// OK when something but time is measured.
absl::Status CheckMeasurable(const jobs::SnapshotData& job);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_ERRORS_H_
