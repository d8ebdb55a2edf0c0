// Answers about a log that another tool wrote, in the words of the API.
// Threading: free functions without state; may take a second for a million iterations.
#ifndef DAEMON_QUERIES_LOG_ANALYSIS_H_
#define DAEMON_QUERIES_LOG_ANALYSIS_H_

#include "daemon/seqpoint/analysis.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

RunLog ReadLog(const v1::IterationLog& log);

// The log's columns fit together, confidence is set. InvalidArgument for a horizon whose lengths
// have another number of dimensions.
absl::StatusOr<v1::AnalyzeReply> AnalyzeLogs(const v1::AnalyzeRequest& request);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_LOG_ANALYSIS_H_
