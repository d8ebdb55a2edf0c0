// A recorded trace from a file, for tests and tools: the daemon gets the bytes from the client.
//
// Threading: free functions. Ownership: values only.
#ifndef TESTS_SUPPORT_TRACE_FILE_H_
#define TESTS_SUPPORT_TRACE_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/trace/trace.h"

namespace seqpoint {

// NotFound when the file cannot be read; else as TraceReader.
absl::StatusOr<trace::Trace> ReadTraceFile(const std::string& path);

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_TRACE_FILE_H_
