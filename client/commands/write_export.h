// A job as a file: what `seqpoint export` and `seqpoint replay --chrome` write.
// Threading: one thread.
#ifndef CLIENT_COMMANDS_WRITE_EXPORT_H_
#define CLIENT_COMMANDS_WRITE_EXPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// Writes the file, which appears when it is whole; "-" is standard output. Returns its bytes.
// Errors: of the file, or as the daemon gives them.
absl::StatusOr<int64_t> WriteExport(const Context& context, const std::string& job,
                                    v1::ExportRequest::Format format, const std::string& path);

// A line on standard error: the file and its size.
void SayWritten(const std::string& path, int64_t bytes);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_WRITE_EXPORT_H_
