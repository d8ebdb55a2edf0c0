// Traces that a profiler recorded become the run of an imported job: iterations with their times
// and lengths, the kernels of each, and the traces themselves for the store.
//
// Threading: free functions; what they make belongs to the caller. Seconds for large traces: call
// them without the daemon's lock.
#ifndef DAEMON_QUERIES_TRACE_IMPORT_H_
#define DAEMON_QUERIES_TRACE_IMPORT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/jobs/imported_run.h"
#include "daemon/store/store.h"
#include "daemon/trace/trace.h"
#include "daemon/traces/stored_trace.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

struct TraceFile {
  std::string name;
  trace::Trace trace;
};

struct TraceImport {
  jobs::ImportedRun run;
  std::vector<traces::RecordedTrace> traces;  // by rank, then time
  std::vector<v1::ImportedTrace> described;   // of files, likewise
};

// One file or more: of several ranks, or one after the other of one rank. A file with holes
// (trace::kNotRecorded) is as many traces as it has parts. Where no file says its
// rank, they are numbered as they come. `marker`: see iterations::FindIterations. InvalidArgument:
// two files of one rank overlap in time, iterations of different ranks have lengths of different
// kinds, or what FindIterations says.
absl::StatusOr<TraceImport> ReadTraces(std::vector<TraceFile> files, const std::string& marker,
                                       int64_t now_ns);

// The traces' rows in the store, in pieces: `write` takes one after the other.
absl::Status StoreTraces(Store& store, int64_t job_id,
                         const std::vector<traces::RecordedTrace>& traces);
// Pieces that StoreTraces wrote, as (rank, number of the piece).
bool IsRecordedTrace(int64_t number);
absl::StatusOr<traces::RecordedTrace> ReadRecordedTrace(Store& store, int64_t job_id, int32_t rank,
                                                        int64_t number);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_TRACE_IMPORT_H_
