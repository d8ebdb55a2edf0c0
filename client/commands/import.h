// `seqpoint import`: a log of iterations, written by any tool, becomes a job that has ended.
// Threading: one call per process. Ownership: keeps nothing.
#ifndef CLIENT_COMMANDS_IMPORT_H_
#define CLIENT_COMMANDS_IMPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/connection.h"
#include "client/files/log_file.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

struct ImportOptions {
  LogOptions log;
  std::string name;    // empty: JobNameOfFile
  std::string run_id;  // empty: the daemon makes one
};

// "steps" for "logs/steps.csv.gz", "resnet" for "resnet.pt.trace.json".
std::string JobNameOfFile(const std::string& path);

// The log, with its unit; `notes` are lines for standard error: rows left out, and the like.
// Errors: as ReadLogFile; InvalidArgument where the unit is not known.
absl::StatusOr<LogFile> ReadLogToImport(const ImportOptions& options, std::string* notes);

// Errors: as the daemon gives them.
absl::StatusOr<v1::ImportJobReply> Import(Connection* connection, const ImportOptions& options,
                                          const LogFile& log);

// The job, and what to ask of it.
std::string ImportText(const v1::ImportJobReply& reply);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_IMPORT_H_
