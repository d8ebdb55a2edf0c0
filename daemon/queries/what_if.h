// The effect of changes on a run, from its recorded iterations. docs/using/whatif.md
//
//   changes (parsed) + snapshot + recorded run -> replays, unchanged and changed -> reply
//
// Threading: thread-safe, as snapshots are; seconds, and the memory of a changed copy of the
// traces.
#ifndef DAEMON_QUERIES_WHAT_IF_H_
#define DAEMON_QUERIES_WHAT_IF_H_

#include <vector>

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/recorded_run.h"
#include "daemon/queries/what_if_run.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// InvalidArgument: a change that is not understood, with its place.
absl::StatusOr<std::vector<NamedChange>> ParseChanges(const v1::WhatIfRequest& request);

// All changes together; for a list each preset on its own, the one that saves most first.
// InvalidArgument: a change that cannot be applied. FailedPrecondition: the replay of what was not
// changed is too far off. Cancelled when `cancelled` says so.
absl::StatusOr<v1::WhatIfReply> WhatIf(const jobs::Snapshot& snapshot, const RecordedRun& run,
                                       const std::vector<NamedChange>& changes,
                                       const v1::WhatIfRequest& request, Cancelled cancelled);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_WHAT_IF_H_
