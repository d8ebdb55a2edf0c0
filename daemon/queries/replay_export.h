// The traces of a job and below them their replays, as Chrome trace events, for looking at.
//
// Threading: free functions; the store may be used by others meanwhile. Memory: one trace at a
// time.
#ifndef DAEMON_QUERIES_REPLAY_EXPORT_H_
#define DAEMON_QUERIES_REPLAY_EXPORT_H_

#include "absl/status/status.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/recorded_run.h"
#include "daemon/store/store.h"
#include "daemon/traces/chrome_writer.h"

namespace seqpoint::queries {

// Cancelled when the receiver went away; Unavailable when a trace was removed meanwhile.
absl::Status ExportReplay(const jobs::SnapshotData& job, const RecordedRun& run, Store& store,
                          traces::WriteFunction write);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_REPLAY_EXPORT_H_
