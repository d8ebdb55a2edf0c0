// `seqpoint analyze`: what a log of iterations, written by any tool, says about its lengths.
// Threading: one call per process. Ownership: keeps nothing.
#ifndef CLIENT_COMMANDS_ANALYZE_H_
#define CLIENT_COMMANDS_ANALYZE_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/connection.h"
#include "client/files/log_file.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

struct AnalyzeOptions {
  LogOptions log;
  std::string against;  // another log with the same columns; empty: none
  int points = 0;
  double target_error = 0;
  double confidence = 0;
  v1::Horizon horizon;    // its lengths are those of the file
  bool playlist = false;  // ask for the playlist, too; the file's times need a unit
};

struct Analysis {
  v1::AnalyzeReply reply;  // durations in ns where the file names their unit
  LogFile log;             // the file's own words; without its rows
  std::string notes;       // lines for standard error: rows left out, and the like
};

// Errors: as ReadLogFile, Connection and the daemon give them.
absl::StatusOr<Analysis> Analyze(Connection* connection, const AnalyzeOptions& options);

std::string AnalysisText(const Analysis& analysis, const AnalyzeOptions& options);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_ANALYZE_H_
