// A recorded trace from a file, for tests and tools: the daemon gets the bytes from the client.
//
// Threading: free functions. Ownership: values only.
#ifndef DAEMON_TRACES_READ_FILE_H_
#define DAEMON_TRACES_READ_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/trace/trace.h"

namespace seqpoint::traces {

// NotFound when the file cannot be read; else as TraceReader.
absl::StatusOr<trace::Trace> ReadTraceFile(const std::string& path);

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_READ_FILE_H_
