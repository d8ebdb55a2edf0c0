// `seqpoint analyze`: what a log of iterations, written by any tool, says about its lengths.
// Threading: one call per process. Ownership: keeps nothing.
#ifndef CLIENT_COMMANDS_ANALYZE_H_
#define CLIENT_COMMANDS_ANALYZE_H_

#include <string>

#include "client/commands/horizon.h"
#include "client/commands/points.h"
#include "client/files/log_file.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

struct AnalyzeOptions {
  LogOptions log;
  std::string against;  // another log with the same columns; empty: none
  PointOptions points;
  HorizonOptions run;    // another run, whose cost is asked for
  v1::Horizon horizon;   // of that run; its lengths are those of the file
  std::string playlist;  // a file, or "-"; the file's times need a unit then
};

struct Analysis {
  v1::AnalyzeReply reply;  // durations in ns where the file names their unit
  LogFile log;             // the file's own words
};

std::string AnalysisText(const Analysis& analysis, const AnalyzeOptions& options);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_ANALYZE_H_
