// An imported run becomes a job of the store.
//
// Threading: free functions; what they make belongs to the caller. Millions of iterations take
// seconds: call them without the registry's lock.
#ifndef DAEMON_QUERIES_STORE_IMPORT_H_
#define DAEMON_QUERIES_STORE_IMPORT_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/jobs/imported_run.h"
#include "daemon/jobs/job.h"
#include "daemon/store/store.h"
#include "daemon/traces/stored_trace.h"

namespace seqpoint::queries {

// Makes the job of `row` (id, name, run id) and writes it to the store, piece by piece, the job
// itself last: until then nobody sees it, and what an error or a kill leaves is doomed. While this
// goes on, the store's Prune must keep the job. Errors: as Store::Write.
absl::StatusOr<std::unique_ptr<jobs::Job>> StoreImport(
    Store& store, JobRow row, const jobs::ImportedRun& run, const jobs::JobOptions& options,
    const std::vector<traces::RecordedTrace>& traces = {});

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_STORE_IMPORT_H_
