// `seqpoint import` of recorded traces: files that other profilers wrote become a job that has
// ended. They are sent as they are, in pieces; the daemon reads them (docs/formats/traces.md).
// Threading: one call per process. Ownership: keeps nothing.
#ifndef CLIENT_COMMANDS_TRACE_IMPORT_H_
#define CLIENT_COMMANDS_TRACE_IMPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/commands/import.h"
#include "client/connection.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// Judged by the content. A binary file counts as a trace, too: the daemon says what it is. A pipe,
// which cannot be read twice, counts as a log. InvalidArgument: it cannot be read.
absl::StatusOr<bool> IsTrace(const std::string& path);

// A large one draws its progress on standard error, where that is a terminal. Errors: of a file, or
// as the daemon gives them; there is no job then.
absl::StatusOr<v1::ImportTraceReply> ImportTraces(Connection* connection,
                                                  const ImportOptions& options);

// The job, what was found in each file, and what to ask next. `width`: of the terminal; 0: none.
std::string TraceImportText(const v1::ImportTraceReply& reply, int width);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_TRACE_IMPORT_H_
