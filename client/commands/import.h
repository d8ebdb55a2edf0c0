// `seqpoint import`: a log of iterations, written by any tool, or traces become a job that has
// ended.
// Threading: one call per process. Ownership: keeps nothing.
#ifndef CLIENT_COMMANDS_IMPORT_H_
#define CLIENT_COMMANDS_IMPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/files/log_file.h"

namespace seqpoint::client {

struct ImportOptions {
  std::vector<std::string> files;  // a log; or traces, each of one rank
  LogOptions log;
  std::string marker;  // RE2, of traces; empty: the daemon finds where iterations begin
  std::string name;    // of the job
  std::string run_id;  // empty: the daemon makes one
};

// "steps" for "logs/steps.csv.gz", "resnet" for "resnet.pt.trace.json".
std::string JobNameOfFile(const std::string& path);

// The log, with its unit; `notes` are lines for standard error: rows left out, and the like.
// Errors: as ReadLogFile; InvalidArgument where the unit is not known.
absl::StatusOr<LogFile> ReadLogToImport(const ImportOptions& options, std::string* notes);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_IMPORT_H_
