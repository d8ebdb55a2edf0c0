// A log that another tool wrote becomes a run: it is over, has all of its iterations, their times
// and lengths, and a horizon that is the run itself. Nothing of it was measured.
//
// Threading: pure functions; a second for millions of iterations.
#ifndef DAEMON_QUERIES_LOG_IMPORT_H_
#define DAEMON_QUERIES_LOG_IMPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/jobs/imported_run.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// Start times are laid end to end. The log's columns agree in size and hold what CheckLog allows.
// InvalidArgument for a duration or a run longer than figures can hold: the unit may be wrong.
absl::StatusOr<jobs::ImportedRun> ReadImport(const v1::ImportJobRequest& request, int64_t now_ns);

// Foreign text on one line, cut where it is very long.
std::string OneLine(std::string text);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_LOG_IMPORT_H_
