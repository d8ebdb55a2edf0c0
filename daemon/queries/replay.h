// Are the traces of a job understood: each traced iteration as it was measured, and as its replay
// takes. docs/using/whatif.md
//
// Threading: pure functions; seconds for large traces.
#ifndef DAEMON_QUERIES_REPLAY_H_
#define DAEMON_QUERIES_REPLAY_H_

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/recorded_run.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// Cancelled when `cancelled` says so.
absl::StatusOr<v1::ReplayReply> Replay(const jobs::SnapshotData& job, const RecordedRun& run,
                                       Cancelled cancelled);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_REPLAY_H_
