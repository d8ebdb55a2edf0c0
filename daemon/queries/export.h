// Files for other tools, made from what the store holds: Chrome trace events in JSON of the traced
// iterations or the imported traces (Perfetto, HTA and TensorBoard open it, and of one rank it can
// be imported again: docs/formats/traces.md), and a CSV with one row per iteration. Where ranks
// traced the same iteration, arrows join their collectives.
//
// Threading: any thread; reads the store only. Memory: one window or imported trace at a time, and
// the windows of all ranks at one iteration.
#ifndef DAEMON_QUERIES_EXPORT_H_
#define DAEMON_QUERIES_EXPORT_H_

#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/store/store.h"

namespace seqpoint::queries {

// False: the receiver is gone, stop.
using WriteFunction = absl::FunctionRef<bool(std::string_view)>;

// `missing`: traces that should be there and are not, for people; the file says it.
// FailedPrecondition while no iteration was traced; Cancelled when the receiver went away.
absl::Status ExportChrome(Store& store, const jobs::SnapshotData& job, std::string_view missing,
                          WriteFunction write);
absl::Status ExportCsv(Store& store, const jobs::SnapshotData& job, WriteFunction write);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_EXPORT_H_
